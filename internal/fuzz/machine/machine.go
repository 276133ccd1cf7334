// Package machine tests stores with a state machine. It runs random operations, and compares their results with
// the reference model of package fuzz.
package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// Check runs random operations on stores. After each operation, it compares the result and the state with the
// reference model. One store is on bbolt. The other stores are on the backends that the function open returns, and
// share the sessions of these backends. Each draw calls open, which must return at least one backend, and uses its
// own sessions. The stores close the backends.
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
			"as of":            m.asOf,
			"rewind":           m.rewind,
			"revert":           m.revert,
			"fork":             m.fork,
			"erase":            m.erase,
			"summarise":        m.summarise,
			"reopen":           m.reopen,
			"failing commit":   m.failingCommit,
			"delete":           m.delete,
			"export, import":   m.exportImport,
			"unexpected place": m.wrongExpectedSeq,
		})
	})
}

// machine has the stores under test and the model.
type machine struct {
	n       int // number of the draw
	path    string
	stores  []*store.Store  // store on bbolt, and store of the current peer
	file    backend.Backend // backend of the first store
	peers   []peer
	peer    int
	key     store.Key
	initial map[string]patch.Value
	shared  map[string]patch.Value
	records []patch.Record // records of the log
	offered []patch.Record // records as they were offered to the store
	views   []fold.View    // earlier views of the store on bbolt
	ids     int
	newIDs  [2]int // number of ids that the stores on each storage have made
}

// peer is one of the stores that share a storage.
type peer struct {
	store  *store.Store
	faulty *storetest.Faulty // backend of store
}

func newMachine(t *rapid.T, n int, path string, backends []backend.Backend) *machine {
	m := &machine{n: n, path: path, key: ops.Key(fmt.Sprint("app ", n), "s"), stores: make([]*store.Store, 2), shared: map[string]patch.Value{}}
	m.openFile(t)
	for _, b := range backends {
		p := peer{faulty: &storetest.Faulty{Backend: b}}
		p.store = testlog.Must(store.New(p.faulty, m.options(1)))(t)
		m.peers = append(m.peers, p)
	}
	m.stores[1] = m.peers[0].store
	m.create(t)
	return m
}

// selectPeer selects the peer that executes the next operation.
func (m *machine) selectPeer(t *rapid.T) {
	m.peer = rapid.IntRange(0, len(m.peers)-1).Draw(t, "peer")
	m.stores[1] = m.peers[m.peer].store
}

var clock = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// options returns options for a store. The cache is so small that the store often evicts views, or there is no
// cache.
func (m *machine) options(i int) store.Options {
	return store.Options{
		CacheBytes: int64(20_000*(m.ids%2) - 1), Snapshots: snapshot.Policy{Every: 1 + m.ids%5, MinPercent: 1},
		Now: func() time.Time { return clock },
		NewID: func() string {
			m.newIDs[i]++
			return fmt.Sprintf("filled %d of %d", m.newIDs[i], m.n)
		},
	}
}

func (m *machine) openFile(t *rapid.T) {
	// This test does not check durability, so it omits syncs and runs ten times as many operations.
	b := testlog.Must(bolt.Open(m.path, bolt.Options{NoSync: true}))(t)
	m.file = b
	m.stores[0] = testlog.Must(store.New(b, m.options(0)))(t)
}

func (m *machine) close() {
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
		switch statekey.ScopeOf(k) {
		case statekey.Session:
			m.initial[k] = v
		case statekey.App, statekey.User:
			m.shared[k] = v
		}
	}
	testlog.Must(m.stores[0].Create(context.Background(), m.key, state, store.CreateOptions{}))(t)
	m.createOnPeers(t)
	for _, s := range m.stores {
		testlog.ErrorIs(t, testlog.ErrorOf(s.Create(context.Background(), m.key, nil, store.CreateOptions{})), store.ErrExists)
	}
	m.records, m.offered, m.views = nil, nil, nil
}

// createOnPeers creates the session of the first store on the other storage. It uses the same creation id, because
// the ids of receipts are derived from the creation id.
func (m *machine) createOnPeers(t *rapid.T) {
	ctx := context.Background()
	info := testlog.Must(m.stores[0].Info(ctx, m.key))(t)
	shared := testlog.Must(backend.FetchShared(ctx, m.file, ""))(t)
	for _, l := range testlog.Must(m.file.List(ctx, "", "", math.MaxInt32))(t) {
		if l.Creation == info.Creation {
			l.Meta = testlog.Must(m.file.Fetch(ctx, backend.Query{Session: l.Session}))(t).Meta // a listing does not have the meta record
			b := backend.Batch{Create: true, Creation: l.Creation, Meta: l.Meta, Next: l.Token, Counts: l.Counts, Shared: shared}
			testlog.NoError(t, m.peers[m.peer].faulty.Append(ctx, l.Session, b))
		}
	}
}

func (m *machine) reference(more ...patch.Record) *fuzz.Reference {
	return fuzz.NewReference(m.initial, slices.Concat(m.records, more)...)
}

func (m *machine) log() string { return fuzz.Text(m.records, m.initial) }

// newID returns an id that is unique over all draws. If draws used the same ids, an erasure would cover sessions of
// other draws, because sessions with the same first records count as copies.
func (m *machine) newID() string {
	m.ids++
	return fmt.Sprintf("id%d of %d", m.ids, m.n)
}

// compare compares the views and the shared state of the stores with the model. It selects a random peer before the
// comparison, and again after it for the next operation.
func (m *machine) compare(t *rapid.T) {
	m.selectPeer(t)
	defer m.selectPeer(t)
	if m.newIDs[0] != m.newIDs[1] {
		t.Fatalf("the stores drew different numbers of ids: %v\n%s", m.newIDs, m.log())
	}
	ref := m.reference()
	for i, s := range m.stores {
		got, err := s.Get(context.Background(), m.key)
		if err != nil {
			t.Fatalf("store %d: %v", i, err)
		}
		m.compareView(t, i, got.View, ref)
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

func (m *machine) reopen(t *rapid.T) {
	testlog.NoError(t, m.stores[0].Close())
	if _, err := m.stores[0].Get(context.Background(), m.key); !errors.Is(err, store.ErrClosed) && m.options(0).CacheBytes < 0 {
		t.Fatalf("reading a closed store: %v", err)
	}
	m.openFile(t)
	m.views = nil // an erasure may have changed the edition
}
