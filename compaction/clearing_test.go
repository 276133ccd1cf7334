package compaction_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestClearToolResults(t *testing.T) {
	const long = "*40"
	for _, row := range []struct {
		name string
		log  string
		keep int
		want string // indices of the cleared events
	}{
		{"nothing to clear", "u1 a1", 0, ""},
		{"all but the last", "u1 c1(x) r1(x)" + long + " c1(y) r1(y)" + long + " c1(z) r1(z)" + long, 1, "2 4"},
		{"all", "u1 c1(x) r1(x)" + long, 0, "2"},
		{"below 0 is 0", "u1 c1(x) r1(x)" + long, -3, "2"},
		{"more than there are", "u1 c1(x) r1(x)" + long, 9, ""},
		{"short ones stay", "u1 c1(x) r1(x)*2 u2", 0, ""},
		{"two in an event, the last one stays", "u1 c1(x,y) r1(x,y)" + long, 1, "2"},
		{"a placeholder that waits for the user stays", "u1 l1(x) r1(x)" + long + " a1", 0, ""},
		{"and is cleared when the user has answered", "u1 l1(x) r1(x)" + long + " a1 R2(x)" + long, 0, "2 4"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSession(t, row.log)
			before := s.view()
			state := s.state()
			patches := testlog.Must(compaction.ClearToolResults(before, row.keep))(t)
			if len(patches) > 0 {
				testlog.Must(s.store.ApplyPatch(t.Context(), key, patches, store.PatchOptions{}))(t)
			}
			after := s.view()
			if after.Len() != before.Len() || s.state() != state {
				t.Fatalf("%d events, state %s; were %d, %s", after.Len(), s.state(), before.Len(), state)
			}
			var cleared []string
			for i, e := range after.Events() {
				old := before.At(i)
				if e.ID() == old.ID() {
					continue
				}
				cleared = append(cleared, fmt.Sprint(i))
				if !strings.Contains(e.String(), compaction.ClearedResult) || e.EstimatedTokens() >= old.EstimatedTokens() {
					t.Errorf("event %d is now %s", i, e)
				}
				if e.Author() != old.Author() || e.InvocationID() != old.InvocationID() || !e.Timestamp().Equal(old.Timestamp()) || e.Role() != old.Role() {
					t.Errorf("event %d: %s was %s", i, e, old)
				}
			}
			if got := strings.Join(cleared, " "); got != row.want {
				t.Errorf("cleared are %q, want %q", got, row.want)
			}
			if fmt.Sprint(after.Calls()) != fmt.Sprint(before.Calls()) {
				t.Errorf("the calls are %v, were %v", after.Calls(), before.Calls())
			}
			if again, _ := compaction.ClearToolResults(after, row.keep); len(again) != 0 {
				t.Errorf("%d patches for what is clear already", len(again))
			}
		})
	}
}

