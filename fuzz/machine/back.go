package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// rewind rewinds to an invocation of the log, or to none.
func (m *machine) rewind(t *rapid.T) {
	invocations := []string{"nobody"}
	for _, r := range m.records {
		if r.Event != nil && r.Event.InvocationID() != "" {
			invocations = append(invocations, r.Event.InvocationID())
		}
	}
	to := rapid.SampledFrom(invocations).Draw(t, "invocation")
	from := uint64(0)
	for _, r := range slices.Backward(m.records) {
		if r.Event != nil && r.Event.InvocationID() == to {
			from = r.Seq
		}
	}
	m.look(t)
	ref := m.reference()
	visible, state, pins := ref.Rewind(max(from, 1))
	var logged [2][]patch.Record
	for i, s := range m.stores {
		c, err := s.Rewind(context.Background(), m.key, store.BackOptions{Author: "ann"}, to)
		switch {
		case from == 0:
			if !errors.Is(err, store.ErrEventNotFound) {
				t.Fatalf("store %d: rewound to no invocation: %v", i, err)
			}
			continue
		case hasUnknown(ref):
			if len(c.Records) > 0 {
				t.Fatalf("store %d: rewound a log with a patch of unknown type", i)
			}
			continue
		case err != nil:
			t.Fatalf("store %d: rewinding to %s: %v\n%s", i, to, err, m.log())
		}
		for n, e := range c.View.Events() {
			if n < len(pins) && c.View.IsPinned(n) != pins[n] {
				t.Fatalf("store %d: rewound to %s, visible event %d is pinned: %v\n%s", i, to, n, !pins[n], m.log())
			}
			if n >= len(visible) || e.String() != visible[n].String() {
				t.Fatalf("store %d: rewound to %s, visible event %d is %v\n%s", i, to, n, e, m.log())
			}
		}
		for key, value := range c.View.Values() {
			if !value.Equal(state[key]) {
				t.Fatalf("store %d: rewound to %s, %s is %v, want %v\n%s", i, to, key, value, state[key], m.log())
			}
		}
		if c.View.Len() != len(visible) || len(c.View.State()) != len(state) {
			t.Fatalf("store %d: rewound to %s, %d events are visible, want %d\n%s", i, to, c.View.Len(), len(visible), m.log())
		}
		logged[i] = c.Records
	}
	if len(logged[0]) != len(logged[1]) {
		t.Fatalf("one store rewinds by %v, the other by %v", logged[0], logged[1])
	}
	m.took(logged[0])
}

// takeBack takes a patch of the log back, and its group with it, or none.
func (m *machine) takeBack(t *rapid.T) {
	m.look(t)
	ref := m.reference()
	id := rapid.SampledFrom(append(ref.PatchIDs(), "nobody")).Draw(t, "patch")
	allow := rapid.Bool().Draw(t, "allow orphans")
	ids, _, ok := ref.RevertAll(id)
	want := ""
	switch {
	case hasUnknown(ref):
		want = fuzz.UnknownInLog
	case !slices.Contains(ref.PatchIDs(), id):
		want = fuzz.Invalid
	case !ok:
		want = fuzz.Blocked
	case !allow:
		var reverts []*patch.PatchEvent
		for i, id := range ids {
			reverts = append(reverts, patch.NewRevert(id).WithID(fmt.Sprint("would be ", i)))
		}
		want = refusalKind(ref.CheckAll(reverts))
	}
	var logged [2][]patch.Record
	for i, s := range m.stores {
		c, err := s.Revert(context.Background(), m.key, store.BackOptions{Author: "ann", AllowOrphans: allow}, id)
		if got := KindOf(err); got != want {
			t.Fatalf("store %d: taking back %s: %v, want %q\n%s", i, id, err, want, m.log())
		}
		logged[i] = c.Records
		for n, r := range c.Records {
			if r.Patch.PatchID() != ids[n] {
				t.Fatalf("store %d: taking back %s reverts %v, want %v\n%s", i, id, c.Records, ids, m.log())
			}
		}
	}
	if len(logged[0]) != len(logged[1]) || want == "" && len(logged[0]) != len(ids) {
		t.Fatalf("one store takes back by %v, the other by %v, want %v", logged[0], logged[1], ids)
	}
	m.took(logged[0])
}

// look has the peer whose turn it is see the newest log. What a store makes of its own on an older
// view it makes again, with other ids, and the ids of all stores are to be equal.
func (m *machine) look(t *rapid.T) {
	if _, err := m.stores[1].Get(context.Background(), m.key); err != nil {
		t.Fatal(err)
	}
}

// took adds what the stores have logged of their own.
func (m *machine) took(records []patch.Record) {
	m.records = append(m.records, records...)
	for _, r := range records {
		m.offered = append(m.offered, patch.Record{Patch: r.Patch})
	}
}

func hasUnknown(ref *fuzz.Reference) bool {
	return slices.ContainsFunc(ref.Skipped(), func(s patch.Skip) bool { return s.Reason == patch.UnknownType })
}

// fork forks the session at a record, changes the fork, and deletes it: the session
// stays as it is.
func (m *machine) fork(t *rapid.T) {
	at := uint64(rapid.IntRange(0, len(m.records)).Draw(t, "at"))
	key := m.key
	key.Session = fmt.Sprint("fork ", m.newID())
	ref := fuzz.NewReference(m.initial)
	for _, r := range m.forked(at) {
		ref.Apply(r)
	}
	e := m.plainEvent(t)
	for i, s := range m.stores {
		fork, err := s.Fork(context.Background(), m.key, key, store.ForkOptions{At: &at})
		if err != nil {
			t.Fatal(err)
		}
		if err := fuzz.Compare(stored{fork.View, s, key}, ref); err != nil {
			t.Fatalf("store %d: a fork at %d: %v\n%s", i, at, err, m.log())
		}
		if _, err := s.AppendEvents(context.Background(), key, store.AppendOptions{}, e); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
}
