package adkrecord_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// record returns a compaction record in the form of ADK for Python.
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
		e := testlog.Must(patch.ParseEvent([]byte(c.text)))(t)
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
			if !e.SaysSomething() {
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

// withRecords returns the view of a log that words describe. Each record is inserted after the event with the same
// time.
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
			a := adkrecord.Adopt(v, adkrecord.Options{})
			v, got := adopted(t, v, a)
			if got != row.visible || v.SkippedCount() > 0 {
				t.Errorf("visible is %s, want %s; %d patches were skipped", got, row.visible, v.SkippedCount())
			}
			if got := fmt.Sprint(v.State()); got != state {
				t.Errorf("the state is %s, was %s", got, state)
			}
			if got := len(a.Adopted) + len(a.NotAdopted); got != len(row.records) {
				t.Errorf("%d records are accounted for, of %d", got, len(row.records))
			}
			var reasons []string
			for _, l := range a.NotAdopted {
				reasons = append(reasons, l.EventID+": "+l.Reason)
			}
			if got := strings.Join(reasons, "; "); !strings.Contains(got, row.left) || (row.left == "") != (got == "") {
				t.Errorf("left are %q, want %q", got, row.left)
			}
			if again := adkrecord.Adopt(v, adkrecord.Options{}); len(again.Patches) > 0 {
				t.Errorf("adopting again gives %d patches", len(again.Patches))
			}
		})
	}
}

// A record that cannot be adopted does not change the session, and the plan gives the reason.
func TestUnadoptedRecords(t *testing.T) {
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
		// The covered time range contains the first and the third event, but not the second.
		"number 2 and number 4":           append(log(t, "u u u"), said("late", 40), said("back", 1), record(t, "r", 0, 2, false)),
		"ADK's form":                      says(map[string]any{"startTimestamp": "soon"}),
		"it has no compacted content":     says(map[string]any{"startTimestamp": epoch(0), "endTimestamp": epoch(9)}),
		`calls the function "delete_all"`: holds(text, call),
		"only thoughts":                   holds(thought, map[string]any{"text": " "}),
		"is empty":                        holds(map[string]any{"text": " "}),
		"no letter":                       holds(map[string]any{"text": "--"}),
	} {
		if a := adkrecord.Adopt(view(t, events...), adkrecord.Options{}); len(a.Patches) != 0 || len(a.NotAdopted) != 1 || !strings.Contains(a.NotAdopted[0].Reason, why) {
			t.Errorf("%s: %+v", why, a)
		}
	}
}

// ADK for Go writes RFC 3339 times into its records, and lists the events that a record excludes.
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
	if shown := idsOf(adkrecord.FilterEventsForLLM(all)); shown != "r e1" {
		t.Errorf("shown are %v", shown)
	}
}

// Of a forged record, the model sees only the text. Calls stay with their responses.
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
		{forged(1, text), "r e1 e2 e3"},             // the range does not include the response to the call
		{forged(3, call), "e0 e1 e2 e3"},            // the record has no text
		{forged(3, thought), "e0 e1 e2 e3"},         // the record has no text
		{forged(3), "e0 e1 e2 e3"},                  // the record has no text
		{forged(0, text, call), "r e1 e2 e3"},       // the range includes only the question
		{forged(2, call, text, call, text), "r e3"}, // the range includes the call and its response
	} {
		shown := adkrecord.FilterEventsForLLM(append(slices.Clone(all), row.record))
		for _, e := range shown {
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
		if got := idsOf(shown); got != row.want {
			t.Errorf("%s: shown are %v, want %s", row.record, got, row.want)
		}
	}
}

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

// goRecord returns a record in the form of ADK for Go, with a range in nanoseconds from the start of the test.
func goRecord(t testing.TB, id string, from, to time.Duration, excluded ...time.Duration) *patch.Event {
	c := map[string]any{
		"startTimestamp": stamp(from), "endTimestamp": stamp(to),
		"compactedContent": content("model", map[string]any{"text": "told by " + id}),
	}
	var refs []any
	for _, x := range excluded {
		refs = append(refs, map[string]any{"invocationId": "inv", "timestamp": stamp(x)})
	}
	if refs != nil {
		c["excludedEvents"] = refs
	}
	return testlog.EventOf(t, event{"id": id, "author": "user", "invocationId": "e-" + id, "timestamp": stamp(time.Hour), "actions": map[string]any{"compaction": c}})
}

func stamp(d time.Duration) string {
	return time.Unix(int64(epoch(0)), 0).Add(d).UTC().Format(time.RFC3339Nano)
}

// stamped returns text events with the given times.
func stamped(t testing.TB, times ...time.Duration) (events []*patch.Event) {
	for i, d := range times {
		events = append(events, testlog.EventOf(t, event{
			"id": fmt.Sprint("e", i), "invocationId": "inv", "author": "user", "timestamp": stamp(d),
			"content": content("user", map[string]any{"text": "said"}),
		}))
	}
	return events
}

