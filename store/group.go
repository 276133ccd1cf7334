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

// request is a write that waits for its session's turn. Writers of one session do not
// queue up for a sync each: one of them plans the writes of all that wait, in their
// order, and puts them into one commit.
type request struct {
	ctx      context.Context
	creation string
	records  []patch.Record
	plan     func(*write) error

	// Set when the turn is over.
	committed Committed
	err       error

	write   *write
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

// write puts records into a session's log. plan adds those that are missing, or
// refuses.
func (s *Store) write(ctx context.Context, key Key, creation string, records []patch.Record, plan func(*write) error) (Committed, error) {
	if err := key.Validate(); err != nil {
		return Committed{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	r := &request{ctx: ctx, creation: creation, records: records, plan: plan}
	if err := h.line.Do(ctx, h.writer, r, fitting, func(group []*request) { s.lead(ctx, h, group) }); err != nil {
		return Committed{}, err
	}
	return r.committed, r.err
}

var fitting = line.Fit(maxGroup, maxGroupBytes, func(r *request) int {
	size := 0
	for _, rec := range r.records {
		size += rec.Size()
	}
	return size
})

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
	g.batch = backend.Batch{Creation: g.view.Creation(), After: g.view.Seq()}
	g.begin(ctx, requests)
	for _, r := range g.requests {
		r.rests = len(g.added) > 0
		if r.refusal = g.plan(ctx, r); r.refusal == nil {
			r.rests = g.holds(r.write)
		}
	}
	g.commit(ctx)
}

// group is the writes of one commit in the making.
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

func fail(requests []*request, err error) {
	for _, r := range requests {
		r.err = err
	}
}

// begin completes all records and looks all ids up at once.
func (g *group) begin(ctx context.Context, requests []*request) {
	var ids []string
	for _, r := range requests {
		w := &write{store: g.store, handle: g.handle, records: r.records}
		err := r.ctx.Err()
		if err == nil {
			err = w.begin(g.view, r.creation)
		}
		if err == nil {
			w.complete()
			var own []string
			own, err = w.ids()
			ids = append(ids, own...)
		}
		if err != nil {
			r.err = err
			continue
		}
		r.write = w
		g.requests = append(g.requests, r)
	}
	first := write{store: g.store, handle: g.handle, view: g.view}
	taken, err := first.lookup(ctx, ids)
	if err != nil {
		fail(g.requests, err)
		g.requests = nil
		return
	}
	g.taken = taken
}

// plan judges a request on what those before it leave, and takes what it adds.
func (g *group) plan(ctx context.Context, r *request) error {
	w := r.write
	w.view = g.view
	w.batch.After = g.view.Seq()
	logged := func(seq uint64) (patch.Record, error) {
		if i := seq - g.batch.After - 1; seq > g.batch.After && i < uint64(len(g.added)) {
			return g.added[i], nil
		}
		return g.store.record(ctx, g.handle.key, g.view.Creation(), seq)
	}
	err := w.match(g.taken, logged)
	if errors.Is(err, backend.ErrIndex) {
		if err = g.lookAgain(ctx, w, err); err == nil {
			err = w.match(g.taken, logged)
		}
	}
	if err != nil {
		return err
	}
	if err := r.plan(w); err != nil {
		return fmt.Errorf("session %s: %w", g.handle.key, err)
	}
	g.view = w.view
	g.batch.Records = append(g.batch.Records, w.batch.Records...)
	g.batch.Shared = append(g.batch.Shared, w.batch.Shared...)
	for _, i := range w.missing {
		g.added = append(g.added, w.records[i])
		for id := range w.records[i].IDs() {
			g.taken[id] = w.records[i].Seq
		}
	}
	return nil
}

// lookAgain looks in the log for the ids of a write that the index is wrong about.
func (g *group) lookAgain(ctx context.Context, w *write, cause error) error {
	ids, err := w.ids()
	if err != nil {
		return err
	}
	before := write{store: g.store, handle: g.handle, view: g.before}
	taken, err := before.search(ctx, ids, cause)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if g.taken[id] <= g.batch.After { // the group's own are right
			g.taken[id] = taken[id]
		}
	}
	return nil
}

// holds reports whether the group adds some of what a write returns.
func (g *group) holds(w *write) bool {
	return slices.ContainsFunc(w.records, func(r patch.Record) bool { return r.Seq > g.batch.After })
}

// commit makes the group durable, publishes its view, and says to each request what
// came of it.
func (g *group) commit(ctx context.Context) {
	w := write{store: g.store, handle: g.handle, view: g.view, records: g.added, batch: g.batch}
	err := w.commit(ctx)
	for _, r := range g.requests {
		switch {
		case err != nil && r.rests: // a refusal too: what it was judged on may not be there
			r.err = err
			if errors.Is(err, ErrOutcomeUnknown) {
				r.committed = Committed{Records: r.write.records}
			}
		case r.refusal != nil:
			r.err = r.refusal
		case err != nil: // all of it was in the log before
			r.committed, r.err = Committed{r.write.records, g.before}, nil
		default:
			r.committed, r.err = Committed{r.write.records, r.write.view}, nil
		}
	}
}
