package compaction_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// Agents that would let the visible log grow if a lone short event could keep the
// triggers waiting.
func TestLoneTinyEvents(t *testing.T) {
	testlog.OneGoroutine(t)
	both := with(compaction.DefaultConfig(), func(c *compaction.Config) { c.TokenThreshold, c.EventRetentionSize = 4_000, 6 })
	for _, row := range []struct {
		name          string
		turns         int
		cfg           compaction.Config
		turn          func(i int) string
		events        int // visible at any time, at most
		open          int // calls, at most
		callsPerTurn  float64
		mostSummaries int
	}{
		{"a call that nobody answers at every third turn", 300, both, func(i int) string {
			if i%3 == 0 {
				return fmt.Sprintf("u%d*12 c%d(x%d)*2", i, i, i)
			}
			return fmt.Sprintf("u%d*12 a%d*30", i, i)
		}, 60, compaction.DefaultLimits.OpenCalls + 2, 1, 40},
		{"one dead call a turn", 800, both, func(i int) string { return fmt.Sprintf("c%d(x%d)*1", i, i) },
			40, compaction.DefaultLimits.OpenCalls + compaction.DefaultInterval, 0.5, 20},
		{"one dead call a turn, and a question", 250, both, func(i int) string { return fmt.Sprintf("u%d*1 c%d(x%d)*1", i, i, i) },
			60, compaction.DefaultLimits.OpenCalls + compaction.DefaultInterval, 0.75, 30},
		{"a sub-agent that says little at every seventh turn", 420, both, func(i int) string {
			if i%7 == 0 {
				return fmt.Sprintf("u%d*12 sub/a%d*1 a%d*30", i, i, i)
			}
			return fmt.Sprintf("u%d*12 a%d*30", i, i)
		}, 60, 0, 1, 30},
	} {
		for _, summarizer := range []string{"short", "long"} {
			t.Run(row.name+", answers "+summarizer, func(t *testing.T) {
				s := newSession(t, "")
				sum := &scripted{}
				if summarizer == "long" { // as a model's are to very little
					sum.reply = func(r compaction.Request) (compaction.Response, error) {
						return says(strings.Repeat("z", 4*max(20, r.AimTokens*3/4))), nil
					}
				}
				row.cfg.Summarizer = sum
				c := s.compactor(row.cfg)
				events, open, summaries := 0, 0, 0
				for i := range row.turns {
					s.append(row.turn(i))
					if _, err := c.MaybeCompact(t.Context(), key); err != nil {
						t.Fatalf("turn %d: %v", i, err)
					}
					v := s.view()
					events, open = max(events, v.Len()), max(open, len(v.Calls()))
					n := 0
					for _, e := range v.Entries() {
						if e.Summary {
							n++
						}
					}
					summaries = max(summaries, n)
				}
				t.Logf("at most %d events visible, %d open calls, %d summaries; %d calls of the summarizer", events, open, summaries, sum.calls())
				if events > row.events || open > row.open || summaries > row.mostSummaries || float64(sum.calls()) > row.callsPerTurn*float64(row.turns) {
					t.Errorf("want at most %d events, %d open calls, %d summaries, %v calls a turn", row.events, row.open, row.mostSummaries, row.callsPerTurn)
				}
			})
		}
	}
}

// The visible log of parallel branches stays as long as it is, however many turns there are.
func TestParallelBranchesStayBounded(t *testing.T) {
	testlog.OneGoroutine(t)
	s := newSession(t, "")
	c := s.compactor(compaction.DefaultConfig())
	most := map[bool]int{} // visible events, in the first quarter and later
	turns := 2_000
	if testing.Short() {
		turns = 400
	}
	for i := range turns {
		s.append(fmt.Sprintf("u%d*20 main.A@%d/a%d*20 main.B@%d/a%d*20 main.A@%d/a%d*20 a%d*20", i, i, i, i, i, i, i, i))
		s.run(c)
		later := i >= turns/4
		most[later] = max(most[later], s.view().Len())
	}
	// Three pairs have one summary of each level more, and K-1 of the lower ones.
	if grown := most[true] - most[false]; grown > 3*2*3 || most[true] > 100 {
		t.Errorf("at most %d events were visible in the first quarter, %d later", most[false], most[true])
	}
}

// What a model calls itself is noted as far as it is text.
func TestModelThatIsNoText(t *testing.T) {
	s := newSession(t, "u1*50 a1*50")
	reply := says("told")
	reply.Model = "gem\xffini\x1b"
	done := s.compact(every(1, 0, &scripted{reply: func(compaction.Request) (compaction.Response, error) { return reply, nil }}))
	if len(done) != 1 || done[0].Model != "gem\uFFFDini" {
		t.Errorf("%+v", done)
	}
}
