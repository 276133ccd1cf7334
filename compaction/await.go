package compaction

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// So many calls of a function of the user's may have been given up and not have returned
// before no more are made.
const maxGivenUp = 4

// pending counts the calls of a function of the user's that were given up and have not returned. The
// compactor's mutex guards it.
type pending struct{ givenUp int }

// await calls a function of the user's, for as long as the time allows. A call that does not
// return in time is given up; a panic is an error that matches panicked. busy is the error if
// too many calls were given up.
func await[K comparable, T any](ctx context.Context, c *Compactor[K], of *pending, timeout time.Duration, panicked, busy error, f func(context.Context) (T, error)) (T, error) {
	var none T
	c.mu.Lock()
	tooMany := of.givenUp >= maxGivenUp
	c.mu.Unlock()
	if tooMany {
		return none, fmt.Errorf("%w: %d calls that were given up are still under way", busy, maxGivenUp)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	type result struct {
		value T
		err   error
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
		return r.value, r.err
	case <-ctx.Done():
	}
	// It may have returned at the last moment.
	select {
	case r := <-out:
		return r.value, r.err
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
	return none, fmt.Errorf("given up after %v: %w", timeout, context.Cause(ctx))
}

// summarize calls a summarizer.
func (c *Compactor[K]) summarize(ctx context.Context, by *settings, s *asked, req Request) (Response, error) {
	return await(ctx, c, &s.pending, by.cfg.Timeout, ErrSummarizerPanic, ErrSummarizerBusy, func(ctx context.Context) (Response, error) {
		return s.Summarize(ctx, req)
	})
}
