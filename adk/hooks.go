package adk

import (
	"context"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Hooks are called when sessions are compacted, each if it is not nil. They may be called from several
// goroutines at once, while a run waits, and should return soon after ctx is done, which is when the
// configuration's Timeout is over, or the run's patience. A call that does not, or that panics, is a
// failure of compaction.
type Hooks struct {
	// Prepare is asked before events are summarised, and returns what must be kept of them, or "": it
	// stands in the summary word for word, as far as it takes no more than half of its room. An error is
	// a veto.
	Prepare func(ctx context.Context, p PrepareRequest) (keep string, err error)

	// BeforeSummarise is shown each summary before it is written. An error is a veto: see [ApproveRequest].
	BeforeSummarise func(ctx context.Context, d ApproveRequest) error

	// OnCompaction is called with each attempt to compact a session when it has ended, one that failed
	// too. It should return soon.
	OnCompaction func(compaction.Attempt[store.Key])
}

// ApproveRequest is what compaction is about to write, for [Hooks.BeforeSummarise] to see, who cannot
// change it: all in it is a copy. An error is a veto. Then nothing is written, the session
// stays as it is and is left alone until it has grown, as after a failure of the summarizer;
// the attempt's outcome is [compaction.Vetoed] and its error matches [compaction.ErrVetoed]
// and the one returned. It never reaches a run.
type ApproveRequest struct {
	AppName, UserID, SessionID string

	// Summaries will take the place of other events. There are several where branches of
	// a session are summarised at once, and none where the events say nothing.
	Summaries []SummaryDraft

	// Patches are all that will be logged, in this order, or nothing is.
	Patches []*patch.PatchEvent

	// Written are the figures. Took is not known yet.
	Written compaction.Written
}

// SummaryDraft is a summary that is about to be written, and what it will stand for: raw
// events, or earlier summaries where ApproveRequest.Written.Merged is set.
type SummaryDraft struct {
	Event *session.Event
	Of    []*session.Event
}

// PrepareRequest is what is about to be summarised, for [Hooks.Prepare] to see: raw events of one
// branch and isolation scope, as they were logged, or summaries if Merge is set. They are
// copies. A veto is as for [ApproveRequest].
type PrepareRequest struct {
	AppName, UserID, SessionID string

	Trigger compaction.Trigger
	Events  []*session.Event
	Merge   bool
}

// prepare is a compactor's Prepare by what a service's options say, or nil.
func prepare(ask func(context.Context, PrepareRequest) (string, error)) func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) {
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, p compaction.PrepareRequest[store.Key]) (string, error) {
		out := PrepareRequest{AppName: p.Key.App, UserID: p.Key.User, SessionID: p.Key.Session, Trigger: p.Trigger, Merge: p.Merge}
		for _, e := range p.Events {
			out.Events = append(out.Events, shownEvent(e))
		}
		return ask(ctx, out)
	}
}

// approve is a compactor's Approve by what a service's options say, or nil.
func approve(before func(context.Context, ApproveRequest) error) func(context.Context, compaction.ApproveRequest[store.Key]) error {
	if before == nil {
		return nil
	}
	return func(ctx context.Context, d compaction.ApproveRequest[store.Key]) error {
		out := ApproveRequest{
			AppName: d.Key.App, UserID: d.Key.User, SessionID: d.Key.Session,
			Patches: d.Patches, Written: d.Written,
		}
		for _, s := range d.Summaries {
			sum := SummaryDraft{Event: shownEvent(s.Event)}
			for _, e := range s.Of {
				sum.Of = append(sum.Of, shownEvent(e))
			}
			out.Summaries = append(out.Summaries, sum)
		}
		return before(ctx, out)
	}
}

// shownEvent is an event as far as ADK can read it.
func shownEvent(p *patch.Event) *session.Event {
	e, _ := SessionEvent(p)
	return e
}
