package fold_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Check for orphans treats adjacent patches of one group as a single patch. Other patches are checked one by one.
func TestGroupIsCheckedAsOnePatch(t *testing.T) {
	v := view(t, "q by:user", "c call:c1", "x", "r resp:c1", "d call:c2", "s resp:c2", "a")
	cut := func(start, count int, group string) *patch.PatchEvent {
		return patch.NewSplice(start, count).WithGroup(group)
	}
	for name, c := range map[string]struct {
		patches []*patch.PatchEvent
		want    error
		visible string
	}{
		"none":                 {nil, nil, "q c x r d s a"},
		"call and response":    {[]*patch.PatchEvent{cut(3, 1, "g"), cut(1, 1, "g")}, nil, "q x d s a"},
		"in two groups":        {[]*patch.PatchEvent{cut(3, 1, "g"), cut(1, 1, "h")}, fold.ErrOrphanedCall, ""},
		"without a group":      {[]*patch.PatchEvent{cut(3, 1, ""), cut(1, 1, "")}, fold.ErrOrphanedCall, ""},
		"the response alone":   {[]*patch.PatchEvent{cut(3, 1, "g"), cut(0, 1, "g")}, fold.ErrOrphanedCall, ""},
		"the call alone":       {[]*patch.PatchEvent{cut(1, 1, "g"), cut(1, 1, "g")}, fold.ErrOrphanedCall, ""},
		"a call comes first":   {[]*patch.PatchEvent{cut(6, 1, "g"), cut(0, 1, "g")}, fold.ErrOrphanedCall, ""},
		"replaced, and paired": {[]*patch.PatchEvent{patch.NewSplice(1, 1, event("c9", "call:c1")).WithGroup("g"), cut(2, 1, "g")}, nil, "q c9 r d s a"},
		"a new response":       {[]*patch.PatchEvent{patch.NewSplice(7, 0, event("t", "resp:c9")).WithGroup("g"), cut(2, 1, "g")}, fold.ErrOrphanedCall, ""},
		"two groups of two":    {[]*patch.PatchEvent{cut(3, 1, "g"), cut(1, 1, "g"), cut(3, 1, "h"), cut(2, 1, "h")}, nil, "q x a"},
		"out of range":         {[]*patch.PatchEvent{cut(6, 1, "g"), cut(6, 1, "g")}, fold.ErrOutOfRange, ""},
		"malformed":            {[]*patch.PatchEvent{cut(6, 1, "g"), cut(0, 0, "g")}, patch.ErrInvalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := v.Preview(c.patches, fold.CheckOptions{})
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.want == nil && (ids(after) != c.visible || after.Seq() != v.Seq()+uint64(len(c.patches))) {
				t.Errorf("visible %s at seq %d", ids(after), after.Seq())
			}
			if c.want == fold.ErrOrphanedCall {
				if _, err := v.Preview(c.patches, fold.CheckOptions{AllowOrphans: true}); err != nil {
					t.Errorf("allowed: %v", err)
				}
			}
		})
	}
}

// An error about orphans of a group contains the indices that the events had before the group.
func TestOrphansOfGroup(t *testing.T) {
	v := view(t, "q by:user", "c call:c1", "r resp:c1", "o @i call:c2", "u by:user @i")
	_, err := v.Preview([]*patch.PatchEvent{patch.NewSplice(2, 2).WithGroup("g"), patch.NewSplice(0, 1).WithGroup("g")}, fold.CheckOptions{})
	var orphans *fold.OrphanError
	if !errors.As(err, &orphans) || orphans.Suggested {
		t.Fatal(err)
	}
	var got []string
	for _, o := range orphans.Orphans {
		got = append(got, fmt.Sprintf("%d %s %s", o.Index, o.EventID, o.Problem))
	}
	want := "1 c would lose its response|1 c would come first, where a model's API accepts no function call|3 o is still open and would be hidden"
	if strings.Join(got, "|") != want {
		t.Errorf("orphans are %q, want %q", got, want)
	}
	v = apply(t, v, patch.NewSummarise(0, 1, event("S", "text:a", "role:model")).WithID("p"))
	_, err = v.Preview([]*patch.PatchEvent{
		patch.NewSplice(1, 0, event("n", "text:a")).WithGroup("g"), patch.NewSplice(1, 1, event("k", "call:c9")).WithGroup("g"),
	}, fold.CheckOptions{})

	if !errors.As(err, &orphans) || orphans.Orphans[0].EventID != "k" || !strings.Contains(err.Error(), "summary of role model") {
		t.Errorf("a call after a model's summary: %v", err)
	}
}

