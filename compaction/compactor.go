package compaction

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/compaction/identifiers"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Compactor compacts the sessions of a log by one configuration, or by a few
// ([Options.Configs]). It is safe for use by any number of goroutines; of two that compact one session at once, one writes and the
// other sees a conflict and stops.
type Compactor[K comparable] struct {
	log   Log[K]
	opts  Options[K]
	own   *settings
	named map[string]*settings // by the names of Options.Configs

	preparing, approving pending

	mu      sync.Mutex
	backoff map[K]backoff
	settled map[K]settled
	stats   Stats
}

// Options of a [Compactor]. The zero value means the defaults.
type Options[K comparable] struct {
	// Configs are configurations by names, and ConfigOf says which of them a session is
	// compacted by. Sessions for which it returns another name are compacted by the one
	// that [New] is given, as all are if it is nil. They are set together or not at all.
	Configs  map[string]Config
	ConfigOf func(key K) string

	// Pin, if not nil, returns the ids of events that stay raw in the given view, besides
	// those of [Run.Pinned].
	Pin func(key K, v fold.View) []string

	// Running, if not nil, returns the id of the invocation that is running in a session,
	// or "", for calls whose [Run] does not say. It is asked after the view is read, so
	// that a message in the view is known to be live if its invocation runs.
	Running func(key K) string

	// Claim, if not nil, is asked before a window of a session is summarised, with the view
	// that it was planned on. If ok is false the session is left alone this time: another
	// process compacts it, say, or runs an invocation whose events must stay. Else done is
	// called when the pass has ended.
	Claim func(ctx context.Context, key K, v fold.View) (done func(), ok bool)

	// Prepare, if not nil, is asked before events are summarised in one text, and returns what
	// must be kept of them, or "": it stands in the summary word for word, behind what the
	// summarizer says, as far as it takes no more than half of the room that the summary has.
	// If it returns an error, nothing is summarised, as if Approve were against it. A call that
	// does not return is treated as one of Approve. It is not asked when results are cleared.
	Prepare func(ctx context.Context, p Proposal[K]) (keep string, err error)

	// Approve, if not nil, is asked before a pass is logged. If it returns an error, nothing
	// is written, and the session is left alone as after a failure; it is a veto, and the
	// attempt's error matches [ErrVetoed]. It cannot change what it is shown. It may be
	// called from several goroutines at once, and should return soon after ctx is done,
	// which is when [Config.Timeout] is over: a call that does not is left alone, and the
	// pass has failed.
	Approve func(ctx context.Context, d Draft[K]) error

	// Observe, if not nil, is called with each attempt, failed ones too, when it has
	// ended: metrics can be fed from it. It is called from the goroutine that compacts,
	// with its context, and should return soon.
	Observe func(context.Context, Attempt[K])

	// Logger gets one line for each failure. nil means [slog.Default].
	Logger *slog.Logger

	// NewID makes ids; nil means random UUIDs. It may be called from several goroutines.
	NewID func() string
}

// Outcome is how an attempt to compact ended.
type Outcome string

// The outcomes.
const (
	Wrote    Outcome = "wrote"    // a patch was logged
	Declined Outcome = "declined" // the summarizer had nothing to say
	Conflict Outcome = "conflict" // another patch was logged meanwhile, or an answer to a call that was to go
	Vetoed   Outcome = "vetoed"   // [Options.Prepare] or Approve was against it; Attempt.Err says why
	Failed   Outcome = "failed"   // nothing was written; Attempt.Err says why
)

// Attempt says how one pass of compaction went.
type Attempt[K comparable] struct {
	Key     K
	Outcome Outcome
	Written *Written // if Outcome is Wrote
	Err     error    // if Outcome is Failed or Vetoed

	Trigger Trigger
	Took    time.Duration // with the calls of the summarizer

	// Lost and Invented are those of Written, or of the answer that was refused for what it
	// invented.
	Lost, Invented int
}

