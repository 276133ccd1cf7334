package compaction

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// ErrVetoed means that [Options.Prepare] or [Options.Approve] returned an error.
var ErrVetoed = errors.New("vetoed")

// PrepareRequest describes a summary that is about to be written.
type PrepareRequest[K comparable] struct {
	Key     K
	View    fold.View // view that the pass was planned on
	Trigger Trigger

	// Events are the events that the summary will cover, in their logged form. They are raw events of one branch and
	// isolation scope, or summaries if Merge is set. The callee owns the slice.
	Events []*patch.Event
	Merge  bool
}

// prepare calls Options.Prepare for events. It returns the text that the summary must contain.
func (p *pass[K]) prepare(ctx context.Context, events []*patch.Event) (keep string, err error) {
	if p.c.opts.Prepare == nil {
		return "", nil
	}
	request := PrepareRequest[K]{p.key, p.planner.view, p.window.Trigger, slices.Clone(events), p.window.Merge}
	keep, err = await(ctx, p.c, &p.c.prepareCalls, ErrPanic, errors.New("it does not return"), func(ctx context.Context) (string, error) {
		keep, veto := p.c.opts.Prepare(ctx, request)
		return keep, wrapVeto(veto)
	})
	switch {
	case errors.Is(err, ErrVetoed):
		return "", err
	case err != nil:
		return "", fmt.Errorf("Options.Prepare: %w", err)
	}
	return strings.TrimSpace(summaries.Clean(keep)), nil
}

// ApproveRequest describes a pass that is about to be logged.
type ApproveRequest[K comparable] struct {
	Key K

	// View is the view that the pass was planned on. Events may have been appended to the log after this view.
	View fold.View

	// Summaries are the new summaries. The slice is empty if the pass clears tool results, or if the covered events
	// have no text.
	Summaries []SummaryDraft

	// Patches are the patches of the pass, in the order in which they are logged. Either all or none are logged.
	Patches []*patch.PatchEvent

	// Written describes the pass. Its Duration excludes the time for approval and logging.
	Written Written
}

// SummaryDraft is a summary that is about to be logged, with the events that it covers.
type SummaryDraft struct {
	Event  *patch.Event
	Events []*patch.Event // raw events in their logged form, or summaries if the pass merges summaries
}

// approve calls Options.Approve for the pass.
func (p *pass[K]) approve(ctx context.Context, summaries []*patch.Event, patches []*patch.PatchEvent) error {
	if p.c.opts.Approve == nil {
		return nil
	}
	d := ApproveRequest[K]{Key: p.key, View: p.planner.view, Patches: slices.Clone(patches), Written: p.written}
	for i, g := range p.window.Groups {
		d.Summaries = append(d.Summaries, SummaryDraft{Event: summaries[i], Events: p.loggedEvents(g)})
	}
	_, err := await(ctx, p.c, &p.c.approveCalls, ErrPanic, errors.New("it does not return"), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, wrapVeto(p.c.opts.Approve(ctx, d))
	})
	if err != nil && !errors.Is(err, ErrVetoed) {
		return fmt.Errorf("Options.Approve: %w", err)
	}
	return err
}

func wrapVeto(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrVetoed, err)
}

// maxAbandoned is the maximum number of calls of one function that the compactor has given up on and that are still
// running. When this number is reached, the function is not called again.
const maxAbandoned = 4

// abandonedCalls counts the calls of one function that the compactor has given up on and that are still running. The
// compactor's mutex guards it.
type abandonedCalls struct{ count int }

// await calls f, a function of the caller, in a goroutine. It waits for five minutes, or for nine tenths of the time
// until the deadline of ctx if that is less. The rest of the time is for the fallback. After the wait, await gives up
// on the call. If f panics, the error matches panicked. If too many such calls are still running, the error matches
// busy.
func await[K comparable, T any](ctx context.Context, c *Compactor[K], calls *abandonedCalls, panicked, busy error, f func(context.Context) (T, error)) (T, error) {
	var zero T
	c.mu.Lock()
	tooMany := calls.count >= maxAbandoned
	c.mu.Unlock()
	if tooMany {
		return zero, fmt.Errorf("%w: %d abandoned calls are still running", busy, maxAbandoned)
	}
	caller := ctx
	timeout, note := c.cfg.limits.CallTimeout, ""
	if deadline, ok := caller.Deadline(); ok && time.Until(deadline)*9/10 < timeout {
		timeout, note = time.Until(deadline)*9/10, " (the caller's deadline is near)"
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	type result struct {
		value T
		err   error
	}
	addTimeout := func(err error) error { // adds the timeout to the error of a call that failed because of the timeout
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && caller.Err() == nil {
			return fmt.Errorf("after %v%s: %w", timeout, note, err)
		}
		return err
	}
	out := make(chan result, 1)
	go func() {
		defer cancel()
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = &panicError{panicked, p, debug.Stack()}
			}
			out <- r
		}()
		r.value, r.err = f(ctx)
	}()
	select {
	case r := <-out:
		return r.value, addTimeout(r.err)
	case <-ctx.Done():
	}
	// The call may have returned at the same moment as the timeout.
	select {
	case r := <-out:
		return r.value, addTimeout(r.err)
	default:
	}
	c.mu.Lock()
	calls.count++
	c.mu.Unlock()
	go func() {
		<-out
		c.mu.Lock()
		calls.count--
		c.mu.Unlock()
	}()
	if caller.Err() != nil {
		return zero, fmt.Errorf("abandoned because the caller's context is done: %w", context.Cause(caller))
	}
	return zero, fmt.Errorf("abandoned after %v%s: %w", timeout, note, context.Cause(ctx))
}
