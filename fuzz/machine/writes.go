package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// op returns an operation on the session.
func (m *machine) op(kind ops.Kind, offered ...patch.Record) ops.Op {
	return ops.Op{App: m.key.App, Session: m.key.Session, Kind: kind, Offered: offered, IDs: []string{""}}
}

// do executes an operation on a store, with the store's own view that corresponds to the bbolt store's view, since
// creation ids differ.
func (m *machine) do(s *store.Store, o ops.Op) ops.Reply {
	var seen fold.View
	if o.On != "" && o.Kind == ops.Patch {
		var err error
		if seen, err = s.ViewAt(context.Background(), m.key, *o.At); err != nil {
			panic(err)
		}
	}
	return ops.Do(context.Background(), s, seen, o)
}

// write executes an operation that offers records on each store, checks the replies, and adds the records to the
// model.
func (m *machine) write(t *rapid.T, o ops.Op, want string) {
	var first []patch.Record
	offered := slices.DeleteFunc(slices.Clone(o.Offered), func(r patch.Record) bool { return r.Event != nil && r.Event.Partial() })
	for i, s := range m.stores {
		r := m.do(s, o)
		if r.Outcome != want {
			t.Fatalf("store %d: %s (%v), want %s\nof %v\n%s", i, r.Outcome, r.Err, want, offered, m.log())
		}
		if want != ops.Done {
			continue
		}
		records := r.Committed.Records
		if len(records) != len(offered) {
			t.Fatalf("store %d: %d records for %d", i, len(records), len(offered))
		}
		next := uint64(len(m.records) + 1)
		for j, r := range records {
			if !patch.Same(r, offered[j]) {
				t.Fatalf("store %d: logged %v, offered %v", i, r, offered[j])
			}
			if int(r.Seq) <= len(m.records) {
				continue // it was there
			}
			if r.Seq != next {
				t.Fatalf("store %d: seq %d, want %d", i, r.Seq, next)
			}
			next++
		}
		if i == 0 {
			first = records
		} else {
			compareRecords(t, first, records)
		}
	}
	for j, r := range first {
		if int(r.Seq) <= len(m.records) {
			continue // it was there
		}
		m.records = append(m.records, r)
		m.offered = append(m.offered, offered[j])
		for c := range records.SharedChanges(r) {
			m.shared[c.Key] = c.Value
		}
	}
}

func (m *machine) append(t *rapid.T) {
	o := m.op(ops.Append)
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		id := m.newID()
		if rapid.IntRange(0, 9).Draw(t, "without id") == 0 {
			id = ""
		}
		o.Offered = append(o.Offered, patch.Record{Event: m.event(t, id)})
	}
	m.write(t, o, ops.Done)
}

func (m *machine) event(t *rapid.T, id string) *patch.Event {
	return fuzz.Event(id, m.reference().Visible()).Draw(t, "event")
}