// If several patches are logged together, only the base of the first is checked. The author has seen the other
// patches.
func TestBasesOfBatch(t *testing.T) {
	v := apply(t, view(t, "e1", "e2", "e3"), patch.NewSplice(0, 1).WithID("p"))
	one := func(base uint64) *patch.PatchEvent { return patch.NewSplice(0, 1).WithBase(base) }
	testlog.ErrorIs(t, testlog.ErrorOf(v.Preview([]*patch.PatchEvent{one(3), one(4)}, fold.CheckOptions{})), fold.ErrConflict, "an old base")
	if _, err := v.Preview([]*patch.PatchEvent{one(4), one(0)}, fold.CheckOptions{}); err != nil {
		t.Errorf("an old base of the second: %v", err)
	}
	if _, err := v.Preview([]*patch.PatchEvent{one(4).WithGroup("g"), one(0).WithGroup("g")}, fold.CheckOptions{}); err != nil {
		t.Errorf("an old base of the second in a group: %v", err)
	}
}

func TestRevertTargets(t *testing.T) {
	_, v := newKeeper(t, "e1", "e2", "e3", "e4",
		patch.NewSplice(3, 1).WithID("a").WithGroup("g"), patch.NewSplice(0, 1).WithID("b").WithGroup("g"),
		patch.NewSplice(0, 1).WithID("c"), patch.NewPin("e3").WithID("d").WithGroup("g"))
	say := func(id string) string {
		standing, err := v.RevertTargets(id)
		if err != nil {
			return err.Error()
		}
		return strings.Join(standing, " ")
	}
	do := func(p *patch.PatchEvent) {
		t.Helper()
		v = apply(t, v, p)
	}
	is := func(id, want string) {
		t.Helper()
		if got := say(id); !strings.HasPrefix(got, want) {
			t.Errorf("taking back %s takes back %q, want %q", id, got, want)
		}
	}
	is("a", "d b a")
	is("b", "d b a")
	is("c", "c")
	is("x", `invalid patch: patch not found: field "patchId": no applied patch has the id "x"; events and receipts`)
	v, _ = fold.New("", nil).Apply([]patch.Record{
		{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")},
		{Seq: 3, Patch: patch.NewSplice(0, 1).WithID("a").WithGroup("g")},
		{Seq: 4, Patch: patch.NewSplice(0, 1).WithID("a").WithGroup("g")},
	}...)

	is("a", "invalid: patch 4")
	v = view(t, "e1", "e2")
	do(patch.NewSplice(0, 1).WithID("a").WithGroup("g"))
	do(patch.NewSplice(0, 1).WithID("b").WithGroup("g"))

	do(patch.NewRevert("b").WithID("rb").WithGroup("h"))
	is("b", "a")
	do(patch.NewRevert("a").WithID("ra").WithGroup("h"))
	is("b", `revert blocked: patch "b" is already reverted, by revert "rb" (record 5); to redo the patch, revert record 5`)
	is("a", `revert blocked: patch "a" is already reverted, by revert "ra" (record 6); to redo the patch, revert record 6`)
	is("ra", "ra rb")
	do(patch.NewRevert("ra").WithID("rra"))
	is("ra", "rb")
	is("a", "a")
}
