package store_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A revert that is imported behind the log brings back what the session in memory has let
// go of.
func TestImportOfRevert(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.apply(patch.NewSplice(0, 4).WithID("p"))
		e.same("visible", ids(e.view()), "")
		text := e.export() + `{"id":"r","patchType":"revert","patchId":"p"}` + "\n"
		done := e.importText("s.jsonl", text)
		if done.Added != 1 || done.Created {
			e.Errorf("it added %d records", done.Added)
		}
		e.same("visible", ids(e.view()), "q1 c1 r1 a1")
	})
}

// Patches made from a view are logged with the base that their author saw; each counts
// those before it as seen.
func TestBasesOfACall(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.append(turn(2)...)
		on := e.view()
		done, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: on, AllowOrphans: true},
			patch.NewSplice(7, 1).WithGroup("g"), patch.NewSplice(3, 1).WithGroup("g"),
			patch.NewSplice(0, 1).WithGroup("h"), patch.NewSplice(2, 1).WithGroup("h"))
		e.no(err)
		for i, want := range []uint64{0, 9, 10, 11} {
			if base, ok := done.Records[i].Patch.Base(); !ok || base != want {
				e.Errorf("patch %d has base %d, %t; want %d", i, base, ok, want)
			}
		}
	})
}

// A group may name what it brings back itself, though the session in memory has let go of
// it; what has to be read is known only by and by.
func TestGroupNamesWhatComesBack(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.append(turn(2)...)
		e.apply(patch.NewSplice(0, 4).WithID("first"))
		e.apply(patch.NewSplice(0, 4).WithID("second"))
		before, stored := ids(e.view()), e.dump()
		refused := func(target error, name string, patches ...*patch.PatchEvent) {
			e.Helper()
			for i, p := range patches {
				patches[i] = p.WithGroup("g")
			}
			_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patches...)
			e.is(err, target, name)
			_, err = e.store.Preview(ctx, key, store.PatchOptions{AsOfNow: true}, patches...)
			e.is(err, target, name)
			e.same("visible", ids(e.view()), before)
			e.same("stored", e.dump(), stored)
		}
		refused(fold.ErrEventNotFound, `"q1"`, patch.NewRevert("second"), patch.NewPin("q1"))
		refused(fold.ErrPinned, `"q2"`, patch.NewRevert("second"), patch.NewPin("q2"), patch.NewSplice(0, 1))
		refused(fold.ErrOrphanedCall, `"r2"`, patch.NewRevert("second"), patch.NewTruncateBefore("r2"), patch.NewPin("r2"))
		done := e.apply(patch.NewRevert("second").WithGroup("g"), patch.NewPin("q2").WithGroup("g"),
			patch.NewRevert("first").WithGroup("g"), patch.NewPin("q1").WithGroup("g"))
		e.same("visible", ids(done.View), "q1 c1 r1 a1 q2 c2 r2 a2")
		if !done.View.IsPinned(0) || !done.View.IsPinned(4) {
			e.Error("what came back is not pinned")
		}
		e.same("visible", ids(e.view()), ids(done.View))
	})
}