// New returns a compactor of the log's sessions. The error matches [patch.ErrInvalid] if
// there is no log, or only one of [Options.Configs] and ConfigOf, or is that of
// [Config.Validate], with the name of the configuration if it has one.
func New[K comparable](log Log[K], cfg Config, opts Options[K]) (*Compactor[K], error) {
	if isNil(log) {
		return nil, fmt.Errorf("%w: the log is nil", patch.ErrInvalid)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	named, err := opts.settings()
	if err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.NewID == nil {
		opts.NewID = uuid.NewString
	}
	return &Compactor[K]{log: log, opts: opts, own: newSettings(cfg), named: named, backoff: map[K]backoff{}, settled: map[K]settled{}}, nil
}

// MaybeCompact compacts a session if a trigger fires, pass by pass until none does, and
// returns what was written, or nil if nothing was. It is for a session in which no
// invocation is running, or [Options.Running] tells which.
//
// A summary takes the events' place only if the summarizer's answer is whole: not empty,
// without a function call, not over [Config.MaxSummaryTokens], at most half as long
// as what it replaces, and without identifiers that stand nowhere in what it was made of
// ([Config.MaxInvented]), of which the summarizer is told once, and may answer again. Else the session stays as it is, and the error is a
// *[SummarizerError]; one that declines gives no error. What takes fewer than 32 tokens is
// shown to no summarizer, and its summary says it word for word; so does one of fewer than
// 128 for which the answer is too long or invents. After a failure or a refusal to
// answer, the session is left alone, without error, until it has grown by so many
// records as there were failures in a row, doubled each time up to 64; from
// [Config.FallbackAfter] failures on, a window for which no answer can be used is passed
// over until it has grown by 64. Where another patch, or an answer to a call that was to go,
// was logged while a summary was made, that one stands, and MaybeCompact stops without
// error. Other errors are the log's own. What earlier passes have written is
// returned in any case.
func (c *Compactor[K]) MaybeCompact(ctx context.Context, key K) ([]Written, error) {
	return c.Compact(ctx, key, Run{})
}

// Compact is [Compactor.MaybeCompact] for a session of which the caller knows more, such
// as the invocation that is running.
func (c *Compactor[K]) Compact(ctx context.Context, key K, run Run) ([]Written, error) {
	by, err := c.settingsOf(key)
	if err != nil {
		return nil, c.ended(ctx, Attempt[K]{Key: key}, err)
	}
	if !by.cfg.Enabled {
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
		if !run.Again && c.waits(key, view) {
			return done, nil
		}
		view, err = c.revertBlanks(ctx, key, by, view)
		if err != nil {
			return done, c.ended(ctx, Attempt[K]{Key: key}, err)
		}
		start := time.Now()
		window, w, next, err := c.try(ctx, key, by, view, run)
		if window == nil && err == nil {
			return done, nil
		}
		a := Attempt[K]{Key: key, Took: time.Since(start)}
		if window != nil {
			a.Trigger = window.Trigger
		}
		a.Invented = invented(err)
		switch {
		case err == nil:
			w.Took = a.Took
			a.Written, a.Lost, a.Invented = &w, w.Lost, w.Invented
			done = append(done, w)
			if w.Usage.Calls > 0 {
				c.succeeded(key)
			}
			view = next
		case gaveUp(ctx) || overtaken(err):
		default:
			c.failed(key, by.cfg, view, window, err)
		}
		if err = c.ended(ctx, a, err); err != nil || a.Written == nil {
			return done, err
		}
	}
}

// try plans a window and carries it out. There is none if there is nothing to do. A panic
// on the way is an error.
func (c *Compactor[K]) try(ctx context.Context, key K, by *settings, view fold.View, run Run) (window *Window, out Written, next fold.View, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{ErrPanic, p, debug.Stack()}
		}
	}()
	if !run.Again {
		run.Pinned = append(c.passedOver(key, view), run.Pinned...)
	}
	if run.Invocation == "" && c.opts.Running != nil {
		run.Invocation = c.opts.Running(key)
	}
	if c.opts.Pin != nil {
		run.Pinned = append(run.Pinned, c.opts.Pin(key, view)...)
	}
	s := newVisible(view, run)
	if window = s.plan(by.cfg).Window; window == nil {
		return nil, out, view, nil
	}
	if c.opts.Claim != nil {
		done, ok := c.opts.Claim(ctx, key, view)
		if !ok {
			return nil, out, view, nil
		}
		defer done()
	}
	out, next, err = c.pass(ctx, key, by, s, window)
	return window, out, next, err
}

// errGrown: the log has got a record that the window does not fit.
var errGrown = errors.New("the log has grown meanwhile")

