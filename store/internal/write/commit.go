package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// request is a plan that waits for its session's lock.
type request struct {
	ctx              context.Context
	creation         string // required creation id of the session, or "" for any
	plan             Plan
	completed        []patch.Record // the plan's offered records, with ids and times filled in
	supplied         []patch.Record // records that the plan asked for, read from the log with creation id suppliedCreation
	suppliedCreation string

	// Set when the request is done:
	result fold.Committed
	err    error

	// Set by the last attempt:
	baseView fold.View // the view without records from other requests of the write group
	draft    *Draft
	refusal  error // error returned by the plan
}

// errAbandoned: a plan or the backend panicked in the goroutine that led this commit.
var errAbandoned = errors.New("another call in the same commit panicked")

// Limits of a write group, the requests that share a batch.
const (
	maxGroup      = 1024
	maxGroupBytes = 16 << 20 // memory used by the events
)

var groupSize = groupcommit.LimitGroup(maxGroup, maxGroupBytes, func(r *request) int {
	size := 0
	for _, rec := range r.completed {
		for _, e := range rec.Events() {
			size += e.Footprint()
		}
	}
	return size
})

// lead commits one write group of the session's requests. The caller has locked the session.
//
// The group is first drafted on the cached view, without looking up ids. If the log has changed, the backend refuses
// the batch, and lead drafts the group again on the newest view. If the log has one of the ids, the backend refuses
// the batch too. lead then looks the ids up and drafts the group again. A request whose records may be in the log is
// refused only after the ids were looked up.
func (s *Session) lead(ctx context.Context, requests []*request) {
	ctx, done := sharedContext(ctx, requests)
	defer done()
	for lookUp := false; len(requests) > 0; {
		base, err := s.CachedState(ctx)
		if err != nil {
			failAll(requests, err)
			return
		}
		g := s.draftGroup(ctx, base, requests, lookUp)
		if !lookUp && g.refusesOffered() {
			lookUp = true
			continue
		}
		err = g.commit(ctx)
		switch {
		case err == nil:
			g.succeed()
			return
		case errors.Is(err, backend.ErrUnknown): // the first case, because the cause may match a case below
		case errors.Is(err, errLaterRecords):
			now, err := s.NewestState(ctx, true)
			if err != nil {
				err = s.WrapError(&backend.UnknownError{Cause: err})
			}
			requests = g.succeedLater(now.View, err)
			continue
		case errors.Is(err, backend.ErrTaken) && !lookUp:
			lookUp = true
			continue
		case err == errEmptyCommit, errors.Is(err, backend.ErrMoved), errors.Is(err, backend.ErrNotFound):
			now, readErr := s.NewestState(ctx, true)
			switch {
			case readErr != nil:
				failAll(requests, readErr)
				return
			case !now.sameLog(base):
				continue
			case err == errEmptyCommit: // every request is refused on the newest view or has nothing to log
				g.succeed()
				return
			}
		}
		g.fail(err)
		return
	}
}

