package fold_test

import (
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

// Asking what stands of a late patch does not collect the reverts before it.
func TestStandingLooksBackNoFurther(t *testing.T) {
	v := view(t, "e1", "e2")
	apply := func(p *patch.PatchEvent) {
		if v = logged(t, v, patch.Record{Patch: p}); v.SkippedCount() > 0 {
			t.Fatal(p)
		}
	}
	allocs := func(id string) float64 {
		return testing.AllocsPerRun(5, func() {
			if ids, err := v.Standing(id); err != nil || ids[0] != id {
				t.Fatal(ids, err)
			}
		})
	}
	few := 0.0
	for i := range 2000 {
		id := fmt.Sprint("p", i)
		apply(patch.NewSplice(0, 1).WithID(id))
		if i == 0 {
			few = allocs(id)
		}
		apply(patch.NewRevert(id).WithID("r" + id))
	}
	for i, group := range []string{"", "g"} {
		id := fmt.Sprint("last", i)
		apply(patch.NewSplice(0, 1).WithID(id).WithGroup(group))
		if many := allocs(id); many > few {
			t.Errorf("group %q: %v allocations after 2,000 reverts, %v before", group, many, few)
		}
	}
}