// overtaken reports whether others were quicker.
func overtaken(err error) bool {
	return errors.Is(err, fold.ErrConflict) || errors.Is(err, errGrown)
}

// gaveUp reports whether the caller wants no more. One whose time is up has waited for a
// summary in vain.
func gaveUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// ended counts, logs and reports an attempt, and returns the error that is the caller's
// business.
func (c *Compactor[K]) ended(ctx context.Context, a Attempt[K], err error) error {
	switch {
	case err == nil:
		a.Outcome = Wrote
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
	c.count(a.Outcome, a.Written)
	if c.opts.Observe != nil {
		c.opts.Observe(ctx, a)
	}
	return a.Err
}

func (c *Compactor[K]) logFailure(ctx context.Context, a Attempt[K]) {
	attrs := []slog.Attr{slog.Any("session", a.Key), slog.String("trigger", string(a.Trigger)), slog.Any("error", a.Err)}
	if panicked := (*panicError)(nil); errors.As(a.Err, &panicked) {
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	c.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "compaction failed", attrs...)
}

// panicked logs and counts a panic that no attempt has.
func (c *Compactor[K]) panicked(ctx context.Context, key K, err error) {
	c.count(Failed, nil)
	c.logFailure(ctx, Attempt[K]{Key: key, Err: err})
}

// pass has a window summarised and logs the patches.
func (c *Compactor[K]) pass(ctx context.Context, key K, by *settings, s *visible, w *Window) (Written, fold.View, error) {
	v := s.view
	about := patchMetadata{Written: Written{PatchID: c.opts.NewID(), Trigger: w.Trigger, Merged: w.Merge, TokensBefore: w.Tokens, EventsBefore: w.Count, Level: 1}}
	out := &about.Written
	for _, a := range w.Also {
		out.EventsBefore += a.Count
	}
	// Whatever the summary will be, a log with a patch of unknown type takes no patches.
	if err := v.Check(patch.NewSplice(w.Start, w.Count), fold.CheckOptions{AllowOrphans: true}); err != nil {
		return *out, v, err
	}
	start := time.Now()
	log := bound{
		raw: func(ctx context.Context, from uint64) iter.Seq2[patch.Record, error] {
			return c.log.RawEvents(ctx, key, from)
		},
		viewAt: func(ctx context.Context, seq uint64) (fold.View, error) { return c.log.ViewAt(ctx, key, seq) },
	}
	if w.Trigger == ByClearing {
		return c.clear(ctx, key, by, s, w, *out, start)
	}
	if err := log.originals(ctx, s, w); err != nil {
		return *out, v, err
	}
	var texts []summaryText
	for _, g := range w.Groups {
		t := summaryText{group: g}
		var err error
		if !w.Merge && tokensAt(v, g.Indices) >= briefTokens {
			if t.again, err = log.shownAgain(ctx, v, g, by.cfg.OverlapSize); err != nil {
				return *out, v, err
			}
		}
		req, err := s.request(w, g, eventsOf(t.again), by.cfg)
		if err != nil {
			return *out, v, err
		}
		keep, err := c.prepare(ctx, key, by, s, w, s.events(g))
		if err != nil {
			return *out, v, err
		}
		keep = req.reserve(keep)
		if t.text, err = c.text(ctx, key, by, req, s.toTell(g), &about); err != nil {
			return *out, v, &SummarizerError{Trigger: w.Trigger, Start: w.Start, Count: w.Count, Err: err}
		}
		if keep != "" {
			t.text += "\n" + keep
		}
		texts = append(texts, t)
	}
	summaries, err := s.summaries(w, texts, by.cfg, c.opts.NewID)
	if err != nil {
		return *out, v, err
	}
	for _, s := range summaries {
		out.TokensAfter += s.EstimatedTokens()
		out.Level = max(out.Level, LineageOf(s).Level)
	}
	out.EventsAfter = len(summaries)
	if out.TokensBefore > 0 {
		out.Ratio = float64(out.TokensAfter) / float64(out.TokensBefore)
	}
	about.DurationMs = time.Since(start).Milliseconds()
	if about.Recent, err = c.recents(ctx, by.cfg, s, w, summaries, log); err != nil {
		return *out, v, err
	}
	patches, err := w.patches(summaries, out.PatchID, about.metadata())
	if err != nil {
		return *out, v, err
	}
	next, err := c.write(ctx, key, by, draftOf(key, s, w, summaries, patches, *out), patches)
	return *out, next, err
}

// write logs the patches of a draft, if it may be logged.
func (c *Compactor[K]) write(ctx context.Context, key K, by *settings, d Draft[K], patches []*patch.PatchEvent) (fold.View, error) {
	v := d.View
	if err := c.approve(ctx, by, d); err != nil {
		return v, err
	}
	// What waits for the user's side may go: planning has let the newest stay.
	next, err := c.log.ApplyOn(ctx, key, v, fold.CheckOptions{HideWaiting: true}, patches...)
	if errors.Is(err, fold.ErrOrphanedCall) {
		// Planning splits no call. Unless it was answered meanwhile: then the log is to be
		// looked at again.
		if now, viewErr := c.log.View(ctx, key); viewErr == nil && now.Seq() > v.Seq() {
			err = fmt.Errorf("%w: %w", errGrown, err)
		}
	}
	return next, err
}

// text returns what the summary of a request says that covers so many tokens: what a
// summarizer does, or, if that is too little to be made shorter, what the events do.
func (c *Compactor[K]) text(ctx context.Context, key K, by *settings, req Request, covered int, about *patchMetadata) (string, error) {
	own := ""
	if covered < shortTokens {
		own = wordForWord(req)
		if patch.EstimateTextTokens(own) > by.cfg.MaxSummaryTokens {
			own = ""
		}
	}
	var against *source
	if by.cfg.MaxInvented != NotVerified {
		against = newSource(req)
	}
	useOwn := func() (string, error) {
		if against != nil { // it has nothing of its own, but may be cut
			c := against.compare(own)
			about.verify(identifiers.Comparison{Held: c.Held, Lost: c.Lost})
		}
		return own, nil
	}
	if own != "" && covered < briefTokens {
		return useOwn()
	}
	if against != nil {
		against.prepare()
	}
	to := c.toAsk(key, by)
	text, model, err := c.ask(ctx, by, to, req, &about.Usage)
	if err == nil && against != nil {
		compared := against.compare(text)
		if err = judge(compared, by.cfg.MaxInvented); err != nil {
			text, model, compared, err = c.askAgain(ctx, by, to, req, against, err, &about.Usage)
		}
		if err == nil {
			about.verify(compared)
		}
	}
	switch {
	case own != "" && (errors.Is(err, errTooLong) || invented(err) > 0):
		return useOwn()
	case err == nil:
		about.Model = model
	}
	return text, err
}

// ask asks a summarizer, and returns the text of an answer that can be used.
func (c *Compactor[K]) ask(ctx context.Context, by *settings, to *asked, req Request, usage *Usage) (text, model string, err error) {
	resp, err := c.summarize(ctx, by, to, req.own())
	usage.add(resp.Usage)
	if err != nil {
		return "", "", err
	}
	text, err = answer(resp, req.MaxTokens)
	return text, resp.Model, err
}

// askAgain asks a summarizer once more, after an answer that was refused for what it invented.
// If it has nothing else to say, that stays refused.
func (c *Compactor[K]) askAgain(ctx context.Context, by *settings, to *asked, req Request, against *source, refused error, usage *Usage) (text, model string, compared identifiers.Comparison, err error) {
	text, model, err = c.ask(ctx, by, to, req.corrected(refused), usage)
	if errors.Is(err, errDeclined) {
		err = refused
	}
	if err != nil {
		return "", "", compared, err
	}
	compared = against.compare(text)
	return text, model, compared, judge(compared, by.cfg.MaxInvented)
}

// recents says of a window's summaries which events of theirs are recent, by their ids. A
// summary of summaries has what the last of these has.
func (c *Compactor[K]) recents(ctx context.Context, cfg Config, s *visible, w *Window, summaries []*patch.Event, log bound) (map[string]recent, error) {
	out := map[string]recent{}
	for i, g := range w.Groups {
		if !w.Merge {
			out[summaries[i].ID()] = s.recent(g, cfg.OverlapSize)
			continue
		}
		for _, of := range slices.Backward(g.Indices) {
			p, err := log.patchOf(ctx, s.view, of)
			if err != nil {
				return nil, err
			}
			if p == nil {
				continue
			}
			if r, said := saidRecent(p, s.view.At(of).ID()); said {
				out[summaries[i].ID()] = r
				break
			}
		}
	}
	return out, nil
}
