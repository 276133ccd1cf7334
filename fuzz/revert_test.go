package fuzz

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// A revert has the effects that section 9 of docs/SEMANTICS.md describes.
func TestRevert(t *testing.T) {
	for _, test := range []struct {
		name, log      string
		visible, state string
		skipped        string
		blocking       uint64 // seq of the patch that blocks the last revert, or 0 if the revert is not blocked
	}{{
		name:    "a cut",
		log:     "e1 k=1\ne2 k=2\ne3\ncut 0+2\nrevert p4",
		visible: "e1 e2 e3", state: "k=2",
	}, {
		name:    "a summary, days later",
		log:     "e1 k=1\ne2\ne3\nsum 0+2 | S1\ne4 k=4\ncut 1+1\nrevert p4",
		visible: "e1 e2 e4", state: "k=4",
	}, {
		name:    "a truncation",
		log:     "e1 k=1\ne2\nbefore e2\ne3\nrevert p3",
		visible: "e1 e2 e3", state: "k=1",
	}, {
		name:    "a truncation of nothing",
		log:     "e1\nbefore e1\nrevert p2\nrevert p3\nrevert p4",
		visible: "e1",
	}, {
		name:    "a replacement, with events appended since",
		log:     "e1 k=1\nput 0+1 keep | r1 | r2 k=2\ne2 j=3\nrevert p2",
		visible: "e1 e2", state: "j=3 k=1",
	}, {
		name:    "an insertion",
		log:     "e1\ne2\nput 1+0 | r k=1\nrevert p3",
		visible: "e1 e2",
	}, {
		name:    "redo",
		log:     "e1 k=1\ne2\ncut 0+1\nrevert p3\nrevert p4",
		visible: "e2",
	}, {
		name:    "undo, redo, undo",
		log:     "e1 k=1\ne2\nsum 0+2 | S\nrevert p3\nrevert p4\nrevert p5\ne3",
		visible: "e1 e2 e3", state: "k=1",
	}, {
		name:    "undo, redo, undo the first again",
		log:     "e1 k=1\ne2\ncut 0+2\nrevert p3\nrevert p4\nrevert p3",
		visible: "e1 e2", state: "k=1",
	}, {
		name:    "nested: the outer first",
		log:     "e1 k=1\ne2\ne3\nsum 0+2 | S1\nsum 0+2 | S2\nrevert p5\nrevert p4",
		visible: "e1 e2 e3", state: "k=1",
	}, {
		name:    "nested: the inner is blocked by the outer",
		log:     "e1\ne2\ne3\nsum 0+2 | S1\nsum 0+2 | S2\nrevert p4",
		visible: "S2", skipped: "6: revert blocked", blocking: 5,
	}, {
		name:    "by the patch that removed one of the two added events",
		log:     "e1\nput 0+1 | r1 | r2\ncut 1+1\nrevert p2",
		visible: "r1", skipped: "4: revert blocked", blocking: 3,
	}, {
		name:    "transitively: by the patch that removed a marker",
		log:     "e1\ne2\ne3\nsum 0+1 | S1\ncut 0+1\nbefore e3\nrevert p4",
		visible: "e3", skipped: "7: revert blocked", blocking: 6,
	}, {
		name:    "a reverted patch: by its revert",
		log:     "e1\ncut 0+1\nrevert p2\nrevert p2",
		visible: "e1", skipped: "4: revert blocked", blocking: 3,
	}, {
		name:    "a revert: by the patch that removed a restored event",
		log:     "e1\ne2\ncut 0+2\nrevert p3\ncut 1+1\nrevert p4",
		visible: "e1", skipped: "6: revert blocked", blocking: 5,
	}, {
		name:    "by a node between",
		log:     "put 0+0 | r1 | r2\nput 1+0 | x\nrevert p1",
		visible: "r1 x r2", skipped: "3: revert blocked", blocking: 2,
	}, {
		name:    "by the marker of a cut between",
		log:     "put 0+0 | r1 | r2\nput 1+0 | x\ncut 1+1\nrevert p1",
		visible: "r1 r2", skipped: "4: revert blocked", blocking: 3,
	}, {
		name:    "by the maker of a node that a redo put between again",
		log:     "put 0+0 | r1 | r2\nput 1+0 | x\nrevert p2\nrevert p3\nrevert p1",
		visible: "r1 x r2", skipped: "5: revert blocked", blocking: 2,
	}, {
		name:    "a revert: by the patch that removed its marker too, and was redone",
		log:     "e1\ne2\ncut 0+1\nrevert p3\nbefore e2\nrevert p5\nrevert p6\nrevert p4",
		visible: "e2", skipped: "8: revert blocked", blocking: 5,
	}, {
		name:    "not by markers of reverts",
		log:     "e1 k=1\nput 0+1 | r1 | r2\nput 1+0 | x\nrevert p3\nrevert p2",
		visible: "e1", state: "k=1",
	}, {
		name:    "a marker carries on where it was",
		log:     "e1 k=1\ne2\ne3 k=3\ncut 0+1 keep\nsum 0+2 | S\nbefore S\nrevert p6\nrevert p4",
		visible: "e1 S", state: "k=3",
	}, {
		name: "of no patch that was applied",
		log: `e1
		      cut 5+5
		      revert p2
		      revert e1
		      revert p5
		      {"id":"x","patchType":"revert","patchId":"e1","state":"drop"}`,
		visible: "e1",
		skipped: "2: out of range, 3: patch not found, 4: patch not found, 5: patch not found, 6: field of another patch type",
	}, {
		name: "of a repeated id: the first one applied",
		log: `e1
		      e2
		      {"id":"p","patchType":"splice","start":9,"count":1}
		      {"id":"p","patchType":"splice","start":0,"count":1}
		      {"id":"p","patchType":"splice","start":0,"count":1}
		      revert p`,
		visible: "e1", skipped: "3: out of range",
	}} {
		t.Run(test.name, func(t *testing.T) {
			recs := records(t, test.log)
			r := NewReference(nil, recs...)
			expect(t, "visible", showVisible(r), test.visible)
			expect(t, "state", showState(r.State()), test.state)
			expect(t, "skipped", showSkipped(r), test.skipped)
			expectBlocked(t, recs, test.blocking, false)
		})
	}
}

