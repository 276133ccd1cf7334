package machine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// op returns an operation on the session under test.
func (m *machine) op(kind ops.Kind, offered ...patch.Record) ops.Op {
	return ops.Op{App: m.key.App, Session: m.key.Session, Kind: kind, Offered: offered, IDs: []string{""}}
}

// do executes an operation on a store. If a patch was made from a view, do applies the patch to this store's view as
// of the same record.
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

func (m *machine) mustDo(t *rapid.T, s *store.Store, o ops.Op) ops.Reply {
	r := m.do(s, o)
	testlog.NoError(t, r.Error)
	return r
}

// write executes on each store an operation that offers records. It checks the replies and adds the records to the
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
				continue // the record was logged before
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
			continue // the record was logged before
		}
		m.records = append(m.records, r)
		m.offered = append(m.offered, offered[j])
		for c := range records.SharedChanges(r) {
			m.shared[c.Key] = c.Value
		}
	}
}

func (m *machine) append(t *rapid.T) {
	o, visible := m.op(ops.Append), m.reference().Visible()
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		id := m.newID()
		if rapid.IntRange(0, 9).Draw(t, "without id") == 0 {
			id = ""
		}
		o.Offered = append(o.Offered, patch.Record{Event: fuzz.Event(id, visible).Draw(t, "event")})
	}
	m.write(t, o, ops.Done)
}

func newEvent(id, author string) *patch.Event {
	return testlog.New(patch.Fields{ID: id, Author: author, Timestamp: clock})
}

// drawPatches draws patches, and the view from which they are made. If group is set, the patches are one group.
// Otherwise, they have no group.
func (m *machine) drawPatches(t *rapid.T, n int, group bool) ops.Op {
	ref, o := m.reference(), m.op(ops.Patch)
	if group {
		patches := fuzz.Group(m.newID(), ref).Draw(t, "group")
		for _, p := range patches { // check the patches as one group
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
	m.write(t, o, ops.ExpectedOutcome(m.reference(), o))
}

// patchBatch applies several patches atomically.
func (m *machine) patchBatch(t *rapid.T) {
	n, group := rapid.IntRange(2, 3).Draw(t, "patches"), rapid.Bool().Draw(t, "is a group")
	if group {
		n = 0
	}
	o := m.drawPatches(t, n, group)
	m.write(t, o, ops.ExpectedOutcome(m.reference(), o))
}

// retry offers records that are already logged, together with new records.
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
	o.Offered = append(o.Offered, patch.Record{Event: fuzz.Event(m.newID(), m.reference().Visible()).Draw(t, "event")})
	m.write(t, o, ops.Done)
}

// duplicate offers an event whose id is already used by an event with other content. The store must write nothing.
func (m *machine) duplicate(t *rapid.T) {
	var ids []string
	for _, r := range m.records {
		ids = slices.AppendSeq(ids, r.IDs())
	}
	if len(ids) == 0 {
		t.Skip("an empty log")
	}
	e := newEvent(rapid.SampledFrom(ids).Draw(t, "used id"), "a duplicate")
	o := m.op(ops.Append, patch.Record{Event: newEvent(m.newID(), "new")}, patch.Record{Event: e})
	if rapid.Bool().Draw(t, "in a patch") {
		o = m.op(ops.Patch, patch.Record{Patch: patch.NewSplice(0, 0, e).WithID(m.newID())})
		o.AsOfNow = true
	}
	m.write(t, o, ops.Duplicate)
}

// wrongExpectedSeq appends with an expected seq that is not the last seq of the log.
func (m *machine) wrongExpectedSeq(t *rapid.T) {
	o := m.op(ops.Append, patch.Record{Event: newEvent(m.newID(), "agent")})
	wrong := uint64(len(m.records) + 1)
	o.IfSeq = &wrong
	m.write(t, o, fuzz.Conflict)
}

// failingCommit makes the commit of an append fail in one store. If the commit took effect, the call must succeed.
// Otherwise, nothing is written, and a retry writes the events once.
func (m *machine) failingCommit(t *rapid.T) {
	o := m.op(ops.Append, patch.Record{Event: newEvent(m.newID(), "agent")})
	failure := rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.NotApplied, storetest.Applied}).Draw(t, "failure")
	// With a view of a deleted session, the store could not determine the outcome.
	m.refreshPeer(t)
	m.peers[m.peer].faulty.Plan(storetest.Plan{Write: 1, Failure: failure})
	r := m.do(m.stores[1], o)
	m.peers[m.peer].faulty.Plan(storetest.Plan{})
	if (r.Outcome == ops.Done) != (failure == storetest.Applied) || r.Outcome == ops.Unknown {
		t.Fatalf("a commit that was %v: %v", failure, r.Err)
	}
	want := m.reference()
	if failure == storetest.Applied {
		want.Apply(patch.Record{Seq: uint64(len(m.records) + 1), Event: o.Offered[0].Event})
	}
	m.compareView(t, 1, m.do(m.stores[1], m.op(ops.Get)).View, want)
	m.write(t, o, ops.Done)
}

