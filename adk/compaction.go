package adk

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/cache"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/adk/internal/wrap"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// compacting implements a service's automatic compaction, which docs/ADK.md describes. It is nil if compaction is
// off.
type compacting struct {
	log    compactedLog
	worker *compaction.Worker[store.Key]

	config     compaction.Config
	background *compaction.Compactor[store.Key]
	inRun      *compaction.Compactor[store.Key] // nil: compact only in the background
	timeout    time.Duration
	last       cache.Cache[store.Key, compaction.Attempt[store.Key]]
	waited     cache.Cache[turn, time.Duration] // time spent on compactions that wrote nothing, per invocation
}

func newCompacting(s storage.Storage, t *telemetry, runs *runs, cfg compaction.Config, opts Options) (*compacting, error) {
	c := &compacting{config: cfg, timeout: cmp.Or(opts.CompactionTimeout, DefaultCompactionTimeout)}
	c.log = compactedLog{s, t}
	with := compaction.Options[store.Key]{
		Run:     func(_ store.Key, v fold.View) compaction.Run { return compaction.Run{Pinned: pins(v, c.config)} },
		Claim:   runs.claim,
		Logger:  opts.Logger,
		Prepare: opts.Prepare,
		Approve: opts.Approve,
		Observe: func(ctx context.Context, a compaction.Attempt[store.Key]) {
			t.compacted(ctx, a)
			c.last.Put(a.Key, a, 1)
			if opts.Observe != nil {
				opts.Observe(ctx, a)
			}
		},
	}
	var err error
	if c.inRun, err = c.newInRun(c.log, with); err != nil {
		return nil, err
	}
	with.Run = func(key store.Key, v fold.View) compaction.Run {
		return compaction.Run{Invocation: runs.live(key), Pinned: pins(v, c.config)}
	}
	if c.background, err = compaction.New(c.log, c.config, with); err != nil {
		return nil, err
	}
	c.worker, err = compaction.NewWorker(c.background)
	return c, err
}

// notify queues a session for background compaction. The worker compacts the session if a trigger fires.
func (c *compacting) notify(key store.Key) {
	if c != nil {
		c.worker.Notify(key)
	}
}

// afterAppend compacts the session during a run if the appended event allows this. first reports whether the event is
// the first one appended through the handle.
func (c *compacting) afterAppend(ctx context.Context, handle *Session, e *session.Event, first bool) {
	if c == nil {
		return
	}
	// If a run resumes with the user's answer, ADK reads the answered request from the log after this append.
	resumes := first && e.Author == userAuthor
	if c.inRun != nil && hasResponse(e) && !inNode(e) && !resumes {
		c.compactInRun(ctx, handle, e.InvocationID)
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

// compactInRun compacts the session of a running invocation and moves the handle to the result. An invocation may
// spend at most [Options.CompactionTimeout] on compactions that write nothing.
func (c *compacting) compactInRun(ctx context.Context, handle *Session, invocation string) {
	if tokens, _ := compaction.PromptTokens(handle.View()); tokens < inRunFrom(c.config) {
		return
	}
	waiting := turn{handle.key, invocation}
	waited, _ := c.waited.Get(waiting)
	left := c.timeout - waited
	if left <= c.timeout/10 { // too little time for another attempt
		return
	}
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	began := time.Now()
	written, err := c.inRun.Compact(limited, handle.key, compaction.Run{Invocation: invocation})
	if err != nil || len(written) == 0 {
		c.waited.Put(waiting, waited+time.Since(began), 1)
	}
	if len(written) == 0 {
		return
	}
	c.show(ctx, handle)
}

// show moves a session's handle to the newest view, unless the session was deleted and created again.
func (c *compacting) show(ctx context.Context, handle *Session) {
	v, err := c.log.View(context.WithoutCancel(ctx), handle.key)
	if err == nil && wrap.SameSession(handle.View().Creation(), v.Creation()) {
		handle.advance(v)
	}
}

// compactedLog is a storage that reports logged patches to telemetry.
type compactedLog struct {
	storage.Storage
	telemetry *telemetry
}

func (l compactedLog) ApplyPatch(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (done store.Committed, err error) {
	ctx, op := l.telemetry.start(ctx, opPatch, key)
	defer func() { op.end(ctx, err) }()
	if done, err = l.Storage.ApplyNewest(ctx, key, patches, opts); err == nil {
		op.logged(ctx, done.Records)
	}
	return done, err
}
