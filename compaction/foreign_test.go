package compaction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
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
	return parseEvent(t, e)
}

func epoch(i int) int { return 1767225600 + i }

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
		if got := compaction.IsCompactionEvent(e); got != c.want {
			t.Errorf("%s: %v", c.text, got)
		}
	}
}

func TestInCompactedRange(t *testing.T) {
	c := patch.EventCompaction{StartTimestamp: float64(epoch(2)), EndTimestamp: float64(epoch(4))}
	for i, want := range []bool{false, false, true, true, true, false} {
		e := parseEvent(t, event{"author": "a", "timestamp": at(i)})
		if got := compaction.InCompactedRange(e, c); got != want {
			t.Errorf("second %d: %v", i, got)
		}
	}
}

func TestFilterEventsForLLM(t *testing.T) {
	texts := func(n int, records ...*patch.Event) []*patch.Event {
		var out []*patch.Event
		for i := range n {
			e, _ := parseWord(t, fmt.Sprintf("u%d", i), i)
			out = append(out, parseEvent(t, e))
			for _, r := range records {
				if r.Timestamp().Equal(out[len(out)-1].Timestamp()) {
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
			out = append(out, strings.ReplaceAll(firstText(e), " ", "-"))
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
		if got := show(compaction.FilterEventsForLLM(row.events)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		if !slices.Equal(in, row.events) {
			t.Errorf("%s: the input was changed", row.name)
		}
	}
}

// withRecords gives a session of text events e0, e1, … with records put in after the
// events with their end times.
func withRecords(t *testing.T, words string, records ...*patch.Event) *session {
	s := newSession(t, "")
	for i, w := range strings.Fields(words) {
		s.append(w)
		for _, r := range records {
			if r.Timestamp().Format("05") == fmt.Sprintf("%02d", i) {
				if _, err := s.store.AppendEvents(t.Context(), key, store.AppendOptions{}, r); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return s
}

func TestAdopt(t *testing.T) {
	for _, row := range []struct {
		name    string
		log     string
		records []*patch.Event
		visible string
		left    string // reasons
	}{
		{"no records", "u1 a1 u2", nil, "e0 e1 e2", ""},
		{"one", "u1 a1 u2 a2", []*patch.Event{record(t, "r", 0, 1, false)}, "S1:user e2 e3", ""},
		{"before a model turn", "u1 a1 a1 a2", []*patch.Event{record(t, "r", 0, 1, false)}, "S1:user e2 e3", ""},
		{"in the metadata", "u1 a1 u2 a2", []*patch.Event{record(t, "r", 0, 1, true)}, "S1:user e2 e3", ""},
		{"two that overlap", "u1 a1 u2 a2 u3", []*patch.Event{record(t, "r", 0, 2, false), record(t, "s", 2, 3, false)}, "S1:user S1:user e4", ""},
		{"a change of state goes along", "u1 d1 a1 u2", []*patch.Event{record(t, "r", 0, 2, false)}, "S1:user e3", ""},
		{"one that supersedes another", "u1 a1 u2 a2", []*patch.Event{record(t, "r", 0, 1, false), record(t, "s", 0, 2, false)}, "S1:user e3", ""},
		{"one again over the same range", "u1 a1 u2", []*patch.Event{record(t, "r", 0, 1, false), record(t, "s", 0, 1, false)}, "S1:user e2", ""},
		{"it would split a call", "u1 c1(x) r1(x) a1", []*patch.Event{record(t, "r", 0, 1, false)}, "e0 e1 S1: e2 e3", "orphaned"},
		{"nothing in its range", "u1 a1", []*patch.Event{record(t, "r", 20, 1, false)}, "e0 e1 S1:", "no visible raw event"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := withRecords(t, row.log, row.records...)
			state := s.state()
			a := compaction.Adopt(s.view())
			if len(a.Patches) > 0 {
				if _, err := s.store.ApplyOn(t.Context(), key, s.view(), checkAll, a.Patches...); err != nil {
					t.Fatal(err)
				}
			}
			s.want(row.visible)
			if s.state() != state {
				t.Errorf("the state is %s, was %s", s.state(), state)
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
			if again := compaction.Adopt(s.view()); len(again.Patches) > 0 {
				t.Errorf("adopting again gives %d patches", len(again.Patches))
			}
		})
	}
}

func TestAdoptNotSideBySide(t *testing.T) {
	s := newSession(t, "u1 u2 u3")
	// Its range takes in the first and the last, whose times the middle one's lies outside.
	late := parseEvent(t, event{"id": "late", "author": "user", "timestamp": at(40), "content": map[string]any{"role": "user", "parts": []any{map[string]any{"text": "x"}}}})
	back := parseEvent(t, event{"id": "back", "author": "user", "timestamp": at(1), "content": map[string]any{"role": "user", "parts": []any{map[string]any{"text": "x"}}}})
	if _, err := s.store.AppendEvents(t.Context(), key, store.AppendOptions{}, late, back, record(t, "r", 0, 2, false)); err != nil {
		t.Fatal(err)
	}
	a := compaction.Adopt(s.view())
	if len(a.Patches) != 0 || len(a.Left) != 1 || !strings.Contains(a.Left[0].Reason, "number 2 and number 4") {
		t.Errorf("%+v", a)
	}
}

func TestAdoptOfAnotherShape(t *testing.T) {
	s := newSession(t, "u1")
	r := parseEvent(t, event{"id": "r", "author": "user", "actions": map[string]any{"compaction": map[string]any{"startTimestamp": "soon"}}})
	if _, err := s.store.AppendEvents(t.Context(), key, store.AppendOptions{}, r); err != nil {
		t.Fatal(err)
	}
	if a := compaction.Adopt(s.view()); len(a.Patches) != 0 || len(a.Left) != 1 || !strings.Contains(a.Left[0].Reason, "shape") {
		t.Errorf("%+v", a)
	}
}

func TestAdoptWithoutText(t *testing.T) {
	s := newSession(t, "u1")
	r := parseEvent(t, event{"id": "r", "author": "user", "actions": map[string]any{"compaction": map[string]any{"startTimestamp": epoch(0), "endTimestamp": epoch(9)}}})
	if _, err := s.store.AppendEvents(t.Context(), key, store.AppendOptions{}, r); err != nil {
		t.Fatal(err)
	}
	if a := compaction.Adopt(s.view()); len(a.Patches) != 0 || len(a.Left) != 1 || a.Left[0].Reason != "it has no compacted content" {
		t.Errorf("%+v", a)
	}
}

// A record whose content is no summary stays, and says why.
func TestAdoptOfNoSummary(t *testing.T) {
	text, thought := map[string]any{"text": "told"}, map[string]any{"text": "hm", "thought": true}
	call := map[string]any{"functionCall": map[string]any{"name": "delete_all"}}
	for why, parts := range map[string][]any{
		`calls the function "delete_all"`: {text, call},
		"only thoughts":                   {thought, map[string]any{"text": " "}},
		"is empty":                        {map[string]any{"text": " "}},
		"no letter":                       {map[string]any{"text": "--"}},
	} {
		s := newSession(t, "u1")
		r := parseEvent(t, event{"id": "r", "author": "user", "actions": map[string]any{"compaction": map[string]any{
			"startTimestamp": epoch(0), "endTimestamp": epoch(9), "compactedContent": content("model", parts...),
		}}})
		if _, err := s.store.AppendEvents(t.Context(), key, store.AppendOptions{}, r); err != nil {
			t.Fatal(err)
		}
		if a := compaction.Adopt(s.view()); len(a.Patches) != 0 || len(a.Left) != 1 || !strings.Contains(a.Left[0].Reason, why) {
			t.Errorf("%s: %+v", why, a)
		}
	}
}