// plain returns a new event.
func (m *machine) plain(t *rapid.T, id, author string) *patch.Event {
	e, err := patch.NewEvent(patch.Fields{ID: id, Author: author, Timestamp: clock})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// drawPatches draws patches, all of one group or without group, and the view that they are made from.
func (m *machine) drawPatches(t *rapid.T, n int, group bool) ops.Op {
	ref, o := m.reference(), m.op(ops.Patch)
	if group {
		patches := fuzz.Group(m.newID(), ref).Draw(t, "group")
		for _, p := range patches { // all of one, so that they are judged as one
			o.Offered = append(o.Offered, patch.Record{Patch: p.WithGroup(patches[len(patches)-1].Group())})
		}
	}
	for range n {
		p := fuzz.PatchOn(m.newID(), ref).Draw(t, "patch")
		o.Offered = append(o.Offered, patch.Record{Patch: p})
		ref.Apply(patch.Record{Seq: ref.Seq() + 1, Patch: p})
	}
	o.AllowOrphans = rapid.Bool().Draw(t, "allow orphans")
	o.AllowPinned = rapid.IntRange(0, 3).Draw(t, "allow hiding what is pinned") == 0
	switch rapid.SampledFrom([]string{"on", "as of now", "neither"}).Draw(t, "seen") {
	case "on":
		v := rapid.SampledFrom(m.views).Draw(t, "view")
		seq := v.Seq()
		o.On, o.Base, o.At = v.Creation(), v.PatchSeq(), &seq
	case "as of now":
		o.AsOfNow = true
	}
	return o
}

func (m *machine) patch(t *rapid.T) {
	o := m.drawPatches(t, 1, false)
	m.write(t, o, ops.Judge(m.reference(), o))
}

// patchBatch applies several patches at once: all or none.
func (m *machine) patchBatch(t *rapid.T) {
	n, group := rapid.IntRange(2, 3).Draw(t, "patches"), rapid.Bool().Draw(t, "is a group")
	if group {
		n = 0
	}
	o := m.drawPatches(t, n, group)
	m.write(t, o, ops.Judge(m.reference(), o))
}

// retry offers existing records again, among new ones.
func (m *machine) retry(t *rapid.T) {
	o := m.op(ops.Append)
	for _, r := range m.offered {
		if r.Event != nil && r.ID() != "" && len(o.Offered) < 3 && rapid.Bool().Draw(t, "again") {
			o.Offered = append(o.Offered, r)
		}
		if r.Patch != nil && r.ID() != "" && rapid.IntRange(0, 3).Draw(t, "patch again") == 0 {
			m.write(t, m.op(ops.Patch, r), ops.Done)
		}
	}
	o.Offered = append(o.Offered, patch.Record{Event: m.event(t, m.newID())})
	m.write(t, o, ops.Done)
}

// duplicate offers a used id with other content, which must write nothing.
func (m *machine) duplicate(t *rapid.T) {
	var ids []string
	for _, r := range m.records {
		ids = slices.AppendSeq(ids, r.IDs())
	}
	if len(ids) == 0 {
		t.Skip("an empty log")
	}
	e := m.plain(t, rapid.SampledFrom(ids).Draw(t, "used id"), "a duplicate")
	o := m.op(ops.Append, patch.Record{Event: m.plain(t, m.newID(), "new")}, patch.Record{Event: e})
	if rapid.Bool().Draw(t, "in a patch") {
		o = m.op(ops.Patch, patch.Record{Patch: patch.NewSplice(0, 0, e).WithID(m.newID())})
		o.AsOfNow = true
	}
	m.write(t, o, ops.Duplicate)
}

// unexpectedPlace appends with an expected seq that is not the log's last one.
func (m *machine) unexpectedPlace(t *rapid.T) {
	o := m.op(ops.Append, patch.Record{Event: m.plain(t, m.newID(), "agent")})
	wrong := uint64(len(m.records) + 1)
	o.IfSeq = &wrong
	m.write(t, o, fuzz.Conflict)
}

// failingCommit makes the commit of an append fail in one store. If the commit took place, the call succeeds;
// otherwise nothing is written, and a retry writes the events once.
func (m *machine) failingCommit(t *rapid.T) {
	o := m.op(ops.Append, patch.Record{Event: m.plain(t, m.newID(), "agent")})
	failure := rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}).Draw(t, "failure")
	m.look(t) // on a view of a session that is gone by now the outcome could not be found out
	m.peers[m.turn].faulty.Plan(storetest.Plan{Write: 1, Failure: failure})
	r := m.do(m.stores[1], o)
	m.peers[m.turn].faulty.Plan(storetest.Plan{})
	if (r.Outcome == ops.Done) != (failure == storetest.Landed) || r.Outcome == ops.Unknown {
		t.Fatalf("a commit that was %v: %v", failure, r.Err)
	}
	want := m.reference()
	if failure == storetest.Landed {
		want.Apply(patch.Record{Seq: uint64(len(m.records) + 1), Event: o.Offered[0].Event})
	}
	m.compareView(t, 1, m.do(m.stores[1], m.op(ops.Get)).View, want)
	m.write(t, o, ops.Done)
}

// delete deletes the session and creates it again; its old views are refused.
func (m *machine) delete(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("seldom")
	}
	old := m.views[len(m.views)-1]
	for _, s := range m.stores {
		if r := m.do(s, m.op(ops.Delete)); r.Outcome != ops.Done {
			t.Fatal(r.Err)
		}
		if r := m.do(s, m.op(ops.Get)); r.Outcome != ops.NotFound {
			t.Fatalf("a deleted session: %s %s", r.Outcome, r.Err)
		}
	}
	m.create(t)
	late := patch.NewSplice(0, 0, m.plain(t, m.newID(), "agent"))
	for _, s := range m.stores {
		if _, err := s.ApplyPatch(context.Background(), m.key, store.PatchOptions{On: old}, late); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("a patch on a deleted session's view: %v", err)
		}
	}
}

