package linear

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// A store on bbolt is linearizable, with and without syncs. Up to three stores that share a backend in memory are
// linearizable too.
func TestLinearizable(t *testing.T) {
	few := 2
	if testing.Short() {
		few = 1
	}
	t.Run("bbolt", func(t *testing.T) {
		Check(t, few, func(n int) []backend.Backend { return []backend.Backend{onBolt(t, bolt.Options{NoSync: n/2%2 == 1})} })
	})
	t.Run("memory", func(t *testing.T) {
		Check(t, few, func(n int) []backend.Backend { return inMemory(1 + n/2%3) })
	})
}

func onBolt(t *testing.T, o bolt.Options) backend.Backend {
	t.Helper()
	b, err := bolt.Open(filepath.Join(t.TempDir(), "db"), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// inMemory returns backends that share their sessions.
func inMemory(n int) []backend.Backend {
	first := &memory.Backend{}
	all := []backend.Backend{first}
	for range n - 1 {
		all = append(all, first.Peer())
	}
	return all
}

// open is a backend that stays open when a store on it is closed.
type open struct{ backend.Backend }

func (open) Close() error { return nil }

// The checker detects stores on flawed backends.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		flaw, on string
		stores   int
	}{
		{"stale", "memory", 2}, {"overrun", "memory", 2},
		{"torn", "memory", 2}, {"unshared", "memory", 2},
		{"stale", "bbolt", 1}, {"overrun", "bbolt", 2},
		{"torn", "bbolt", 1}, {"unshared", "bbolt", 1},
	} {
		t.Run(c.flaw+" on "+c.on, func(t *testing.T) {
			backends := inMemory(c.stores)
			if c.on == "bbolt" {
				b := onBolt(t, bolt.Options{NoSync: true})
				t.Cleanup(func() { _ = b.Close() })
				backends = slices.Repeat([]backend.Backend{open{b}}, c.stores)
			}
			var callers []ops.Caller
			for i, b := range backends {
				callers = append(callers, newLocal(t, ops.Flaws[c.flaw](b), i, 0))
			}
			var all []string
			for seed := range uint64(1000) { // some flaws do not show in every history
				l := &Load{Callers: callers, Clients: 16, Apps: 1, Calls: 16, Name: fmt.Sprint("control ", seed), Seed: seed}
				l.Run()
				// Failed calls are accepted here, because the checker must detect the flaw in the order of calls.
				all = append(all, l.End(callers[0]).Judge(Options{Faults: true})...)
				if i := slices.IndexFunc(all, func(v string) bool { return strings.Contains(v, "have no order") }); i >= 0 {
					t.Logf("load %d: %s", seed, all[i])
					return
				}
			}
			t.Errorf("no violation is found, but %v", all)
		})
	}
}

// If a call takes effect but its reply is lost, and other clients see the ids of its records, the history is valid.
func TestOutcomeUnknownButSeen(t *testing.T) {
	l := &Load{Callers: []ops.Caller{newLocal(t, inMemory(1)[0], 0, 0)}}
	l.Begin()
	call := func(kind ops.Kind, ids ...string) ops.Reply {
		return l.Call(l.Callers[0], ops.Op{App: "app", Session: keptSession, Kind: kind, IDs: ids, AsOfNow: true, Count: 1})
	}
	call(ops.Create)
	call(ops.Append, "a", "b")
	call(ops.Patch, "p")
	call(ops.Revert, "p")
	last := &l.history[len(l.history)-1]
	last.Outcome, last.Logged, last.Seqs = ops.Unknown, nil, nil
	text := call(ops.Export).Exported
	call(ops.Raw)
	r := l.Call(l.Callers[0], ops.Op{App: "app", Session: keptSession, Kind: ops.Import, Text: text})
	if r.Outcome != ops.Done || len(r.Seqs) != 4 {
		t.Fatalf("importing the existing records gives %+v", r)
	}
	call(ops.Get)
	if violations := l.history.Judge(Options{Faults: true}); len(violations) > 0 {
		t.Error(violations)
	}
	l.history[len(l.history)-3].Logged[1] = "another"
	if len(l.history.Judge(Options{Faults: true})) == 0 {
		t.Error("a log that shows another id of an event is no violation")
	}
}

// If a fork takes effect and the storage then becomes unreachable, the history is valid. The reply may be success or
// unknown, and the history has the copied records.
func TestForkBeforeFailure(t *testing.T) {
	b := &storetest.Faulty{Backend: inMemory(1)[0]}
	l := &Load{Callers: []ops.Caller{newLocal(t, b, 0, 0)}}
	l.Begin()
	call := func(session string, kind ops.Kind, ids ...string) ops.Reply {
		at := uint64(2)
		return l.Call(l.Callers[0], ops.Op{App: "app", Session: session, Source: keptSession, Kind: kind, IDs: ids, At: &at})
	}
	call(keptSession, ops.Create)
	call(keptSession, ops.Append, "a", "b", "c")
	b.Plan(storetest.Plan{Write: 1, Failure: storetest.Applied, PassNext: 2, FailNext: 1000})
	if r := call("s0", ops.Fork); r.Outcome != ops.Done {
		t.Errorf("a fork that took place: %s %s", r.Outcome, r.Err)
	}
	b.Plan(storetest.Plan{})
	call("s0", ops.Append, "d")
	call(keptSession, ops.Append, "e")
	call("s0", ops.Raw)
	call(keptSession, ops.Raw)
	judge := func(what string, change func(h History)) bool {
		h := l.History()
		change(h)
		violations := h.Judge(Options{Faults: true})
		t.Logf("%s: %.300q", what, violations)
		return len(violations) == 0
	}
	fork := slices.IndexFunc(l.history, func(e Call) bool { return e.Kind == ops.Fork })
	source := len(l.history) - 1
	for what, fits := range map[string]func(h History){
		"done":    func(History) {},
		"unknown": func(h History) { h[fork].Reply = ops.Reply{Outcome: ops.Unknown} },
		"gone":    func(h History) { h[fork].Reply = ops.Reply{Outcome: ops.Gone} },
	} {
		if !judge(what, fits) {
			t.Errorf("%s is a violation", what)
		}
	}
	for what, wrong := range map[string]func(h History){
		"failed":                 func(h History) { h[fork].Reply = ops.Reply{Outcome: ops.Failed} },
		"unknown, of one record": func(h History) { h[fork].At = new(uint64(1)); h[fork].Reply = ops.Reply{Outcome: ops.Unknown} },
		"a source never read":    func(h History) { h[source].Outcome = ops.Failed },
	} {
		if judge(what, wrong) {
			t.Errorf("%s is no violation", what)
		}
	}
}

// If the outcome of a Create is unknown, a fork of the session is no violation. The reply to the fork does not show
// the creation id of the source.
func TestForkOfUnknownCreation(t *testing.T) {
	l := &Load{Callers: []ops.Caller{newLocal(t, inMemory(1)[0], 0, 0)}}
	l.Begin()
	for _, o := range []ops.Op{{Kind: ops.Create, Session: keptSession}, {Kind: ops.Fork, Session: "s0", Source: keptSession, At: new(uint64)}, {Kind: ops.Get, Session: keptSession}} {
		o.App = "app"
		if r := l.Call(l.Callers[0], o); r.Outcome != ops.Done {
			t.Fatalf("%s: %s", o.Kind, r.Err)
		}
	}
	l.history[0].Reply = ops.Reply{Outcome: ops.Unknown}
	if violations := l.End(l.Callers[0]).Judge(Options{Faults: true}); len(violations) > 0 {
		t.Error(violations)
	}
}
