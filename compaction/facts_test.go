package compaction_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
)

// What is told in the first ten turns of a session of 2,000 stands in the visible log at the
// end, with summaries merged many times over: a name, an id, a date, an amount, a path, a ban,
// a preference and an open question.
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