// If the next record reverts a patch, the view and the state are the same as before the patch. If that revert is
// reverted, they are the same as after the patch. A blocked revert passes after the blocking patches are reverted.
func TestLawRevert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		initial := InitialState().Draw(t, "initial")
		r := NewReference(initial)
		apply := func(p *patch.PatchEvent) { r.Apply(patch.Record{Seq: r.Seq() + 1, Patch: p}) }
		for _, rec := range Records(Options{}).Draw(t, "records") {
			r.Apply(rec)
		}
		for i := range 4 {
			before, stateBefore := r.Visible(), describe(r)
			id := string(rune('A' + i))
			p := PatchOn(id, r).Draw(t, "patch")
			if p.ID() != id || r.Check(CheckOptions{AllowOrphans: true}, p.WithBase(r.PatchSeq())) != nil {
				continue
			}
			apply(p)
			after, stateAfter := r.Visible(), describe(r)
			apply(patch.NewRevert(id).WithID(id + "r"))
			if !slices.Equal(before, r.Visible()) || describe(r) != stateBefore {
				t.Fatalf("%v was reverted to %s, %s, want %s\n%s", p, showVisible(r), describe(r), stateBefore, Text(r.log, initial))
			}
			apply(patch.NewRevert(id + "r").WithID(id + "rr"))
			if !slices.Equal(after, r.Visible()) || describe(r) != stateAfter {
				t.Fatalf("%v was redone to %s, %s, want %s\n%s", p, showVisible(r), describe(r), stateAfter, Text(r.log, initial))
			}
		}
		var ids []string
		for _, a := range r.applied {
			if r.isActive(a) {
				ids = append(ids, a.id)
			}
		}
		if len(ids) > 0 {
			followBlocking(t, r, initial, rapid.SampledFrom(ids).Draw(t, "patch to revert"))
		}
	})
}

// followBlocking reverts the patch with the given id, called the target. Before that, it reverts the patches that
// block the revert of the target. The revert of a redo may also revert the target. Each blocking patch must be newer
// than the patch that it blocks, and the nodes of the blocking patch must be present.
func followBlocking(t *rapid.T, r *Reference, initial map[string]patch.Value, id string) {
	target := r.findPatch(id)
	next := target
	for n := range 2 * len(r.applied) {
		if !r.isActive(target) {
			return
		}
		p := patch.NewRevert(next.id).WithID(fmt.Sprint("follow ", n))
		var refusal *Refusal
		errors.As(r.Check(CheckOptions{AllowOrphans: true}, p), &refusal)
		switch {
		case refusal != nil && refusal.Kind == UnknownInLog, r.findPatch(next.id) != next: // another patch has the same id
			return
		case refusal == nil:
			r.Apply(patch.Record{Seq: r.Seq() + 1, Patch: p})
			if next == target {
				return
			}
			next = target
			continue
		case refusal.Kind != Blocked || refusal.AlreadyReverted || refusal.Blocking <= next.seq:
			t.Fatalf("%v is refused as %v\n%s", p, refusal, Text(r.log, initial))
		}
		i := slices.IndexFunc(r.applied, func(a *applied) bool { return a.seq == refusal.Blocking })
		next = r.applied[i]
		if _, _, missing, _ := r.insertedRange(next); len(missing) > 0 {
			t.Fatalf("%v is blocked by the patch at seq %d, which cannot be reverted itself\n%s", p, next.seq, Text(r.log, initial))
		}
	}
	t.Fatalf("reverting the blocking patches does not unblock patch %q\n%s", id, Text(r.log, initial))
}
