// Package machine is the state machine that stores are tested with: random operations, whose
// answers are held against the reference model of package fuzz.
package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// Check puts stores through random operations, and holds each answer, and each state in
// between, against the reference model: one on bbolt, and several that share what the
// backends hold. Each draw has sessions and scopes of its own. open is called for each draw
// and returns at least one backend; their stores close them.
func Check(t *testing.T, open func(t *rapid.T) []backend.Backend) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := newMachine(t, n, filepath.Join(dir, fmt.Sprintf("%d.db", n)), open(t))
		defer m.close()
		t.Repeat(map[string]func(*rapid.T){
			"":                 m.compare,
			"append":           m.append,
			"append2":          m.append,
			"patch":            m.patch,
			"patch2":           m.patch,
			"batch":            m.patchBatch,
			"retry":            m.retry,
			"duplicate":        m.duplicate,
			"preview":          m.preview,
			"search":           m.search,
			"as of":            m.asOf,
			"raw":              m.raw,
			"rewind":           m.rewind,
			"take back":        m.takeBack,
			"fork":             m.fork,
			"erase":            m.erase,
			"erase2":           m.erase,
			"summarise":        m.summarise,
			"reopen":           m.reopen,
			"two writers":      m.twoWriters,
			"failing commit":   m.failingCommit,
			"delete":           m.delete,
			"export, import":   m.exportImport,
			"unexpected place": m.unexpectedPlace,
		})
	})
}

// machine is the stores under test and what the model knows of them.
type machine struct {
	n       int // of the draw
	path    string
	stores  []*store.Store // on bbolt, and the one of the peers whose turn it is
	peers   []peer
	turn    int
	key     store.Key
	initial map[string]patch.Value
	shared  map[string]patch.Value
	records []patch.Record // the log
	offered []patch.Record // as they were given to the store
	views   []fold.View    // seen on the way, of the bbolt store
	ids     int
	filled  [2]int // ids given on each storage
	watch   watch
}

// peer is one of the stores that share a storage.
type peer struct {
	store  *store.Store
	faulty *storetest.Faulty // its backend
}

func newMachine(t *rapid.T, n int, path string, backends []backend.Backend) *machine {
	m := &machine{n: n, path: path, key: store.Key{App: fmt.Sprint("app ", n), User: "user/1", Session: "s"}, stores: make([]*store.Store, 2), shared: map[string]patch.Value{}}
	m.openFile(t)
	for _, b := range backends {
		p := peer{faulty: &storetest.Faulty{Backend: b}}
		var err error
		if p.store, err = store.New(p.faulty, m.options(1)); err != nil {
			t.Fatal(err)
		}
		m.peers = append(m.peers, p)
	}
	m.stores[1] = m.peers[0].store
	m.create(t)
	return m
}

// pass gives the turn to one of the peers.
func (m *machine) pass(t *rapid.T) {
	m.turn = rapid.IntRange(0, len(m.peers)-1).Draw(t, "peer")
	m.stores[1] = m.peers[m.turn].store
}

var clock = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// A cache of one session or none makes dropped views part of every run.
func (m *machine) options(i int) store.Options {
	return store.Options{
		CacheBytes: int64(20_000*(m.ids%2) - 1), Snapshots: snapshot.Policy{Every: 1 + m.ids%5, Share: 1},
		Now: func() time.Time { return clock },
		NewID: func() string {
			m.filled[i]++
			return fmt.Sprintf("filled %d of %d", m.filled[i], m.n)
		},
	}
}

