package store

import (
	"cmp"
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

// request is a plan that waits for its session's turn. Writers of one session do not
// queue up for a sync each: one of them drafts the plans of all that wait, in their
// order, and puts them into one commit.
type request struct {
	ctx      context.Context
	creation string // that the session must have, or ""
	plan     plan
	records  []patch.Record // what the plan offers, completed when it is first tried
	have     []patch.Record // for [draft.have], read from the log with the creation id haveOf
	haveOf   string

	// Set when the turn is over.
	committed Committed
	err       error

	draft   *draft
	refusal error // the plan's
}

// errAbandoned is what becomes of a write whose leader panicked in a function of its
// caller's.
var errAbandoned = errors.New("abandoned: a call that shared the commit panicked")

// Limits of a group of writes that share a commit.
const (
	maxGroup      = 1024
	maxGroupBytes = 16 << 20 // in memory
)

var fitting = groupcommit.Fit(maxGroup, maxGroupBytes, func(r *request) int {
	size := 0
	for _, rec := range r.plan.offers() {
		for _, e := range rec.Events() {
			size += e.Footprint()
		}
	}
	return size
})

// commit logs what a plan wants. What the plan needs to know of the log is read under the
// caller's context and with no lock held; then it waits for its turn again.
func (s *Store) commit(ctx context.Context, key Key, creation string, p plan) (done Committed, err error) {
	for {
		if done, err = s.commitOnce(ctx, key, creation, p); !errors.Is(err, errReceiptOpen) {
			return done, err
		}
		if err := s.finishErasures(ctx, key, false); err != nil {
			return done, err
		}
	}
}

func (s *Store) commitOnce(ctx context.Context, key Key, creation string, p plan) (Committed, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	// If the outcome is left unknown, the caller must know the records.
	r := &request{ctx: ctx, creation: creation, plan: p, records: s.complete(p.offers())}
	for {
		records := r.records
		switch err := h.line.Do(ctx, h.writer, r, fitting, func(group []*request) { s.lead(ctx, h, group) }); {
		case errors.Is(err, groupcommit.ErrBegun): // the request is its leader's now
			return Committed{Records: records}, fromBackend(key, &backend.UnknownError{Cause: ctx.Err()})
		case err != nil:
			return Committed{}, err
		}
		next, err := s.furnished(h, r, r.err)
		if next == nil {
			// Work on a group has a context of its own, which may have ended since this one has.
			if own := ctx.Err(); own != nil && errors.Is(err, context.Canceled) && !errors.Is(err, own) {
				err = fmt.Errorf("%w: %w", own, err)
			}
			return r.committed, err
		}
		r = next
	}
}

// furnished returns the request to try next: the same, with the records at hand that its
// plan needs, or with none if the log is not the one that they were read of, if that is what the
// error says. Else it returns none, and the error.
func (s *Store) furnished(h *handle, r *request, err error) (*request, error) {
	var need *fold.MissingRecordsError
	next := &request{ctx: r.ctx, creation: r.creation, plan: r.plan, records: r.records}
	if errors.As(err, &need) {
		next.have, next.haveOf, err = s.provide(r, h, need.Seqs)
	} else if err == nil {
		return nil, nil
	}
	if err != nil && !errors.Is(err, errOtherLog) {
		return nil, err
	}
	return next, nil
}

// provide reads records that a request's plan needs, and adds them to those at hand.
func (s *Store) provide(r *request, h *handle, seqs []uint64) (have []patch.Record, creation string, err error) {
	c, _, err := s.current(r.ctx, h, false, scopesQuery{})
	if err != nil {
		return nil, "", err
	}
	creation = c.view.Creation()
	// A plan has its own records at hand.
	logged := slices.DeleteFunc(slices.Clone(seqs), func(seq uint64) bool { return seq > c.view.Seq() })
	if have, err = s.pick(r.ctx, h.key, creation, logged); err != nil {
		return nil, "", err
	}
	if r.haveOf == creation { // a session may have been created again since
		have = append(have, r.have...)
	}
	slices.SortStableFunc(have, func(a, b patch.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return have, creation, nil
}

// commitOrDraft commits a plan, or with dry only drafts it.
func (s *Store) commitOrDraft(ctx context.Context, key Key, creation string, p plan, dry bool) (Committed, error) {
	if dry {
		return s.draft(ctx, key, creation, p)
	}
	return s.commit(ctx, key, creation, p)
}

// draft drafts a plan on the newest view, without committing it.
func (s *Store) draft(ctx context.Context, key Key, creation string, p plan) (Committed, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	r := &request{ctx: ctx, creation: creation, plan: p}
	for {
		c, _, err := s.newest(ctx, h, false, scopesQuery{})
		if err != nil {
			return Committed{}, err
		}
		g := group{store: s, handle: h, before: c, view: c.view, lookUp: true} // of a receipt that is open it knows nothing
		g.begin(ctx, []*request{r})
		if err = r.err; err == nil {
			err = g.take(r)
		}
		next, err := s.furnished(h, r, err)
		switch {
		case err != nil:
			return Committed{}, err
		case next == nil:
			return Committed{Records: r.draft.records, View: r.draft.view, Before: c.view}, nil
		}
		r = next
	}
}

// lead writes one group of the session's requests. The caller holds the handle's lock.
//
// The group is drafted on what was seen last, without looking up the ids that it takes, and
// again if the backend refuses that, or if a request would be refused that may be in the log.
func (s *Store) lead(ctx context.Context, h *handle, requests []*request) {
	ctx, done := s.forAll(ctx, requests)
	defer done()
	fail(requests, errAbandoned) // unless they are told otherwise
	for lookUp := false; len(requests) > 0; {
		c, _, err := s.current(ctx, h, true, scopesQuery{})
		if err != nil {
			fail(requests, err)
			return
		}
		g := group{store: s, handle: h, before: c, view: c.view, counts: c.counts, known: c.invocations, lookUp: lookUp}
		g.batch = backend.Batch{Creation: c.view.Creation(), ExpectedLast: c.view.Seq(), ExpectedToken: c.token, Chain: c.chain, RequireFreeIDs: !lookUp}
		g.begin(ctx, requests)
		g.takeAll()
		if !lookUp && g.refuses() {
			lookUp = true
			continue
		}
		written := len(g.batch.Records) > 0
		switch {
		case written:
			err = s.write(ctx, h, current{view: g.view, counts: g.counts, invocations: g.known}, g.batch)
		case g.confirms:
			err = s.confirmSeen(ctx, h, c)
		}
		unknown := errors.Is(err, backend.ErrUnknown) // whose cause may be one of the others
		taken := !lookUp && errors.Is(err, backend.ErrTaken)
		switch {
		case err == nil && (written || g.confirms):
			g.end()
			return
		case errors.Is(err, errLaterView):
			now, _, err := s.newest(ctx, h, true, scopesQuery{})
			if err != nil {
				err = fromBackend(h.key, &backend.UnknownError{Cause: err})
			}
			requests = g.endLater(now.view, err)
			continue
		case err != nil && (unknown || !taken && !errors.Is(err, backend.ErrMoved) && !errors.Is(err, backend.ErrNotFound)):
			g.fail(fromBackend(h.key, err))
			return
		}
		now, _, readErr := s.newest(ctx, h, true, scopesQuery{})
		switch {
		case readErr != nil:
			fail(requests, readErr)
			return
		case taken:
			lookUp = true
		case now.token != c.token || now.view.Creation() != c.view.Creation(): // drafted again on what is new
		case err != nil:
			g.fail(fromBackend(h.key, err))
			return
		default: // all are refused, by the newest view
			g.end()
			return
		}
	}
}

// confirmSeen makes what was read of a session durable. It fails with [backend.ErrMoved] if the
// session is not as it was seen.
func (s *Store) confirmSeen(ctx context.Context, h *handle, seen current) error {
	took, err := s.backend.Fence(ctx, h.key.name(), seen.view.Creation(), seen.token, backend.NewToken())
	if err == nil && !took {
		err = backend.ErrMoved
	}
	return err
}

// forAll returns the context for work on the requests of a group. That the leader is no
// longer waited for must not fail the writes of the others: the context ends when no caller waits.
func (s *Store) forAll(ctx context.Context, requests []*request) (all context.Context, done func()) {
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

func fail(requests []*request, err error) {
	for _, r := range requests {
		r.err = err
	}
}

// group is the drafts of one commit in the making.
type group struct {
	store    *Store
	handle   *handle
	before   current
	view     fold.View // with what the group adds so far
	counts   counts    // of the view's log
	known    []string  // invocations: see [current]
	lookUp   bool      // whether to ask for the ids first, or leave it to the backend's refusal
	batch    backend.Batch
	taken    map[string]uint64 // ids in the log or in the batch → seq
	added    []patch.Record    // the batch's records
	requests []*request        // those that have not failed
	confirms bool              // the view must be confirmed if the group adds nothing: see takeAll
}

// begin looks up at once all ids that the plans offer.
func (g *group) begin(ctx context.Context, requests []*request) {
	var ids []string
	for _, r := range requests {
		d := &draft{group: g, ctx: ctx}
		if r.haveOf == g.view.Creation() {
			d.have = r.have
		}
		var own []string
		err := r.ctx.Err()
		if err == nil && r.creation != "" && r.creation != g.view.Creation() {
			err = errCreatedAgain(g.handle.key)
		}
		if err == nil {
			if r.records == nil {
				r.records = g.store.complete(r.plan.offers())
			}
			if own, err = d.offer(r.plan.offers(), r.records); err != nil {
				err = fmt.Errorf("session %s: %w", g.handle.key, err)
			}
		}
		if err != nil {
			r.err = err
			continue
		}
		ids = append(ids, own...)
		r.draft = d
		g.requests = append(g.requests, r)
	}
	var err error
	if g.taken, err = g.lookup(ctx, ids); err != nil {
		fail(g.requests, err)
		g.requests = nil
	}
}

// lookup returns the seqs of the records in the log that take the ids, of those that are
// taken and looked up.
func (g *group) lookup(ctx context.Context, ids []string) (map[string]uint64, error) {
	taken := map[string]uint64{}
	if !g.lookUp || len(ids) == 0 {
		return taken, nil
	}
	seqs, err := g.store.backend.Lookup(ctx, g.handle.key.name(), g.before.view.Creation(), ids)
	for i, seq := range seqs {
		if seq != 0 {
			taken[ids[i]] = seq
		}
	}
	return taken, fromBackend(g.handle.key, err)
}

// takeAll drafts the plans in their order.
//
// A server that takes over may lose what a read has shown, but not what was acknowledged. So where
// the group adds nothing, and a request would be told that what it wants is in the log already, that is
// confirmed first.
func (g *group) takeAll() {
	for _, r := range g.requests {
		r.refusal = g.take(r)
		g.confirms = g.confirms || r.refusal == nil && r.draft.present
	}
}

// take drafts a request's plan on what those before it leave, and takes what it adds.
func (g *group) take(r *request) error {
	d := r.draft
	d.view, d.counts, d.invocations = g.view, g.counts, g.known
	if err := r.plan.draft(d); err != nil {
		return fmt.Errorf("session %s: %w", g.handle.key, err)
	}
	g.view, g.counts, g.known = d.view, d.counts, d.invocations
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

// refuses reports whether a plan with records of its caller's was refused, which may be in
// the log already.
func (g *group) refuses() bool {
	return slices.ContainsFunc(g.requests, func(r *request) bool { return r.refusal != nil && len(r.records) > 0 })
}

// end says to each request what came of it.
func (g *group) end() {
	for _, r := range g.requests {
		if r.err = r.refusal; r.err == nil {
			r.committed = Committed{Records: r.draft.records, View: r.draft.view}
		}
	}
}

// endLater is end of a commit that was found in the log with later ones, in the view that has them. It
// returns the requests that were refused, to be drafted again.
func (g *group) endLater(now fold.View, err error) (refused []*request) {
	for _, r := range g.requests {
		if r.refusal != nil {
			refused = append(refused, r)
			continue
		}
		r.committed, r.err = Committed{Records: r.draft.records, View: now}, err
	}
	return refused
}

// fail says to all requests that the group's commit failed: to those that it would have refused, or that had nothing to
// add, too.
func (g *group) fail(err error) {
	fail(g.requests, err)
	for _, r := range g.requests {
		if errors.Is(err, ErrOutcomeUnknown) {
			r.committed = Committed{Records: r.draft.records}
		}
	}
}

// write makes a batch durable and publishes the view that it gives, next, of which token and chain come of the commit. The caller holds the handle's
// lock. Errors are the backend's.
func (s *Store) write(ctx context.Context, h *handle, next current, batch backend.Batch) error {
	next.counts = next.counts.of(next.view)
	batch.Counts = next.counts.encode()
	defer s.changes.wake(h.key) // whatever comes of it
	err := s.append(ctx, h.key, &batch)
	switch {
	case err == nil:
		next.token, next.chain = batch.Next, chainOf(batch.Chain, batch.Records)
		h.publish(next)
		s.maybeSnapshot(h, next.view)
	case !errors.Is(err, backend.ErrMoved) && !errors.Is(err, backend.ErrTaken):
		// What is in memory may no longer be what is stored: read it again.
		h.drop()
	}
	return err
}

// append commits a batch with a new token, and resolves an unknown outcome. Errors are the backend's.
func (s *Store) append(ctx context.Context, key Key, batch *backend.Batch) error {
	batch.Next = backend.NewToken()
	compress(batch.Records)
	err := s.backend.Append(ctx, key.name(), *batch)
	if errors.Is(err, backend.ErrUnknown) {
		return s.findOut(ctx, key, *batch, err)
	}
	return err
}
