package adkrecord_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

type event map[string]any

// log gives the events of a log written in words, a second apart: u and a are texts of the
// user's and the agent's, c a call, r its response, d a change of state alone. The event
// with index i has the id e<i>.
func log(t testing.TB, words string) []*patch.Event {
	var events []*patch.Event
	for i, w := range strings.Fields(words) {
		e := event{"id": fmt.Sprintf("e%d", i), "invocationId": "inv", "author": "agent", "timestamp": at(i)}
		switch w {
		case "u":
			e["author"], e["content"] = "user", content("user", map[string]any{"text": "asked"})
		case "a":
			e["content"] = content("model", map[string]any{"text": "answered"})
		case "c":
			e["content"] = content("model", map[string]any{"functionCall": map[string]any{"id": "x", "name": "tool"}})
		case "r":
			e["content"] = content("user", map[string]any{"functionResponse": map[string]any{"id": "x", "name": "tool"}})
		case "d":
			e["actions"] = map[string]any{"stateDelta": map[string]any{"k": i}}
		default:
			t.Fatalf("no word of a log: %q", w)
		}
		events = append(events, testlog.EventOf(t, e))
	}
	return events
}

func at(i int) string { return time.Unix(int64(epoch(i)), 0).UTC().Format(time.RFC3339) }

func epoch(i int) int { return 1767225600 + i }

func content(role string, parts ...any) map[string]any {
	return map[string]any{"role": role, "parts": parts}
}

func view(t testing.TB, events ...*patch.Event) fold.View {
	t.Helper()
	v := fold.New("", nil)
	for _, e := range events {
		var err error
		if v, err = v.Apply(patch.Record{Seq: v.Seq() + 1, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// visible writes a visible log: ids of events, and summaries as S with their level and the
// role of their content.
func visible(v fold.View) string {
	var out []string
	for i, e := range v.Events() {
		if v.Entry(i).Summary {
			out = append(out, fmt.Sprintf("S%d:%s", compaction.LineageOf(e).Level, e.Role()))
			continue
		}
		out = append(out, e.ID())
	}
	return strings.Join(out, " ")
}
