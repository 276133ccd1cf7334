package compaction_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestOverlap(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		t.Run(fmt.Sprintf("byHand=%v", byHand), func(t *testing.T) {
			s := newSession(t, "u1 a1 u2 a2")
			sum := &scripted{}
			if byHand {
				s.patch(patch.NewSummarise(0, 4, testlog.EventOf(t, event{"author": "user", "content": textOf("model", "by hand"), "actions": map[string]any{"compaction": map[string]any{"startTimestamp": 1, "endTimestamp": 2}}})))
			} else {
				s.compact(every(2, 1, sum))
			}
			s.append("u3 u4 u5")
			s.compact(every(2, 1, sum))
			s.want(map[bool]string{false: "S1:user S1:user", true: "S1:model S1:user"}[byHand])
			last := sum.requests[len(sum.requests)-1]
			if got := ids(last.Events); got != "e4 e5 e6" {
				t.Errorf("covered are %s", got)
			}
			if got := ids(last.Before); got != "S e2 e3" {
				t.Errorf("shown before are %s", got)
			}
			c, _ := adkrecord.CompactionOf(s.view().At(1))
			if from, to := c.StartTimestamp-1767225600, c.EndTimestamp-1767225600; from != 4 || to != 6 || len(c.ExcludedEvents) > 0 {
				t.Errorf("the range is %v to %v without %v, want 4 to 6: inv3 to inv5", from, to, c.ExcludedEvents)
			}
		})
	}
}

func TestOverlapOmitsRemovedEvents(t *testing.T) {
	s := newSession(t, "u1 u2 a2 a2")
	sum := &scripted{}
	s.patch(patch.NewSplice(2, 1)) // e2
	s.compact(every(2, 1, sum))
	s.append("u3 u4")
	s.compact(every(2, 1, sum))
	if got := ids(sum.requests[1].Before); got != "S e1 e3" {
		t.Errorf("shown before are %s", got)
	}
}

func TestRoleOfASummary(t *testing.T) {
	pinned := func(log, pin string) string {
		s := newSession(t, log)
		testlog.Must(s.compactor(every(1, 0, &scripted{})).Compact(t.Context(), key, compaction.Run{Pinned: []string{pin}}))(t)
		return s.visible()
	}
	for _, row := range []struct{ log, pin, want string }{
		{"u1 a1 a2", "e2", "S1:user e2"},
		{"u1 a1 u2", "e2", "S1:user e2"}, // summary between user messages
		{"u1 a1", "", "S1:user"},         // summary at the end
		{"u1 A/a1 u2 A/a2", "e3", "S1:user S1:user e3"},
	} {
		if got := pinned(row.log, row.pin); got != row.want {
			t.Errorf("%q with %s pinned gives %q, want %q", row.log, row.pin, got, row.want)
		}
	}
	s := newSession(t, "u1 a1*50 a1*50 a1*50")
	cfg := compaction.Config{Enabled: true, TokenThreshold: 100, EventRetentionSize: 1, Summarizer: &scripted{}}
	testlog.Must(s.compactor(cfg).Compact(t.Context(), key, compaction.Run{Invocation: "inv1"}))(t)
	s.want("e0 S1:user e3")
	for i, e := range s.view().Events() {
		if c, err := e.Compaction(); s.view().Entry(i).Summary && (err != nil || c.CompactedContent.Members()["role"].Any() != "model" || e.Author() != "agent" || e.InvocationID() == "" || e.InvocationID() == "inv1" || records.HasDelta(e)) {
			t.Errorf("the summary is %s", e)
		}
	}
}