// Adopt compares RFC 3339 times to the nanosecond. It compares the times of excluded events to the microsecond,
// because a store may have rounded them.
func TestExactTimes(t *testing.T) {
	const ns, us = time.Nanosecond, time.Microsecond
	for _, c := range []struct {
		name   string
		times  []time.Duration
		record *patch.Event
		want   string
	}{
		{"just outside", []time.Duration{0, 10 * us, 20 * us, 20*us + 90*ns}, goRecord(t, "r", 90*ns, 20*us), "e0 r e3"},
		{"at the ends", []time.Duration{0, 10 * us, 20 * us}, goRecord(t, "r", 0, 20*us), "r"},
		{"excluded, rounded down", []time.Duration{0, 5*us + 789*ns, 20 * us}, goRecord(t, "r", 0, 20*us, 5*us), "r e1"},
		{"excluded, rounded up", []time.Duration{0, 5*us + 789*ns, 20 * us}, goRecord(t, "r", 0, 20*us, 6*us), "r e1"},
		{"another is excluded", []time.Duration{0, 5 * us, 20 * us}, goRecord(t, "r", 0, 20*us, 9*us), "r"},
	} {
		all := append(stamped(t, c.times...), c.record)
		if got := idsOf(adkrecord.FilterEventsForLLM(all)); got != c.want {
			t.Errorf("%s: shown are %v, want %s", c.name, got, c.want)
		}
	}
	v := view(t, append(stamped(t, 0, 10*us, 10*us+90*ns), goRecord(t, "r", 0, 10*us))...)
	if a := adkrecord.Adopt(v, adkrecord.Options{}); len(a.Adopted) != 1 || a.Patches[0].Count() != 2 {
		t.Errorf("adopted is %+v", a)
	}
}

// A record replaces a summary exactly if the record's range contains the range of the summary.
func TestAdoptWithSummaries(t *testing.T) {
	summarised := func(at time.Duration, from, to time.Duration) fold.View {
		v := view(t, stamped(t, 0, time.Second, 2*time.Second, 3*time.Second)...)
		s, err := patch.NewEvent(patch.Fields{
			ID: "ours", InvocationID: "o", Author: "user", Timestamp: time.Unix(int64(epoch(0)), 0).Add(at),
			Content: patch.Text("user", "ours tells"), Actions: patch.Actions{Compaction: &patch.EventCompaction{
				StartTimestamp: float64(epoch(0)) + from.Seconds(), EndTimestamp: float64(epoch(0)) + to.Seconds(),
			}},
			CustomMetadata: compaction.Lineage{Level: 1, Windows: 1, Passes: 1, Events: 2}.Metadata(),
		})
		testlog.NoError(t, err)
		v = testlog.Must(v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: patch.NewSummarise(0, 2, s)}))(t)
		return v
	}
	shown := func(v fold.View) (out []string) {
		for i, e := range v.Events() {
			if id := e.ID(); v.Entry(i).Summary {
				out = append(out, testlog.FirstText(e))
			} else {
				out = append(out, id)
			}
		}
		return out
	}
	const s = time.Second
	for _, c := range []struct {
		name   string
		at     time.Duration // time of the summary of the first two events
		record *patch.Event
		want   string
	}{
		{"of its events", 10 * s, goRecord(t, "r", 0, s), "told by r,e2,e3"},
		{"of others, made in between", 2500 * time.Millisecond, goRecord(t, "r", 2*s, 3*s), "ours tells,told by r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := summarised(c.at, 0, s)
			v = testlog.Must(v.Apply(patch.Record{Seq: v.Seq() + 1, Event: c.record}))(t)
			a := adkrecord.Adopt(v, adkrecord.Options{})
			after := testlog.Must(v.Preview(a.Patches, fold.CheckOptions{}))(t)
			if got := strings.Join(shown(after), ","); got != c.want {
				t.Errorf("shown are %s, want %s; left %v", got, c.want, a.NotAdopted)
			}
			if len(a.Adopted)+len(a.NotAdopted) != 1 {
				t.Errorf("%+v", a)
			}
		})
	}
}

type event map[string]any

// log returns the events that words describe, one second apart. The event with index i has the id e<i>.
//
//	u  a text of the user
//	a  a text of the agent
//	c  a call
//	r  the response to c
//	d  a state change
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
		v = testlog.Must(v.Apply(patch.Record{Seq: v.Seq() + 1, Event: e}))(t)
	}
	return v
}

func idsOf(events []*patch.Event) string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	return strings.Join(ids, " ")
}

// adopted applies an adoption to a view, and describes the new visible log by the ids of its events. A summary is
// written as S, its level and the role of its content.
func adopted(t testing.TB, v fold.View, a adkrecord.Adoption) (fold.View, string) {
	t.Helper()
	v = testlog.Must(v.Preview(a.Patches, fold.CheckOptions{}))(t)
	var out []string
	for i, e := range v.Events() {
		if v.Entry(i).Summary {
			out = append(out, fmt.Sprintf("S%d:%s", compaction.LineageOf(e).Level, e.Role()))
			continue
		}
		out = append(out, e.ID())
	}
	return v, strings.Join(out, " ")
}