// summarise replaces visible events, summaries included, with a summary.
func (m *machine) summarise(t *rapid.T) {
	n := len(m.reference().Visible())
	if n < 2 {
		t.Skip("nothing to summarise")
	}
	start := rapid.IntRange(0, n-2).Draw(t, "start")
	count := rapid.IntRange(2, min(4, n-start)).Draw(t, "count")
	id := m.newID()
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"s %s","author":"user","content":{"role":"user","parts":[{"text":"told by %s"}]}}`, id, id))
	if err != nil {
		t.Fatal(err)
	}
	o := m.op(ops.Patch, patch.Record{Patch: patch.NewSummarise(start, count, e).WithID(id).WithAuthor("ann").WithTimestamp(clock)})
	o.AsOfNow, o.AllowOrphans, o.AllowPinned = true, true, true
	m.write(t, o, ops.Judge(m.reference(), o))
}

// rewind rewinds to an invocation of the log, or to none.
func (m *machine) rewind(t *rapid.T) {
	invocations := []string{"nobody"}
	for _, r := range m.records {
		if r.Event != nil && r.Event.InvocationID() != "" {
			invocations = append(invocations, r.Event.InvocationID())
		}
	}
	o := m.op(ops.Rewind)
	o.IDs[0] = rapid.SampledFrom(invocations).Draw(t, "invocation")
	from := slices.IndexFunc(m.records, func(r patch.Record) bool { return r.Event != nil && r.Event.InvocationID() == o.IDs[0] })
	m.look(t)
	ref := m.reference()
	visible, state, pins := ref.Rewind(uint64(max(from, 0)) + 1)
	m.back(t, o, func(i int, r ops.Reply) {
		switch {
		case from < 0:
			if r.Outcome != fuzz.NotFound {
				t.Fatalf("store %d: rewound to no invocation: %s %s", i, r.Outcome, r.Err)
			}
			return
		case hasUnknown(ref):
			if len(r.Committed.Records) > 0 {
				t.Fatalf("store %d: rewound a log with a patch of unknown type", i)
			}
			return
		case r.Outcome != ops.Done:
			t.Fatalf("store %d: rewinding to %s: %v\n%s", i, o.IDs[0], r.Err, m.log())
		}
		v := r.View
		for n, e := range v.Events() {
			if n >= len(visible) || e.String() != visible[n].String() || v.IsPinned(n) != pins[n] {
				t.Fatalf("store %d: rewound to %s, visible event %d is %v, pinned: %v\n%s", i, o.IDs[0], n, e, v.IsPinned(n), m.log())
			}
		}
		if values := maps.Collect(v.Values()); v.Len() != len(visible) || !maps.EqualFunc(values, state, patch.Value.Equal) {
			t.Fatalf("store %d: rewound to %s, %d events are visible, want %d; the state is %v, want %v\n%s", i, o.IDs[0], v.Len(), len(visible), values, state, m.log())
		}
	})
}

// takeBack undoes a patch of the log with its group, or none.
func (m *machine) takeBack(t *rapid.T) {
	m.look(t)
	ref, o := m.reference(), m.op(ops.Revert)
	o.IDs[0] = rapid.SampledFrom(append(ref.PatchIDs(), "nobody")).Draw(t, "patch")
	o.AllowOrphans = rapid.Bool().Draw(t, "allow orphans")
	want := ops.Judge(ref, o)
	ids, _, _ := ref.RevertAll(o.IDs[0])
	m.back(t, o, func(i int, r ops.Reply) {
		reverted := revertedBy(r.Committed.Records)
		if r.Outcome != want || want == ops.Done && !slices.Equal(reverted, ids) {
			t.Fatalf("store %d: taking back %s: %s %s, reverts %v, want %s of %v\n%s", i, o.IDs[0], r.Outcome, r.Err, reverted, want, ids, m.log())
		}
	})
}

// revertedBy returns the ids that reverts name.
func revertedBy(reverts []patch.Record) (ids []string) {
	for _, r := range reverts {
		ids = append(ids, r.Patch.PatchID())
	}
	return ids
}

// back executes an operation whose records the stores make, checks the replies, and adds the records to the model.
func (m *machine) back(t *rapid.T, o ops.Op, check func(i int, r ops.Reply)) {
	var logged [2][]patch.Record
	for i, s := range m.stores {
		r := m.do(s, o)
		check(i, r)
		logged[i] = r.Committed.Records
	}
	if len(logged[0]) != len(logged[1]) {
		t.Fatalf("one store logs %v, the other %v", logged[0], logged[1])
	}
	m.records = append(m.records, logged[0]...)
	for _, r := range logged[0] {
		m.offered = append(m.offered, patch.Record{Patch: r.Patch})
	}
}

// look makes the current peer read the newest log. On an older view, a store would draft its records twice, with
// other ids the second time, and the ids of all stores must be equal.
func (m *machine) look(t *rapid.T) {
	if r := m.do(m.stores[1], m.op(ops.Get)); r.Outcome != ops.Done {
		t.Fatal(r.Err)
	}
}

func hasUnknown(ref *fuzz.Reference) bool {
	return slices.ContainsFunc(ref.Skipped(), func(s patch.Skip) bool { return s.Reason == patch.UnknownType })
}

// fork forks the session at a record, changes the fork, and deletes it: the session stays as it is.
func (m *machine) fork(t *rapid.T) {
	at := uint64(rapid.IntRange(0, len(m.records)).Draw(t, "at"))
	o := m.op(ops.Fork)
	o.Source, o.Session, o.At = m.key.Session, fmt.Sprint("fork ", m.newID()), &at
	ref := fuzz.NewReference(m.initial, m.forked(at)...)
	e := m.plain(t, m.newID(), "agent")
	for i, s := range m.stores {
		fork := m.do(s, o)
		if fork.Outcome != ops.Done {
			t.Fatal(fork.Err)
		}
		if err := fuzz.Compare(fork.View, ref); err != nil {
			t.Fatalf("store %d: a fork at %d: %v\n%s", i, at, err, m.log())
		}
		for _, next := range []ops.Op{{Kind: ops.Append, Offered: []patch.Record{{Event: e}}}, {Kind: ops.Delete}} {
			next.App, next.Session = o.App, o.Session
			if r := m.do(s, next); r.Outcome != ops.Done {
				t.Fatal(r.Err)
			}
		}
	}
}
