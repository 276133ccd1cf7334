package compaction_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// recall applies the patches that RestoreCalls returns, and returns their number.
func (s *session) recall(answers ...*patch.Event) int {
	s.t.Helper()
	v := s.view()
	patches := testlog.Must(compaction.RestoreCalls(s.t.Context(), compaction.Log[store.Key](s.store), key, v, answers...))(s.t)
	if len(patches) > 0 {
		testlog.Must(s.store.ApplyPatch(s.t.Context(), key, patches, store.PatchOptions{On: v}))(s.t)
	}
	return len(patches)
}

// paired lists the id of each visible call and the ids of the events that answer it.
func (s *session) paired() string {
	var out []string
	v := s.view()
	for _, c := range v.Calls() {
		word := c.ID + "→"
		for _, r := range c.Responses {
			if id := v.At(r).ID(); strings.HasPrefix(id, "e") && len(id) < 5 {
				word += " " + id
			} else {
				word += " copy"
			}
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

var hideAll = with(compaction.Config{Enabled: true, CompactionInterval: 2}, func(c *compaction.Config) {
	c.Limits().OpenCalls, c.Limits().WaitingCalls = 1, 1
})

// An old long-running call without an answer is compacted together with its placeholder. When its answer arrives, the
// call becomes visible again before the answer.
func TestLongRunningCallsThatNobodyAnswers(t *testing.T) {
	s := newSession(t, "")
	c := s.compactor(with(hideAll, func(c *compaction.Config) { c.Limits().WaitingCalls = 0 }))
	most := 0
	for i := range 60 {
		s.append(fmt.Sprintf("u%d*20 l%d(x%d)*20 r%d(x%d)*20 a%d*20", i, i, i, i, i, i))
		s.run(c)
		most = max(most, s.view().Len())
	}
	waiting := compaction.WaitingCalls(s.view(), compaction.DefaultConfig(), compaction.Run{})
	if open := s.view().Calls(); len(open) > compaction.DefaultLimits.WaitingCalls+2 || len(waiting) > compaction.DefaultLimits.WaitingCalls+1 || most > 120 {
		t.Errorf("%d calls are open, %d wait, at most %d events were visible of 240", len(open), len(waiting), most)
	}
	state := s.state()
	s.append("R70(x5)")
	if n := s.recall(); n != 1 {
		t.Fatalf("%d patches", n)
	}
	if got := s.paired(); !strings.HasPrefix(got, "x5→ copy e240, ") {
		t.Errorf("calls are %s", got)
	}
	if s.state() != state {
		t.Errorf("the state is %s, was %s", s.state(), state)
	}
	if s.recall() != 0 {
		t.Error("recalled twice")
	}
}

// A summary lists unanswered calls, even if a long-running call has a placeholder.
func TestSummaryListsUnansweredCalls(t *testing.T) {
	for _, row := range []struct {
		log  string
		open bool
	}{
		{"u1*20 l1(x)*20 r1(x)*20 a1", true},
		{"u1*20 l1(x)*20 r1(x)*20 R1(x) a1", false},
		{"u1*20 c1(x)*20 r1(x)*20 a1", false},
	} {
		all := events(script(t, row.log))
		if got := strings.Contains(transcript.Of(all, 0), "never answered"); got != row.open {
			t.Errorf("%s: the transcript says so: %v", row.log, got)
		}
		r, err := compaction.Extractive{}.Summarize(t.Context(), compaction.Request{Events: all, MaxTokens: 500})
		if got := strings.Contains(r.Text, "unanswered: tool"); err != nil || got != row.open {
			t.Errorf("%s: the summary says so: %v, %v: %s", row.log, got, err, r.Text)
		}
	}
}

func TestRestoreCalls(t *testing.T) {
	for _, row := range []struct {
		name    string
		log     string
		first   func(s *session) // runs before the first compaction
		hidden  func(s *session) // runs after the first compaction
		answers string
		want    string
	}{
		{"one of parallel calls", "u1 l1(x,y)*20 r1(x,y) a1 u2 l2(z) u3 a3", nil, nil, "R4(y)", "y→ copy e8, z→"},
		{"both", "u1 l1(x,y)*20 r1(x,y) a1 u2 l2(z) u3 a3", nil, nil, "R4(x) R4(y)", "x→ copy e8, y→ copy e9, z→"},
		{"an ordinary call, answered late", "u1 c1(x)*20 u2 c2(z) u3 a3", nil, nil, "r4(x)", "x→ e6, z→"},
		{"a call of no summary", "u1 a1 u2 a2", nil, nil, "R4(x)", ""},
		{"one that is in sight", "u1 a1 u2 a2 u3 l3(z)", nil, nil, "R4(z)", "z→ e6"},
		{"a second answer", "u1 c1(x)*20 r1(x) u2 a2", nil, nil, "r4(x)", "x→ copy e5"},
		{"a summary of summaries", "u1 l1(x)*20 r1(x) a1 u2 l2(z) u3 a3", nil, func(s *session) {
			cfg := with(hideAll, func(c *compaction.Config) { c.Limits().Summaries = 2 })
			for i := range 8 {
				s.append(fmt.Sprintf("u%d*20 a%d*20", 4+i, 4+i))
				s.compact(cfg)
			}
		}, "R20(x)", "x→ copy e24, z→"},
		{"cut by hand", "u1 l1(x)*20 r1(x) a1 u2 l2(z) u3 a3", nil, func(s *session) {
			s.patch(patch.NewSplice(0, 1, testlog.EventOf(s.t, event{"id": "note", "author": "user", "content": textOf("user", "a note")})))
		}, "R4(x)", "z→"},
		{"cut by hand before the summary", "u1 c1(x)*20 u2 c2(z) u3 a3", func(s *session) { s.patch(patch.NewSplice(1, 1)) }, nil, "r4(x)", "z→"},
		{"with a result that was shortened", "u1 l1(x)*20 r1(x) a1 u2 l2(z) u3 a3", func(s *session) {
			for _, id := range []string{"shorter", "shortest"} { // shorten the result, then shorten the shortened result
				v := s.view()
				short := testlog.Must(v.At(2).StandIn(id, v.Entry(2).Seq, nil))(s.t)
				s.patch(patch.NewSplice(2, 1, short).WithState(patch.Keep))
			}
		}, nil, "R4(x)", "x→ copy e8, z→"},
		{"what hid it was taken back", "u1 l1(x)*20 r1(x) a1 u2 l2(z) u3 a3", nil, func(s *session) {
			for _, p := range s.patches() {
				testlog.Must(s.store.Revert(s.t.Context(), key, p.ID(), store.UndoOptions{}))(s.t)
			}
		}, "R4(x)", "x→ e2 e8, z→"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, before := range []bool{false, true} {
				s := newSession(t, row.log)
				if row.first != nil {
					row.first(s)
				}
				s.compact(hideAll)
				if row.hidden != nil {
					row.hidden(s)
				}
				visible := s.visible()
				if before {
					var answers []*patch.Event
					for i, w := range strings.Fields(row.answers) {
						e, _ := parseWord(t, w, s.words+i)
						answers = append(answers, testlog.EventOf(t, e))
					}
					s.recall(answers...)
					s.append(row.answers)
				} else {
					s.append(row.answers)
					s.recall()
				}
				if got := s.paired(); got != row.want {
					t.Errorf("before=%v: calls are %q, want %q; visible was %s, is %s", before, got, row.want, visible, s.visible())
				}
				history := testlog.Must(s.store.History(t.Context(), key, s.view()))(t)
				seen := map[string]bool{}
				for _, e := range compaction.WithoutRestored(history) {
					if e.Event.IsSummary() || strings.Contains(e.Event.String(), "recalled") {
						t.Errorf("people see %s", e.Event)
					}
					seen[e.Event.ID()] = true
				}
				for i, e := range s.view().Events() {
					if !s.view().Entry(i).Summary && !strings.Contains(e.String(), "recalled") && !seen[e.ID()] {
						t.Errorf("people do not see %s", e)
					}
				}
				for i, e := range s.view().Events() {
					if !strings.Contains(e.String(), "recalled") {
						continue
					}
					for _, p := range e.Content().Parts() {
						id := p.ID
						if records.HasDelta(e) || id == "" || !strings.Contains(row.want, id+"→") {
							t.Errorf("the copy at %d is %s", i, e)
						}
					}
				}
			}
		})
	}
}

// If a response arrives while the window of its call is being summarised, the call stays visible. The same is true if
// the window needs several patches.
func TestAnsweredWhileSummarised(t *testing.T) {
	for _, row := range []struct{ log, late, want string }{
		{"u1*20 c1(x)*20 u2*20 c2(z) u3*20", "r4(x)", "x→ e5, z→"},
		// c1(x,y) and r3(x) are covered together. c2(z) between them stays, so the window has two spans.
		{"u1*20 c1(x,y)*20 c2(z) u3*20 r3(x)*20 u4*20", "r5(y)", "x→ e4, y→ e6, z→"},
	} {
		s := newSession(t, row.log)
		sum := &scripted{}
		asked := 0
		sum.reply = func(compaction.Request) (compaction.Response, error) {
			if asked++; asked == 1 {
				s.append(row.late)
			}
			return says("told"), nil
		}
		c := s.compactor(with(every(2, 0, sum), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }))
		s.run(c)
		if got := s.paired(); got != row.want || c.Stats()[compaction.Conflict] != 1 {
			t.Errorf("%s, then %s: calls are %q, want %q; %+v", row.log, row.late, got, row.want, c.Stats())
		}
	}
}

// With [WithoutRestored], the history contains a restored call only once.
func ExampleWithoutRestored() {
	var history []fold.Entry
	for _, text := range []string{`{"id":"e1"}`, `{"id":"e2"}`, `{"id":"copy","customMetadata":{"patchlog":{"recalled":"e1"}}}`} {
		e, err := patch.ParseEvent([]byte(text))
		if err != nil {
			panic(err)
		}
		history = append(history, fold.Entry{Event: e})
	}
	for _, e := range compaction.WithoutRestored(history) {
		fmt.Println(e.Event.ID())
	}
	// Output:
	// e1
	// e2
}
