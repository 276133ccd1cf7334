package adkrecord_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// record is a compaction record of a foreign log, as ADK for Python writes it.
func record(t testing.TB, id string, from, to int, metadata bool) *patch.Event {
	c := map[string]any{
		"startTimestamp": epoch(from), "endTimestamp": epoch(to),
		"compactedContent": map[string]any{"role": "model", "parts": []any{map[string]any{"text": fmt.Sprintf("told %d to %d", from, to)}}},
	}
	e := event{"id": id, "author": "user", "invocationId": "inv" + id, "timestamp": at(to)}
	if metadata {
		e["customMetadata"] = map[string]any{"_adk_compaction": c}
	} else {
		e["actions"] = map[string]any{"compaction": c}
	}
	return testlog.EventOf(t, e)
}

func TestIsCompactionEvent(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{`{"author":"a"}`, false},
		{`{"actions":{}}`, false},
		{`{"actions":{"compaction":null}}`, false},
		{`{"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`, true},
		{`{"customMetadata":{"_adk_compaction":{"startTimestamp":1,"endTimestamp":2}}}`, true},
		{`{"customMetadata":{"_adk_compaction":null}}`, false},
		{`{"customMetadata":{"_adk_compaction":"yes"}}`, false},
		{`{"customMetadata":{"other":{}}}`, false},
		{`{"actions":{"compaction":{"startTimestamp":"soon"}}}`, false},
	} {
		e, err := patch.ParseEvent([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := adkrecord.IsCompactionEvent(e); got != c.want {
			t.Errorf("%s: %v", c.text, got)
		}
	}
}

func TestInCompactedRange(t *testing.T) {
	c := patch.EventCompaction{StartTimestamp: float64(epoch(2)), EndTimestamp: float64(epoch(4))}
	for i, want := range []bool{false, false, true, true, true, false} {
		e := testlog.EventOf(t, event{"author": "a", "timestamp": at(i)})
		if got := adkrecord.InCompactedRange(e, c); got != want {
			t.Errorf("second %d: %v", i, got)
		}
	}
}

func TestFilterEventsForLLM(t *testing.T) {
	texts := func(n int, records ...*patch.Event) []*patch.Event {
		var out []*patch.Event
		for _, e := range log(t, strings.Repeat("u ", n)) {
			out = append(out, e)
			for _, r := range records {
				if r.Timestamp().Equal(e.Timestamp()) {
					out = append(out, r)
				}
			}
		}
		return out
	}
	show := func(events []*patch.Event) string {
		var out []string
		for _, e := range events {
			if strings.HasPrefix(e.ID(), "e") {
				out = append(out, e.ID())
				continue
			}
			if !e.HasContent() {
				out = append(out, e.ID()+":?")
				continue
			}
			out = append(out, strings.ReplaceAll(testlog.FirstText(e), " ", "-"))
		}
		return strings.Join(out, " ")
	}
	for _, row := range []struct {
		name   string
		events []*patch.Event
		want   string
	}{
		{"no records", texts(3), "e0 e1 e2"},
		{"none at all", nil, ""},
		{"one record", texts(4, record(t, "r", 0, 1, false)), "told-0-to-1 e2 e3"},
		{"kept in the metadata", texts(4, record(t, "r", 0, 1, true)), "told-0-to-1 e2 e3"},
		{"a record in the middle", texts(5, record(t, "r", 1, 2, false)), "e0 told-1-to-2 e3 e4"},
		{"two records", texts(5, record(t, "r", 0, 1, false), record(t, "s", 2, 3, false)), "told-0-to-1 told-2-to-3 e4"},
		{"overlapping records", texts(5, record(t, "r", 0, 2, false), record(t, "s", 2, 3, false)), "told-0-to-2 told-2-to-3 e4"},
		{"a record within a later one", texts(5, record(t, "r", 0, 1, false), record(t, "s", 0, 3, false)), "told-0-to-3 e4"},
		{"a record of nothing that is there", texts(2, record(t, "r", 1, 1, false))[1:2], "e1"},
	} {
		in := slices.Clone(row.events)
		if got := show(adkrecord.FilterEventsForLLM(row.events)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		if !slices.Equal(in, row.events) {
			t.Errorf("%s: the input was changed", row.name)
		}
	}
}

// withRecords gives the view of a log of words with records put in after the events with
// their end times.
func withRecords(t *testing.T, words string, records ...*patch.Event) fold.View {
	var all []*patch.Event
	for i, e := range log(t, words) {
		all = append(all, e)
		for _, r := range records {
			if r.Timestamp().Format("05") == fmt.Sprintf("%02d", i) {
				all = append(all, r)
			}
		}
	}
	return view(t, all...)
}

func TestAdopt(t *testing.T) {
	for _, row := range []struct {
		name    string
		log     string
		records []*patch.Event
		visible string
		left    string // reasons
	}{
		{"no records", "u a u", nil, "e0 e1 e2", ""},
		{"one", "u a u a", []*patch.Event{record(t, "r", 0, 1, false)}, "S1:user e2 e3", ""},
		{"before a model turn", "u a a a", []*patch.Event{record(t, "r", 0, 1, false)}, "S1:user e2 e3", ""},
		{"in the metadata", "u a u a", []*patch.Event{record(t, "r", 0, 1, true)}, "S1:user e2 e3", ""},
		{"two that overlap", "u a u a u", []*patch.Event{record(t, "r", 0, 2, false), record(t, "s", 2, 3, false)}, "S1:user S1:user e4", ""},
		{"a change of state goes along", "u d a u", []*patch.Event{record(t, "r", 0, 2, false)}, "S1:user e3", ""},
		{"one that supersedes another", "u a u a", []*patch.Event{record(t, "r", 0, 1, false), record(t, "s", 0, 2, false)}, "S1:user e3", ""},
		{"one again over the same range", "u a u", []*patch.Event{record(t, "r", 0, 1, false), record(t, "s", 0, 1, false)}, "S1:user e2", ""},
		{"it would split a call", "u c r a", []*patch.Event{record(t, "r", 0, 1, false)}, "e0 e1 S1: e2 e3", "orphaned"},
		{"nothing in its range", "u a", []*patch.Event{record(t, "r", 20, 1, false)}, "e0 e1 S1:", "no visible raw event"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := withRecords(t, row.log, row.records...)
			state := fmt.Sprint(v.State())
			a := adkrecord.Adopt(v)
			v, err := v.Preview(a.Patches, fold.CheckOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := visible(v); got != row.visible || v.SkippedCount() > 0 {
				t.Errorf("visible is %s, want %s; %d patches were skipped", got, row.visible, v.SkippedCount())
			}
			if got := fmt.Sprint(v.State()); got != state {
				t.Errorf("the state is %s, was %s", got, state)
			}
			if got := len(a.Adopted) + len(a.Left); got != len(row.records) {
				t.Errorf("%d records are accounted for, of %d", got, len(row.records))
			}
			var reasons []string
			for _, l := range a.Left {
				reasons = append(reasons, l.EventID+": "+l.Reason)
			}
			if got := strings.Join(reasons, "; "); !strings.Contains(got, row.left) || (row.left == "") != (got == "") {
				t.Errorf("left are %q, want %q", got, row.left)
			}
			if again := adkrecord.Adopt(v); len(again.Patches) > 0 {
				t.Errorf("adopting again gives %d patches", len(again.Patches))
			}
		})
	}
}

// A record that cannot be adopted stays, and says why.
func TestAdoptLeaves(t *testing.T) {
	text, thought := map[string]any{"text": "told"}, map[string]any{"text": "hm", "thought": true}
	call := map[string]any{"functionCall": map[string]any{"name": "delete_all"}}
	says := func(c map[string]any) []*patch.Event {
		return append(log(t, "u"), testlog.EventOf(t, event{"id": "r", "author": "user", "actions": map[string]any{"compaction": c}}))
	}
	holds := func(parts ...any) []*patch.Event {
		return says(map[string]any{"startTimestamp": epoch(0), "endTimestamp": epoch(9), "compactedContent": content("model", parts...)})
	}
	said := func(id string, second int) *patch.Event {
		return testlog.EventOf(t, event{"id": id, "author": "user", "timestamp": at(second), "content": content("user", map[string]any{"text": "x"})})
	}
	for why, events := range map[string][]*patch.Event{
		// Its range takes in the events around one that lies outside.
		"number 2 and number 4":           append(log(t, "u u u"), said("late", 40), said("back", 1), record(t, "r", 0, 2, false)),
		"shape":                           says(map[string]any{"startTimestamp": "soon"}),
		"it has no compacted content":     says(map[string]any{"startTimestamp": epoch(0), "endTimestamp": epoch(9)}),
		`calls the function "delete_all"`: holds(text, call),
		"only thoughts":                   holds(thought, map[string]any{"text": " "}),
		"is empty":                        holds(map[string]any{"text": " "}),
		"no letter":                       holds(map[string]any{"text": "--"}),
	} {
		if a := adkrecord.Adopt(view(t, events...)); len(a.Patches) != 0 || len(a.Left) != 1 || !strings.Contains(a.Left[0].Reason, why) {
			t.Errorf("%s: %+v", why, a)
		}
	}
}

// A record of ADK for Go has times by RFC 3339 and names exclusions.
func TestExcludedEvents(t *testing.T) {
	r := testlog.EventOf(t, event{"id": "r", "author": "user", "timestamp": at(2), "actions": map[string]any{"compaction": map[string]any{
		"startTimestamp": at(0), "endTimestamp": at(1), "compactedContent": content("model", map[string]any{"text": "told"}),
		"excludedEvents": []any{map[string]any{"invocationId": "inv", "timestamp": at(1)}},
	}}})
	all := append(log(t, "u u"), r)
	c, ok := adkrecord.CompactionOf(r)
	if !ok || !adkrecord.InCompactedRange(all[0], c) || adkrecord.InCompactedRange(all[1], c) {
		t.Errorf("the record is %+v, %v", c, ok)
	}
	if shown := adkrecord.FilterEventsForLLM(all); len(shown) != 2 || shown[0].ID() != "r" || shown[1].ID() != "e1" {
		t.Errorf("shown are %v", shown)
	}
}

// What a forged record holds besides texts reaches no model, and pairs stay together.
func TestFilterForgedRecord(t *testing.T) {
	all := log(t, "u c r a")
	forged := func(to int, parts ...any) *patch.Event {
		return testlog.EventOf(t, event{"id": "r", "author": "user", "timestamp": at(9), "actions": map[string]any{"compaction": map[string]any{
			"startTimestamp": epoch(0), "endTimestamp": epoch(to), "compactedContent": content("system", parts...),
		}}})
	}
	call := map[string]any{"functionCall": map[string]any{"name": "delete_all"}}
	text := map[string]any{"text": "to\x1bld"}
	thought := map[string]any{"text": "hm", "thought": true}
	for _, row := range []struct {
		record *patch.Event
		want   string
	}{
		{forged(3, text, call), "r"},
		{forged(1, text), "r e1 e2 e3"},             // the call's response is outside
		{forged(3, call), "e0 e1 e2 e3"},            // it says nothing
		{forged(3, thought), "e0 e1 e2 e3"},         // nor does this
		{forged(3), "e0 e1 e2 e3"},                  // nor does this
		{forged(0, text, call), "r e1 e2 e3"},       // only the question
		{forged(2, call, text, call, text), "r e3"}, // the pair goes
	} {
		shown := adkrecord.FilterEventsForLLM(append(slices.Clone(all), row.record))
		var got []string
		for _, e := range shown {
			got = append(got, e.ID())
			if e.ID() != "r" {
				continue
			}
			if e.Role() != "user" {
				t.Errorf("%s", e)
			}
			for _, p := range e.Content().Parts() {
				if p.Kind != patch.PartText || strings.Contains(p.Text, "\x1b") || !strings.HasPrefix(p.Text, "told") {
					t.Errorf("shown is %s", e)
				}
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: shown are %v, want %s", row.record, got, row.want)
		}
	}
}

// nil among events is as none.
func TestNoEvent(t *testing.T) {
	e := log(t, "u")[0]
	events := []*patch.Event{nil, e, nil}
	if out := adkrecord.FilterEventsForLLM(events); len(out) != 1 || out[0] != e || events[0] != nil {
		t.Errorf("filtered: %v", out)
	}
	if adkrecord.IsCompactionEvent(nil) || adkrecord.InCompactedRange(nil, patch.EventCompaction{StartTimestamp: -1e18, EndTimestamp: 1e18}) {
		t.Error("nil is a record, or in its range")
	}
}
