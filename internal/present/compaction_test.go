package present_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestPassText(t *testing.T) {
	start, _ := patch.ParseRecord([]byte(`{"seq":62,"id":"p","patchType":"splice","start":7,"count":3}`))
	for _, c := range []struct {
		written compaction.Written
		want    string
	}{
		{compaction.Written{Trigger: compaction.ByTokens, Level: 1, EventsBefore: 5, EventsAfter: 2, TokensBefore: 12345, TokensAfter: 67, Ratio: 67.0 / 12345, Model: "m\x1b", Duration: 1234 * time.Millisecond},
			`record 62, tokens: index 7 to 9 and 2 before: 5 events → 2 summaries of level 1, about 12,345 → 67 tokens (under 1 %), by m\u001b, 1.2 s`},
		{compaction.Written{Trigger: compaction.ByInterval, Level: 1, EventsBefore: 3, Duration: 900 * time.Millisecond},
			"record 62, interval: index 7 to 9: 3 events → 0 summaries of level 1, about 0 → 0 tokens"},
		{compaction.Written{Trigger: "new\n", Merged: true, Level: 2, EventsBefore: 3, EventsAfter: 1, TokensBefore: 10, TokensAfter: 5, Ratio: 0.5},
			"record 62, new: index 7 to 9: 3 summaries → 1 summary of level 2, about 10 → 5 tokens (50 %)"},
		{compaction.Written{Trigger: compaction.ByClearing, EventsBefore: 1, EventsAfter: 1, TokensBefore: 10, TokensAfter: 1, Ratio: 0.1},
			"record 62, clearing: index 7 to 9: results cleared in 1 event, about 10 → 1 tokens (10 %)"},
	} {
		if got := present.PassText(start, c.written); got != c.want {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
	}
}

func TestCompactionRows(t *testing.T) {
	c := present.CompactionStats{
		Passes: 2, Summaries: map[int]int{2: 1, 1: 3}, Prompt: present.PromptSize{Tokens: 1234, Measured: true, At: time.Date(2025, 1, 2, 3, 4, 0, 0, time.UTC)},
		Last: &present.LastPass{Seq: 7, Time: time.Date(2025, 1, 2, 3, 4, 5, 6, time.UTC), Written: compaction.Written{Trigger: "a\n\nb", Level: 1, EventsBefore: 4, EventsAfter: 1}},
	}
	testlog.Equal(t, "rows", c.Rows(), []present.Row{
		{"prompt", "about 1,234 tokens, measured at 2025-01-02 03:04:00, and estimated since"},
		{"compactions", "2"},
		{"  last compaction", "2025-01-02 03:04:05, record 7, by a b"},
		{"  events compacted", "4 events → 1 summary of level 1"},
		{"  tokens compacted", "about 0 → 0 tokens"},
		{"visible summaries", "4: 3 of level 1, 1 of level 2"},
	})
}

func TestPlan(t *testing.T) {
	long := strings.Repeat("i", 50)
	for _, c := range []struct {
		name     string
		decision compaction.Decision
		rows     []present.Row
		outlook  string
	}{
		{"nothing", compaction.Decision{Reason: "not due", PromptTokens: 5},
			[]present.Row{{"prompt", "about 5 tokens, estimated"}},
			""},
		{"window", compaction.Decision{Reason: "because", PromptTokens: 2000, Measured: true, Window: &compaction.Window{
			Trigger: compaction.ByTokens, Span: compaction.Span{Start: 7, Count: 3}, EarlierSpans: []compaction.Span{{Start: 1, Count: 2}},
			Groups:      []compaction.Group{{Indices: []int{1, 2}}, {Branch: "a.b", Scope: "s\n", Indices: []int{7, 8, 9}}},
			Invocations: []string{"one\x1b", "two", long}, Tokens: 1000,
		}},
			[]present.Row{{"trigger", "tokens"}, {"window", "start 7, count 3"}, {"  also", "start 1, count 2"},
				{"  branch", "no branch: 2 events"}, {"  branch", "a.b, scope s: 3 events"}, {"invocations", `3: one\u001b to ` + long[:40]},
				{"tokens", "about 1,000 in the window"}, {"prompt", "about 2,000 tokens, measured, and estimated since"}},
			"Nothing was written. More passes may follow. What they cover depends on the summary of this pass."},
		{"one group", compaction.Decision{Window: &compaction.Window{Trigger: compaction.ByInterval, Span: compaction.Span{Count: 1}, Groups: []compaction.Group{{Branch: "b", Indices: []int{0}}}, Invocations: []string{"one"}}},
			[]present.Row{{"trigger", "interval"}, {"window", "start 0, count 1"}, {"invocations", "1: one"}, {"tokens", "about 0 in the window"}, {"prompt", "about 0 tokens, estimated"}},
			"Nothing was written. More passes may follow. What they cover depends on the summary of this pass."},
		{"clearing", compaction.Decision{Window: &compaction.Window{Trigger: compaction.ByClearing, Span: compaction.Span{Start: 9, Count: 1}, EarlierSpans: []compaction.Span{{Start: 3, Count: 1}}, Results: 2, Tokens: 1234}},
			[]present.Row{{"trigger", "clearing"}, {"clears", "2 results, in events 3 to 9"}, {"tokens", "about 1,234 in these events"}, {"prompt", "about 0 tokens, estimated"}},
			"Nothing was written. More passes may follow."},
		{"clearing one", compaction.Decision{Window: &compaction.Window{Trigger: compaction.ByClearing, Span: compaction.Span{Start: 9, Count: 1}, Results: 1}},
			[]present.Row{{"trigger", "clearing"}, {"clears", "1 result, in events 9 to 9"}, {"tokens", "about 0 in these events"}, {"prompt", "about 0 tokens, estimated"}},
			"Nothing was written. More passes may follow."},
	} {
		testlog.Equal(t, c.name, present.PlanRows(c.decision), c.rows)
		testlog.Equal(t, c.name+" outlook", present.NextPassesText(c.decision), c.outlook)
	}
}

func summary(id string, start, count int, text, more string) string {
	return strings.NewReplacer("ID", id, "START", asNumber(start), "COUNT", asNumber(count), "TEXT", text, "MORE", more).Replace(
		`{"id":"p-ID","patchType":"summarise","start":START,"count":COUNT,"summaryEvent":{"id":"ID","author":"user","content":{"role":"user","parts":[{"text":"TEXT"}]}}MORE}`)
}

func asNumber(n int) string { return string(rune('0' + n)) }

// order is a session with a single summary, and with two summaries of one group.
var order = []string{
	`{"id":"e1","invocationId":"i1","author":"user","content":{"role":"user","parts":[{"text":"I am Ada, ada@math.example. Where is ORDER-4711? I paid 105.00 and 45.50 euros."}]}}`,
	`{"id":"e2","invocationId":"i1","author":"shop","content":{"role":"model","parts":[{"functionCall":{"id":"call-1","name":"track","args":{"order":"ORDER-4711"}}}]}}`,
	`{"id":"e3","invocationId":"i1","author":"shop","content":{"role":"user","parts":[{"functionResponse":{"id":"call-1","name":"track","response":{"tracking":"TR-88-1234567","label":"/orders/4711/label.pdf"}}}]}}`,
	`{"id":"e4","invocationId":"i1","author":"shop","content":{"role":"model","parts":[{"text":"It is on its way: TR-88-1234567."}]}}`,
	`{"id":"e5","invocationId":"i2","author":"user","content":{"role":"user","parts":[{"text":"Thank you. That was 150.50 in all."}]}}`,
	`{"id":"e6","invocationId":"i2","author":"shop","content":{"role":"model","parts":[{"text":"You are welcome."}]}}`,
	`{"id":"e7","invocationId":"i3","author":"user","content":{"role":"user","parts":[{"text":"Mail the label to ada@math.example, please."}]}}`,
	`{"id":"e8","invocationId":"i3","author":"shop","content":{"role":"model","parts":[{"text":"Done."}]}}`,
	summary("s0", 7, 1, "It is done.", ""),
	summary("s1", 0, 4, "Ada asked for ORDER-4711, tracked as TR-99-1234567, and paid 150.50.", `,"group":"g"`),
	summary("s2", 1, 2, "Ada said thanks.", `,"group":"g"`),
}

func TestLosses(t *testing.T) {
	s := open(t)
	add(t, s, order...)
	s1 := []string{
		"index 0, level 1, id s1: covers 4 events of 1 invocation, about 74 → 25 tokens",
		"  2 of 6 identifiers can be seen",
		"  not visible (4): /orders/4711/label.pdf, TR-88-1234567, 105.00, 45.50",
		"  in other events (1): ada@math.example",
		"  invented (1): TR-99-1234567",
		"  numbers that no event has (1): 150.50",
	}
	s2 := []string{
		"index 1, level 1, id s2: covers 2 events of 1 invocation, about 16 → 5 tokens",
		"  1 of 1 identifier can be seen",
		"  in other events (1): 150.50",
	}
	s0 := []string{
		"index 3, level 1, id s0: covers 1 event of 1 invocation, about 2 → 3 tokens",
		"  0 of 0 identifiers can be seen",
	}
	check := func(patchID string, seq uint64, want ...[]string) []present.Loss {
		t.Helper()
		v, losses, err := present.LossesOf(t.Context(), s, key, patchID)
		testlog.NoError(t, err)
		if v.Seq() != seq || len(losses) != len(want) {
			t.Fatalf("%q: %d losses after record %d", patchID, len(losses), v.Seq())
		}
		for i, l := range losses {
			testlog.Equal(t, "lines of "+l.Summary.ID(), l.Lines(), want[i])
		}
		return losses
	}
	check("", 11, s1, s2, s0)
	check("p-s1", 11, s1, s2)

	// A summary that was merged is shown in the view after the last patch of its group.
	add(t, s, append(order, summary("s3", 0, 2, "Ada, ORDER-4711.", ""), `{"id":"p4","patchType":"splice","start":1,"count":1}`)...)
	check("p-s1", 11, s1, s2)
	check("p-s3", 13, []string{
		"index 0, level 1, id s3: covers 6 events of 2 invocations, about 90 → 7 tokens",
		"  1 of 7 identifiers can be seen",
		"  not visible (6): ada@math.example, /orders/4711/label.pdf, TR-88-1234567, 105.00, 45.50, 150.50",
	})
	for id, want := range map[string]string{"e1": `session a/u/s: not found: there is no patch "e1"`, "p4": `session a/u/s: invalid: patch "p4" added no summary`} {
		if _, _, err := present.LossesOf(t.Context(), s, key, id); err == nil || err.Error() != want {
			t.Errorf("got %v want %s", err, want)
		}
	}
	if _, _, err := present.LossesOf(t.Context(), s, store.Key{App: "a", User: "u", Session: "none"}, ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	v := testlog.Must(s.View(t.Context(), key))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := present.SummariesAddedBy(ctx, s, key, v, "p-s1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Identifiers come from sessions and may contain any character.
func TestLossIsPrintable(t *testing.T) {
	d := present.Loss{Loss: compaction.Loss{Summary: testlog.Event(`{"id":"s\n1"}`), NotVisible: []string{"x\x1b", "y\u202e"}, Identifiers: 2}}
	testlog.Equal(t, "lines", d.Lines(), []string{
		"index 0, level 0, id s 1: covers 0 events of 0 invocations, about 0 → 0 tokens",
		"  0 of 2 identifiers can be seen",
		`  not visible (2): x\u001b, y\u202e`,
	})
}

// The text says whether a service would now make this pass, another pass, or no pass.
func TestUnforcedText(t *testing.T) {
	by := func(trigger compaction.Trigger, reason string) compaction.Decision {
		return compaction.Decision{Window: &compaction.Window{Trigger: trigger}, Reason: reason}
	}
	for _, c := range []struct {
		unforced compaction.Decision
		want     string
	}{
		{by(compaction.ByInterval, "due"), "A service would compact now, too."},
		{by(compaction.ByTokens, "the prompt is large"), "A service would make another pass now: the prompt is large."},
		{compaction.Decision{Reason: "nothing to do: it is dear"}, "A service would not compact now: it is dear."},
	} {
		if got := present.UnforcedText(by(compaction.ByInterval, "due"), c.unforced); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
