package compaction

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// Summarizer writes a short text for a part of a session. It is called from several goroutines at once. It should
// return soon after ctx is done: the compactor abandons a call that does not, and ignores its answer.
//
// A summarizer declines by returning a Response without text, and no error. [Compactor.MaybeCompact] describes which
// answers are refused.
type Summarizer interface {
	Summarize(ctx context.Context, req Request) (Response, error)
}

// SummarizerFunc is a function that is a [Summarizer].
type SummarizerFunc func(ctx context.Context, req Request) (Response, error)

// Summarize calls f.
func (f SummarizerFunc) Summarize(ctx context.Context, req Request) (Response, error) {
	return f(ctx, req)
}

// Request is the input of a [Summarizer], which may change it.
type Request struct {
	// Events are the events to summarise, in the order of the log: raw events of one branch, or, if Merge is set, summaries.
	Events []*patch.Event

	// Merge says that Events are summaries.
	Merge bool

	// If Merge is set, Raw are the raw events that the summaries in Events cover, so that a merge can summarise raw
	// events instead of summaries. Told are those of the summaries that [Extractive] did not write.
	Raw, Told []*patch.Event

	// Before is context: the visible summaries of the branch before Events, then the last raw events that these
	// summaries hide.
	Before []*patch.Event

	// Focus is what the summary should keep above all, or "". Prompt repeats it.
	Focus string

	// Instructions are the rules for the model, to be sent as its system instruction: [DefaultInstructions], or "" if
	// Config.PromptTemplate is set.
	Instructions string

	// Prompt is the message for a model: the focus, and the template with the transcript of Before
	// and Events in it.
	Prompt string

	// AimTokens is the length that an answer should have, not counting ids, dates, paths and the like; 0 means no aim.
	// The prompt states it in words if the template has [WordCountPlaceholder].
	AimTokens int

	// MaxTokens is the limit for an answer, as [patch.EstimateTextTokens] counts. A longer answer is refused.
	MaxTokens int

	// Invented is empty at first. If an answer was refused because it has identifiers that the summarizer was not
	// shown, the summarizer is called once more, with these identifiers here and at the end of Prompt.
	Invented []string
}

// Response is a summarizer's answer.
type Response struct {
	// Text is the summary. Invalid UTF-8 is repaired, and control characters are removed.
	Text string

	// Model is the name of the model, for the lineage.
	Model string

	// FinishReason is why the model stopped. An answer with a reason other than [FinishStop] or "" counts as incomplete
	// and is refused.
	FinishReason FinishReason

	// Usage is the token usage that the model reported, or zero.
	Usage Tokens
}

// FinishReason is why a model stopped, in the words of its API.
type FinishReason string

// FinishStop: the answer is complete.
const FinishStop FinishReason = "STOP"

// Tokens is the token usage of one call of a model.
type Tokens struct {
	Prompt int
	Answer int // including the model's thoughts
}

// Errors about summarizers. A *[SummarizerError] wraps one of these errors, or the summarizer's own error.
var (
	// ErrRefusedAnswer: the summarizer's answer cannot replace the events. The error's text says why.
	ErrRefusedAnswer = errors.New("answer refused")

	// ErrSummarizerPanic: the summarizer panicked.
	ErrSummarizerPanic = errors.New("summarizer panicked")

	// ErrPanic: something else panicked, such as a function of [Options], or compaction itself.
	ErrPanic = errors.New("compaction panicked")

	// ErrSummarizerBusy: too many abandoned calls of the summarizer have not returned yet.
	ErrSummarizerBusy = errors.New("summarizer does not return")
)

// panicError is a panic. It matches [ErrSummarizerPanic] or [ErrPanic].
type panicError struct {
	of    error
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", e.of, e.value) }

// Is reports whether target is the error that the panic matches.
func (e *panicError) Is(target error) bool { return target == e.of }

// SummarizerError: no summary was written, and the session is unchanged.
type SummarizerError struct {
	Trigger Trigger
	Start   int // of the window in the visible log
	Count   int
	Err     error
}

func (e *SummarizerError) Error() string {
	return fmt.Sprintf("summary of visible events %d to %d (%s): %v", e.Start, e.Start+e.Count-1, e.Trigger, e.Err)
}

// Unwrap returns the reason.
func (e *SummarizerError) Unwrap() error { return e.Err }
