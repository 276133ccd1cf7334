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

// autoCompaction implements a service's automatic compaction, which docs/ADK.md describes. It is nil if compaction is
// off.
type autoCompaction struct {
	log    tracedStorage
	worker *compaction.Worker[store.Key]

	config     compaction.Config
	background *compaction.Compactor[store.Key]
	inRun      *compaction.Compactor[store.Key] // compactor for running invocations; nil: compact only in the background
	timeout    time.Duration
	last       cache.Cache[store.Key, compaction.Attempt[store.Key]]
	waited     cache.Cache[turn, time.Duration] // time that each invocation spent on compactions that wrote nothing
}

func newAutoCompaction(s storage.Storage, t *telemetry, runs *runs, cfg compaction.Config, opts Options) (*autoCompaction, error) {
	c := &autoCompaction{config: cfg, timeout: cmp.Or(opts.CompactionTimeout, DefaultCompactionTimeout)}
	c.log = tracedStorage{s, t}
	options := compaction.Options[store.Key]{
		Run:     func(_ store.Key, v fold.View) compaction.Run { return compaction.Run{Pinned: pins(v, c.config)} },
		Claim:   runs.claimCompaction,
		Logger:  opts.Logger,
		Prepare: opts.Prepare,
		Approve: opts.Approve,
		Observe: func(ctx context.Context, a compaction.Attempt[store.Key]) {
			t.recordCompaction(ctx, a)
			c.last.Put(a.Key, a, 1)
			if opts.Observe != nil {
				opts.Observe(ctx, a)
			}
		},
	}
	var err error
	if c.inRun, err = c.newInRunCompactor(c.log, options); err != nil {
		return nil, err
	}
	options.Run = func(key store.Key, v fold.View) compaction.Run {
		return compaction.Run{Invocation: runs.activeInvocation(key), Pinned: pins(v, c.config)}
	}
	if c.background, err = compaction.New(c.log, c.config, options); err != nil {
		return nil, err
	}
	c.worker, err = compaction.NewWorker(c.background)
	return c, err
}

// notify queues a session for background compaction. The worker compacts the session if a trigger fires.
func (c *autoCompaction) notify(key store.Key) {
	if c != nil {
		c.worker.Notify(key)
	}
}

// afterAppend compacts the session during a run if the appended event allows it. The argument first reports whether
// the event is the first one appended through the handle.
func (c *autoCompaction) afterAppend(ctx context.Context, handle *Session, e *session.Event, first bool) {
	if c == nil {
		return
	}
	// If a run resumes with the user's answer to a request, ADK reads the request from the log after this
	// append.
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
func (c *autoCompaction) compactInRun(ctx context.Context, handle *Session, invocation string) {
	if tokens, _ := compaction.PromptTokens(handle.View()); tokens < inRunThreshold(c.config) {
		return
	}
	in := turn{handle.key, invocation}
	waited, _ := c.waited.Get(in)
	remaining := c.timeout - waited
	if remaining <= c.timeout/10 { // too little time is left for another attempt
		return
	}
	limited, cancel := context.WithTimeout(ctx, remaining)
	defer cancel()
	began := time.Now()
	written, err := c.inRun.Compact(limited, handle.key, compaction.Run{Invocation: invocation})
	if err != nil || len(written) == 0 {
		c.waited.Put(in, waited+time.Since(began), 1)
	}
	if len(written) == 0 {
		return
	}
	c.showNewest(ctx, handle)
}

// showNewest moves the handle to the session's newest view, unless the session was deleted and created again.
func (c *autoCompaction) showNewest(ctx context.Context, handle *Session) {
	v, err := c.log.View(context.WithoutCancel(ctx), handle.key)
	if err == nil && wrap.SameSession(handle.View().Creation(), v.Creation()) {
		handle.advance(v)
	}
}

// tracedStorage wraps a storage and reports logged patches to telemetry.
type tracedStorage struct {
	storage.Storage
	telemetry *telemetry
}

func (l tracedStorage) ApplyPatch(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (done store.Committed, err error) {
	ctx, op := l.telemetry.start(ctx, opPatch, key)
	defer func() { op.end(ctx, err) }()
	if done, err = l.Storage.ApplyToRecentView(ctx, key, patches, opts); err == nil {
		op.recordLogged(ctx, done.Records)
	}
	return done, err
}
