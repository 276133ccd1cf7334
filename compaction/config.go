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

// Config has the triggers and the limits of compaction. In the zero Config compaction is off;
// [DefaultConfig] is a good start. A trigger that is 0 is off, and needs no other field.
type Config struct {
	// Enabled switches compaction on.
	Enabled bool

	// CompactionInterval is the number of invocations with raw events from which on these events
	// are summarised.
	CompactionInterval int

	// OverlapSize is how many whole invocations before a window the summarizer is shown
	// again, for context.
	OverlapSize int

	// TokenThreshold is the size of the prompt, in tokens, from which on the session is
	// compacted, also within an invocation. See [PromptTokens] for how the size is found.
	TokenThreshold int

	// EventRetentionSize is how many of the last raw events that say something TokenThreshold and
	// InvocationTokens leave, with those between them; 0 means [DefaultRetention].
	EventRetentionSize int

	// RetainInvocations is the number of newest invocations, of those with text, that CompactionInterval and TokenThreshold
	// leave raw; InvocationTokens does not. If they have more than 8,000
	// estimated tokens, or half of TokenThreshold if that is due, only the user's last message in them stays, and their last
	// events up to that size. 0 is ADK's behaviour.
	RetainInvocations int

	// InvocationTokens is how many estimated tokens the raw events of the running invocation
	// may take. If they take more, they are summarised while it runs, as soon as half as many
	// can be. It needs [Run.Invocation].
	InvocationTokens int

	// ClearAfter is how many estimated tokens clearing the results of old function calls must
	// save for them to be cleared, all at once and with no summarizer. The last three results
	// stay, and so do pinned events. See [ClearToolResults].
	ClearAfter int

	// PromptTemplate is the prompt for the summarizer, with [TranscriptPlaceholder] in place of the
	// transcript, and [WordCountPlaceholder] in place of the length in words; "" means [DefaultPromptTemplate],
	// which comes with [DefaultInstructions].
	PromptTemplate string

	// Summarizer writes the summaries; nil means [Extractive]. If it fails, declines, or gives an
	// answer that is refused, nothing is written until the prompt is a fifth larger than
	// TokenThreshold (than [DefaultTokenThreshold] if that is 0); from then on [Extractive] writes the
	// summary. If its second answer invents too, [Extractive] writes the summary at once. A call may
	// take five minutes, and nine tenths of the time until the deadline of the compaction's context.
	Summarizer Summarizer

	// Redact, if not nil, replaces secrets by placeholders in requests to summarizers, so that summaries
	// have the placeholders. The log keeps the secrets.
	Redact *redact.Redactor

	limits   limits
	fallback Summarizer // [Extractive], but in tests
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

// DefaultConfig returns the configuration that ADK users know: every five invocations, with an
// overlap of two, by the [Extractive] summarizer. It leaves the newest invocation as it was said. It also bounds a single long invocation,
// clears old results of tools, and limits the prompt of any session.
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

// isNil reports whether v is nil, or something that is nil in an interface.
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

// withDefaults fills what is zero and has a default.
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
