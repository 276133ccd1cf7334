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

// ErrVetoed: [Options.Prepare] or [Options.Approve] returned an error.
var ErrVetoed = errors.New("vetoed")

// PrepareRequest has the events that one summary is about to cover.
type PrepareRequest[K comparable] struct {
	Key     K
	View    fold.View // the view that the pass was planned on
	Trigger Trigger

	// Events are the events that the summary will cover, as they were logged: raw events of one
	// branch and isolation scope, or, if Merge is set, summaries. The callee owns the slice.
	Events []*patch.Event
	Merge  bool
}

// prepare calls Options.Prepare for events, and returns the text that must be kept.
func (p *pass[K]) prepare(ctx context.Context, events []*patch.Event) (keep string, err error) {
	if p.c.opts.Prepare == nil {
		return "", nil
	}
	request := PrepareRequest[K]{p.key, p.shape.view, p.window.Trigger, slices.Clone(events), p.window.Merge}
	keep, err = await(ctx, p.c, &p.c.preparing, ErrPanic, errors.New("Options.Prepare does not return"), func(ctx context.Context) (string, error) {
		keep, veto := p.c.opts.Prepare(ctx, request)
		return keep, vetoed(veto)
	})
	switch {
	case errors.Is(err, ErrVetoed):
		return "", err
	case err != nil:
		return "", fmt.Errorf("preparation of a summary: %w", err)
	}
	return strings.TrimSpace(summaries.Clean(keep)), nil
}

// ApproveRequest has the patches that a pass of compaction is about to log.
type ApproveRequest[K comparable] struct {
	Key K

	// View is the view that the pass was planned on. Events may have been appended since.
	View fold.View

	// Summaries are the events that will replace the covered events. There are none if the covered events have no text
	// (such as state changes), or if the pass clears tool results.
	Summaries []SummaryDraft

	// Patches are logged in this order, all or none.
	Patches []*patch.PatchEvent

	// Written describes the pass. Its Duration excludes the time for approval and logging.
	Written Written
}

// SummaryDraft is a summary that is about to be logged, and the events that it covers.
type SummaryDraft struct {
	Event  *patch.Event
	Events []*patch.Event // raw events as they were logged, or summaries if the pass merges some
}

// approve calls Options.Approve for patches.
func (p *pass[K]) approve(ctx context.Context, summaries []*patch.Event, patches []*patch.PatchEvent) error {
	if p.c.opts.Approve == nil {
		return nil
	}
	d := ApproveRequest[K]{Key: p.key, View: p.shape.view, Patches: slices.Clone(patches), Written: p.about}
	for i, g := range p.window.Groups {
		d.Summaries = append(d.Summaries, SummaryDraft{Event: summaries[i], Events: p.events(g)})
	}
	_, err := await(ctx, p.c, &p.c.approving, ErrPanic, errors.New("Options.Approve does not return"), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, vetoed(p.c.opts.Approve(ctx, d))
	})
	if err != nil && !errors.Is(err, ErrVetoed) {
		return fmt.Errorf("approval of a summary: %w", err)
	}
	return err
}

func vetoed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrVetoed, err)
}

// A caller's function is not called while maxGivenUp abandoned calls of it have not returned.
const maxGivenUp = 4

// pending counts the abandoned calls of a function that have not returned. The compactor's mutex guards it.
type pending struct{ givenUp int }

// await calls a caller's function. It waits at most five minutes, and at most nine tenths of the time until the
// context's deadline, so that time is left for the fallback. Then it abandons the call. A panic is an error that
// matches panicked. busy is the error if too many calls were abandoned.
func await[K comparable, T any](ctx context.Context, c *Compactor[K], of *pending, panicked, busy error, f func(context.Context) (T, error)) (T, error) {
	var none T
	c.mu.Lock()
	tooMany := of.givenUp >= maxGivenUp
	c.mu.Unlock()
	if tooMany {
		return none, fmt.Errorf("%w: %d calls that were given up are still under way", busy, maxGivenUp)
	}
	caller := ctx
	timeout, why := c.cfg.limits.Call, ""
	if deadline, ok := caller.Deadline(); ok && time.Until(deadline)*9/10 < timeout {
		timeout, why = time.Until(deadline)*9/10, ", since the caller's time is almost over"
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	type result struct {
		value T
		err   error
	}
	ended := func(err error) error { // names the timeout in the error of a call that noticed it itself
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && caller.Err() == nil {
			return fmt.Errorf("after %v%s: %w", timeout, why, err)
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
		return r.value, ended(r.err)
	case <-ctx.Done():
	}
	// The call may have returned at the last moment.
	select {
	case r := <-out:
		return r.value, ended(r.err)
	default:
	}
	c.mu.Lock()
	of.givenUp++
	c.mu.Unlock()
	go func() {
		<-out
		c.mu.Lock()
		of.givenUp--
		c.mu.Unlock()
	}()
	if caller.Err() != nil {
		return none, fmt.Errorf("given up, since the caller's time was over: %w", context.Cause(caller))
	}
	return none, fmt.Errorf("given up after %v%s: %w", timeout, why, context.Cause(ctx))
}