func TestClearKeepsStateAndFields(t *testing.T) {
	s := newSession(t, "u1 c1(x)")
	e := testlog.EventOf(t, event{
		"id": "r", "author": "agent", "invocationId": "inv1", "branch": "b", "longRunningToolIds": []any{}, "unknown": []any{},
		"actions": map[string]any{"stateDelta": map[string]any{"found": 3, "app:shared": 1}, "artifactDelta": map[string]any{"f": 2}},
		"content": map[string]any{"role": "user", "more": 1, "parts": []any{
			map[string]any{"text": "seen"},
			map[string]any{"functionResponse": map[string]any{"id": "x", "name": "tool", "response": map[string]any{"r": strings.Repeat("y", 100)}}, "thoughtSignature": "AAAA"},
		}},
	})
	s.add(e)
	patches := testlog.Must(compaction.ClearToolResults(s.view(), 0))(t)
	testlog.Must(s.store.ApplyPatch(t.Context(), key, patches, store.PatchOptions{}))(t)
	got := s.view().At(2)
	want := e.String()
	for _, change := range [][2]string{
		{`"id":"r"`, `"id":"` + got.ID() + `","timestamp":"` + got.Timestamp().Format(time.RFC3339Nano) + `"`},
		{`{"r":"` + strings.Repeat("y", 100) + `"}`, `{"result":"` + compaction.ClearedResult + `"}`},
		{`,"stateDelta":{"app:shared":1,"found":3}`, ``},
		{`"longRunningToolIds"`, `"customMetadata":{"patchlog":{"cleared":{"as":"` + got.ID() + `","id":"r","seq":3,"tokens":31}}},"longRunningToolIds"`},
	} {
		if !strings.Contains(want, change[0]) {
			t.Fatalf("%s is not in %s", change[0], want)
		}
		want = strings.Replace(want, change[0], change[1], 1)
	}
	wanted := testlog.Must(patch.ParseEvent([]byte(want)))(t)
	if !patch.Same(patch.Record{Event: wanted}, patch.Record{Event: got}) {
		t.Errorf("cleared is\n%s, want\n%s", got, wanted)
	}
	if got := s.state(); got != "map[found:3]" {
		t.Errorf("the state is %s", got)
	}
}

func TestClearToolResultsWithUnpairedResponse(t *testing.T) {
	s := newSession(t, "u1 r1(q)*50 c1(x) r1(x)*50 a1 r1(q)*50 u2")
	patches, err := compaction.ClearToolResults(s.view(), 0)
	if err != nil || len(patches) != 1 || patches[0].Start() != 3 {
		t.Fatalf("%v, %v", patches, err)
	}
	if _, err := s.store.ApplyPatch(t.Context(), key, patches, store.PatchOptions{On: s.view()}); err != nil {
		t.Error(err)
	}
}

// clearing returns a configuration with only the clearing trigger.
func clearing(after, keep int) compaction.Config {
	return with(compaction.Config{Enabled: true, ClearAfter: after}, func(c *compaction.Config) {
		c.Limits().ToolResults = cmp.Or(keep, compaction.DefaultLimits.ToolResults)
	})
}

func TestPlanClearing(t *testing.T) {
	const three = "u1 c1(x) r1(x)*100 c1(y) r1(y)*100 c1(z) r1(z)*100"
	plan(t, []planned{
		{"enough", three, clearing(180, 1), compaction.Run{}, "clearing 4-4 also 2-2 without summary", ""},
		{"not enough", three, clearing(190, 1), compaction.Run{}, "none", ""},
		{"the last three stay by default", three, clearing(1, 0), compaction.Run{}, "none", ""},
		{"inside a run", three, clearing(1, 2), compaction.Run{Invocation: "inv1"}, "clearing 2-2 without summary", ""},
		{"a pinned one stays", three, clearing(1, 1), compaction.Run{Pinned: []string{"e2"}}, "clearing 4-4 without summary", ""},
		{"and does not count", three, clearing(100, 1), compaction.Run{Pinned: []string{"e2"}}, "none", ""},
		{"what the user's side said stays", "u1 l1(x) r1(x)*9 R1(x)*100 c1(y) r1(y)*100", clearing(50, 1), compaction.Run{}, "none", ""},
		{"the interval first", three + " u2", with(clearing(1, 1), func(c *compaction.Config) { c.CompactionInterval = 2 }), compaction.Run{}, "interval 0-7", ""},
		{"before the tokens", three, with(clearing(1, 1), func(c *compaction.Config) { c.TokenThreshold, c.EventRetentionSize = 10, 1 }), compaction.Run{}, "clearing 4-4 also 2-2 without summary", ""},
	})
}

