package compaction

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// Summarizer writes a short text that replaces a part of a session. It must be safe for concurrent use. It should
// return soon after ctx is done. The compactor abandons a call that does not return, and ignores its answer.
//
// To decline, a summarizer returns a Response without text and a nil error. [Compactor.MaybeCompact] describes which
// answers are refused.
type Summarizer interface {
	Summarize(ctx context.Context, req Request) (Response, error)
}

// SummarizerFunc is a function that implements [Summarizer].
type SummarizerFunc func(ctx context.Context, req Request) (Response, error)

// Summarize calls f.
func (f SummarizerFunc) Summarize(ctx context.Context, req Request) (Response, error) {
	return f(ctx, req)
}

// Request is the input of a [Summarizer]. The summarizer may change it.
type Request struct {
	// Events are the events to summarise, in log order. They are raw events of one branch, or summaries if Merge is
	// set.
	Events []*patch.Event

	// Merge reports whether Events are summaries.
	Merge bool

	// Raw and OtherSummaries are set only if Merge is set. Raw are the raw events that the summaries in Events cover,
	// so a merge can summarise raw events instead of summaries. OtherSummaries are the summaries in Events that
	// [Extractive] did not write, and the summaries that do not name the records that they cover.
	Raw, OtherSummaries []*patch.Event

	// Before is context: the branch's visible summaries before Events, followed by the last raw events that these
	// summaries hide.
	Before []*patch.Event

	// Focus describes what the summary should keep above all, or is "". Prompt contains it too.
	Focus string

	// Instructions are the rules for the model, to be sent as its system instruction. They are [DefaultInstructions],
	// or "" if Config.PromptTemplate is another template.
	Instructions string

	// Prompt is the message for a model. It contains the focus and the template, with the transcript of Before and
	// Events.
	Prompt string

	// AimTokens is the desired length of an answer, not counting ids, dates and paths. 0 means any length. If the
	// template has [WordCountPlaceholder], the prompt states a length in words.
	AimTokens int

	// MaxTokens is the maximum length of an answer, as counted by [patch.EstimateTextTokens]. A longer answer is
	// refused.
	MaxTokens int

	// Invented is empty at first. If an answer is refused because it contains identifiers that the summarizer was not
	// shown, the summarizer is called once more. Then Invented has these identifiers, and Prompt ends with them.
	Invented []string
}

// Response is a summarizer's answer.
type Response struct {
	// Text is the summary. The compactor repairs invalid UTF-8 and removes control characters.
	Text string

	// Model is the model's name, which the lineage records.
	Model string

	// FinishReason is the reason why the model stopped. Unless it is [FinishStop] or "", the answer counts as
	// incomplete and is refused.
	FinishReason FinishReason

	// Usage is the token usage that the model reported, or zero.
	Usage Tokens
}

// FinishReason is the reason why a model stopped, as named by the model's API.
type FinishReason string

// FinishStop means that the answer is complete.
const FinishStop FinishReason = "STOP"

// Tokens is the token usage of one model call.
type Tokens struct {
	Prompt int
	Answer int // includes the model's thoughts
}

// Errors of summarizers. A *[SummarizerError] wraps one of these errors, or an error that the summarizer returned.
var (
	// ErrRefusedAnswer means that the summarizer's answer cannot replace the events. The error text gives the reason.
	ErrRefusedAnswer = errors.New("answer refused")

	// ErrSummarizerPanic means that the summarizer panicked.
	ErrSummarizerPanic = errors.New("summarizer panicked")

	// ErrPanic means that other code than a summarizer panicked, such as a function in [Options] or the compactor
	// itself.
	ErrPanic = errors.New("compaction panicked")

	// ErrSummarizerBusy means that the compactor gave up on several calls of the summarizer that are still running.
	ErrSummarizerBusy = errors.New("summarizer does not return")
)

// panicError is a recovered panic. It matches [ErrSummarizerPanic] or [ErrPanic].
type panicError struct {
	kind  error
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", e.kind, e.value) }

// Is reports whether target is e.kind, which is [ErrSummarizerPanic] or [ErrPanic].
func (e *panicError) Is(target error) bool { return target == e.kind }

// SummarizerError means that no summary was written and the session is unchanged.
type SummarizerError struct {
	Trigger Trigger
	Start   int // visible index of the window's first event
	Count   int
	Err     error
}

func (e *SummarizerError) Error() string {
	return fmt.Sprintf("summary of visible events %d to %d (%s): %v", e.Start, e.Start+e.Count-1, e.Trigger, e.Err)
}

// Unwrap returns e.Err.
func (e *SummarizerError) Unwrap() error { return e.Err }