// delete deletes the session and creates it again. Patches on views of the deleted session must be refused.
func (m *machine) delete(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("seldom")
	}
	old := m.views[len(m.views)-1]
	for _, s := range m.stores {
		m.mustDo(t, s, m.op(ops.Delete))
		if r := m.do(s, m.op(ops.Get)); r.Outcome != ops.NotFound {
			t.Fatalf("a deleted session: %s %s", r.Outcome, r.Err)
		}
	}
	m.create(t)
	late := patch.NewSplice(0, 0, newEvent(m.newID(), "agent"))
	for _, s := range m.stores {
		testlog.ErrorIs(t, testlog.ErrorOf(s.ApplyPatch(context.Background(), m.key, []*patch.PatchEvent{late}, store.PatchOptions{On: old})), store.ErrNotFound)
	}
}

// summarise replaces visible events by a summary. Some of the events may be summaries.
func (m *machine) summarise(t *rapid.T) {
	n := len(m.reference().Visible())
	if n < 2 {
		t.Skip("nothing to summarise")
	}
	start := rapid.IntRange(0, n-2).Draw(t, "start")
	count := rapid.IntRange(2, min(4, n-start)).Draw(t, "count")
	id := m.newID()
	e := testlog.Event(`{"id":"s %s","author":"user","content":{"role":"user","parts":[{"text":"told by %s"}]}}`, id, id)
	o := m.op(ops.Patch, patch.Record{Patch: patch.NewSummarise(start, count, e).WithID(id).WithAuthor("ann").WithTimestamp(clock)})
	o.AsOfNow, o.AllowOrphans, o.AllowPinned = true, true, true
	m.write(t, o, ops.ExpectedOutcome(m.reference(), o))
}