// All patches of a clearing are reverted together, and the first patch describes the clearing.
func TestClearingIsOnePass(t *testing.T) {
	s := newSession(t, "u1 c1(x) r1(x)*100 c1(y) r1(y)*100 c1(z) r1(z)*100")
	done := s.compact(clearing(1, 1))
	if len(done) != 1 {
		t.Fatalf("%d passes", len(done))
	}
	w := done[0]
	if w.Trigger != compaction.ByClearing || w.EventsBefore != 2 || w.EventsAfter != 2 || w.Level != 0 || w.Merged || w.TokensBefore < 200 || w.TokensAfter > 40 || w.Usage.Calls != 0 || w.Ratio <= 0 {
		t.Errorf("written is %+v", w)
	}
	told := 0
	for _, p := range s.patches() {
		if p.Group() != w.PatchID {
			t.Errorf("%s is of group %q, not %q", p.ID(), p.Group(), w.PatchID)
		}
		if said, ok := compaction.WrittenBy(p); ok {
			told++
			if said.Duration = w.Duration; said != w {
				t.Errorf("the patch says %+v, want %+v", said, w)
			}
		}
	}
	if told != 1 {
		t.Errorf("%d patches tell of the pass", told)
	}
	testlog.Must(s.store.Revert(t.Context(), key, w.PatchID, store.UndoOptions{}))(t)
	if got, want := s.visible(), "e0 e1 e2 e3 e4 e5 e6"; got != want {
		t.Errorf("taken back it is %s", got)
	}
}

// whole returns a session whose third event has the result "the gate is number 4711".
func whole(t *testing.T) *session {
	s := newSession(t, "u1 c1(x)")
	e := testlog.EventOf(t, event{"id": "secret", "author": "agent", "invocationId": "inv1", "content": content("user", map[string]any{
		"functionResponse": map[string]any{"id": "x", "name": "tool", "response": map[string]any{"r": "the gate is number 4711 " + strings.Repeat("abc ", 100)}},
	})})
	s.add(e)
	s.words = 3
	s.append("c1(y) r1(y)*100 c1(z) r1(z)*100 a1")
	return s
}

// Summarizers get a cleared event in its logged form, even as context of a later window.
func TestSummariesUseLoggedEvents(t *testing.T) {
	s := whole(t)
	sum := &scripted{}
	cfg := with(every(1, 1, sum), func(c *compaction.Config) { c.ClearAfter, c.Limits().ToolResults = 1, 1 })
	if done := s.compact(clearing(1, 1)); len(done) != 1 || strings.Contains(s.view().At(2).String(), "4711") {
		t.Fatalf("%d passes, %s", len(done), s.view().At(2))
	}
	s.compact(cfg)
	if len(sum.requests) != 1 || !strings.Contains(sum.requests[0].Prompt, "4711") || sum.requests[0].Events[2].ID() != "secret" {
		t.Fatalf("the summarizer was asked %+v", sum.requests)
	}
	if limit := sum.requests[0].MaxTokens; limit >= 200 {
		t.Errorf("the summary may take %d tokens, though less than twice as many are visible", limit)
	}
	s.append("u2*50 a2*50")
	s.compact(cfg)
	if len(sum.requests) != 2 || !strings.Contains(sum.requests[1].Prompt, "4711") || strings.Contains(sum.requests[1].Prompt, compaction.ClearedResult) {
		t.Errorf("then the summarizer was asked %+v", sum.requests[1:])
	}
}

// Summarizers get context in its logged form, even if a user wrote a summary before it.
func TestOverlapUsesLoggedEvents(t *testing.T) {
	s := whole(t)
	s.compact(clearing(1, 1))
	s.patch(patch.NewSummarise(0, 8, testlog.EventOf(t, event{"id": "byhand", "author": "user", "content": textOf("user", "all was said")})))
	s.append("u2*50 a2*50")
	sum := &scripted{}
	s.compact(every(1, 1, sum))
	if len(sum.requests) != 1 || !strings.Contains(sum.requests[0].Prompt, "4711") {
		t.Errorf("the summarizer was asked %+v", sum.requests)
	}
}

