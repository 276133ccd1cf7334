package compaction

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

// Defaults of [Config].
const (
	DefaultInterval          = 5
	DefaultOverlap           = 2
	DefaultRetainInvocations = 1
	DefaultTokenThreshold    = 64_000
	DefaultInvocationTokens  = 14_000
	DefaultRetention         = 10
	DefaultClearAfter        = 20_000
)

// Config has the triggers and limits of compaction. In the zero Config, compaction is off. [DefaultConfig] returns a
// configuration for most sessions. The triggers are CompactionInterval, TokenThreshold, InvocationTokens and
// ClearAfter. A value of 0 switches a trigger off.
type Config struct {
	// Enabled switches compaction on.
	Enabled bool

	// CompactionInterval is a trigger. It fires when this many invocations have raw events, which are events that are
	// not summaries. The running invocation and the invocations that RetainInvocations keeps do not count.
	CompactionInterval int

	// OverlapSize is the number of whole invocations before a window that the summarizer sees again for context.
	OverlapSize int

	// TokenThreshold is a trigger. It fires when the prompt has this many tokens and at least a sixteenth as many can
	// be summarised. It can fire during an invocation. [PromptTokens] measures the prompt.
	TokenThreshold int

	// EventRetentionSize is the number of newest raw events with content that TokenThreshold and InvocationTokens leave
	// visible. Events without content between these events also stay. 0 means [DefaultRetention].
	EventRetentionSize int

	// RetainInvocations is the number of newest invocations with content that CompactionInterval and TokenThreshold do
	// not summarise. InvocationTokens ignores RetainInvocations.
	//
	// Together, these invocations may have at most 8,000 estimated tokens. For TokenThreshold, the limit is half of
	// TokenThreshold if that is less. Above the limit, only two parts of these invocations stay: the user's last
	// message, and the last events up to the limit. Then one invocation with raw events is enough to fire
	// CompactionInterval. With 0, no invocation is kept, as in ADK.
	RetainInvocations int

	// InvocationTokens is a trigger. It fires during an invocation when the raw events of the running invocation have
	// this many estimated tokens, and at least half as many can be summarised. It needs [Run.Invocation].
	InvocationTokens int

	// ClearAfter is a trigger. It fires when clearing old tool results would save this many estimated tokens. Then all
	// old results are cleared in one pass, without a summarizer. The last three results and pinned events are not
	// cleared. See [ClearToolResults].
	ClearAfter int

	// PromptTemplate is the template of the summarizer's prompt. It must contain [TranscriptPlaceholder] for the
	// transcript, and may contain [WordCountPlaceholder] for the length in words. "" means [DefaultPromptTemplate] with
	// [DefaultInstructions].
	PromptTemplate string

	// Summarizer writes the summaries. nil means [Extractive].
	//
	// If the summarizer fails or declines, or its answer is refused, the pass writes nothing, and the summarizer is
	// called again later. Once the prompt is a fifth over TokenThreshold, [Extractive] writes the summary instead. If
	// TokenThreshold is 0, the limit is a fifth above [DefaultTokenThreshold]. If two answers in a row invent
	// identifiers, Extractive writes the summary at once. [Compactor.MaybeCompact] has the details.
	//
	// A call is abandoned after five minutes, or after nine tenths of the time until the context's deadline if that is
	// less.
	Summarizer Summarizer

	// Redact, if not nil, replaces secrets with placeholders in requests to summarizers. Summaries then contain the
	// placeholders. The log keeps the secrets.
	Redact *redact.Redactor

	limits   limits
	fallback Summarizer // [Extractive], except in tests
}

