package machine

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

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
	want := ops.Judge(m.reference(), o)
	would := patch.Complete(patch.Record{Seq: uint64(len(m.records) + 1), Patch: p}, m.newID, clock)
	after := m.reference(would)
	for i, s := range m.stores {
		opts := store.PatchOptions{AsOfNow: o.AsOfNow, AllowOrphans: o.AllowOrphans, AllowPinned: o.AllowPinned}
		if o.On != "" {
			var err error
			if opts.On, err = s.ViewAt(context.Background(), m.key, *o.At); err != nil {
				t.Fatal(err)
			}
		}
		pre, err := s.Preview(context.Background(), m.key, opts, p)
		if got := ops.OutcomeOf(err); got != want {
			t.Fatalf("store %d: preview of %v: %v, want %q\n%s", i, p, err, want, m.log())
		}
		if err == nil {
			m.compareView(t, i, pre.After, after)
		}
	}
}

// asOf compares the view at a record, its history, and the log from there.
func (m *machine) asOf(t *rapid.T) {
	seq := uint64(rapid.IntRange(0, len(m.records)).Draw(t, "seq"))
	ref := fuzz.NewReference(m.initial, m.records[:seq]...)
	for i, s := range m.stores {
		v, err := s.ViewAt(context.Background(), m.key, seq)
		if err != nil {
			t.Fatal(err)
		}
		m.compareView(t, i, v, ref)
		history, err := s.History(context.Background(), m.key, v)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []patch.Record
		for i, e := range history {
			got = append(got, patch.Record{Seq: uint64(i), Event: e.Event})
		}
		for i, e := range ref.History() {
			want = append(want, patch.Record{Seq: uint64(i), Event: e})
		}
		compareRecords(t, want, got)
		if _, err := s.ViewAt(context.Background(), m.key, uint64(len(m.records)+1)); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("store %d: a view beyond the end: %v", i, err)
		}
		compareRecords(t, m.records[seq:], m.raw(t, s, m.key, seq+1))
	}
}

// raw reads the records of a session from a seq.
func (m *machine) raw(t *rapid.T, s *store.Store, key store.Key, from uint64) (all []patch.Record) {
	for r, err := range s.RawEvents(context.Background(), key, from) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// exportImport exports the session and imports it elsewhere twice: the views are equal, and the second import adds
// nothing. The text form loses Go types, so the copy is compared with a model of the text.
func (m *machine) exportImport(t *rapid.T) {
	text := m.do(m.stores[0], m.op(ops.Export)).Exported
	if other := m.do(m.stores[1], m.op(ops.Export)).Exported; text != other {
		t.Fatalf("the stores export different text:\n%s\n%s", text, other)
	}
	records, initial, err := records.ReadAll(patch.NewDecoder(bytes.NewReader([]byte(text)), "export"))
	if err != nil {
		t.Fatal(err)
	}
	ref := fuzz.NewReference(initial, records...)
	other, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
