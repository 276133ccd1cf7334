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

// Log gives a [Compactor] access to sessions by key. A *store.Store is a Log, with store.Key as K.
type Log[K comparable] interface {
	// View returns the session's newest view.
	View(ctx context.Context, key K) (fold.View, error)

	// RawEvents yields the records of the session's log from fromSeq on.
	RawEvents(ctx context.Context, key K, fromSeq uint64) iter.Seq2[patch.Record, error]

	// ApplyPatch logs patches that were made from the view opts.On, all of them or none. The error matches
	// [fold.ErrConflict] if another patch was logged after that view.
	ApplyPatch(ctx context.Context, key K, patches []*patch.PatchEvent, opts fold.PatchOptions) (fold.Committed, error)
}

// Compactor compacts the sessions of a log by one configuration. It is safe for use by any number of goroutines. If two
// compactors or goroutines compact a session at once, one writes; the other sees a conflict and stops.
type Compactor[K comparable] struct {
	log  Log[K]
	cfg  Config
	opts Options[K]

	// Abandoned calls of the user's functions.
	summarizing, fallingBack, preparing, approving pending

	mu      sync.Mutex
	backoff map[K]backoff
	stats   Stats
}

// Options of a [Compactor]. The zero value means the defaults.
type Options[K comparable] struct {
	// Run, if not nil, returns information that a session's log does not have, such as the running invocation, in
	// addition to the [Run] of a call. It is called after the view was read, so it can tell for each invocation in the
	// view whether it is running.
	Run func(key K, v fold.View) Run

	// Claim, if not nil, is called before a window of a session is summarised, with the view that it was planned on. If
	// ok is false, the session is not compacted now, for example because another process compacts it or runs an
	// invocation whose events must stay. If ok is true, done is called when the pass has ended.
	Claim func(ctx context.Context, key K, v fold.View) (done func(), ok bool)

	// Prepare, if not nil, is called before each summary is made, but not before tool results are cleared. It returns
	// text to keep, or "". The summary ends with this text, word for word, up to half of the summary's limit. An error
	// is a veto, as with Approve.
	Prepare func(ctx context.Context, p PrepareRequest[K]) (keep string, err error)

	// Approve, if not nil, is called before a pass is logged. If it returns an error, nothing is written, the session
	// is retried as after a failure, and the attempt's error matches [ErrVetoed]. Approve may be called from several
	// goroutines at once. A call that takes longer than five minutes is abandoned, and the pass fails.
	Approve func(ctx context.Context, d ApproveRequest[K]) error

	// Observe, if not nil, is called after each attempt, by the goroutine that compacts.
	Observe func(context.Context, Attempt[K])

	// Logger gets one line for each failure. nil means [slog.Default].
	Logger *slog.Logger
}

// Outcome is how an attempt to compact ended.
type Outcome string

// The outcomes.
const (
	Wrote    Outcome = "wrote"    // a patch was logged
	Declined Outcome = "declined" // the summarizer returned no text and no error
	Conflict Outcome = "conflict" // meanwhile another patch was logged, or an answer to a call in the window
	Vetoed   Outcome = "vetoed"   // [Options.Prepare or Approve returned an error, which is in Attempt.Err
	Failed   Outcome = "failed"   // nothing was written; Attempt.Err says why
)

// Attempt says how one pass of compaction went.
type Attempt[K comparable] struct {
	Key     K
	Outcome Outcome
	Written *Written // if Outcome is Wrote

	// Err is why the pass failed or was vetoed. If Outcome is Wrote, Err is why [Extractive] wrote the summary in place
	// of the summarizer, or nil.
	Err error

	Trigger  Trigger
	Duration time.Duration // including the calls of the summarizer

	// Lost is Written.Lost. Invented counts the identifiers that do not occur in the events, in all answers, even
	// refused answers.
	Lost, Invented int
}

// New returns a compactor of the log's sessions. The error matches [patch.ErrInvalid] if the log is nil or the
// configuration is invalid ([Config.Validate]).
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

