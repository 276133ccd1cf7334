package fuzz

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

// Logs in tests are scripts with one record per line:
//
//	e1 k=1 @inv1 #a by:user role:user call:c1 call::look resp:c1 long:c1 compaction
//	cut 1+2 keep                 a splice of V[1:3] without replacement
//	put 1+0 | r1 k=2 | r2        a splice with a replacement
//	before e3                    a truncate_before
//	pin e3                       a pin (an unpin is written as "unpin e3")
//	revert p3                    a revert
//	sum 0+2 drop | S1 role:model a summarise
//	{"patchType":"rewind"}       a line of the text form
//
// An event is written as its id, followed by its fields. The fields are state (k=1), invocation (@inv1), branch (#a),
// author, role, calls and responses by id, and long-running calls by id. If a call or response has no id, two colons
// and the name of the function replace the id. A patch may have a base (base:N) and a group (group:g). The id of the
// patch with seq 3 is p3.

func fold(t *testing.T, initial map[string]patch.Value, script string) *Reference {
	t.Helper()
	return NewReference(initial, records(t, script)...)
}

func records(t *testing.T, script string) []patch.Record {
	t.Helper()
	var recs []patch.Record
	for line := range strings.Lines(script) {
		if line = strings.TrimSpace(line); line != "" {
			recs = append(recs, record(t, line, uint64(len(recs)+1)))
		}
	}
	return recs
}

func record(t *testing.T, line string, seq uint64) patch.Record {
	t.Helper()
	text := []byte(line)
	if line[0] != '{' {
		text = object(scriptRecord(t, line, seq)).text()
	}
	rec, err := patch.ParseRecord(text)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	rec.Seq = seq
	return rec
}

func patchOf(t *testing.T, line string) *patch.PatchEvent {
	t.Helper()
	rec := record(t, line, 99)
	if rec.Patch == nil {
		t.Fatalf("%s is no patch", line)
	}
	return rec.Patch
}

func scriptRecord(t *testing.T, line string, seq uint64) map[string]any {
	head, rest, _ := strings.Cut(line, "|")
	words := strings.Fields(head)
	f := map[string]any{"id": fmt.Sprintf("p%d", seq)}
	var events []any
	if rest != "" {
		for _, e := range strings.Split(rest, "|") {
			events = append(events, scriptEvent(t, strings.Fields(e)))
		}
	}
	switch words[0] {
	case "cut", "put", "sum":
		f["patchType"] = "splice"
		if words[0] == "sum" {
			f["patchType"] = "summarise"
			f["summaryEvent"] = events[0]
		} else if events != nil {
			f["replacement"] = events
		}
		start, count, _ := strings.Cut(words[1], "+")
		f["start"], f["count"] = json.RawMessage(start), json.RawMessage(count)
	case "revert":
		f["patchType"] = "revert"
		f["patchId"] = words[1]
	case "before":
		f["patchType"] = "truncate_before"
		f["eventId"] = words[1]
	case "pin", "unpin":
		f["patchType"] = words[0]
		f["eventId"] = words[1]
	default:
		return scriptEvent(t, words)
	}
	for _, w := range words[2:] {
		if base, ok := strings.CutPrefix(w, "base:"); ok {
			f["base"] = json.RawMessage(base)
		} else if group, ok := strings.CutPrefix(w, "group:"); ok {
			f["group"] = group
		} else {
			f["state"] = w
		}
	}
	return f
}

func scriptEvent(t *testing.T, words []string) map[string]any {
	delta, actions := map[string]any{}, map[string]any{}
	f := map[string]any{"id": words[0], "author": "agent"}
	parts := []any{textPart("…")}
	role := "model"
	var longRunning []string
	for _, w := range words[1:] {
		if key, value, ok := strings.Cut(w, "="); ok {
			delta[key] = json.RawMessage(value)
			actions["stateDelta"] = delta
			continue
		}
		word, value, _ := strings.Cut(w, ":")
		switch id, name, _ := strings.Cut(value, ":"); {
		case w[0] == '@':
			f["invocationId"] = w[1:]
		case w[0] == '#':
			f["branch"] = w[1:]
		case word == "by":
			f["author"] = value
		case word == "role":
			role = value
		case word == "call":
			parts = append(parts, map[string]any{"functionCall": map[string]any{"id": id, "name": name}})
		case word == "resp":
			parts = append(parts, map[string]any{"functionResponse": map[string]any{"id": id, "name": name}})
		case word == "long":
			longRunning = append(longRunning, value)
			f["longRunningToolIds"] = longRunning
		case word == "compaction":
			actions["compaction"] = map[string]any{}
		default:
			t.Fatalf("%q of event %s means nothing", w, words[0])
		}
	}
	f["content"] = map[string]any{"role": role, "parts": parts}
	if len(actions) > 0 {
		f["actions"] = actions
	}
	return f
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

// expectBlocked fails the test unless the patch with seq blocking blocks the last patch of a log. If blocking is 0,
// no patch may block the last patch.
func expectBlocked(t *testing.T, log []patch.Record, blocking uint64, pinned bool) {
	t.Helper()
	last := len(log) - 1
	if log[last].Patch == nil {
		return
	}
	var refusal *Refusal
	errors.As(NewReference(nil, log[:last]...).Check(CheckOptions{AllowOrphans: true, AllowPinned: pinned}, log[last].Patch), &refusal)
	if blocked := refusal != nil && refusal.Kind == Blocked; blocked != (blocking > 0) || blocked && refusal.Blocking != blocking {
		t.Errorf("the last one is refused as %v, want blocked by %d", refusal, blocking)
	}
}

// showVisible returns the ids of the visible events.
func showVisible(r *Reference) string {
	var ids []string
	for _, e := range r.Visible() {
		ids = append(ids, e.ID())
	}
	return strings.Join(ids, " ")
}

// showPinned returns the ids of the pinned visible events.
func showPinned(r *Reference) string {
	var ids []string
	for i, e := range r.Visible() {
		if r.Pinned()[i] {
			ids = append(ids, e.ID())
		}
	}
	return strings.Join(ids, " ")
}

// showState returns a state as "j=2 k=1".
func showState(state map[string]patch.Value) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(state)) {
		words = append(words, fmt.Sprintf("%s=%v", k, state[k]))
	}
	return strings.Join(words, " ")
}

// showSkipped returns the skipped patches as "3: out of range, …".
func showSkipped(r *Reference) string {
	var words []string
	for _, s := range r.Skipped() {
		words = append(words, fmt.Sprintf("%d: %s", s.Seq, s.Reason))
	}
	return strings.Join(words, ", ")
}
