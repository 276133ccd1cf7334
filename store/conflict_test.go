package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestConflictSaysBothSeqs(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 6)...)
		before := e.view()
		e.apply(patch.NewSplice(0, 1))         // record 7
		e.append(say("b1"))                    // record 8
		e.apply(patch.NewTruncateBefore("a3")) // record 9
		e.append(say("b2"), say("b3"))         // up to record 11
		for _, p := range []*patch.PatchEvent{
			patch.NewSplice(0, 1), patch.NewTruncateBefore("a4"), patch.NewSummarise(0, 2, summary("s")), patch.NewSplice(77, 1),
		} {
			for _, c := range []struct {
				base uint64
				opts store.PatchOptions
			}{{0, store.PatchOptions{}}, {7, store.PatchOptions{}}, {8, store.PatchOptions{On: e.view()}}, {0, asOfNow}} {
				err := e.refuse(c.opts, one(p.WithID("p").WithBase(c.base)), store.ErrConflict)
				if got := as[*fold.ConflictError](e, err); got.Base != c.base || got.Newest != 9 {
					e.Errorf("conflict of %d with %d, want %d with 9", got.Base, got.Newest, c.base)
				}
			}
			// A view fills the base.
			err := e.refuse(store.PatchOptions{On: before}, one(p.WithID("p")), store.ErrConflict, "0", "9")
			if got := as[*fold.ConflictError](e, err); got.Base != 0 || got.Newest != 9 {
				e.Errorf("conflict of %d with %d, want 0 with 9", got.Base, got.Newest)
			}
		}
		// The base is what the author has seen; it need not be a patch's seq.
		for _, base := range []uint64{9, 10, 11} {
			e.must(e.store.Preview(ctx, key, store.PatchOptions{}, patch.NewSplice(0, 1).WithBase(base)))
		}
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewSplice(0, 1).WithBase(10)))
	})
}

// An index counts from what the author saw: events that came since do not shift it.
func TestAppendsDoNotConflictWithPatches(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		seen := e.view()
		e.append(says("b", 3)...)
		c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, patch.NewSplice(1, 2))
		e.no(err)
		if base, ok := c.Records[0].Patch.Base(); !ok || base != 0 {
			e.Errorf("the view filled base %d, %t; want 0", base, ok)
		}
		e.same("visible", ids(e.view()), "a1 b1 b2 b3")
		// What the patch says is judged on the log as it is.
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{On: e.view()}, patch.NewSplice(0, 4)))
		e.same("visible", ids(e.view()), "")
	})
}

func TestBaseAbsentMeansAsOfNow(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		for range 3 {
			c, err := e.store.ApplyPatch(ctx, key, asOfNow, parsePatch(`{"patchType":"splice","start":0,"count":1}`))
			e.no(err)
			if base, ok := c.Records[0].Patch.Base(); ok {
				e.Errorf("base %d was made up", base)
			}
		}
		e.same("visible", ids(e.view()), "")
	})
}

func TestBatchChecksFirstBaseOnly(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 6)...)
		seen := e.view()
		c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen},
			patch.NewSplice(0, 1), patch.NewSplice(0, 1), patch.NewTruncateBefore("a4"))
		e.no(err)
		e.same("visible", ids(c.View), "a4 a5 a6")
		for i, want := range []uint64{0, 7, 8} {
			if base, _ := c.Records[i].Patch.Base(); base != want {
				e.Errorf("patch %d has base %d, want %d", i, base, want)
			}
		}
		// Bases that the batch gives itself.
		_, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{},
			patch.NewSplice(0, 1).WithBase(9), patch.NewSplice(0, 1).WithBase(0))
		e.no(err)
		e.refuse(store.PatchOptions{}, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p1").WithBase(9), patch.NewSplice(0, 1).WithID("p2").WithBase(11)},
			store.ErrConflict, "9", "11")
		// What one leaves behind is what the next is judged on.
		e.refuse(store.PatchOptions{On: e.view()}, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p1"), patch.NewSplice(0, 1).WithID("p2")}, fold.ErrOutOfRange)
	})
}