// MaybeCompact compacts a session if a trigger fires, pass by pass until none does, and returns the passes that it
// wrote. Use it if no invocation of the session is running, or if [Options.Run] names the running invocation.
//
// A summarizer's answer is refused unless it
//
//   - is complete and not empty, and calls no function;
//   - has at most 2,500 estimated tokens, and at most three quarters of the tokens of the events that it replaces;
//   - invents at most two identifiers. A summarizer that invents more gets the list and may answer once more; if the
//     second answer also invents more than two, [Extractive] writes the summary.
//
// If the text of the events has less than 32 tokens, this text is the summary and the summarizer is not called. If it
// has less than 128 tokens, it replaces an answer that is too long or invents identifiers.
//
// After a failure or a refused answer the session stays as it is, and the error is a *[SummarizerError]; there is no
// error if the summarizer declines. The summarizer is not called again until the session has grown by one record; this
// number doubles with each failure in a row, up to 64. But if the prompt is a fifth over its threshold, [Extractive]
// writes the summary. If Extractive's answer is refused too, the window is skipped until the session has grown by 64
// records.
//
// If a patch, or an answer to a call in the window, is logged while the summary is written, MaybeCompact writes nothing
// and stops without error. Other errors come from the log. MaybeCompact also returns the passes that were written
// before an error.
func (c *Compactor[K]) MaybeCompact(ctx context.Context, key K) ([]Written, error) {
	return c.Compact(ctx, key, Run{})
}

// Compact is [Compactor.MaybeCompact] with information that the log does not have, such as the running invocation.
func (c *Compactor[K]) Compact(ctx context.Context, key K, run Run) ([]Written, error) {
	if !c.cfg.Enabled {
		return nil, nil
	}
	view, err := c.log.View(ctx, key)
	if err != nil {
		return nil, c.ended(ctx, Attempt[K]{Key: key}, err)
	}
	var done []Written
	for {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		if rests, _ := c.waits(key, view); rests && !run.Force {
			return done, nil
		}
		if view, err = c.revertBlanks(ctx, key, view); err != nil {
			return done, c.ended(ctx, Attempt[K]{Key: key}, err)
		}
		start := time.Now()
		p, next, err := c.attempt(ctx, key, view, run)
		if p == nil && err == nil {
			return done, nil
		}
		a := Attempt[K]{Key: key, Duration: time.Since(start), Invented: invented(err)}
		if p != nil {
			a.Trigger, a.Lost = p.window.Trigger, p.about.Lost
		}
		switch {
		case err == nil:
			w := p.about
			w.Duration = a.Duration
			a.Written, a.Err, a.Invented = &w, p.failure, invented(p.failure)+w.Invented
			done = append(done, w)
			c.succeeded(p)
			view = next
		case gaveUp(ctx) || overtaken(err):
		default:
			c.failed(key, view, p, err)
		}
		if err = c.ended(ctx, a, err); err != nil || a.Written == nil {
			return done, err
		}
	}
}

// attempt makes the next pass over a session, if one is due: it plans a window, requests a
// summary of each of its groups, has these written, verifies the answers, and logs the patches. An
// answer that is refused may be written again, or by another writer. A panic on the way is an error.
func (c *Compactor[K]) attempt(ctx context.Context, key K, view fold.View, run Run) (p *pass[K], next fold.View, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{ErrPanic, r, debug.Stack()}
		}
	}()
	p, err = c.plan(ctx, key, view, run)
	if p == nil || err != nil {
		return nil, view, err
	}
	defer p.done()
	requests, err := p.request(ctx)
	if err != nil {
		return p, view, err
	}
	for _, r := range requests {
		for r.summary == "" {
			answer, failure := p.summarise(ctx, r)
			if err := p.verify(ctx, r, answer, failure); err != nil {
				return p, view, err
			}
		}
	}
	next, err = p.patch(ctx, requests)
	return p, next, err
}

// errGrown: the log has a new record that the window does not fit.
var errGrown = errors.New("the log has grown meanwhile")

// overtaken reports whether the pass failed because another writer changed the log.
func overtaken(err error) bool {
	return errors.Is(err, fold.ErrConflict) || errors.Is(err, errGrown)
}

// gaveUp reports whether the caller cancelled. An expired deadline counts as a failure of the summarizer instead.
func gaveUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// ended counts, logs and reports an attempt, and returns the error for the caller.
func (c *Compactor[K]) ended(ctx context.Context, a Attempt[K], err error) error {
	switch {
	case err == nil:
		a.Outcome = Wrote
		if a.Err != nil {
			c.logFailure(ctx, a)
		}
	case gaveUp(ctx):
		return ctx.Err()
	case overtaken(err):
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

// panicked logs and counts a panic outside an attempt.
func (c *Compactor[K]) panicked(ctx context.Context, key K, err error) {
	a := Attempt[K]{Key: key, Outcome: Failed, Err: err}
	c.count(a)
	c.logFailure(ctx, a)
}

// Stats counts attempts by their outcomes. [Options.Observe] gets each attempt.
type Stats map[Outcome]uint64

// count counts an attempt.
func (c *Compactor[K]) count(a Attempt[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats[a.Outcome]++
}

// Stats returns the counts of the attempts so far.
func (c *Compactor[K]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.stats)
}
