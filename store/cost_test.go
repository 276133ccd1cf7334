package store_test

import (
	"bytes"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// sizes are the sizes on which the cost of a call might depend.
type sizes struct {
	log     int // number of events; the last ten are visible, with a summary of the earlier events
	visible int // number of additional visible events
	initial int // size of the initial state in bytes
	shared  int // number of values in the app's scope
	others  int // number of other sessions of the same user
	last    int // size of the last event in bytes
}

var smallSizes = sizes{log: 20, visible: 1, initial: 10, shared: 1, others: 1, last: 10}

// grown has one entry for each field of sizes. In each entry, only that field is large.
var grown = map[string]sizes{
	"log":     {log: 1200, visible: 1, initial: 10, shared: 1, others: 1, last: 10},
	"visible": {log: 20, visible: 200, initial: 10, shared: 1, others: 1, last: 10},
	"initial": {log: 20, visible: 1, initial: 1 << 18, shared: 1, others: 1, last: 10},
	"shared":  {log: 20, visible: 1, initial: 10, shared: 200, others: 1, last: 10},
	"others":  {log: 20, visible: 1, initial: 10, shared: 1, others: 100, last: 10},
	"last":    {log: 20, visible: 1, initial: 10, shared: 1, others: 1, last: 1 << 18},
}

// verb is a store call whose cost is measured. The number of its backend calls may depend only on the sizes named
// in grows. Its rows and bytes may also depend on the sizes named in rows.
type verb struct {
	name        string
	cold        bool // whether the store has no data of the session in memory
	calls       int  // number of backend calls with small sizes
	rows, grows string
	do          func(e *env) error
}

func errFrom[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

var verbs = []verb{
	{name: "Get", calls: 1, do: func(e *env) error { return errOf(e.store.Get(ctx, key)) }},
	{name: "Get", cold: true, calls: 1, rows: "visible initial shared last", do: func(e *env) error { return errOf(e.store.Get(ctx, key)) }},
	{name: "View", calls: 1, do: func(e *env) error { return errOf(e.store.View(ctx, key)) }},
	{name: "ViewAt", calls: 1, rows: "visible initial last", do: func(e *env) error {
		return errOf(e.store.ViewAt(ctx, key, e.known.Seq()))
	}},
	{name: "ViewAt 3", calls: 1, rows: "initial", do: func(e *env) error { return errOf(e.store.ViewAt(ctx, key, 3)) }},
	{name: "AppendEvents", calls: 1, do: func(e *env) error {
		return errOf(e.store.AppendEvents(ctx, key, []*patch.Event{say("new")}, store.AppendOptions{}))
	}},
	{name: "AppendEvents", cold: true, calls: 2, rows: "visible initial last", do: func(e *env) error {
		return errOf(e.store.AppendEvents(ctx, key, []*patch.Event{say("new")}, store.AppendOptions{}))
	}},
	{name: "AppendEvents, a retry", calls: 4, do: func(e *env) error {
		return errOf(e.store.AppendEvents(ctx, key, []*patch.Event{say("a3")}, store.AppendOptions{}))
	}},
	{name: "AppendEvents of a shared value", calls: 1, do: func(e *env) error {
		return errOf(e.store.AppendEvents(ctx, key, []*patch.Event{sets("new", `{"app:new":1}`)}, store.AppendOptions{}))
	}},
	{name: "ApplyPatch", calls: 1, do: func(e *env) error {
		return errOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(1, 1).WithID("new")}, asOfNow))
	}},
	{name: "ApplyPatch on a view", calls: 1, do: func(e *env) error {
		return errOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(1, 1).WithID("new")}, store.PatchOptions{On: e.known}))
	}},
	{name: "Preview", calls: 2, do: func(e *env) error {
		return errOf(e.store.Preview(ctx, key, []*patch.PatchEvent{patch.NewSplice(1, 1)}, asOfNow))
	}},
	{name: "Revert", calls: 1, do: func(e *env) error { return errOf(e.store.Revert(ctx, key, "pin", store.UndoOptions{})) }},
	{name: "Rewind", calls: 3, do: func(e *env) error { return errOf(e.store.Rewind(ctx, key, "last", store.UndoOptions{})) }},
	{name: "History", calls: 1, do: func(e *env) error {
		v := e.known
		return errOf(e.store.History(ctx, key, v))
	}, grows: "log"},
	{name: "HistoryPage", calls: 2, do: func(e *env) error {
		return errOf(e.store.HistoryPage(ctx, key, e.known, "a5", 3))
	}},
	{name: "Info", calls: 1, do: func(e *env) error { return errOf(e.store.Info(ctx, key)) }},
	{name: "List", calls: 1, do: func(e *env) error { return errFrom(e.store.List(ctx, store.ListOptions{App: key.App, User: key.User})) }},
	{name: "Lease", calls: 0, do: func(e *env) error { return errOf(e.store.Lease(ctx, key, "lease", 0)) }},
	{name: "RawEvents", calls: 2, rows: "last", do: func(e *env) error {
		return errFrom(e.store.RawEvents(ctx, key, e.known.Seq()))
	}},
	{name: "Watch", calls: 2, rows: "last", do: func(e *env) error {
		for _, err := range e.store.Watch(ctx, key, e.known.Seq()) {
			return err
		}
		return nil
	}},
	{name: "Create", calls: 2, rows: "shared", do: func(e *env) error {
		return errOf(e.store.Create(ctx, store.Key{App: "app", User: "user", Session: "new"}, nil, store.CreateOptions{}))
	}},
	{name: "Delete", calls: 2, do: func(e *env) error { return e.store.Delete(ctx, key) }},
	{name: "Import of one event", calls: 2, rows: "initial", do: func(e *env) error {
		text := `{"id":"new","author":"user","timestamp":"2026-01-01T00:00:00Z"}`
		return errOf(e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{}))
	}},
	{name: "Export of what is visible", calls: 1, grows: "log visible", rows: "initial last", do: func(e *env) error {
		return e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{Visible: true})
	}},
}