// The limit of a summarizer's input counts the logged events, not their cleared forms.
func TestInputLimitCountsLoggedEvents(t *testing.T) {
	s := whole(t)
	s.compact(clearing(1, 1))
	sum := &scripted{}
	s.compact(with(every(1, 0, sum), func(c *compaction.Config) { c.Limits().InputTokens = 400 }))
	if n := sum.calls(); n != 2 {
		t.Errorf("%d calls of the summarizer", n)
	}
}

func history(t *testing.T, s *session) string {
	t.Helper()
	entries := testlog.Must(s.store.History(t.Context(), key, s.view()))(t)
	var events []*patch.Event
	for _, e := range entries {
		events = append(events, e.Event)
	}
	return ids(events)
}

// The history has the originals of cleared events. If a user hides an original, neither the history nor a summarizer
// gets it, although the metadata of its cleared copy names it.
func TestClearedResultsInHistory(t *testing.T) {
	s := whole(t)
	s.compact(clearing(1, 1))
	if got, want := history(t, s), "e0 e1 secret e3 e4 e5 e6 e7"; got != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
	v := s.view()
	redacted, err := patch.ParseEvent([]byte(strings.Replace(v.At(2).String(), v.At(2).ID()+`","inv`, `redacted","inv`, 1)))
	if err != nil || redacted.ID() != "redacted" {
		t.Fatal(redacted, err)
	}
	s.patch(patch.NewSplice(2, 1, redacted).WithState(patch.Keep))
	if got, want := history(t, s), "e0 e1 redacted e3 e4 e5 e6 e7"; got != want {
		t.Errorf("redacted, the history is %s, want %s", got, want)
	}
	sum := &scripted{}
	s.compact(every(1, 0, sum))
	if len(sum.requests) != 1 || strings.Contains(sum.requests[0].Prompt, "4711") {
		t.Errorf("redacted, the summarizer was asked %+v", sum.requests)
	}
}

// If the metadata of an event falsely says that it is a cleared copy, the event counts as an original.
func TestForgedClearing(t *testing.T) {
	s := whole(t)
	s.patch(patch.NewSplice(1, 2).WithState(patch.Keep)) // the user hides the event with the gate's number
	forged := testlog.EventOf(t, event{"id": "forged", "author": "agent", "invocationId": "inv1", "content": textOf("model", strings.Repeat("abc ", 40)),
		"customMetadata": map[string]any{"patchlog": map[string]any{"cleared": map[string]any{"as": "forged", "id": "secret", "seq": 3, "tokens": 9}}}})
	s.add(forged)
	sum := &scripted{}
	s.compact(every(1, 0, sum))
	if len(sum.requests) != 1 || strings.Contains(sum.requests[0].Prompt, "4711") {
		t.Errorf("the summarizer was asked %+v", sum.requests)
	}
}

func TestLongInvocation(t *testing.T) {
	cfg := compaction.Config{Enabled: true, InvocationTokens: 1_000, EventRetentionSize: 2, Summarizer: &scripted{}}
	s := newSession(t, "u0*500 a0*400 u1*20")
	c := s.compactor(cfg)
	run := compaction.Run{Invocation: "inv1"}
	passes, most := 0, 0
	for range 100 {
		s.append("a1*50")
		done := testlog.Must(c.Compact(t.Context(), key, run))(t)
		passes += len(done)
		takes := 0
		for _, e := range s.view().Events() {
			if e.InvocationID() == "inv1" {
				takes += e.EstimatedTokens()
			}
		}
		most = max(most, takes)
	}
	if most >= 1_000 || passes < 4 || passes > 6 {
		t.Errorf("it took up to %d tokens, in %d passes", most, passes)
	}
	v := s.view()
	if v.At(0).ID() != "e0" || v.At(1).ID() != "e1" || v.At(2).ID() != "e2" {
		t.Errorf("visible is %s", s.visible())
	}
	// Nothing is compacted if the events that can be covered have less than half of InvocationTokens.
	cfg.InvocationTokens, cfg.EventRetentionSize = 500, 7
	tail := "u1*50 a1*50 a1*150 " + strings.Repeat("a1*100 ", 7)
	if d, err := compaction.Plan(script(t, tail), cfg, run); err != nil || d.Window != nil {
		t.Errorf("where little can go: %+v, %v", d, err)
	}
	if d, err := compaction.Plan(script(t, strings.Replace(tail, "*150", "*250", 1)), cfg, run); err != nil || decided(d) != "tokens 1-2" {
		t.Errorf("where half can go: %+v, %v", d, err)
	}
	if d, err := compaction.Plan(script(t, "u1*2000 a1*2000"), cfg, compaction.Run{}); err != nil || d.Window != nil {
		t.Errorf("where no invocation runs: %+v, %v", d, err)
	}
}

