package fuzz

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// denseLog draws a log of plain events. Each event sets a key to its seq. Many patches overlap, both alone and in
// groups. The kinds of the patches are taken from kinds.
func denseLog(t *rapid.T, kinds []string) *Reference {
	r := NewReference(nil)
	apply := func(rec patch.Record) {
		rec.Seq = r.Seq() + 1
		r.Apply(rec)
	}
	for range rapid.IntRange(1, 24).Draw(t, "records") {
		id := fmt.Sprint("p", r.Seq()+1)
		if rapid.IntRange(0, 9).Draw(t, "patch") < 5 {
			key := rapid.SampledFrom([]string{"k", "j"}).Draw(t, "key")
			seq := r.Seq() + 1
			apply(patch.Record{Event: object{"id": fmt.Sprint("e", seq), "actions": object{"stateDelta": object{key: seq}}}.event()})
			continue
		}
		var patches []*patch.PatchEvent
		if ids := r.PatchIDs(); len(ids) > 0 && oneIn(t, 4, "is reverted") {
			back := rapid.IntRange(0, min(len(ids), 5)-1).Draw(t, "back")
			ids, _, _ := r.RevertAll(ids[len(ids)-1-back])
			for _, id := range ids {
				patches = append(patches, patch.NewRevert(id))
			}
		} else {
			now := r.clone()
			members := 1
			if oneIn(t, 3, "is a group") {
				members = rapid.IntRange(2, 3).Draw(t, "members")
			}
			for i := range members {
				p := densePatch(t, fmt.Sprintf("%s.%d", id, i), now, kinds)
				if p == nil {
					break
				}
				patches = append(patches, p)
				now.Apply(patch.Record{Seq: now.nextSeq(), Patch: p})
			}
		}
		for i, p := range patches {
			p = p.WithID(fmt.Sprintf("%s.%d", id, i))
			if len(patches) > 1 {
				p = p.WithGroup(id)
			}
			apply(patch.Record{Patch: p})
		}
	}
	if len(r.Skipped()) > 0 {
		t.Fatalf("skipped: %v\n%s", r.Skipped(), Text(r.log, nil))
	}
	return r
}

var (
	keepPuts   = []string{"sum", "sum", "put keep", "pin"}
	denseKinds = []string{
		"sum", "sum", "sum drop", "cut keep", "cut keep", "cut drop", "put keep", "put drop", "insert",
		"before keep", "before drop", "pin", "pin", "unpin",
	}
)

// densePatch draws a patch that can be applied, or returns nil.
func densePatch(t *rapid.T, id string, r *Reference, kinds []string) *patch.PatchEvent {
	n := len(r.Visible())
	if n == 0 {
		return nil
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	start := rapid.IntRange(0, n-1).Draw(t, "start")
	count := rapid.IntRange(1, min(n-start, 4)).Draw(t, "count")
	which := r.Visible()[start].ID()
	var inserted []*patch.Event
	for i := range rapid.IntRange(1, 2).Draw(t, "events") {
		f := object{"id": fmt.Sprintf("%s.%d", id, i), "content": content("user", textPart("x"))}
		inserted = append(inserted, f.event())
	}
	switch kind {
	case "sum", "sum drop":
		p := patch.NewSummarise(start, count, inserted[0])
		if kind == "sum drop" {
			p = p.WithState(patch.Drop)
		}
		return p
	case "cut keep", "cut drop":
		return patch.NewSplice(start, count).WithState(patch.StatePolicy(kind[4:]))
	case "put keep", "put drop":
		return patch.NewSplice(start, count, inserted...).WithState(patch.StatePolicy(kind[4:]))
	case "insert":
		return patch.NewSplice(start, 0, inserted...)
	case "before keep", "before drop":
		return patch.NewTruncateBefore(which).WithState(patch.StatePolicy(kind[7:]))
	case "pin":
		return patch.NewPin(which)
	default:
		return patch.NewUnpin(which)
	}
}

func complexLog(t *rapid.T) *Reference {
	if rapid.Bool().Draw(t, "is dense") {
		return denseLog(t, denseKinds)
	}
	return NewReference(InitialState().Draw(t, "initial"), Records(Options{Accepted: true}).Draw(t, "records")...)
}

// logUpTo returns the fold of the log before record seq.
func logUpTo(r *Reference, seq uint64) *Reference {
	before := NewReference(r.initial)
	for _, rec := range r.log {
		if rec.Seq < seq {
			before.Apply(rec)
		}
	}
	return before
}

func describe(r *Reference) string {
	return fmt.Sprintf("visible: %s; state: %s; pinned: %v", showVisible(r), showState(r.State()), r.Pinned())
}

func anySeq(t *rapid.T, r *Reference, label string) uint64 {
	return rapid.Uint64Range(1, r.Seq()+1).Draw(t, label)
}

func TestLawRewindTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := complexLog(t)
		from := anySeq(t, r, "from")
		once := r.rewound(from)
		if twice := once.rewound(from); describe(once) != describe(twice) {
			t.Fatalf("rewound to %d: %s\nand again: %s\n%s", from, describe(once), describe(twice), Text(r.log, r.initial))
		}
	})
}