// The patches of a compaction can be reverted from the newest to the oldest, even if a window has several patches.
// The view is then the same as before the compaction.
func TestRevertCompaction(t *testing.T) {
	s := newSession(t, "u1 l1(x) r1(x) d1 a1 u2 d2 a2 u3 a3")
	c := s.compactor(every(2, 1, &scripted{}))
	s.run(c)
	s.append("R4(x) a4 d4 u5 a5")
	before, state := s.visible(), s.state()
	s.run(c)
	if s.visible() == before || s.state() != state {
		t.Fatalf("visible is %s, state %s", s.visible(), s.state())
	}
	split := 0
	for _, id := range slices.Backward(patchIDs(s.patches())) {
		reverted, err := s.store.Revert(t.Context(), key, id, store.UndoOptions{})
		if errors.Is(err, fold.ErrBlocked) && strings.Contains(err.Error(), "already reverted") {
			continue // already reverted together with another patch of its window
		}
		if err != nil {
			t.Fatalf("revert of %s: %v", id, err)
		}
		split = max(split, len(reverted.Records))
		if s.state() != state {
			t.Fatalf("the state is %s, was %s", s.state(), state)
		}
		if s.visible() == before {
			break
		}
	}
	if s.visible() != before || split < 2 {
		t.Errorf("with at most %d reverts at once visible is %s, was %s", split, s.visible(), before)
	}
	s.run(c)
	if s.state() != state || s.visible() == before {
		t.Errorf("compacted again, visible is %s, state %s", s.visible(), s.state())
	}
}

func TestCallWithoutRole(t *testing.T) {
	s := newSession(t, "u1 a1 u2 a2")
	call := testlog.EventOf(t, event{"author": "agent", "invocationId": "inv3", "content": map[string]any{"parts": []any{map[string]any{"functionCall": map[string]any{"id": "x", "name": "tool"}}}}})
	s.add(call)
	s.compact(every(2, 0, &scripted{}))
	if !strings.HasPrefix(s.visible(), "S1:user ") {
		t.Errorf("visible is %q", s.visible())
	}
}

// A summary takes the position of the last event that it covers, even if the last span of its window is later. So the
// event that ends a task remains the last event of its scope.
func TestSummaryAfterEndOfTask(t *testing.T) {
	for _, row := range []struct{ log, pin string }{
		// The call in the task is answered by the user after the task has ended.
		{"u1 T!/l1(x) T!/c1(f) T!/r1(f) a1 R2(x) a2", "e3"},
		{"u1 T!/a1 T!/l1(x,y) T!/c1(f) T!/r1(f) a1 R2(x) u3 R4(y) a4", "e4"},
	} {
		s := newSession(t, row.log)
		testlog.Must(s.compactor(every(1, 0, &scripted{})).Compact(t.Context(), key, compaction.Run{Pinned: []string{row.pin}}))(t)
		last, summarised := "", false
		v := s.view()
		for i, e := range v.Events() {
			if e.IsolationScope() == "T" {
				last, summarised = e.ID(), summarised || v.Entry(i).Summary
			}
		}
		if last != row.pin || !summarised {
			t.Errorf("%q: the last of the task is %s, and a summary: %v: %s", row.log, last, summarised, s.visible())
		}
	}
}

// The author of a summary is the author of the events that it covers, or "user" if they have several authors.
func TestAuthorOfASummary(t *testing.T) {
	for _, row := range []struct{ log, want string }{
		{"u1 u1", "user"},
		{"a1 c1(x) r1(x)", "agent"},
		{"u1 a1", "user"},
		{"c1(x) R1(x)", "user"},
	} {
		s := newSession(t, row.log)
		done := s.compact(every(1, 0, &scripted{}))
		if len(done) != 1 || s.view().Len() != 1 || s.view().At(0).Author() != row.want {
			t.Errorf("%q gives %s by %q, want %q", row.log, s.visible(), s.view().At(0).Author(), row.want)
		}
	}
	merged := newSession(t, "a1 a1")
	merged.compact(every(1, 0, &scripted{}))
	merged.append("u2 a2")
	merged.compact(with(every(1, 0, &scripted{}), func(c *compaction.Config) { c.Limits().Summaries = 2 }))
	if merged.view().Len() != 1 || merged.view().At(0).Author() != "user" {
		t.Errorf("merged: %s by %q", merged.visible(), merged.view().At(0).Author())
	}
}