func (m *machine) openFile(t *rapid.T) {
	// Durability is another test's matter; without syncs this one does ten times more.
	b, err := bolt.Open(m.path, bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if m.stores[0], err = store.New(b, m.options(0)); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) close() {
	m.unwatch()
	if m.stores[0] != nil {
		_ = m.stores[0].Close()
	}
	for _, p := range m.peers {
		_ = p.store.Close()
	}
}

func (m *machine) create(t *rapid.T) {
	m.initial = map[string]patch.Value{}
	state := map[string]any{}
	for k, v := range fuzz.InitialState().Draw(t, "initial state") {
		state[k] = v
		switch patch.ScopeOf(k) {
		case patch.ScopeSession:
			m.initial[k] = v
		case patch.ScopeApp, patch.ScopeUser:
			m.shared[k] = v
		}
	}
	for _, s := range m.stores {
		if _, err := s.Create(context.Background(), m.key, state); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(context.Background(), m.key, nil); !errors.Is(err, store.ErrExists) {
			t.Fatalf("creating twice: %v", err)
		}
	}
	m.records, m.offered, m.views = nil, nil, nil
	m.follow(rapid.IntRange(0, 3).Draw(t, "watched from"))
}

func (m *machine) reference(more ...patch.Record) *fuzz.Reference {
	ref := fuzz.NewReference(m.initial)
	for _, r := range m.records {
		ref.Apply(r)
	}
	for _, r := range more {
		ref.Apply(r)
	}
	return ref
}

// log is the log so far, for messages.
func (m *machine) log() string { return fuzz.Text(m.records, m.initial) }

// newID gives ids that no record has, of other draws neither: an erasing reaches sessions that
// begin with the same records.
func (m *machine) newID() string {
	m.ids++
	return fmt.Sprintf("id%d of %d", m.ids, m.n)
}

// stored is a view of a store that says which patches were skipped, also where it came
// from a snapshot: the log tells.
type stored struct {
	fold.View
	store *store.Store
	key   store.Key
}

func (v stored) Skipped() ([]patch.Skip, error) {
	newest, err := v.store.View(context.Background(), v.key)
	if err == nil {
		newest, err = v.store.Whole(context.Background(), v.key, newest)
	}
	if err != nil {
		return nil, err
	}
	skipped, err := newest.Skipped()
	skipped = slices.DeleteFunc(skipped, func(s patch.Skip) bool { return s.Seq > v.Seq() })
	if len(skipped) != v.SkippedCount() {
		err = fmt.Errorf("the view counts %d skipped patches, the log has %v", v.SkippedCount(), skipped)
	}
	return skipped, err
}

// compare holds both stores' newest views and shared state against the model. The store that
// looks need not be the one that wrote, nor the one that writes next.
func (m *machine) compare(t *rapid.T) {
	m.pass(t)
	defer m.pass(t)
	m.watched(t)
	if m.filled[0] != m.filled[1] {
		t.Fatalf("the stores drew different numbers of ids: %v\n%s", m.filled, m.log())
	}
	ref := m.reference()
	for i, s := range m.stores {
		got, err := s.Get(context.Background(), m.key)
		if err != nil {
			t.Fatalf("store %d: %v", i, err)
		}
		if err := fuzz.Compare(stored{got.View, s, m.key}, ref); err != nil {
			t.Fatalf("store %d: %v\n%s", i, err, m.log())
		}
		want := ref.State()
		maps.Copy(want, m.shared)
		if values := got.Values(); !maps.EqualFunc(values, want, patch.Value.Equal) {
			t.Fatalf("store %d: state %v, want %v\n%s", i, values, want, m.log())
		}
		if i == 0 {
			m.views = append(m.views, got.View)
		}
	}
}

// done checks what a write returned, and takes it into the model. kind is why the model
// refuses it, "" if it does not.
func (m *machine) done(t *rapid.T, kind string, offered []patch.Record, write func(*store.Store) (store.Committed, error)) {
	var first []patch.Record
	for i, s := range m.stores {
		c, err := write(s)
		if got := KindOf(err); got != kind {
			t.Fatalf("store %d: got %q (%v), want %q\nof %v\n%s", i, got, err, kind, offered, m.log())
		}
		if err != nil {
			continue
		}
		if len(c.Records) != len(offered) {
			t.Fatalf("store %d: %d records for %d", i, len(c.Records), len(offered))
		}
		next := uint64(len(m.records) + 1)
		for j, r := range c.Records {
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
			first = c.Records
		} else {
			compareRecords(t, first, c.Records)
		}
	}
	if kind != "" {
		return
	}
	for j, r := range first {
		if int(r.Seq) <= len(m.records) {
			continue // it was there
		}
		m.records = append(m.records, r)
		m.offered = append(m.offered, offered[j])
		for c := range r.SharedChanges() {
			m.shared[c.Key] = c.Value
		}
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

// KindOf returns why an error of a fold or a store refuses, in the words of the reference
// model, or "" if it is nil.
func KindOf(err error) string {
	for _, k := range []struct {
		err  error
		kind string
	}{
		{store.ErrDuplicateID, "duplicate"}, {store.ErrUnknownPatch, fuzz.UnknownInLog}, {store.ErrConflict, fuzz.Conflict},
		{store.ErrInvalid, fuzz.Invalid}, {store.ErrOutOfRange, fuzz.OutOfRange}, {store.ErrEventNotFound, fuzz.NotFound},
		{store.ErrBlocked, fuzz.Blocked}, {store.ErrPinned, fuzz.Pinned}, {store.ErrOrphanedCall, fuzz.OrphanedCall}, {store.ErrNotFound, "no session"},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
