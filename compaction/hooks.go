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

// ErrVetoed: [Options.Prepare] was against summarising, or [Options.Approve] against what
// would have been logged.
var ErrVetoed = errors.New("vetoed")

// PrepareRequest is what is about to be summarised in one text.
type PrepareRequest[K comparable] struct {
	Key     K
	View    fold.View // what the pass was planned on
	Trigger Trigger

	// Events are what the summary will stand for, as they were logged: raw events of one
	// branch and isolation scope, or, if Merge is set, summaries. The slice is the callee's
	// own.
	Events []*patch.Event
	Merge  bool
}

// prepare asks whether events may be summarised, and returns what must be kept of them.
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

// ApproveRequest is what a pass of compaction is about to log.
type ApproveRequest[K comparable] struct {
	Key K

	// View is what the pass was planned on. Events may have been appended since.
	View fold.View

	// Summaries will take the place of other events. There are none where these say
	// nothing, such as changes of state, and where results are cleared.
	Summaries []SummaryDraft

	// Patches are all that will be logged, in this order, or nothing is.
	Patches []*patch.PatchEvent

	// Written are the figures. Duration is without the time that approval and logging take.
	Written Written
}

// SummaryDraft is a summary that is about to be logged, and what it will stand for.
type SummaryDraft struct {
	Event  *patch.Event
	Events []*patch.Event // raw events as they were logged, or summaries if the pass merges some
}

// approve asks whether patches may be logged.
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

// maxGivenUp calls of a function of the user's may have been given up and not have returned
// before no more are made.
const maxGivenUp = 4

// pending counts the calls of a function of the user's that were given up and have not returned.
// The compactor's mutex guards it.
type pending struct{ givenUp int }

// await calls a function of the user's, for at most five minutes and nine tenths of the caller's
// time, so that some is left for the fallback. A call that does not return in time is given up; a
// panic is an error that matches panicked. busy is the error if too many calls were given up.
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
	// It may have returned at the last moment.
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