// limits are the fixed limits of compaction. Tests use smaller limits.
type limits struct {
	InputTokens    int // maximum tokens of events that one summary covers; exceeded only if the events cannot be divided
	Summaries      int // number of adjacent summaries of one level that are merged
	WaitingCalls   int // number of the newest calls in earlier invocations that stay while they wait for the user
	OpenCalls      int // number of the newest other open calls in earlier invocations that stay
	ToolResults    int // number of the newest tool results that are never cleared
	SmallCost      int // cost in uncached input tokens that any pass may have
	SummaryTokens  int // maximum estimated tokens of a summary
	RetainedTokens int // maximum estimated tokens of the newest invocations that stay unsummarised

	CallTimeout time.Duration // timeout of a call of a summarizer or a hook
}

var defaultLimits = limits{InputTokens: 50_000, Summaries: 4, OpenCalls: 8, WaitingCalls: 8, ToolResults: 3, SmallCost: 1_000, SummaryTokens: 2_500, RetainedTokens: 8_000, CallTimeout: 5 * time.Minute}

// DefaultConfig returns ADK's usual configuration with additional limits. It summarises every five invocations with an
// overlap of two, using [Extractive], and does not summarise the newest invocation. It also limits long invocations and
// the prompt, and clears old tool results.
func DefaultConfig() Config {
	return Config{
		Enabled: true, CompactionInterval: DefaultInterval, OverlapSize: DefaultOverlap, RetainInvocations: DefaultRetainInvocations,
		TokenThreshold: DefaultTokenThreshold, InvocationTokens: DefaultInvocationTokens, ClearAfter: DefaultClearAfter,
		PromptTemplate: DefaultPromptTemplate,
	}
}

// Validate checks the configuration. The error matches [patch.ErrInvalid] and names the invalid field.
func (c Config) Validate() error {
	invalid := func(field, problem string, args ...any) error {
		return &patch.FieldError{Field: "Config." + field, Problem: fmt.Sprintf(problem, args...)}
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"CompactionInterval", c.CompactionInterval}, {"OverlapSize", c.OverlapSize}, {"TokenThreshold", c.TokenThreshold},
		{"EventRetentionSize", c.EventRetentionSize}, {"RetainInvocations", c.RetainInvocations}, {"InvocationTokens", c.InvocationTokens}, {"ClearAfter", c.ClearAfter},
	} {
		if f.value < 0 {
			return invalid(f.name, "%d is below 0", f.value)
		}
	}
	switch {
	case c.Summarizer != nil && isNil(c.Summarizer):
		return invalid("Summarizer", "it is a nil %T; leave the field out for the default", c.Summarizer)
	case c.PromptTemplate != "" && !strings.Contains(c.PromptTemplate, TranscriptPlaceholder):
		return invalid("PromptTemplate", "it has no %s, so the summarizer would get no events", TranscriptPlaceholder)
	case !c.Enabled && (c.CompactionInterval > 0 || c.TokenThreshold > 0 || c.InvocationTokens > 0 || c.ClearAfter > 0):
		return invalid("Enabled", "it is false, but a trigger is set; set Enabled to true, or set no trigger")
	case c.Enabled && c.CompactionInterval == 0 && c.TokenThreshold == 0 && c.InvocationTokens == 0 && c.ClearAfter == 0:
		return invalid("CompactionInterval", "no trigger is set, so nothing would be compacted; set CompactionInterval, TokenThreshold, InvocationTokens or ClearAfter, or set Enabled to false")
	}
	return nil
}

// isNil reports whether v is nil or contains a nil pointer, function or map.
func isNil(v any) bool {
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map:
		return rv.IsNil()
	}
	return false
}

// withDefaults replaces zero values with their defaults.
func (c Config) withDefaults() Config {
	c.EventRetentionSize = cmp.Or(c.EventRetentionSize, DefaultRetention)
	c.PromptTemplate = cmp.Or(c.PromptTemplate, DefaultPromptTemplate)
	if c.Summarizer == nil {
		c.Summarizer = Extractive{}
	}
	if c.fallback == nil {
		c.fallback = Extractive{}
	}
	c.limits = cmp.Or(c.limits, defaultLimits)
	return c
}
