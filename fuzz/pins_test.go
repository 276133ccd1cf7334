package fuzz

import (
	"fmt"
	"testing"
)

func TestPins(t *testing.T) {
	for _, test := range []struct {
		name, log string
		pinned    string
		skipped   string
		blocking  uint64 // seq of the patch that blocks the last revert, or 0 if the revert is not blocked
	}{
		{name: "a pin", log: "e1\ne2\npin e2", pinned: "e2"},
		{name: "an unpin", log: "e1\npin e1\nunpin e1"},
		{name: "a pin again", log: "e1\npin e1\nunpin e1\npin e1", pinned: "e1"},
		{name: "it stays where the event goes", log: "e1\ne2\npin e2\ncut 0+1\nput 0+0 | r", pinned: "e2"},
		{name: "it does not pass to a replacement", log: "e1\npin e1\nput 0+1 | r"},
		{name: "a summary", log: "e1\nsum 0+1 | S\npin S", pinned: "S"},
		{name: "it comes back with the event", log: "e1\npin e1\ncut 0+1\nrevert p3", pinned: "e1"},
		{name: "of two with one id: the first visible", log: "e1\ne1\ncut 0+1\npin e1\nrevert p3\ncut 0+1", pinned: "e1"},
		{name: "no such event", log: "e1\npin e2\nunpin e2", skipped: "2: event not found, 3: event not found"},
		{name: "a hidden event", log: "e1\ncut 0+1\npin e1", skipped: "3: event not found"},
		{
			name:    "malformed",
			log:     "e1\npin e1 keep\n" + `{"patchType":"pin"}` + "\n" + `{"patchType":"unpin","eventId":1}` + "\n" + `{"patchType":"pin","eventId":"e1","patchId":"p"}` + "\n" + `{"patchType":"pin","eventId":"e1","group":5}`,
			skipped: "2: field of another patch type, 3: missing field, 4: wrong-typed field, 5: field of another patch type, 6: wrong-typed field",
		},

		{name: "reverted", log: "e1\npin e1\nrevert p2"},
		{name: "redone", log: "e1\npin e1\nrevert p2\nrevert p3", pinned: "e1"},
		{name: "reverted again", log: "e1\npin e1\nrevert p2\nrevert p3\nrevert p2"},
		{name: "an unpin reverted", log: "e1\npin e1\nunpin e1\nrevert p3", pinned: "e1"},
		{name: "while the event is hidden", log: "e1\npin e1\ncut 0+1\nrevert p2\nrevert p3"},
		{name: "a pin that changed nothing: nothing changes", log: "e1\npin e1\npin e1\nrevert p3", pinned: "e1"},
		{name: "a pin that another repeats: that one is left", log: "e1\npin e1\npin e1\nrevert p2", pinned: "e1"},
		{name: "both", log: "e1\npin e1\npin e1\nrevert p2\nrevert p3"},
		{name: "both, the newer first", log: "e1\npin e1\npin e1\nrevert p3\nrevert p2"},
		{name: "an unpin of nothing", log: "e1\nunpin e1\nrevert p2\nrevert p3"},
		{name: "an older one under a newer one of its kind", log: "e1\npin e1\nunpin e1\npin e1\nrevert p2", pinned: "e1"},
		{name: "reverted already", log: "e1\npin e1\nrevert p2\nrevert p2", skipped: "4: revert blocked", blocking: 3},
		{name: "reverted already, which changed nothing", log: "e1\npin e1\npin e1\nrevert p2\nrevert p2", pinned: "e1", skipped: "5: revert blocked", blocking: 4},
		{name: "reverted again: the newest revert is named", log: "e1\npin e1\nrevert p2\nrevert p3\nrevert p2\nrevert p3", skipped: "6: revert blocked", blocking: 4},
		{name: "reverted twice", log: "e1\npin e1\nrevert p2\nrevert p3\nrevert p2\nrevert p2", skipped: "6: revert blocked", blocking: 5},
		{name: "not blocked by an unpin", log: "e1\npin e1\nunpin e1\nrevert p2"},
		{name: "nor by a redo", log: "e1\npin e1\nunpin e1\nrevert p3\nrevert p4\nrevert p2"},
		{name: "an unpin over a pin that was reverted", log: "e1\npin e1\nunpin e1\nrevert p2\nrevert p3"},
		{name: "and that pin redone", log: "e1\npin e1\nunpin e1\nrevert p2\nrevert p3\nrevert p4", pinned: "e1"},
		{name: "a redo that came to nothing", log: "e1\npin e1\npin e1\nrevert p3\nrevert p4\nrevert p3\nrevert p5", pinned: "e1"},
		{name: "two reverts of one pin, of which one was reverted", log: "e1\npin e1\nrevert p2\nrevert p3\nrevert p4\nrevert p3\nrevert p2\nrevert p5"},
		{name: "a redo under a newer pin", log: "e1\npin e1\nrevert p2\npin e1\nrevert p3", pinned: "e1"},
		{name: "not blocked by a patch that hides the event", log: "e1\npin e1\ncut 0+1\npin e1\nrevert p2\nrevert p3", skipped: "4: event not found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			recs := records(t, test.log)
			r := NewReference(nil, recs...)
			expect(t, "pinned", showPinned(r), test.pinned)
			expect(t, "skipped", showSkipped(r), test.skipped)
			expectBlocked(t, recs, test.blocking, true)
		})
	}
}

// RevertAll returns the patches of a group, or the patch that blocks the revert.
func TestRevertAllWrites(t *testing.T) {
	const group = "e1\ne2\ne3\nsum 0+1 group:g | S1\npin e2 group:g\ncut 2+1 group:g\n"
	for _, test := range []struct{ name, log, id, want string }{
		{"a patch without group", "e1\ncut 0+1", "p2", "[p2]"},
		{"a group, by its first", group, "p4", "[p6 p5 p4]"},
		{"a group, by its last", group, "p6", "[p6 p5 p4]"},
		{"without reverted members", group + "revert p5", "p4", "[p6 p4]"},
		{"by a reverted member", group + "revert p5", "p5", "[p6 p4]"},
		{"with redone members", group + "revert p5\nrevert p7", "p4", "[p6 p5 p4]"},
		{"none if one is blocked", group + "sum 0+1 | S2", "p6", `blocked by "p7"`},
		{"reverted already", "e1\ncut 0+1\nrevert p2", "p2", `blocked by "p3"`},
		{"all of a reverted group already", group + "revert p6 group:h\nrevert p5 group:h\nrevert p4 group:h", "p5", `blocked by "p9"`},
		{"a group of reverts", group + "revert p6 group:h\nrevert p5 group:h\nrevert p4 group:h", "p8", "[p9 p8 p7]"},
		{"a group in which one reverts another", "e1\ncut 0+1 group:g\nrevert p2 group:g", "p2", "[p3 p2]"},
		{"of no patch", "e1\ncut 5+1", "p2", `blocked by ""`},
	} {
		ids, blocked, ok := fold(t, nil, test.log).RevertAll(test.id)
		got := fmt.Sprint(ids)
		if !ok {
			got = fmt.Sprintf("blocked by %q", blocked)
		}
		if got != test.want || ok && blocked != "" {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
