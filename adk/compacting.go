package adk

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// compacting is a service's automatic compaction, as docs/ADK.md says. A
// nil one is off.
type compacting struct {
	log    compactedLog
	worker *compaction.Worker[store.Key]
	runs   runs

	config     compaction.Config
	background *compaction.Compactor[store.Key]
	inRun      *compaction.Compactor[store.Key] // nil: in the background alone
	timeout    time.Duration
	logger     *slog.Logger
	last       cache[store.Key, compaction.Attempt[store.Key]]
}

func newCompacting(s storage, t *telemetry, cfg compaction.Config, opts Options) (*compacting, error) {
	c := &compacting{config: cfg, timeout: cmp.Or(opts.CompactionTimeout, DefaultCompactionTimeout), logger: opts.Logger}
	c.log = compactedLog{s, t}
	with := compaction.Options[store.Key]{
		Run:     func(_ store.Key, v fold.View) compaction.Run { return compaction.Run{Pinned: pins(v, c.config)} },
		Claim:   c.claim,
		Logger:  opts.Logger,
		Prepare: prepare(opts.Hooks.Prepare),
		Approve: approve(opts.Hooks.BeforeSummarise),
		Observe: func(ctx context.Context, a compaction.Attempt[store.Key]) {
			t.compacted(ctx, a)
			c.last.put(a.Key, a, 1)
			c.adoptAfter(ctx, a)
			if opts.Hooks.OnCompaction != nil {
				opts.Hooks.OnCompaction(a)
			}
		},
	}
	var err error
	if c.inRun, err = c.newInRun(c.log, with); err != nil {
		return nil, err
	}
	with.Run = func(key store.Key, v fold.View) compaction.Run {
		return compaction.Run{Invocation: c.runs.live(key), Pinned: pins(v, c.config)}
	}
	if c.background, err = compaction.New(c.log, c.config, with); err != nil {
		return nil, err
	}
	c.worker, err = compaction.NewWorker(c.background)
	return c, err
}

// appends says that an event is about to be appended. It comes before the event can be
// seen, so that whoever compacts, here or in another process, knows that its invocation is
// under way.
func (c *compacting) appends(ctx context.Context, key store.Key, e *session.Event) {
	if c == nil || e.InvocationID == "" || carriesRecord(e) {
		return
	}
	if before, due := c.runs.began(key, e.InvocationID, time.Now().Add(leaseTime/2)); due {
		if before != "" && before != e.InvocationID {
			c.release(ctx, key, before)
		}
		c.lease(ctx, key, runLease+e.InvocationID, leaseTime)
	}
}

// ended says that an invocation has ended.
func (c *compacting) ended(ctx context.Context, key store.Key, invocation string) {
	if c == nil {
		return
	}
	c.runs.ended(key, invocation)
	c.release(ctx, key, invocation)
	c.worker.Notify(key)
}

// appended compacts the session, at once or in the background, if the event asks for it.
// first says that nothing was appended through the handle before.
func (c *compacting) appended(ctx context.Context, handle *Session, e *session.Event, first bool) {
	if c == nil {
		return
	}
	c.adoptRecords(ctx, handle, e)
	// What the user answers, a run that is resumed reads from the log after this.
	resumes := first && e.Author == userAuthor
	if c.inRun != nil && hasResponse(e) && !inNode(e) && !resumes {
		c.compactInRun(ctx, handle, e.InvocationID)
	}
	if e.Author != userAuthor && e.IsFinalResponse() && !c.runs.watched(handle.key) {
		// If it goes on all the same, its next append takes the lease again.
		c.runs.release(handle.key, e.InvocationID)
		c.release(ctx, handle.key, e.InvocationID)
		c.worker.Notify(handle.key)
	}
}

func hasResponse(e *session.Event) bool {
	if e.Content == nil {
		return false
	}
	for _, p := range e.Content.Parts {
		if p != nil && p.FunctionResponse != nil {
			return true
		}
	}
	return false
}

// compactInRun compacts the session of an invocation that is under way, and moves the
// handle to what comes of it. It waits for as long as the invocation has patience: time
// in which nothing came of it is taken from that.
func (c *compacting) compactInRun(ctx context.Context, handle *Session, invocation string) {
	least := inRunFrom(c.config)
	if least == 0 {
		return
	}
	if tokens, _ := compaction.PromptTokens(handle.View()); tokens < least {
		return
	}
	left := c.timeout - handle.waitedIn(invocation)
	if left <= 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	began := time.Now()
	written, err := c.inRun.Compact(limited, handle.key, compaction.Run{Invocation: invocation})
	if err != nil || len(written) == 0 {
		handle.waitInVain(invocation, time.Since(began))
	}
	if len(written) == 0 {
		return
	}
	c.show(ctx, handle)
}

// waitedIn returns how long an invocation was kept waiting in vain.
func (s *Session) waitedIn(invocation string) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.waiter != invocation {
		return 0
	}
	return s.waited
}

func (s *Session) waitInVain(invocation string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiter != invocation {
		s.waiter, s.waited = invocation, 0
	}
	s.waited += d
}

// compactedLog is a storage whose patches are reported.
type compactedLog struct {
	storage
	telemetry *telemetry
}

// ApplyOn is as [store.Store.ApplyOn].
func (l compactedLog) ApplyOn(ctx context.Context, key store.Key, on fold.View, opts fold.CheckOptions, patches ...*patch.PatchEvent) (v fold.View, err error) {
	ctx, op := l.telemetry.start(ctx, opPatch, key)
	defer func() { op.end(ctx, err) }()
	done, err := l.storage.ApplyPatch(ctx, key, store.PatchOptions{
		On: on, AsOfNow: opts.AsOfNow, AllowOrphans: opts.AllowOrphans, AllowPinned: opts.AllowPinned, HideWaiting: opts.HideWaiting,
	}, patches...)
	if err != nil {
		return done.View, err
	}
	op.logged(ctx, done.Records)
	return done.View, nil
}