// A reader that applies ADK's rule of time ranges hides no visible event, because the record of a summary excludes
// the visible events in its range.
func TestRangeOfASummary(t *testing.T) {
	for _, row := range []struct {
		name, log string
		cfg       compaction.Config
	}{
		{"an overlap", "u1 a1 u2 a2 u3 a3 u4 a4", every(2, 1, nil)},
		{"an open call in between", "u1 a1 c2(x) u3 a3 u4 a4", every(2, 1, nil)},
		{"a late answer goes with its call", "u1 l1(x) u2 c2(y) R3(x) u4 a4", with(every(2, 0, nil), func(c *compaction.Config) { c.Limits().OpenCalls = 9 })},
		{"branches", "u1 A/a1 u2 A/a2 c3(x) A/a3 u4", every(2, 1, nil)},
		{"merged", "u1 c1(x) u2 u3 u4 u5 u6 u7 u8", with(every(1, 1, nil), func(c *compaction.Config) { c.Limits().Summaries = 2 })},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSession(t, "")
			row.cfg.Summarizer = &scripted{}
			for _, w := range strings.Fields(row.log) {
				s.append(w)
				s.compact(row.cfg)
			}
			v := s.view()
			shown := adkrecord.FilterEventsForLLM(events(v))
			for i, e := range v.Events() {
				if v.Entry(i).Summary {
					continue
				}
				if !slices.ContainsFunc(shown, func(o *patch.Event) bool { return o.ID() == e.ID() }) {
					t.Errorf("%s is hidden by the range of a summary: %s", e.ID(), words(v))
				}
			}
		})
	}
}

// In a fork, summarizers also get hidden events of the original session as context.
func TestOverlapInFork(t *testing.T) {
	s := newSession(t, "u1 a1 u2 a2")
	s.compact(every(2, 1, &scripted{}))
	fork := store.Key{App: "app", User: "user", Session: "fork"}
	testlog.Must(s.store.Fork(t.Context(), key, fork, store.ForkOptions{}))(t)
	for i, w := range []string{"u3", "a3", "u4", "a4"} {
		e, _ := parseWord(t, w, s.words+i)
		testlog.Must(s.store.AppendEvents(t.Context(), fork, []*patch.Event{testlog.EventOf(t, e)}, store.AppendOptions{}))(t)
	}
	sum := &scripted{}
	if _, err := s.compactor(every(2, 1, sum)).MaybeCompact(t.Context(), fork); err != nil || sum.calls() != 1 {
		t.Fatalf("%d calls, %v", sum.calls(), err)
	}
	if got := ids(sum.requests[0].Before); got != "S e2 e3" {
		t.Errorf("shown are %s", got)
	}
}

// The result of a pass equals the description that its patch stores, except for the time of logging.
func TestWrittenBy(t *testing.T) {
	s := newSession(t, "u1*50 a1*50 u2*50 a2*50 u3*50")
	reply := says("told")
	reply.Usage = compaction.Tokens{Prompt: 12, Answer: 7}
	c := s.compactor(every(1, 0, &scripted{reply: func(compaction.Request) (compaction.Response, error) { return reply, nil }}))
	done, err := c.MaybeCompact(t.Context(), key)
	if err != nil || len(done) == 0 {
		t.Fatal(done, err)
	}
	var said []compaction.Written
	for _, p := range s.patches() {
		w, ok := compaction.WrittenBy(p)
		if !ok {
			t.Fatalf("%s is of no pass", p)
		}
		said = append(said, w)
	}
	if len(said) != len(done) {
		t.Fatalf("%d patches of %d passes", len(said), len(done))
	}
	for i, w := range done {
		if said[i].Duration > w.Duration {
			t.Errorf("the summaries took %v, the pass %v", said[i].Duration, w.Duration)
		}
		w.Duration = said[i].Duration
		if w != said[i] || w.Model != "scripted" || w.Usage != (compaction.Usage{Calls: 1, PromptTokens: 12, AnswerTokens: 7}) {
			t.Errorf("it returned %+v, its patch says %+v", w, said[i])
		}
	}
	for name, metadata := range map[string]any{
		"nothing of a pass":     map[string]any{"patchlog": map[string]any{"adopted": "e1"}},
		"another shape":         map[string]any{"patchlog": map[string]any{"trigger": 7}},
		"a text":                map[string]any{"patchlog": "interval"},
		"another's":             map[string]any{"other": map[string]any{"trigger": "interval"}},
		"no trigger in figures": map[string]any{"patchlog": map[string]any{"level": 1}},
	} {
		p := testlog.Must(patch.NewSplice(0, 1).WithCustomMetadata(metadata.(map[string]any)))(t)
		if w, ok := compaction.WrittenBy(p); ok || w != (compaction.Written{}) {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if _, ok := compaction.WrittenBy(nil); ok {
		t.Error("no patch is of a pass")
	}
	if _, ok := compaction.WrittenBy(patch.NewSplice(0, 1)); ok {
		t.Error("a patch without metadata is of a pass")
	}
}