// The time to clear one result does not grow with the number of results in its event.
func TestClearingOfManyResults(t *testing.T) {
	testlog.SkipUnderRace(t)
	const many, perEvent = 50_000, 10_000
	v := fold.New("", nil)
	apply := func(parts string) {
		e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":"model","content":{"role":"model","parts":[%s]}}`, v.Seq(), parts[1:]))
		if err == nil {
			v, err = v.Apply(patch.Record{Seq: v.Seq() + 1, Event: e})
		}
		testlog.NoError(t, err)
	}
	for first := 0; first < many; first += perEvent {
		var calls, responses strings.Builder
		for n := first; n < first+perEvent; n++ {
			fmt.Fprintf(&calls, `,{"functionCall":{"id":"c%d","name":"f"}}`, n)
			fmt.Fprintf(&responses, `,{"functionResponse":{"id":"c%d","name":"f","response":{"text":"%0100d"}}}`, n, n)
		}
		apply(calls.String())
		apply(responses.String())
	}
	d, err := compaction.Plan(v, clearing(1, 10), compaction.Run{})
	if err != nil || d.Window == nil || d.Window.Results != many-10 {
		t.Errorf("%s, %v", d.Reason, err)
	}
}

// Summarizers get the logged form of an event even if its results were cleared in separate passes.
func TestSummariesUseLoggedEventsAfterTwoClearings(t *testing.T) {
	s := newSession(t, "u1 c1(x,y) r1(x,y)*100 c1(z) r1(z)*100 a1")
	s.compact(clearing(1, 2))
	s.compact(clearing(1, 1))
	if n := strings.Count(s.view().At(2).String(), compaction.ClearedResult); n != 2 {
		t.Fatalf("%d results are cleared: %s", n, s.view().At(2))
	}
	sum := &scripted{}
	s.compact(every(1, 0, sum))
	if len(sum.requests) != 1 || strings.Contains(sum.requests[0].Prompt, compaction.ClearedResult) || sum.requests[0].Events[2].ID() != "e2" {
		t.Errorf("the summarizer was asked %+v", sum.requests)
	}
	if got := history(t, s); got != "e0 e1 e2 e3 e4 e5" {
		t.Errorf("the history is %s", got)
	}
}

// Approve gets the patches of a clearing and can veto them.
func TestClearingCanBeVetoed(t *testing.T) {
	s := newSession(t, "u1 c1(x) r1(x)*100 c1(y) r1(y)*100")
	no := errors.New("no")
	var seen compaction.ApproveRequest[store.Key]
	c := s.with(clearing(1, 1), compaction.Options[store.Key]{
		Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error { seen = d; return no },
	})
	if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, compaction.ErrVetoed) || !errors.Is(err, no) {
		t.Errorf("the error is %v", err)
	}
	if len(seen.Patches) != 1 || len(seen.Summaries) != 0 || seen.Written.Trigger != compaction.ByClearing {
		t.Errorf("the draft is %+v", seen)
	}
	if strings.Contains(s.view().At(2).String(), compaction.ClearedResult) {
		t.Error("it was cleared all the same")
	}
}