func TestViewOfAnotherCreation(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		old := e.view()
		e.no(e.store.Delete(ctx, key))
		_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: old}, patch.NewSplice(0, 1))
		e.is(err, store.ErrNotFound, key.String())
		e.create(nil)
		e.append(says("a", 3)...)
		e.refuse(store.PatchOptions{On: old}, one(patch.NewSplice(0, 1).WithID("p")), store.ErrNotFound)
		e.refuse(store.PatchOptions{On: old}, one(patch.NewTruncateBefore("a2").WithID("p")), store.ErrNotFound)
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{Creation: old.Creation()}, say("b1"))
		e.is(err, store.ErrNotFound)
		e.must(e.store.AppendEvents(ctx, key, store.AppendOptions{Creation: e.view().Creation()}, say("b1")))
		// The old view itself stays as it was.
		e.same("old view", ids(old), "a1 a2 a3")
		if old.Creation() == e.view().Creation() {
			e.Error("two creations have one id")
		}
	})
}

func TestExpectedSeq(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		seq := func(n uint64) store.AppendOptions { return store.AppendOptions{IfSeq: &n} }
		e.must(e.store.AppendEvents(ctx, key, seq(0), say("a1"), say("a2")))
		e.must(e.store.AppendEvents(ctx, key, seq(2), say("a3")))
		for _, n := range []uint64{0, 2, 4} {
			stored := e.dump()
			_, err := e.store.AppendEvents(ctx, key, seq(n), say("a4"))
			e.is(err, store.ErrConflict, "3", string(rune('0'+n)), key.String())
			if got := as[*store.SeqError](e, err); got.Expected != n || got.Last != 3 {
				e.Errorf("expected %d, last %d; want %d and 3", got.Expected, got.Last, n)
			}
			e.same("stored", e.dump(), stored)
		}
		// Patches are records too.
		e.apply(patch.NewSplice(0, 1))
		_, err := e.store.AppendEvents(ctx, key, seq(3), say("a4"))
		e.is(err, store.ErrConflict)
		e.must(e.store.AppendEvents(ctx, key, seq(4), say("a4")))
		// A retry is looked at before anything else.
		c, err := e.store.AppendEvents(ctx, key, seq(4), say("a4"))
		e.no(err)
		if c.Records[0].Seq != 5 || c.View.Seq() != 5 {
			e.Errorf("the retry gave record %d and a view at %d, want 5 and 5", c.Records[0].Seq, c.View.Seq())
		}
		e.must(e.store.AppendEvents(ctx, key, seq(1), event(`{"id":"piece","partial":true}`)))
	})
}

func visibleIDs(events []fold.Entry) string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.Event.ID())
	}
	return strings.Join(ids, " ")
}

// A patch that is in the log would do nothing, and a preview is written nowhere.
func TestPreview(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		stored, seen := e.dump(), e.view()
		p, err := e.store.Preview(ctx, key, store.PatchOptions{On: seen}, patch.NewSplice(1, 2, say("r")).WithID("p"))
		e.no(err)
		e.same("removed, added, visible and where", fmt.Sprint(visibleIDs(p.Removed), "; ", visibleIDs(p.Added), "; ", ids(p.After), "; ", p.First), "a2 a3; r; a1 r a4; 1")
		e.same("stored", e.dump(), stored)
		e.same("view", e.viewText(e.view()), e.viewText(seen))
		e.apply(p.Patches[0])
		p, err = e.store.Preview(ctx, key, asOfNow, p.Patches[0])
		e.no(err)
		e.same("preview of a retry", e.viewText(p.After), e.viewText(e.view()))
		if len(p.Removed)+len(p.Added) != 0 {
			e.Errorf("a retry would remove %d events and add %d", len(p.Removed), len(p.Added))
		}
	})
}
