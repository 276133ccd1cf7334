package compaction

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Log gives a [Compactor] access to sessions, which keys of type K identify. *store.Store implements Log with K =
// store.Key.
type Log[K comparable] interface {
	// View returns the newest view of the session.
	View(ctx context.Context, key K) (fold.View, error)

	// RawEvents yields the records of the session's log, starting at fromSeq.
	RawEvents(ctx context.Context, key K, fromSeq uint64) iter.Seq2[patch.Record, error]

	// ApplyPatch logs either all of the patches or none. The patches were planned on the view opts.On. If another patch
	// was logged after that view, the error matches [fold.ErrConflict].
	ApplyPatch(ctx context.Context, key K, patches []*patch.PatchEvent, opts fold.PatchOptions) (fold.Committed, error)
}

// Compactor compacts the sessions of a log with one configuration. It is safe for concurrent use. If two compactors or
// goroutines compact the same session at once, one of them writes and the other stops with a conflict.
type Compactor[K comparable] struct {
	log  Log[K]
	cfg  Config
	opts Options[K]

	// Calls that the compactor gave up on and that are still running, counted by function.
	summarizerCalls, fallbackCalls, prepareCalls, approveCalls abandonedCalls

	mu      sync.Mutex
	backoff map[K]backoff
	stats   Stats
}

// Options are options of a [Compactor]. The zero value selects the defaults.
type Options[K comparable] struct {
	// Run, if not nil, returns information that the session's log does not contain, such as the running invocation. The
	// result is combined with the [Run] argument of [Compactor.Compact]. The compactor calls Run after it has read the
	// view.
	Run func(key K, v fold.View) Run

	// Claim, if not nil, is called before each pass with the view that the pass was planned on. If ok is false, the
	// session is not compacted now, for example because another process is compacting it. If ok is true, the compactor
	// calls done when the pass has ended.
	Claim func(ctx context.Context, key K, v fold.View) (done func(), ok bool)

	// Prepare, if not nil, is called before each summary is written, and not before tool results are cleared. It
	// returns text to keep, or "". The summary ends with this text. The text is cut to half of the summary's size
	// limit. An error vetoes the pass, as with Approve.
	Prepare func(ctx context.Context, p PrepareRequest[K]) (keep string, err error)

	// Approve, if not nil, is called before a pass is logged. If it returns an error, nothing is written, and the
	// attempt's error matches [ErrVetoed]. The pass is retried as after a failure. Approve must be safe for concurrent
	// use. A call is abandoned after five minutes, or after nine tenths of the time until the context's deadline if
	// that is less. Then the pass fails.
	Approve func(ctx context.Context, d ApproveRequest[K]) error

	// Observe, if not nil, is called after each attempt in the goroutine that compacts.
	Observe func(context.Context, Attempt[K])

	// Logger logs one line per failure. nil means [slog.Default].
	Logger *slog.Logger
}

// Outcome is the result of an attempt to compact.
type Outcome string

// The outcomes.
const (
	Wrote    Outcome = "wrote"    // a patch was logged
	Declined Outcome = "declined" // the summarizer returned neither a text nor an error
	Conflict Outcome = "conflict" // during the attempt, another patch was logged, or an answer to a call in the window
	Vetoed   Outcome = "vetoed"   // [Options.Prepare] or [Options.Approve] returned an error; see Attempt.Err
	Failed   Outcome = "failed"   // nothing was written; see Attempt.Err
)

// Attempt describes one attempted pass of compaction.
type Attempt[K comparable] struct {
	Key     K
	Outcome Outcome
	Written *Written // the logged pass if Outcome is Wrote, otherwise nil

	// Err is the reason if the pass failed or was vetoed. If Outcome is Wrote, Err is nil, or the reason why
	// [Extractive] replaced the summarizer.
	Err error

	Trigger  Trigger
	Duration time.Duration // includes the calls of the summarizer

	// Lost is equal to Written.Lost. Invented is Written.Invented plus the number of invented identifiers in the
	// refused answer that Err describes, if any.
	Lost, Invented int
}