// Two rewinds, first to a late and then to an earlier invocation, have the same result as one rewind to the earlier
// invocation.
func TestLawRewindInTwoSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := complexLog(t)
		near, far := anySeq(t, r, "near"), anySeq(t, r, "far")
		near, far = max(near, far), min(near, far)
		direct, stepwise := r.rewound(far), r.rewound(near).rewound(far)
		if describe(direct) != describe(stepwise) {
			t.Fatalf("rewound to %d: %s\nto %d, then %d: %s\n%s", far, describe(direct), near, far, describe(stepwise), Text(r.log, r.initial))
		}
	})
}

// representedSeqs returns the seqs of the logged events that a node represents. They are the node's own event or, at
// any depth, the events that the node replaced.
func representedSeqs(n *node) []uint64 {
	if n.insertedBy == nil {
		return []uint64{n.seq}
	}
	var seqs []uint64
	for _, m := range n.insertedBy.out {
		if !n.isRevertMarker {
			seqs = append(seqs, representedSeqs(m)...)
		}
	}
	return seqs
}

// After a rewind, no event and no state of the invocation or of later records remains. Events that were cut before
// the invocation stay hidden.
func TestLawRewindLeavesNothingLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := denseLog(t, denseKinds)
		from := anySeq(t, r, "from")
		after := r.rewound(from)
		for _, n := range after.visible() {
			if n.insertedBy == nil && n.seq >= from {
				t.Fatalf("%s is visible: %s\n%s", n.event.ID(), describe(after), Text(r.log, nil))
			}
			for _, seq := range representedSeqs(n) {
				if seq >= from {
					t.Fatalf("%s represents %d: %s, rewound to %d\n%s", n.event.ID(), seq, describe(after), from, Text(r.log, nil))
				}
			}
		}
		for key, value := range after.State() {
			var seq uint64
			if err := json.Unmarshal([]byte(value.String()), &seq); err != nil || seq >= from {
				t.Fatalf("%s is %v: rewound to %d\n%s", key, value, from, Text(r.log, nil))
			}
		}
	})
}

// If all patches since the invocation kept state and replaced the events that they removed, a rewind restores the
// state before the invocation. Each event that was visible before the invocation is then visible or represented by a
// summary.
func TestLawRewindLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := denseLog(t, keepPuts)
		from := anySeq(t, r, "from")
		before, after := logUpTo(r, from), r.rewound(from)
		if got, want := showState(after.State()), showState(before.State()); got != want {
			t.Fatalf("rewound to %d, the state is %s, want %s\n%s", from, got, want, Text(r.log, nil))
		}
		seqs := func(r *Reference) map[uint64]bool {
			all := map[uint64]bool{}
			for _, n := range r.visible() {
				for _, seq := range representedSeqs(n) {
					all[seq] = true
				}
			}
			return all
		}
		if got, want := seqs(after), seqs(before); !maps.Equal(got, want) {
			t.Fatalf("rewound to %d, %s represent %v, want %v\n%s", from, showVisible(after), got, want, Text(r.log, nil))
		}
		pinned := map[*patch.Event]bool{} // key: event; value: whether it was pinned, even if hidden
		for _, a := range before.applied {
			if a.pin != nil {
				pinned[a.pin.event] = before.isPinned(a.pin)
			}
		}
		for i, e := range after.Visible() {
			if after.Pinned()[i] != pinned[e] {
				t.Fatalf("rewound to %d, %s is pinned: %v, want %v\n%s", from, e.ID(), !pinned[e], pinned[e], Text(r.log, nil))
			}
		}
	})
}
