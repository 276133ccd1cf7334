package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/line"
)

// request is a plan that waits for its session's turn. Writers of one session do not
// queue up for a sync each: one of them drafts the plans of all that wait, in their
// order, and puts them into one commit.
type request struct {
	ctx      context.Context
	creation string // that the session must have, or ""
	plan     plan
	records  []patch.Record // what the plan offers, completed when it is first tried
	have     []patch.Record // see [draft.have]

	// Set when the turn is over.
	committed Committed
	err       error

	draft   *draft
	refusal error // the plan's
	rests   bool  // acceptance or refusal rests on what the group adds
}

// errAbandoned is what becomes of a write whose leader panicked in a function of its
// caller's.
var errAbandoned = errors.New("abandoned: a call that shared the commit panicked")

// So many writes, or so many bytes, make a group that is large enough.
const (
	maxGroup      = 1024
	maxGroupBytes = 16 << 20
)

var fitting = line.Fit(maxGroup, maxGroupBytes, func(r *request) int {
	size := 0
	for _, rec := range r.plan.offers() {
		size += rec.Size()
	}
	return size
})

// commit logs what a plan wants. What the plan needs to know of the log is read under the
// caller's context and with no lock held; then it waits for its turn again.
func (s *Store) commit(ctx context.Context, key Key, creation string, p plan) (Committed, error) {
	if err := key.Validate(); err != nil {
		return Committed{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	r := &request{ctx: ctx, creation: creation, plan: p}
	for {
		if err := h.line.Do(ctx, h.writer, r, fitting, func(group []*request) { s.lead(ctx, h, group) }); err != nil {
			return Committed{}, err
		}
		next, err := s.furnished(h, r, r.err)
		if next == nil {
			return r.committed, err
		}
		r = next
	}
}

// furnished returns the request to try next: the same, with the records at hand that its
// plan needs, if that is what the error says. Else it returns none, and the error.
func (s *Store) furnished(h *handle, r *request, err error) (*request, error) {
	var need *fold.NeedError
	if !errors.As(err, &need) {
		return nil, err
	}
	have, err := s.provide(r.ctx, h, need, r.have)
	if err != nil {
		return nil, err
	}
	return &request{ctx: r.ctx, creation: r.creation, plan: r.plan, records: r.records, have: have}, nil
}

// preview drafts a plan on the newest view, without committing it.
func (s *Store) preview(ctx context.Context, key Key, creation string, p plan) (before fold.View, d *draft, err error) {
	if err := key.Validate(); err != nil {
		return fold.View{}, nil, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	r := &request{ctx: ctx, creation: creation, plan: p}
	for {
		if before, err = s.view(ctx, h); err != nil {
			return fold.View{}, nil, err
		}
		g := group{store: s, handle: h, before: before, view: before}
		g.begin(ctx, []*request{r})
		if err = r.err; err == nil {
			err = g.take(r)
		}
		next, err := s.furnished(h, r, err)
		if next == nil {
			return before, r.draft, err
		}
		r = next
	}
}

// lead writes one group of the session's requests. The caller holds the handle's lock.
func (s *Store) lead(ctx context.Context, h *handle, requests []*request) {
	// The leader works for others too: that it is no longer waited for must not fail
	// their writes.
	ctx = context.WithoutCancel(ctx)
	fail(requests, errAbandoned) // unless they are told otherwise
	view, err := s.lockedView(ctx, h)
	if err != nil {
		fail(requests, err)
		return
	}
	g := group{store: s, handle: h, before: view, view: view}
	g.batch = backend.Batch{Creation: view.Creation(), After: view.Seq()}
	g.begin(ctx, requests)
	for _, r := range g.requests {
		r.rests = len(g.added) > 0
		if r.refusal = g.take(r); r.refusal == nil {
			r.rests = g.holds(r.draft)
		}
	}
	g.end(ctx)
}

func fail(requests []*request, err error) {
	for _, r := range requests {
		r.err = err
	}
}

// group is the drafts of one commit in the making.
type group struct {
	store    *Store
	handle   *handle
	before   fold.View
	view     fold.View // with what the group adds so far
	batch    backend.Batch
	taken    map[string]uint64 // ids in the log or in the batch → seq
	added    []patch.Record    // the batch's records
	requests []*request        // those that have not failed
}

// begin looks up at once all ids that the plans offer.
func (g *group) begin(ctx context.Context, requests []*request) {
	var ids []string
	for _, r := range requests {
		d := &draft{group: g, ctx: ctx, have: r.have}
		var own []string
		err := r.ctx.Err()
		if err == nil && r.creation != "" && r.creation != g.view.Creation() {
			err = fmt.Errorf("session %s: %w: it was created again since", g.handle.key, ErrNotFound)
		}
		if err == nil {
			if r.records == nil {
				r.records = g.store.complete(r.plan.offers())
			}
			if own, err = d.offer(r.plan.offers(), r.records); err != nil {
				err = fmt.Errorf("session %s: %w", g.handle.key, err)
			}
		}
		if r.err = err; err != nil {
			continue
		}
		ids = append(ids, own...)
		r.draft = d
		g.requests = append(g.requests, r)
	}
	var err error
	if g.taken, err = g.store.lookup(ctx, g.handle.key, g.before, ids); err != nil {
		fail(g.requests, err)
		g.requests = nil
	}
}

// take drafts a request's plan on what those before it leave, and takes what it adds.
func (g *group) take(r *request) error {
	d := r.draft
	d.view = g.view
	if err := r.plan.draft(d); err != nil {
		return fmt.Errorf("session %s: %w", g.handle.key, err)
	}
	g.view = d.view
	g.batch.Records = append(g.batch.Records, d.batch...)
	g.batch.Shared = append(g.batch.Shared, d.shared...)
	g.added = append(g.added, d.adds...)
	for _, raw := range d.batch {
		for _, id := range raw.IDs {
			g.taken[id] = raw.Seq
		}
	}
	return nil
}

// holds reports whether the group adds some of what a draft says.
func (g *group) holds(d *draft) bool {
	return slices.ContainsFunc(d.records, func(r patch.Record) bool { return r.Seq > g.batch.After })
}

// end makes the group durable, publishes its view, and says to each request what came of
// it.
func (g *group) end(ctx context.Context) {
	err := g.store.write(ctx, g.handle, g.view, g.batch)
	for _, r := range g.requests {
		switch {
		case err != nil && r.rests: // a refusal too: what it was judged on may not be there
			r.err = err
			if errors.Is(err, ErrOutcomeUnknown) {
				r.committed = Committed{Records: r.draft.records}
			}
		case r.refusal != nil:
			r.err = r.refusal
		case err != nil: // all of it was in the log before
			r.committed, r.err = Committed{r.draft.records, g.before}, nil
		default:
			r.committed, r.err = Committed{r.draft.records, r.draft.view}, nil
		}
	}
}

// write makes a batch durable and publishes the view that it gives. The caller holds the
// handle's lock.
func (s *Store) write(ctx context.Context, h *handle, next fold.View, batch backend.Batch) error {
	if len(batch.Records) == 0 && !batch.Create {
		return nil
	}
	err := s.backend.Append(ctx, h.key.name(), batch)
	if err == nil {
		h.publish(next)
		s.maybeSnapshot(h, next)
		return nil
	}
	// What is in memory may no longer be what is stored: read it again.
	h.drop()
	switch {
	case errors.Is(err, backend.ErrUnknown):
		err = s.findOut(ctx, h.key, batch, err)
	case errors.Is(err, backend.ErrMoved):
		err = fmt.Errorf("%w: someone else writes to the storage", ErrConflict)
	}
	return fromBackend(h.key, err)
}

// findOut asks the backend whether a batch took place whose commit failed. It returns
// nil if it did.
func (s *Store) findOut(ctx context.Context, key Key, batch backend.Batch, failure error) error {
	// The caller may be gone; the question is still worth an answer.
	landed, err := s.landed(context.WithoutCancel(ctx), key, batch)
	switch {
	case err != nil:
		return stillUnknown(failure, err)
	case !landed:
		return fmt.Errorf("the commit failed and wrote nothing: %w", causeOf(failure))
	}
	s.opts.Logger.Warn("patchlog: a commit failed but took place", "session", key.String(), "error", failure)
	return nil
}

// landed reports whether a batch is in the log. A batch is atomic, so the id of its first
// record tells; its seq does not, since another writer may have taken it.
func (s *Store) landed(ctx context.Context, key Key, batch backend.Batch) (bool, error) {
	head, err := s.backend.Head(ctx, key.name())
	switch {
	case errors.Is(err, backend.ErrNotFound), err == nil && head.Creation != batch.Creation:
		return false, nil
	case err != nil:
		return false, err
	case len(batch.Records) == 0: // it was to create the session
		return true, nil
	}
	first := batch.Records[0]
	seqs, err := s.backend.Lookup(ctx, key.name(), head.Creation, first.IDs[:1])
	if errors.Is(err, backend.ErrIndex) { // then the record itself tells
		there, err := s.record(ctx, key, head.Creation, first.Seq)
		return err == nil && there.ID() == first.IDs[0], err
	}
	return err == nil && seqs[0] == first.Seq, err
}

// stillUnknown is the error of a commit whose outcome could not be found out.
func stillUnknown(failure, err error) error {
	return &backend.UnknownError{Cause: fmt.Errorf("%w; and asking failed: %w", causeOf(failure), err)}
}

// causeOf returns why a commit failed, without the claim that its outcome is unknown.
func causeOf(failure error) error {
	var unknown *backend.UnknownError
	if errors.As(failure, &unknown) {
		return unknown.Cause
	}
	return errors.New(failure.Error())
}

// lookup returns the seqs of the records of a view's log that take the ids, of those that
// are taken.
func (s *Store) lookup(ctx context.Context, key Key, v fold.View, ids []string) (map[string]uint64, error) {
	seqs, err := s.backend.Lookup(ctx, key.name(), v.Creation(), ids)
	if errors.Is(err, backend.ErrIndex) {
		return s.search(ctx, key, v, ids, err)
	}
	if err != nil {
		return nil, fromBackend(key, err)
	}
	taken := map[string]uint64{}
	for i, seq := range seqs {
		if seq != 0 {
			taken[ids[i]] = seq
		}
	}
	return taken, nil
}

// search is lookup where the index is damaged: the log has the answer.
func (s *Store) search(ctx context.Context, key Key, v fold.View, ids []string, cause error) (map[string]uint64, error) {
	s.opts.Logger.Warn("patchlog: the index of ids is damaged; each write reads the log for them", "session", key.String(), "error", cause)
	taken := map[string]uint64{}
	for _, id := range ids {
		taken[id] = 0
	}
	take := func(id string, seq uint64) {
		if at, wanted := taken[id]; wanted && at == 0 {
			taken[id] = seq
		}
	}
	for page, err := range s.pages(ctx, key, logOf(v), 1, v.Seq()) {
		if err != nil {
			return nil, err
		}
		for _, r := range page.records {
			for id := range r.IDs() {
				take(id, r.Seq)
			}
			if id := groupOf(r); id != "" {
				take(id, r.Seq)
			}
		}
	}
	return taken, nil
}
