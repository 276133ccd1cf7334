package fuzz

import (
	"fmt"
	"strings"
	"testing"
)

// A rewind has the effects that section 9 of docs/SEMANTICS.md describes. In the scripts, the rewind goes back to
// the record marked f.
func TestRewind(t *testing.T) {
	for _, test := range []struct{ name, log, visible, state, pinned string }{
		{"no patches", "e1 k=1\ne2 k=2 f\ne3 k=3", "e1", "k=1", ""},
		{"to the first event", "e1 k=1 f\ne2 k=2", "", "", ""},
		{"an earlier removal stays in force", "e1 k=1\ne2\ncut 0+1\ne3 f", "e2", "", ""},
		{"a later removal of older events stays", "e1 k=1\ne2\ne3 f\ncut 0+1", "e2", "", ""},
		{"a later summary of older events stays", "e1 k=1\ne2\ne3 f\nsum 0+2 | S", "S", "k=1", ""},
		{"an earlier insertion stays", "e1\nput 0+0 | r j=1\ne2 f", "r e1", "j=1", ""},
		{"a later insertion goes", "e1\ne2 f\nput 0+0 | r j=1", "e1", "", ""},
		{"a new summary goes", "e1 k=1\ne2 k=2 f\ne3\nsum 1+2 | S", "e1", "k=1", ""},
		{"a new cut that keeps goes", "e1 k=1\ne2 k=2 f\ne3\ncut 1+1 keep", "e1", "k=1", ""},
		{"a mixed summary goes", "e1 k=1\ne2\ne3 k=3 f\nsum 1+2 | S", "e1 e2", "k=1", ""},
		{"mixed summaries of summaries", "e1 k=1\ne2\ne3 k=3 f\nsum 0+1 | S1\nsum 1+2 | S2\nsum 0+2 | S3", "S1 e2", "k=1", ""},
		{"a mixed cut that keeps: its older part", "e1 k=1\ne2 k=2 f\ncut 0+2 keep", "", "k=1", ""},
		{"a mixed cut that drops", "e1 k=1\ne2 k=2 f\ncut 0+2", "", "", ""},
		{"a mixed truncation that keeps", "e1 k=1\ne2 k=2 f\ne3\nbefore e3 keep", "", "k=1", ""},
		{"a mixed replacement that keeps", "e1 k=1\ne2 k=2 f\nput 0+2 keep | r", "e1", "k=1", ""},
		{"a mixed replacement that drops: its old events stay hidden", "e1 k=1\ne2 k=2 f\nput 0+2 | r", "", "", ""},
		{"a mixed summary that drops", "e1 k=1\ne2 k=2 f\nsum 0+2 drop | S", "e1", "k=1", ""},
		{"events cut by the cut of their summary", "e1 k=1\ne2 k=2 f\nsum 0+2 | S\ncut 0+1 keep", "", "k=1", ""},
		{"events dropped with their summary", "e1 k=1\ne2 k=2 f\nsum 0+2 | S\ncut 0+1", "", "", ""},
		{"one of two replacements was cut: the other stood for it too", "e1 k=1\ne2 k=2 f\nput 0+2 keep | r1 | r2\ncut 0+1 keep", "e1", "k=1", ""},
		{"both, one after the other", "e1 k=1\ne2 k=2 f\nput 0+2 keep | r1 | r2\ncut 0+1 keep\ncut 0+1 keep", "", "k=1", ""},
		{"both, one with its state", "e1 k=1\ne2 k=2 f\nput 0+2 keep | r1 | r2\ncut 0+1\ncut 0+1 keep", "", "k=1", ""},
		{"both with their state", "e1 k=1\ne2 k=2 f\nput 0+2 keep | r1 | r2\ncut 0+1\ncut 0+1", "", "", ""},
		{"a cut over a cut drops its kept state", "e1 k=1\ne2\ne3 f\ncut 0+1 keep\nsum 0+2 | S\nbefore S\ncut 0+1", "", "", ""},
		{"reverted patches are ignored", "e1 k=1\ne2 f\ncut 0+2 keep\nrevert p3", "e1", "k=1", ""},
		{"redone patches are not", "e1 k=1\ne2 f\ncut 0+2 keep\nrevert p3\nrevert p4", "", "k=1", ""},
		{"reverting the patch under a drop does not restore dropped events", "e1 k=1\ne2 f\ne3\nsum 0+2 | S\nbefore e3\ncut 0+1", "", "", ""},

		{"a separate cut stays", "e1 k=1\ne2\ne3 f\ncut 0+1 keep\nput 0+2 keep | S", "e2", "k=1", ""},
		{"a cut of a mixed group comes back", "e1 k=1\ne2\ne3 f\ncut 0+1 keep group:g\nput 0+2 keep group:g | S", "e1 e2", "k=1", ""},
		{"an old group stays", "e1 k=1\ne2\ne3 f\ncut 0+1 keep group:g\nput 0+1 keep group:g | S", "S", "k=1", ""},
		{"an old group stays, its insertion too", "e1 k=1\ne2\ne3 f\ncut 0+1 keep group:g\nput 1+0 group:g | S", "e2 S", "k=1", ""},
		{"an insertion of a new group goes", "e1 k=1\ne2 f\nput 0+0 group:g | r\ncut 2+1 keep group:g", "e1", "k=1", ""},
		{"in a group of cuts each counts alone", "e1 k=1\ne2\ne3 k=3 f\ncut 0+1 keep group:g\ncut 1+1 keep group:g", "e2", "k=1", ""},
		{"only active patches of a group count", "e1 k=1\ne2 f\nsum 0+1 group:g | S1\nsum 1+1 group:g | S2\nrevert p4", "S1", "k=1", ""},
		{"pins in a group do not count", "e1 k=1\ne2 f\ncut 0+1 keep group:g\npin e2 group:g", "", "k=1", ""},
		{"a summary on a mixed group is mixed", "e1 k=1\ne2\ne3 f\ncut 0+1 keep group:g\nsum 1+1 group:g | S1\nsum 1+1 | S2", "e1 e2", "k=1", ""},
		{"a member that was dropped, as one of two replacements", "e1 k=1\ne2\ne3 f\nsum 0+1 group:g | S1\nsum 1+2 group:g | S2\ncut 0+1", "e1 e2", "k=1", ""},
		{"all members that put in events were dropped", "e1 k=1\ne2\ne3 f\nsum 0+1 group:g | S1\nsum 1+2 group:g | S2\ncut 0+2", "", "", ""},
		{"all that a mixed group shows was dropped", "e1 k=1\ne2\ne3 f\ncut 0+1 keep group:g\nsum 0+2 group:g | S\ncut 0+1", "", "", ""},
		{"a drop in a mixed group does not count alone", "e1 k=1\ne2 f\ne3\nput 0+2 group:g | r\ncut 1+1 group:g", "e1", "k=1", ""},
		{"a group of one is its patch", "e1 k=1\ne2 f\nput 0+2 group:g | r", "", "", ""},
		{"under a new cut of events that a mixed group dropped", "e1 k=1\ne2 f\ne3\nsum 0+1 group:g | S\ncut 0+2 group:g\nput 0+1 group:h | r\nbefore r group:h", "e1", "k=1", ""},

		{"pins are as before", "e1\ne2\npin e1\nunpin e1\npin e2\ne3 f\nunpin e2\npin e1\npin e3", "e1 e2", "", "e2"},
		{"an earlier revert of a pin", "e1\npin e1\nrevert p2\ne2 f\nrevert p3", "e1", "", ""},
		{"a later revert of a pin", "e1\npin e1\ne2 f\nrevert p2", "e1", "", "e1"},
		{"a pin of a later summary", "e1\ne2 f\nsum 0+1 | S\npin S", "S", "", ""},
		{"a pin of a restored event", "e1\npin e1\ne2 f\nsum 0+2 | S", "e1", "", "e1"},
		{"a pinned event goes", "e1\ne2 f\npin e2", "e1", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var from uint64
			var log []string
			for i, line := range strings.Split(test.log, "\n") {
				line, found := strings.CutSuffix(line, " f")
				if found {
					from = uint64(i + 1)
				}
				log = append(log, line)
			}
			r := fold(t, nil, strings.Join(log, "\n"))
			if len(r.Skipped()) > 0 {
				t.Fatalf("skipped: %v", r.Skipped())
			}
			was := describe(r)
			after := r.rewound(from)
			expect(t, "visible", showVisible(after), test.visible)
			expect(t, "state", showState(after.State()), test.state)
			expect(t, "pinned", showPinned(after), test.pinned)
			if describe(r) != was {
				t.Errorf("it changed the rewound model: %s", describe(r))
			}
		})
	}
}