// sharedContext returns a context for the work of a write group. The context outlives the leader's own context and
// ends when no caller waits.
func sharedContext(ctx context.Context, requests []*request) (all context.Context, done func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	waiting := new(atomic.Int64)
	waiting.Store(int64(len(requests)))
	stops := make([]func() bool, len(requests))
	for i, r := range requests {
		stops[i] = context.AfterFunc(r.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

func failAll(requests []*request, err error) {
	for _, r := range requests {
		r.err = err
	}
}

// group has the drafts of the requests that share one batch.
type group struct {
	session  *Session
	base     State
	requests []*request // the requests that have a draft
	lookUp   bool       // ids are looked up; if false, the backend refuses ids that the log has

	// Including the drafts so far:
	view  fold.View
	added []patch.Record
	batch batch

	// needsFence is set if a request adds nothing because the log already has its records. Before such a request is
	// answered, the records that were read must be durable. See "Crashes and unknown outcomes" in write.go.
	needsFence bool
}

// draftGroup drafts requests on a state, in their order. If a request cannot be drafted, r.err has the reason.
func (s *Session) draftGroup(ctx context.Context, base State, requests []*request, lookUp bool) *group {
	g := &group{session: s, base: base, lookUp: lookUp, view: base.View}
	g.batch = batch{Counts: base.Counts, invocations: base.Invocations, taken: map[string]uint64{}}
	var ids []string
	for _, r := range requests {
		r.baseView, r.draft, r.refusal = base.View, nil, nil
		if r.err = g.check(r); r.err == nil {
			r.err = errAbandoned // replaced when the commit ends
			g.requests = append(g.requests, r)
			if lookUp {
				ids = append(ids, indexIDs(r.completed)...)
			}
		}
	}
	taken, err := s.lookup(ctx, base.View.Creation(), ids)
	if err != nil {
		failAll(g.requests, err)
		g.requests = nil
	}
	g.batch.taken = taken
	for _, r := range g.requests {
		r.refusal = g.draft(ctx, r)
		g.needsFence = g.needsFence || r.refusal == nil && r.draft.Logged
	}
	return g
}

// check returns an error if a request must not be drafted.
func (g *group) check(r *request) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.creation != "" && r.creation != g.base.View.Creation() {
		return g.session.WrapError(fmt.Errorf("%w: it was deleted and created again", backend.ErrNotFound))
	}
	return g.session.WrapError(fold.CheckUnique(r.completed))
}

// lookup returns the seqs of the log's records that have these ids. Unused ids are omitted.
func (s *Session) lookup(ctx context.Context, creation string, ids []string) (map[string]uint64, error) {
	taken := map[string]uint64{}
	if len(ids) == 0 {
		return taken, nil
	}
	seqs, err := s.Backend.Lookup(ctx, s.Name, creation, ids)
	for i, seq := range seqs {
		if seq != 0 {
			taken[ids[i]] = seq
		}
	}
	return taken, s.WrapError(err)
}

// draft drafts a request's plan on the view that includes the earlier drafts, and adds the draft to the group.
func (g *group) draft(ctx context.Context, r *request) error {
	d := &Draft{ctx: ctx, session: g.session, offered: r.plan.Offered(), Records: r.completed, lookUp: g.lookUp, lastStored: g.base.View.Seq(), batch: g.batch}
	d.batch.records, d.batch.shared, d.batch.indexed = nil, nil, nil
	d.Draft = fold.Draft{View: g.view, Supplied: g.added}
	if r.suppliedCreation == g.view.Creation() && len(r.supplied) > 0 {
		d.Supplied = slices.Concat(r.supplied, g.added)
	}
	r.draft = d
	if err := r.plan.Draft(d); err != nil {
		return g.session.WrapError(err)
	}
	g.view, g.added = d.View, append(g.added, d.Added...)
	for _, raw := range d.batch.records {
		for _, id := range raw.IDs {
			g.batch.taken[id] = raw.Seq
		}
	}
	d.batch.records, d.batch.shared = append(g.batch.records, d.batch.records...), append(g.batch.shared, d.batch.shared...)
	g.batch = d.batch
	return nil
}

// refusesOffered reports whether a plan with offered records was refused. The log may already have these records.
func (g *group) refusesOffered() bool {
	return slices.ContainsFunc(g.requests, func(r *request) bool { return r.refusal != nil && len(r.completed) > 0 })
}

// commit commits the group's batch and publishes its view. If the batch is empty and needsFence is set, commit only
// makes the records that were read durable. It returns the backend's errors. If it panics, the outcome is unknown to
// all callers, so commit drops the cached view.
func (g *group) commit(ctx context.Context) (err error) {
	returned := false
	defer func() {
		if !returned {
			g.session.Drop()
			g.fail(&backend.UnknownError{Cause: errAbandoned})
		}
	}()
	err = g.commitBatch(ctx)
	returned = true
	return err
}

func (g *group) commitBatch(ctx context.Context) error {
	s, b := g.session, g.base
	switch {
	case len(g.batch.records) > 0:
		next := State{View: g.view, Counts: g.batch.Counts, Invocations: g.batch.invocations}
		return s.CommitBatch(ctx, next, backend.Batch{
			Creation: b.View.Creation(), ExpectedLast: b.View.Seq(), ExpectedToken: b.Token, Chain: b.Chain,
			Records: g.batch.records, Shared: g.batch.shared, RequireFreeIDs: !g.lookUp,
		})
	case g.needsFence:
		fenced, err := s.Backend.Fence(ctx, s.Name, b.View.Creation(), b.Token, backend.NewToken())
		if err == nil && !fenced {
			err = backend.ErrMoved
		}
		return err
	}
	return errEmptyCommit
}

var errEmptyCommit = errors.New("there is nothing to commit")

// succeed sets the result or the refusal of each request.
func (g *group) succeed() {
	for _, r := range g.requests {
		if r.err = r.refusal; r.err == nil {
			r.result = fold.Committed{Records: r.draft.Records, View: r.draft.View}
		}
	}
}

// succeedLater sets the results after a commit that is in the log and followed by later records. The argument now is
// a view that includes all these records. succeedLater returns the refused requests, which must be drafted again.
func (g *group) succeedLater(now fold.View, err error) (refused []*request) {
	for _, r := range g.requests {
		if r.refusal != nil {
			refused = append(refused, r)
			continue
		}
		r.result, r.err = fold.Committed{Records: r.draft.Records, View: now}, err
	}
	return refused
}

// fail sets the backend's error for all requests, including those that were refused or had nothing to add.
func (g *group) fail(err error) {
	for _, r := range g.requests {
		if r.err = g.session.WrapError(err); errors.Is(err, backend.ErrUnknown) {
			r.result = fold.Committed{Records: r.draft.Records}
		}
	}
}

// CommitBatch commits a batch and publishes the state after the batch, which is the argument next. CommitBatch sets the token and
// the chain of this state. The caller has locked the session. The errors are the backend's.
func (s *Session) CommitBatch(ctx context.Context, next State, b backend.Batch) error {
	next.Counts = next.Counts.At(next.View)
	b.Counts = next.Counts.Encode()
	defer s.Wake() // even if the commit fails
	err := s.append(ctx, &b)
	switch {
	case err == nil:
		next.Token, next.Chain = b.Next, chainOf(b.Chain, b.Records)
		s.Publish(next)
	case !errors.Is(err, backend.ErrMoved) && !errors.Is(err, backend.ErrTaken):
		s.Drop() // the cached state may differ from the stored one
	}
	return err
}

// append commits a batch with a new token and resolves an unknown outcome.
func (s *Session) append(ctx context.Context, b *backend.Batch) error {
	b.Next = backend.NewToken()
	CompressAll(b.Records)
	err := s.Backend.Append(ctx, s.Name, *b)
	if errors.Is(err, backend.ErrUnknown) {
		return s.resolve(ctx, *b, err)
	}
	return err
}

// chainOf returns the chain after the records are appended.
func chainOf(chain backend.Chain, records []backend.Record) backend.Chain {
	for _, r := range records {
		chain = chain.Add(r.Sum)
	}
	return chain
}
