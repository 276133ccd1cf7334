package fold_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// event makes an event from words:
//
//	e1 @inv1 #branch by:user role:user k=1 call:c1 resp:c1 long:c1 summary scope:s at:5
//
// The first word is the id. A call or response without an id has only the function name f. If an event has
// neither content nor state, its text is its id.
func event(words ...string) *patch.Event {
	f := patch.Fields{ID: words[0], Author: "agent", Timestamp: time.Unix(1, 0)}
	role := "model"
	var parts []any
	part := func(kind string, value any) { parts = append(parts, map[string]any{kind: value}) }
	for _, w := range words[1:] {
		kind, arg, _ := strings.Cut(w, ":")
		key, val, isState := strings.Cut(w, "=")
		switch {
		case isState:
			if f.Actions.StateDelta == nil {
				f.Actions.StateDelta = map[string]any{}
			}
			f.Actions.StateDelta[key] = val
		case w[0] == '@':
			f.InvocationID = w[1:]
		case w[0] == '#':
			f.Branch = w[1:]
		case kind == "by":
			f.Author = arg
		case kind == "role":
			role = arg
		case kind == "scope":
			f.IsolationScope = arg
		case kind == "text":
			part("text", arg)
		case kind == "call":
			part("functionCall", map[string]any{"id": arg, "name": "f"})
		case kind == "resp":
			part("functionResponse", map[string]any{"id": arg, "name": "f"})
		case kind == "long":
			f.LongRunningToolIDs = append(f.LongRunningToolIDs, arg)
		case kind == "summary":
			f.Actions.Compaction = &patch.EventCompaction{}
		case kind == "at":
			var sec int64
			fmt.Sscan(arg, &sec)
			f.Timestamp = time.Unix(sec, 0)
		default:
			panic("unknown word " + w)
		}
	}
	if len(parts) == 0 && f.Actions.StateDelta == nil {
		part("text", words[0])
	}
	if len(parts) > 0 || role != "model" {
		f.Content = map[string]any{"role": role, "parts": parts}
	}
	e, err := patch.NewEvent(f)
	if err != nil {
		panic(err)
	}
	return e
}

func events(lines ...string) []*patch.Event {
	out := make([]*patch.Event, len(lines))
	for i, l := range lines {
		out[i] = event(strings.Fields(l)...)
	}
	return out
}

// view returns the view of a session with the given events. Each line describes one event.
func view(t *testing.T, lines ...string) fold.View {
	t.Helper()
	return extend(t, fold.New("", nil), lines...)
}

func extend(t *testing.T, v fold.View, lines ...string) fold.View {
	t.Helper()
	for _, e := range events(lines...) {
		v = logged(t, v, patch.Record{Event: e})
	}
	return v
}

// logs contains, for each test, the log of the view that the test made last.
var logs = map[testing.TB][]patch.Record{}

// logged applies a record, and stores it so that reverts can use it.
func logged(t *testing.T, v fold.View, r patch.Record) fold.View {
	t.Helper()
	r.Seq = v.Seq() + 1
	v = testlog.Must(withAllRecords(t, v).Apply(r))(t)
	logs[t] = append(logs[t][:r.Seq-1], r)
	return v
}

// withAllRecords returns v after it supplies all records of v's log.
func withAllRecords(t *testing.T, v fold.View) fold.View { return v.WithRecords(logs[t][:v.Seq()]) }

// apply logs a patch that Check must accept.
func apply(t *testing.T, v fold.View, p *patch.PatchEvent) fold.View {
	t.Helper()
	testlog.NoError(t, withAllRecords(t, v).Check(p, fold.CheckOptions{AllowOrphans: true}))
	return logged(t, v, patch.Record{Patch: p})
}

// ids lists the ids of the visible events.
func ids(v fold.View) string {
	var out []string
	for _, e := range v.Events() {
		out = append(out, e.ID())
	}
	return strings.Join(out, " ")
}