// After a rewind of two turns, exactly the content of the earlier turns remains. The session has two branches. Each
// turn is compacted by a summary that includes the previous summary, and by a cut of the turn's event.
func TestRewindOfTwoBranches(t *testing.T) {
	const turns = 20
	var log strings.Builder
	seq, first := 0, map[int]uint64{}
	record := func(format string, args ...any) {
		seq++
		fmt.Fprintf(&log, format+"\n", args...)
	}
	record("A")
	record("B")
	for i := range turns {
		first[i] = uint64(seq + 1)
		record("a%d k=%d #a", i, i)
		record("b%d j=%d #b", i, i)
		if i == 0 {
			continue // no earlier turn can be compacted
		}
		for j, branch := range []string{"A", "B"} {
			record("sum %d+1 group:%s%d | %s%d", j, branch, i-1, branch, i-1)
			record("cut 2+1 keep group:%s%d", branch, i-1)
		}
	}
	r := fold(t, nil, log.String())
	if got, want := showVisible(r), "A18 B18 a19 b19"; got != want || len(r.Skipped()) > 0 {
		t.Fatalf("visible: %s, want %s; skipped: %v", got, want, r.Skipped())
	}
	for i, want := range map[int]string{20: "A18 B18 a19 b19", 19: "A18 B18", 18: "A17 B17", 10: "A9 B9", 1: "A0 B0", 0: "A B"} {
		from, state := uint64(seq+1), ""
		if i < turns {
			from = first[i]
		}
		if i > 0 {
			state = fmt.Sprintf("j=%d k=%d", i-1, i-1)
		}
		after := r.rewound(from)
		if got := showVisible(after); got != want {
			t.Errorf("%d turns are left: %s, want %s", i, got, want)
		}
		if got := showState(after.State()); got != state {
			t.Errorf("%d turns are left with state %s, want %s", i, got, state)
		}
	}
}
