package compaction_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// The visible log stays short in sessions where a single short event remains between summaries.
func TestLoneTinyEvents(t *testing.T) {
	testlog.SkipUnderRace(t)
	both := with(compaction.DefaultConfig(), func(c *compaction.Config) { c.TokenThreshold, c.EventRetentionSize = 4_000, 6 })
	for _, row := range []struct {
		name          string
		turns         int
		cfg           compaction.Config
		turn          func(i int) string
		events        int // maximum number of visible events
		open          int // maximum number of open calls
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
				if summarizer == "long" { // as long as a model's answer to a small window
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

// With parallel branches, the visible log does not grow with the number of turns.
func TestParallelBranchesStayBounded(t *testing.T) {
	testlog.SkipUnderRace(t)
	s := newSession(t, "")
	c := s.compactor(compaction.DefaultConfig())
	most := map[bool]int{} // maximum number of visible events in the first quarter of the turns (false) and later (true)
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
	// From the first quarter to the end, each of three pairs of branches may add one level of three summaries per
	// branch.
	if grown := most[true] - most[false]; grown > 3*2*3 || most[true] > 100 {
		t.Errorf("at most %d events were visible in the first quarter, %d later", most[false], most[true])
	}
}

// The model's name is cleaned before it is recorded in a summary.
func TestInvalidModelName(t *testing.T) {
	s := newSession(t, "u1*50 a1*50")
	reply := says("told")
	reply.Model = "gem\xffini\x1b"
	done := s.compact(every(1, 0, &scripted{reply: func(compaction.Request) (compaction.Response, error) { return reply, nil }}))
	if len(done) != 1 || done[0].Model != "gem\uFFFDini" {
		t.Errorf("%+v", done)
	}
}

// In a session of 2,000 turns, facts from the first ten turns are still visible at the end, after many merges. The
// facts are a name, an id, a date, an amount, a path, a ban, a preference and an open question.
func TestEightFactsOfTheFirstTurns(t *testing.T) {
	invocations := 2_000
	if testing.Short() {
		invocations = 200
	}
	told := []struct{ said, fact string }{
		{"Good morning, my name is Grete Hermann.", "Grete Hermann"},
		{"My customer number is KX-4471-09.", "KX-4471-09"},
		{"The warehouse moves on 2031-03-17, so everything has to be there by then.", "2031-03-17"},
		{"The budget for all of it is 18,450.75 EUR.", "18,450.75 EUR"},
		{"Our price list lies in /srv/share/prices/2031-q1.csv.", "/srv/share/prices/2031-q1.csv"},
		{"Never send anything by courier on Sundays.", "Never send anything by courier on Sundays"},
		{"I like short answers without pleasantries.", "I like short answers without pleasantries"},
		{"Does the insurance cover glass as well? Ask your colleagues, I can wait.", "Does the insurance cover glass as well?"},
	}
	routine := []struct{ asked, tool, answered string }{
		{"please look at order %d", "find_order", "Order %d has left the house."},
		{"and what about parcel P-%d?", "find_parcel", "Parcel P-%d is with the carrier."},
		{"has invoice INV-%d been paid?", "find_invoice", "Invoice INV-%d was paid in full."},
		{"cancel item %d, it came twice", "cancel_item", "Item %d is cancelled, 12.50 EUR go back to you."},
	}
	s := newSession(t, "")
	c := s.compactor(compaction.DefaultConfig())
	most := 0
	for i := range invocations {
		is := routine[(i*7+i/5)%len(routine)]
		asked, n := fmt.Sprintf(is.asked, 10_000+i), fmt.Sprint("inv", i)
		if i > 0 && i <= len(told) {
			asked = told[i-1].said
		}
		events := []*patch.Event{
			extUser(n, asked),
			extCall(n, n, is.tool, object{"number": 10_000 + i}),
			extResult(n, n, is.tool, object{"number": 10_000 + i, "state": "sent", "updated": fmt.Sprintf("2030-%02d-%02d", 1+i%12, 1+i%28)}),
			extAgent(n, fmt.Sprintf(is.answered, 10_000+i)),
		}
		s.add(events...)
		s.run(c)
		most = max(most, s.view().Len())
	}
	var visible strings.Builder
	for _, e := range s.view().Events() {
		for _, p := range e.Content().Parts() {
			visible.WriteString(p.Text + "\n")
		}
	}
	for _, f := range told {
		if !strings.Contains(visible.String(), f.fact) {
			t.Errorf("%q is gone", f.fact)
		}
	}
	if t.Failed() {
		t.Logf("visible is\n%.6000s", visible.String())
	}
	windows := 0
	for i, e := range s.view().Events() {
		if s.view().Entry(i).Summary {
			windows += compaction.LineageOf(e).Windows
		}
	}
	k, levels := compaction.DefaultLimits.Summaries, 1
	for n := windows; n >= k; n /= k {
		levels++
	}
	first := compaction.LineageOf(s.view().At(0))
	if first.Passes > levels {
		t.Errorf("turn 1 passed through %d summarisations of %d windows", first.Passes, windows)
	}
	if bound := (k-1)*levels + 1 + 4*compaction.DefaultInterval; most > bound {
		t.Errorf("%d events were visible, want at most %d", most, bound)
	}
	tokens, _ := compaction.PromptTokens(s.view())
	t.Logf("%d invocations: at most %d events visible, %d tokens at the end; turn 1 in %d passes of %d windows", invocations, most, tokens, first.Passes, windows)
}

// runSession appends the events of a session one by one and compacts after each invocation. If during is set, it also
// compacts after each event, as a running agent does. It returns the tokens of all events and the tokens of the
// events that are visible at the end.
func runSession(t *testing.T, events []*patch.Event, cfg compaction.Config, during bool) (raw, visible int) {
	t.Helper()
	s := newSession(t, "")
	c := s.compactor(cfg)
	for i, e := range events {
		s.add(e)
		raw += e.EstimatedTokens()
		switch {
		case during:
			testlog.Must(c.Compact(t.Context(), key, compaction.Run{Invocation: e.InvocationID()}))(t)
		case i+1 == len(events) || events[i+1].InvocationID() != e.InvocationID():
			s.run(c)
		}
	}
	for _, e := range s.view().Events() {
		visible += e.EstimatedTokens()
	}
	for i, r := range slices.DeleteFunc(s.records(), func(r patch.Record) bool { return r.Event == nil }) {
		if !patch.Same(r, patch.Record{Event: events[i]}) {
			t.Fatalf("raw event %d is not what was appended", i)
		}
	}
	return raw, visible
}

// Recorded sessions are compacted as they grow. The offline summarizer invents no identifiers, and long sessions
// become much shorter.
func TestRecordedSessions(t *testing.T) {
	testlog.SkipUnderRace(t)
	for _, set := range recorded.Sets(t) {
		step := 1
		if set.Large && testing.Short() {
			step = 8
		}
		for i := 0; i < len(set.Files); i += step {
			name := filepath.Base(set.Files[i])
			events, _ := extSession(t, set.Files[i])
			invocations := map[string]bool{}
			for _, e := range events {
				invocations[e.InvocationID()] = true
			}
			for _, cfg := range []compaction.Config{
				compaction.DefaultConfig(),
				{Enabled: true, CompactionInterval: 2, OverlapSize: 1, TokenThreshold: 4_000, EventRetentionSize: 6},
				{Enabled: true, TokenThreshold: 16_000, EventRetentionSize: 10},
			} {
				cfg.Summarizer = compaction.SummarizerFunc(func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
					resp, err := compaction.Extractive{}.Summarize(ctx, req)
					c := identifiers.Compare(identifiers.NewIndex(resp.Text), identifiers.NewIndex(identifiers.Text(append(req.Raw, req.Events...)...)))
					if len(c.Invented) > 0 {
						t.Errorf("%s: invents %q", name, c.Invented)
					}
					return resp, err
				})
				raw, visible := runSession(t, events, cfg, cfg.CompactionInterval == 0)
				if len(invocations) >= 10 && cfg.CompactionInterval == 2 && visible > max(raw*35/100, 800) { // short sessions are not checked, because they keep the user's words
					t.Errorf("%s: %d of %d tokens are visible", name, visible, raw)
				}
			}
		}
	}
}
