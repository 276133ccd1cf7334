package fold_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// What several patches do together is judged together, and by where the events come from,
// not by where they stand.
func TestOrphansTogether(t *testing.T) {
	for _, c := range []struct {
		name    string
		log     []string
		patches []*patch.PatchEvent
		orphans string
	}{
		{"a call and its response, one patch each", []string{"e0", "e1 call:a", "e2", "e3 resp:a", "e4"},
			[]*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(1, 1)}, ""},
		{"a second response stays", []string{"e0", "e1 call:a", "e2", "e3 resp:a", "e4 resp:a"},
			[]*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(1, 1)}, "response a e4 would answer no call"},
		{"the second answer of two calls with one id stays, and its own call goes", []string{"e0", "e1 call:a", "e2 resp:a", "e3 call:a", "e4 resp:a"},
			[]*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(2, 1)}, "response a e4 would answer another call"},
		{"an open call of the newest invocation", []string{"e0 @i", "e1 @i call:a", "e2 @i"},
			[]*patch.PatchEvent{patch.NewSplice(1, 1), patch.NewSplice(0, 1)}, "call a e1 is still open and would be hidden"},
		{"all before a call", []string{"e0", "e1", "e2 call:a", "e3 resp:a"},
			[]*patch.PatchEvent{patch.NewSplice(1, 1), patch.NewSplice(0, 1)}, "call a e2 would come first, where a model's API accepts no function call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view(t, c.log...)
			after := v
			for _, p := range c.patches {
				after = apply(t, after, p)
			}
			if got := orphansOf(v.CheckOrphans(after, fold.CheckOptions{})); got != c.orphans {
				t.Errorf("orphans %q, want %q", got, c.orphans)
			}
		})
	}
}

func TestHideWaiting(t *testing.T) {
	hide := fold.CheckOptions{HideWaiting: true}
	for _, c := range []struct {
		name    string
		log     []string
		orphans string
	}{
		{"of an invocation that is over", []string{"e0 @i", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j"}, ""},
		{"of the newest invocation", []string{"e0 @i", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @i"}, "call a e1 is still open and would be hidden"},
		{"an ordinary one of the newest invocation", []string{"e0 @i", "e1 @i call:a", "e2 @i", "e3 @i"}, "call a e1 is still open and would be hidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view(t, c.log...)
			p := patch.NewSplice(1, 2)
			if got := orphansOf(v.Check(p, hide)); got != c.orphans {
				t.Errorf("orphans %q, want %q", got, c.orphans)
			}
			if got := orphansOf(v.CheckOrphans(apply(t, v, p), hide)); got != c.orphans {
				t.Errorf("judged as one of several: %q, want %q", got, c.orphans)
			}
		})
	}
	v := view(t, "e0 @i", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j")
	if v.Check(patch.NewSplice(1, 2), fold.CheckOptions{}) == nil {
		t.Error("a call that waits is hidden, and nobody said so")
	}
}