// newWorld returns a store with sessions of the given sizes, on a backend that counts calls, rows and bytes.
func newWorld(t *testing.T, engine string, size sizes, cold bool) (*env, *storetest.Counting) {
	t.Helper()
	e := &env{T: t, opts: store.Options{Snapshots: snapshot.Policy{Every: 1, MinPercent: 1}}}
	held := &memory.Backend{}
	path := filepath.Join(t.TempDir(), "log.db")
	counting := &storetest.Counting{}
	open := func() {
		counting.Backend = unclosed{held}
		if engine == "bolt" {
			counting.Backend = testlog.Must(bolt.Open(path, bolt.Options{NoSync: true}))(t)
		}
		e.store = newStore(t, counting, e.opts)
	}
	open()
	state := map[string]any{"long": strings.Repeat("x", size.initial)}
	for i := range size.shared {
		state[fmt.Sprint("app:key", i)] = i
	}
	e.create(state)
	for i := range size.others {
		e.must(e.store.Create(ctx, store.Key{App: "other", User: "user", Session: fmt.Sprint("s", i)}, map[string]any{"user:x": i}, store.CreateOptions{}))
	}
	for from := 0; from < size.log; from += 500 {
		e.append(says("a", size.log)[from:min(from+500, size.log)]...)
	}
	e.apply(patch.NewSummarise(0, size.log-10, summary("s")).WithID("p"))
	e.append(says("v", size.visible)...)
	e.apply(patch.NewPin("s").WithID("pin"))
	last := testlog.Must(patch.NewEvent(patch.Fields{ID: "last", InvocationID: "last", Author: "user", Content: patch.Text("user", strings.Repeat("y", size.last))}))(t)
	e.append(last)
	testlog.NoError(t, e.store.Close())
	e.opts.Snapshots.Every = -1
	open()
	if e.known = e.view(); cold {
		testlog.NoError(t, e.store.Close())
		open()
	}
	counting.Take()
	return e, counting
}

// The cost of a call, in backend calls, rows and bytes, depends only on the sizes that its entry names.
func TestCosts(t *testing.T) {
	for _, engine := range []string{"bolt", "memory"} {
		t.Run(engine, func(t *testing.T) {
			measure := func(v verb, size sizes) storetest.Cost {
				e, counting := newWorld(t, engine, size, v.cold)
				defer e.store.Close()
				testlog.NoError(t, v.do(e))
				return counting.Take()
			}
			for _, v := range verbs {
				how := v.name
				if v.cold {
					how += ", cold"
				}
				small := measure(v, smallSizes)
				if small.Calls != v.calls {
					t.Errorf("%s takes %v, want %d calls", how, small, v.calls)
				}
				for what, size := range grown {
					large := measure(v, size)
					if strings.Contains(v.grows, what) {
						continue
					}
					if large.Calls != small.Calls {
						t.Errorf("%s with a large %s takes %v, and else %v", how, what, large, small)
						continue
					}
					const slack = 128 // allowed difference in bytes, because encoded numbers differ in length
					if !strings.Contains(v.rows, what) && (large.RowsRead != small.RowsRead || large.RowsWritten != small.RowsWritten ||
						large.BytesRead > small.BytesRead+slack || large.BytesPut > small.BytesPut+slack) {
						t.Errorf("%s with a large %s takes %v, and else %v", how, what, large, small)
					}
				}
			}
		})
	}
}
