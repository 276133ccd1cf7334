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

// Config has the triggers and the limits of compaction. In the zero Config compaction is off; [DefaultConfig] is a good
// start. The triggers are CompactionInterval, TokenThreshold, InvocationTokens and ClearAfter; 0 switches a trigger
// off.
type Config struct {
	// Enabled switches compaction on.
	Enabled bool

	// CompactionInterval is a trigger: when this many invocations have raw events, that is, events not yet summarised,
	// these are summarised. The running invocation and those that RetainInvocations keeps do not count.
	CompactionInterval int

	// OverlapSize is how many whole invocations before a window are shown to the summarizer again, for context.
	OverlapSize int

	// TokenThreshold is a trigger: when the prompt has this many tokens, and at least a sixteenth as many can be
	// summarised, the session is compacted, also during an invocation. [PromptTokens] measures the prompt.
	TokenThreshold int

	// EventRetentionSize is how many of the last raw events with content stay when TokenThreshold or InvocationTokens
	// compacts; events between them stay too. 0 means [DefaultRetention].
	EventRetentionSize int

	// RetainInvocations is how many of the newest invocations with text CompactionInterval and TokenThreshold leave
	// raw. InvocationTokens ignores it. The limit for these invocations is 8,000 estimated tokens, or half of
	// TokenThreshold if TokenThreshold is due and that is less. Above the limit, only the user's last message in them
	// stays, and their last events up to the limit; then CompactionInterval counts as 1. 0 is ADK's behaviour.
	RetainInvocations int

	// InvocationTokens is a trigger: how many estimated tokens the raw events of the running invocation may take. When
	// they take that many, the older ones are summarised during the run, as soon as these have at least half as many
	// tokens. It needs [Run.Invocation].
	InvocationTokens int

	// ClearAfter is a trigger: when clearing old tool results would save this many estimated tokens, all of them are
	// cleared at once, without a summarizer. The last three results and pinned events stay. See [ClearToolResults].
	ClearAfter int

	// PromptTemplate is the prompt for the summarizer, with [TranscriptPlaceholder] for the transcript and
	// [WordCountPlaceholder] for the length in words. "" means [DefaultPromptTemplate], with [DefaultInstructions].
	PromptTemplate string

	// Summarizer writes the summaries; nil means [Extractive]. If it fails, declines, or its answer is refused, the
	// session stays as it is until the prompt is a fifth larger than TokenThreshold (or than [DefaultTokenThreshold] if
	// TokenThreshold is 0); then [Extractive] writes the summary. If two answers invent identifiers, Extractive writes
	// the summary at once. A call may take at most five minutes, and at most nine tenths of the time until the
	// context's deadline.
	Summarizer Summarizer

	// Redact, if not nil, replaces secrets by placeholders in requests to summarizers, so summaries contain the
	// placeholders. The log keeps the secrets.
	Redact *redact.Redactor

	limits   limits
	fallback Summarizer // [Extractive], except in tests
}

// limits are the constants of compaction. Tests make them smaller.
type limits struct {
	Input        int // tokens of events that one summary covers, unless they cannot be divided
	Summaries    int // adjacent summaries of one level that are merged
	OpenCalls    int // open calls of completed invocations that stay
	WaitingCalls int // calls of completed invocations that wait for the user's side and stay
	Results      int // newest tool results that are never cleared
	Trifle       int // uncached input tokens that a pass may always cost
	Summary      int // estimated tokens of a summary
	Turn         int // estimated tokens of the newest invocations that stay raw

	Call time.Duration // of a summarizer or hook
}

var defaultLimits = limits{Input: 50_000, Summaries: 4, OpenCalls: 8, WaitingCalls: 8, Results: 3, Trifle: 1_000, Summary: 2_500, Turn: 8_000, Call: 5 * time.Minute}

// DefaultConfig returns the configuration that ADK users know: every five invocations, with an overlap of two, by the
// [Extractive] summarizer. It keeps the newest invocation raw. It also limits a single long invocation, clears old tool
// results, and limits the prompt of any session.
func DefaultConfig() Config {
	return Config{
		Enabled: true, CompactionInterval: DefaultInterval, OverlapSize: DefaultOverlap, RetainInvocations: DefaultRetainInvocations,
		TokenThreshold: DefaultTokenThreshold, InvocationTokens: DefaultInvocationTokens, ClearAfter: DefaultClearAfter,
		PromptTemplate: DefaultPromptTemplate,
	}
}

// Validate reports whether the configuration makes sense. The error matches
// [patch.ErrInvalid] and names the field at fault.
func (c Config) Validate() error {
	bad := func(field, problem string, args ...any) error {
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
			return bad(f.name, "%d is below 0", f.value)
		}
	}
	switch {
	case c.Summarizer != nil && isNil(c.Summarizer):
		return bad("Summarizer", "it is a nil %T; leave it out to have the default", c.Summarizer)
	case c.PromptTemplate != "" && !strings.Contains(c.PromptTemplate, TranscriptPlaceholder):
		return bad("PromptTemplate", "it has no %s, so the summarizer would see nothing", TranscriptPlaceholder)
	case !c.Enabled && (c.CompactionInterval > 0 || c.TokenThreshold > 0 || c.InvocationTokens > 0 || c.ClearAfter > 0):
		return bad("Enabled", "it is false, and a trigger is set; set it to true, or leave the triggers out")
	case c.Enabled && c.CompactionInterval == 0 && c.TokenThreshold == 0 && c.InvocationTokens == 0 && c.ClearAfter == 0:
		return bad("CompactionInterval", "neither it nor TokenThreshold, InvocationTokens or ClearAfter is set, so nothing would ever be compacted; switch Enabled off if that is meant")
	}
	return nil
}

// isNil reports whether v is nil, or an interface that holds a nil value.
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

// withDefaults replaces zero values by their defaults.
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