// New returns a compactor for the sessions of a log. If log is nil or [Config.Validate] fails, the error matches
// [patch.ErrInvalid].
func New[K comparable](log Log[K], cfg Config, opts Options[K]) (*Compactor[K], error) {
	if isNil(log) {
		return nil, fmt.Errorf("%w: the log is nil", patch.ErrInvalid)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &Compactor[K]{log: log, cfg: cfg.withDefaults(), opts: opts, backoff: map[K]backoff{}, stats: Stats{}}, nil
}

// MaybeCompact runs passes on a session until no trigger fires, and returns the passes that it wrote. If an invocation
// of the session may be running, [Options.Run] must name that invocation.
//
// A summarizer's answer is refused unless it
//
//   - is complete and not empty, and calls no function;
//   - has at most 2,500 estimated tokens, and at most three quarters of the tokens of the events that it replaces;
//   - invents at most two identifiers. If it invents more, the summarizer gets the list of these identifiers and may answer once more. If the second answer also invents more than two, [Extractive] writes the summary.
//
// If the text of the events has fewer than 32 tokens, this text becomes the summary, and the summarizer is not called.
// If the text of the events has fewer than 128 tokens, it replaces an answer that is too long or invents identifiers.
//
// After a failure or a refused answer, the session is unchanged and the error is a *[SummarizerError]. If the
// summarizer declines, the error is nil. The summarizer is called again after the session has grown by one record. This
// number doubles with each failure in a row, up to 64. If the prompt is a fifth over TokenThreshold, [Extractive]
// writes the summary instead. If Extractive's answer is also refused, the window is skipped until the session has grown
// by 64 records.
//
// If another patch or an answer to a call in the window is logged while the summary is written, MaybeCompact writes
// nothing more and returns no error. Other errors come from the log. Together with an error, MaybeCompact returns the
// passes that it had written before the error.
func (c *Compactor[K]) MaybeCompact(ctx context.Context, key K) ([]Written, error) {
	return c.Compact(ctx, key, Run{})
}

// Compact is like [Compactor.MaybeCompact]. The argument run has information that the log does not contain, such as the
// running invocation.
func (c *Compactor[K]) Compact(ctx context.Context, key K, run Run) ([]Written, error) {
	if !c.cfg.Enabled {
		return nil, nil
	}
	view, err := c.log.View(ctx, key)
	if err != nil {
		return nil, c.finishAttempt(ctx, Attempt[K]{Key: key}, err)
	}
	var done []Written
	for {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		if skipPass, _ := c.backoffStatus(key, view); skipPass && !run.Force {
			return done, nil
		}
		if view, err = c.revertBlanks(ctx, key, view); err != nil {
			return done, c.finishAttempt(ctx, Attempt[K]{Key: key}, err)
		}
		start := time.Now()
		p, next, err := c.attemptPass(ctx, key, view, run)
		if p == nil && err == nil {
			return done, nil
		}
		a := Attempt[K]{Key: key, Duration: time.Since(start), Invented: countInvented(err)}
		if p != nil {
			a.Trigger, a.Lost = p.window.Trigger, p.written.Lost
		}
		switch {
		case err == nil:
			w := p.written
			w.Duration = a.Duration
			a.Written, a.Err, a.Invented = &w, p.summarizerErr, countInvented(p.summarizerErr)+w.Invented
			done = append(done, w)
			c.recordSuccess(p)
			view = next
		case isCanceled(ctx) || isConflict(err):
		default:
			c.recordFailure(key, view, p, err)
		}
		if err = c.finishAttempt(ctx, a, err); err != nil || a.Written == nil {
			return done, err
		}
	}
}

// attemptPass runs the next pass over a session if a pass is due. It plans a window, obtains a verified summary for
// each group, and logs the patches. If a summary is refused, the same [writer] or another one writes the next attempt.
// attemptPass returns a panic as an error.
func (c *Compactor[K]) attemptPass(ctx context.Context, key K, view fold.View, run Run) (p *pass[K], next fold.View, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{ErrPanic, r, debug.Stack()}
		}
	}()
	p, err = c.planPass(ctx, key, view, run)
	if p == nil || err != nil {
		return nil, view, err
	}
	defer p.release()
	requests, err := p.buildRequests(ctx)
	if err != nil {
		return p, view, err
	}
	for _, r := range requests {
		for r.summary == "" {
			answer, failure := p.summarise(ctx, r)
			if err := p.verifyAnswer(ctx, r, answer, failure); err != nil {
				return p, view, err
			}
		}
	}
	next, err = p.logPatches(ctx, requests)
	return p, next, err
}

// errLogGrown means that the log has grown during the pass and the window is no longer valid.
var errLogGrown = errors.New("the log has grown during the pass")

// isConflict reports whether the pass failed because another writer changed the log.
func isConflict(err error) bool {
	return errors.Is(err, fold.ErrConflict) || errors.Is(err, errLogGrown)
}

// isCanceled reports whether the caller cancelled ctx. An expired deadline counts as a failure of the summarizer.
func isCanceled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// finishAttempt counts, logs and reports an attempt. It returns the error for the caller.
func (c *Compactor[K]) finishAttempt(ctx context.Context, a Attempt[K], err error) error {
	switch {
	case err == nil:
		a.Outcome = Wrote
		if a.Err != nil {
			c.logFailure(ctx, a)
		}
	case isCanceled(ctx):
		return ctx.Err()
	case isConflict(err):
		a.Outcome = Conflict
	case errors.Is(err, errDeclined):
		a.Outcome = Declined
	case errors.Is(err, ErrVetoed):
		a.Outcome, a.Err = Vetoed, err
	default:
		a.Outcome, a.Err = Failed, err
		c.logFailure(ctx, a)
	}
	c.count(a)
	if c.opts.Observe != nil {
		c.opts.Observe(ctx, a)
	}
	if a.Outcome == Wrote {
		return nil
	}
	return a.Err
}

func (c *Compactor[K]) logFailure(ctx context.Context, a Attempt[K]) {
	attrs := []slog.Attr{slog.Any("session", a.Key), slog.String("trigger", string(a.Trigger)), slog.Any("error", a.Err)}
	if panicked := (*panicError)(nil); errors.As(a.Err, &panicked) {
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	text := "compaction failed"
	if a.Outcome == Wrote {
		text = "the summarizer failed, and the fallback has written the summary"
	}
	c.opts.Logger.LogAttrs(ctx, slog.LevelWarn, text, attrs...)
}

// reportPanic logs and counts a panic that happened outside an attempt.
func (c *Compactor[K]) reportPanic(ctx context.Context, key K, err error) {
	a := Attempt[K]{Key: key, Outcome: Failed, Err: err}
	c.count(a)
	c.logFailure(ctx, a)
}

// Stats is the number of attempts by outcome. [Options.Observe] gets each attempt.
type Stats map[Outcome]uint64

func (c *Compactor[K]) count(a Attempt[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats[a.Outcome]++
}

// Stats returns the number of attempts so far by outcome.
func (c *Compactor[K]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.stats)
}
