package compaction

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// Summarizer turns a stretch of a session into a short text. It is called from several
// goroutines at once, and should return soon after ctx is done: a call that does not is
// left alone, and what it says then is not used.
//
// A Response without text, and no error, means that it declines. The compactor
// judges an answer before it uses it; see [Compactor.MaybeCompact].
type Summarizer interface {
	Summarize(ctx context.Context, req Request) (Response, error)
}

// SummarizerFunc is a function that is a [Summarizer].
type SummarizerFunc func(ctx context.Context, req Request) (Response, error)

// Summarize calls f.
func (f SummarizerFunc) Summarize(ctx context.Context, req Request) (Response, error) {
	return f(ctx, req)
}

// Request is what a [Summarizer] is asked for. It is the summarizer's own: changing it
// changes nothing else.
type Request struct {
	// Events are the events to summarise, in the order of the log: raw events of one branch, or, if Merge is set, summaries.
	Events []*patch.Event

	// Merge says that Events are summaries.
	Merge bool

	// If Merge is set, Raw are the raw events that the summaries in Events cover, and Told those of the summaries that
	// [Extractive] has not written. So a merge can summarise raw events instead of summaries.
	Raw, Told []*patch.Event

	// Before is context: the visible summaries of the branch before Events, then the last raw events that these hide.
	Before []*patch.Event

	// Focus is what the summary should keep above all, or "". The prompt says so.
	Focus string

	// Instructions are the rules for a model, for its system instruction: [DefaultInstructions], or "" with a
	// [Config.PromptTemplate] of your own, which says all.
	Instructions string

	// Prompt is the message for a model: the focus, and the template with the transcript of Before
	// and Events in it.
	Prompt string

	// AimTokens is how long an answer should be, not counting ids, dates, paths and the like; 0 means no aim. The prompt asks for
	// it where the template has [WordCountPlaceholder].
	AimTokens int

	// MaxTokens is how long an answer may be, as [patch.EstimateTextTokens] counts; a
	// longer one is refused.
	MaxTokens int

	// Invented is empty at first. If an answer was refused for identifiers that do not occur in what the summarizer was shown, it
	// is asked once more, with these identifiers here and at the end of Prompt.
	Invented []string
}

// Response is a summarizer's answer.
type Response struct {
	// Text is the summary. Invalid UTF-8 is repaired, and control characters are removed.
	Text string

	// Model is the name of the model, for the lineage.
	Model string

	// FinishReason is why the model stopped. An answer with a reason other than [FinishStop] or "" is incomplete, and refused.
	FinishReason FinishReason

	// Usage is what the model measured; zero if it did not.
	Usage Tokens
}

// FinishReason is why a model stopped, as its API says.
type FinishReason string

// FinishStop: the answer is complete.
const FinishStop FinishReason = "STOP"

// Tokens are what one call of a model took.
type Tokens struct {
	Prompt int
	Answer int // with what the model thought before it
}

// Errors about summarizers. A compactor's error about one matches one of them, or is
// the summarizer's own, in a *[SummarizerError].
var (
	// ErrRefusedAnswer: the answer cannot replace the events. The text says why.
	ErrRefusedAnswer = errors.New("answer refused")

	// ErrSummarizerPanic: the summarizer panicked.
	ErrSummarizerPanic = errors.New("summarizer panicked")

	// ErrPanic: something else panicked, such as a function of [Options], or compaction itself.
	ErrPanic = errors.New("compaction panicked")

	// ErrSummarizerBusy: too many calls have not returned after they were abandoned.
	ErrSummarizerBusy = errors.New("summarizer does not return")
)

// panicError is a panic. It matches [ErrSummarizerPanic] or [ErrPanic].
type panicError struct {
	of    error
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", e.of, e.value) }

// Is reports whether target is whose panic it is.
func (e *panicError) Is(target error) bool { return target == e.of }

// SummarizerError says that a summary was not made, and that the session is as it was.
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