// rewind rewinds to an invocation of the log, or to an invocation that does not exist.
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
	m.refreshPeer(t)
	ref := m.reference()
	visible, state, pins := ref.Rewind(uint64(max(from, 0)) + 1)
	m.doLogging(t, o, func(i int, r ops.Reply) {
		switch {
		case from < 0:
			if r.Outcome != fuzz.NotFound {
				t.Fatalf("store %d: rewound to no invocation: %s %s", i, r.Outcome, r.Err)
			}
			return
		case slices.ContainsFunc(ref.Skipped(), func(s patch.Skip) bool { return s.Reason == patch.UnknownType }):
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

// revert reverts a patch of the log together with its group, or a patch that does not exist.
func (m *machine) revert(t *rapid.T) {
	m.refreshPeer(t)
	ref, o := m.reference(), m.op(ops.Revert)
	o.IDs[0] = rapid.SampledFrom(append(ref.PatchIDs(), "nobody")).Draw(t, "patch")
	o.AllowOrphans = rapid.Bool().Draw(t, "allow orphans")
	want := ops.ExpectedOutcome(ref, o)
	ids, _, _ := ref.RevertAll(o.IDs[0])
	m.doLogging(t, o, func(i int, r ops.Reply) {
		reverted := revertedBy(r.Committed.Records)
		if r.Outcome != want || want == ops.Done && !slices.Equal(reverted, ids) {
			t.Fatalf("store %d: reverting %s: %s %s, reverts %v, want %s of %v\n%s", i, o.IDs[0], r.Outcome, r.Err, reverted, want, ids, m.log())
		}
	})
}

// revertedBy returns the ids of the patches that the reverts target.
func revertedBy(reverts []patch.Record) (ids []string) {
	for _, r := range reverts {
		ids = append(ids, r.Patch.PatchID())
	}
	return ids
}

// doLogging executes an operation whose records are made by the stores. It checks the replies and adds the records
// to the model.
func (m *machine) doLogging(t *rapid.T, o ops.Op, check func(i int, r ops.Reply)) {
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

// refreshPeer makes the current peer read the newest log. A store with an older view would draft its records twice
// and use other ids the second time. The test needs the same ids in all stores.
func (m *machine) refreshPeer(t *rapid.T) { m.mustDo(t, m.stores[1], m.op(ops.Get)) }

// fork forks the session at a record, changes the fork, and deletes the fork. The session must not change.
func (m *machine) fork(t *rapid.T) {
	at := uint64(rapid.IntRange(0, len(m.records)).Draw(t, "at"))
	o := m.op(ops.Fork)
	o.Source, o.Session, o.At = m.key.Session, fmt.Sprint("fork ", m.newID()), &at
	ref := fuzz.NewReference(m.initial, m.forkedLog(at)...)
	e := newEvent(m.newID(), "agent")
	for i, s := range m.stores {
		if err := fuzz.Compare(m.mustDo(t, s, o).View, ref); err != nil {
			t.Fatalf("store %d: a fork at %d: %v\n%s", i, at, err, m.log())
		}
		for _, next := range []ops.Op{{Kind: ops.Append, Offered: []patch.Record{{Event: e}}}, {Kind: ops.Delete}} {
			next.App, next.Session = o.App, o.Session
			m.mustDo(t, s, next)
		}
	}
}

// erase erases some events of the session, with or without their summaries. In one of the stores, a commit may fail.
// The erasure is then repeated there, which completes the first attempt.
func (m *machine) erase(t *rapid.T) {
	var ids []string
	for _, r := range m.records {
		if r.Patch != nil && r.Patch.Type() == patch.Erase && r.Patch.Validate() == nil {
			continue
		}
		ids = slices.AppendSeq(ids, r.IDs())
	}
	if len(ids) == 0 {
		t.Skip("an empty log")
	}
	values := rapid.SampledFrom([]patch.ValuePolicy{patch.KeepValues, patch.NullValues}).Draw(t, "values")
	sel := store.EraseSelection{}
	opts := store.EraseOptions{ID: m.newID(), Author: "ann", Reason: "asked for", Values: values}
	if sel.All = rapid.IntRange(0, 7).Draw(t, "all") == 0; !sel.All {
		ids = rapid.SliceOfN(rapid.SampledFrom(ids), 1, 3).Draw(t, "ids")
		sel.EventIDs = ids
	}
	opts.Summaries = rapid.SampledFrom([]patch.SummaryPolicy{patch.RevertSummaries, patch.BlankSummaries, patch.KeepSummaries}).Draw(t, "summaries")
	opts.MaxGrowth = rapid.SampledFrom([]int{1, 20, 1000}).Draw(t, "room")
	nulls := sel.All && values == patch.NullValues
	initial := false // whether a value of the initial state is erased
	for _, v := range m.initial {
		initial = initial || nulls && v.Any() != nil
	}
	want := m.reference().Erase(ids, values, opts.Summaries, initial)
	if nulls {
		want.Initial = slices.Sorted(maps.Keys(m.initial))
	}
	want.ClosedAt = uint64(len(m.records)) + 1
	isNoOp := len(want.Seqs) == 0 && !initial
	failure := rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.NotApplied, storetest.Applied}).Draw(t, "failure")
	write := rapid.IntRange(0, 5).Draw(t, "which write fails")
	var after []patch.Record
	for _, r := range m.records {
		after = append(after, want.Blank(r, "receipt"))
	}
	var reverts, notReverted []string
	if opts.Summaries == patch.RevertSummaries {
		reverts, notReverted = fuzz.NewReference(m.initial, after...).RevertBlankSummaries(opts.MaxGrowth)
	}
	idsBefore := m.newIDs
	var logged [2][]patch.Record // receipt and reverts in the log of each store
	for i, s := range m.stores {
		ctx := context.Background()
		dryRun := opts
		dryRun.DryRun = true
		planned := testlog.Must(s.Erase(ctx, m.key, sel, dryRun))(t)
		var done store.Erasure
		var err error
		if i == 1 {
			m.peers[m.peer].faulty.Plan(storetest.Plan{Write: write, Failure: failure, During: func() {
				// When the reverts are drafted again, they must get the same ids.
				m.newIDs[1] = idsBefore[1]
			}})
			done, err = s.Erase(ctx, m.key, sel, opts)
			m.peers[m.peer].faulty.Plan(storetest.Plan{})
			if err != nil {
				m.newIDs[1] = idsBefore[1]
			}
		}
		if i == 0 || err != nil {
			done, err = s.Erase(ctx, m.key, sel, opts)
		}
		if err != nil {
			t.Fatalf("store %d: erasing %q: %v\n%s", i, ids, err, m.log())
		}
		if len(done.Sessions) == 0 != isNoOp || len(planned.Sessions) == 0 != isNoOp {
			t.Fatalf("store %d: erasing %q: %+v, planned %+v, want %+v\n%s", i, ids, done, planned, want, m.log())
		}
		for p, err := range s.Verify(ctx, store.VerifyOptions{Key: m.key}) {
			t.Fatalf("store %d: erasing %q: %v, %v\n%s", i, ids, p, err, m.log())
		}
		if isNoOp {
			continue
		}
		if opts.Summaries == patch.RevertSummaries && (len(planned.Sessions[0].Reverted) > len(reverts) || !slices.Equal(planned.Sessions[0].Blank, notReverted)) {
			t.Fatalf("store %d: erasing %q: planned %+v, want the reverts %q, and %q stay\n%s", i, ids, planned.Sessions[0], reverts, notReverted, m.log())
		}
		logged[i] = m.raw(t, s, m.key, uint64(len(m.records))+1)
		got, ok := logged[i][0].Patch.Erasure()
		got = patch.Erasure{Seqs: got.Seqs, EventIndices: got.EventIndices, Summaries: got.Summaries, ClosedAt: got.ClosedAt, Values: got.Values, Initial: got.Initial}
		if !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("store %d: erasing %q takes %+v, want %+v\n%s", i, ids, got, want, m.log())
		}
		if reverted := revertedBy(logged[i][1:]); !slices.Equal(reverted, reverts) {
			t.Fatalf("store %d: erasing %q reverts %q, want %q\n%s", i, ids, reverted, reverts, m.log())
		}
	}
	m.views = nil // stores refuse patches on views from before an erasure
	if isNoOp {
		return
	}
	for i, r := range m.records {
		after[i] = want.Blank(r, logged[0][0].ID())
	}
	m.newIDs[1] = m.newIDs[0]
	compareRecords(t, logged[0], logged[1])
	for _, name := range want.Initial {
		m.initial[name] = testlog.Must(patch.ParseValue([]byte("null")))(t)
	}
	m.records = append(after, logged[0]...)
	for range logged[0] {
		m.offered = append(m.offered, patch.Record{})
	}
}

// forkedLog returns the log of a fork at a seq, including the receipts of earlier erasures.
func (m *machine) forkedLog(at uint64) []patch.Record {
	log := slices.Clone(m.records[:at])
	hasErased := func(id string) bool {
		return slices.ContainsFunc(m.records[:at], func(r patch.Record) bool {
			for _, e := range r.Events() {
				if by, ok := e.ErasedBy(); ok && by == id {
					return true
				}
			}
			by, ok := records.Envelope(r).ErasedBy()
			return ok && by == id
		})
	}
	for _, r := range m.records[at:] {
		if r.Patch == nil || !hasErased(r.ID()) {
			continue
		}
		if receipt, ok := r.Patch.ErasureUpTo(at); ok {
			log = append(log, patch.Record{Seq: uint64(len(log) + 1), Patch: receipt})
		}
	}
	return log
}

// compareView compares a store's view of the session with the model.
func (m *machine) compareView(t *rapid.T, i int, v fold.View, ref *fuzz.Reference) {
	if err := fuzz.Compare(v, ref); err != nil {
		t.Fatalf("store %d: %v\n%s", i, err, m.log())
	}
}

// preview compares the preview of a patch with the model.
func (m *machine) preview(t *rapid.T) {
	o := m.drawPatches(t, 1, false)
	p := o.Offered[0].Patch
	want := ops.ExpectedOutcome(m.reference(), o)
	logged := patch.Complete(patch.Record{Seq: uint64(len(m.records) + 1), Patch: p}, m.newID, clock)
	after := m.reference(logged)
	for i, s := range m.stores {
		opts := store.PatchOptions{AsOfNow: o.AsOfNow, AllowOrphans: o.AllowOrphans, AllowPinned: o.AllowPinned}
		if o.On != "" {
			opts.On = testlog.Must(s.ViewAt(context.Background(), m.key, *o.At))(t)
		}
		pre, err := s.Preview(context.Background(), m.key, []*patch.PatchEvent{p}, opts)
		if got := ops.OutcomeOf(err); got != want {
			t.Fatalf("store %d: preview of %v: %v, want %q\n%s", i, p, err, want, m.log())
		}
		if err == nil {
			m.compareView(t, i, pre.After, after)
		}
	}
}

// asOf compares the view as of a record, the history of that view, and the records after that record with the model.
func (m *machine) asOf(t *rapid.T) {
	seq := uint64(rapid.IntRange(0, len(m.records)).Draw(t, "seq"))
	ref := fuzz.NewReference(m.initial, m.records[:seq]...)
	for i, s := range m.stores {
		v := testlog.Must(s.ViewAt(context.Background(), m.key, seq))(t)
		m.compareView(t, i, v, ref)
		history := testlog.Must(s.History(context.Background(), m.key, v))(t)
		var got, want []patch.Record
		for i, e := range history {
			got = append(got, patch.Record{Seq: uint64(i), Event: e.Event})
		}
		for i, e := range ref.History() {
			want = append(want, patch.Record{Seq: uint64(i), Event: e})
		}
		compareRecords(t, want, got)
		if len(history) > 0 {
			end := len(history) / 2
			page := testlog.Must(s.HistoryPage(context.Background(), m.key, v, history[end].Event.ID(), 2))(t)
			if !slices.EqualFunc(page, history[max(0, end-2):end], func(a, b fold.Entry) bool { return a.Event.ID() == b.Event.ID() && a.Index == b.Index }) {
				t.Fatalf("the page before event %d of %v is %v", end, history, page)
			}
		}
		beyond := testlog.ErrorOf(s.ViewAt(context.Background(), m.key, uint64(len(m.records)+1)))
		testlog.ErrorIs(t, beyond, store.ErrNotFound, "store %d", i)
		compareRecords(t, m.records[seq:], m.raw(t, s, m.key, seq+1))
	}
}

// raw reads the records of a session from a seq on.
func (m *machine) raw(t *rapid.T, s *store.Store, key store.Key, from uint64) (all []patch.Record) {
	for r, err := range s.RawEvents(context.Background(), key, from) {
		testlog.NoError(t, err)
		all = append(all, r)
	}
	return all
}

// exportImport exports the session and imports it twice into another store. The imported view must equal the
// exported one, and the second import must add nothing. The text form loses Go types, so the copy is compared with a
// model that was made from the text.
func (m *machine) exportImport(t *rapid.T) {
	text := m.do(m.stores[0], m.op(ops.Export)).Exported
	if other := m.do(m.stores[1], m.op(ops.Export)).Exported; text != other {
		t.Fatalf("the stores export different text:\n%s\n%s", text, other)
	}
	records, initial, err := records.ReadAll(patch.NewDecoder(bytes.NewReader([]byte(text)), "export"))
	testlog.NoError(t, err)
	ref := fuzz.NewReference(initial, records...)
	other := testlog.Must(store.OpenMemory(store.Options{}))(t)
	defer other.Close()
	o := m.op(ops.Import)
	o.App, o.Text = m.key.App+" elsewhere", text
	key := ops.Key(o.App, o.Session)
	for range 2 {
		r := ops.Do(context.Background(), other, fold.View{}, o)
		if r.Outcome != ops.Done || len(m.raw(t, other, key, 1)) != len(records) {
			t.Fatalf("import: %s %s\n%s", r.Outcome, r.Err, text)
		}
		if err := fuzz.Compare(r.View, ref); err != nil {
			t.Fatalf("import: %v\n%s", err, text)
		}
	}
	o.Kind = ops.Export
	if again := ops.Do(context.Background(), other, fold.View{}, o).Exported; text != again {
		t.Fatalf("the copy exports different text:\n%s\n%s", text, again)
	}
}

func compareRecords(t *rapid.T, a, b []patch.Record) {
	if len(a) != len(b) {
		t.Fatalf("%d records and %d", len(a), len(b))
	}
	for i := range a {
		formA, errA := patch.AppendRecord(nil, a[i])
		formB, errB := patch.AppendRecord(nil, b[i])
		if errA != nil || errB != nil || !slices.Equal(formA, formB) {
			t.Fatalf("records differ: %v and %v (%v, %v)", a[i], b[i], errA, errB)
		}
	}
}
