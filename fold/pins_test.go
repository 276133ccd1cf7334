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

// pinned returns the ids of the pinned visible events.
func pinned(v fold.View) string {
	var out []string
	for i, e := range v.Entries() {
		if e.Pinned != v.IsPinned(i) {
			panic("Entries and IsPinned differ")
		}
		if e.Pinned {
			out = append(out, e.Event.ID())
		}
	}
	return strings.Join(out, " ")
}

// A pin does not change the visible log or the state. It applies to its event whether the event is visible or
// hidden. Pins, unpins and their reverts can be reverted like other patches.
func TestPins(t *testing.T) {
	revert := patch.NewRevert
	for name, c := range map[string]struct {
		patches []*patch.PatchEvent // patches p1, p2 and so on, applied to the events e1 e2 e3
		want    string              // ids of the pinned events
		visible string
		skipped int
	}{
		"one":                         {[]*patch.PatchEvent{patch.NewPin("e2")}, "e2", "e1 e2 e3", 0},
		"again changes nothing":       {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewPin("e2")}, "e2", "e1 e2 e3", 0},
		"unpinned":                    {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewUnpin("e2")}, "", "e1 e2 e3", 0},
		"never pinned":                {[]*patch.PatchEvent{patch.NewUnpin("e2")}, "", "e1 e2 e3", 0},
		"pin reverted":                {[]*patch.PatchEvent{patch.NewPin("e2"), revert("p1")}, "", "e1 e2 e3", 0},
		"unpin reverted":              {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewUnpin("e2"), revert("p2")}, "e2", "e1 e2 e3", 0},
		"revert reverted":             {[]*patch.PatchEvent{patch.NewPin("e2"), revert("p1"), revert("p2")}, "e2", "e1 e2 e3", 0},
		"and that again":              {[]*patch.PatchEvent{patch.NewPin("e2"), revert("p1"), revert("p2"), revert("p3")}, "", "e1 e2 e3", 0},
		"a second pin reverted":       {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewPin("e2"), revert("p2")}, "e2", "e1 e2 e3", 0},
		"the first of two reverted":   {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewPin("e2"), revert("p1")}, "e2", "e1 e2 e3", 0},
		"a pin under an unpin":        {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewUnpin("e2"), revert("p1")}, "", "e1 e2 e3", 0},
		"reverted twice":              {[]*patch.PatchEvent{patch.NewPin("e2"), revert("p1"), patch.NewPin("e2"), revert("p1")}, "e2", "e1 e2 e3", 1},
		"no such event":               {[]*patch.PatchEvent{patch.NewPin("e9")}, "", "e1 e2 e3", 1},
		"hidden and back":             {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewSplice(1, 1), revert("p2")}, "e2", "e1 e2 e3", 0},
		"unpinned while it is hidden": {[]*patch.PatchEvent{patch.NewPin("e2"), patch.NewSplice(1, 1), revert("p1"), revert("p2")}, "", "e1 e2 e3", 0},
		"hidden cannot be pinned":     {[]*patch.PatchEvent{patch.NewSplice(1, 1), patch.NewPin("e2")}, "", "e1 e3", 1},
		"taken back in between":       {[]*patch.PatchEvent{patch.NewUnpin("e2"), revert("p1"), revert("p2"), revert("p1"), revert("p3")}, "", "e1 e2 e3", 0},
		"others come between":         {[]*patch.PatchEvent{patch.NewPin("e1"), patch.NewPin("e2"), patch.NewUnpin("e2"), patch.NewUnpin("e1"), revert("p4")}, "e1", "e1 e2 e3", 0},
		"two reverts of one pin":      {[]*patch.PatchEvent{patch.NewPin("e2"), revert("p1"), revert("p2"), revert("p3"), revert("p2"), revert("p1"), revert("p4")}, "", "e1 e2 e3", 0},
		"a summary":                   {[]*patch.PatchEvent{patch.NewSummarise(0, 2, event("S", "text:a")), patch.NewPin("S")}, "S", "S e3", 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(t, "e1 a=1", "e2 a=2", "e3")
			for i, p := range c.patches {
				next := logged(t, v, patch.Record{Patch: p.WithID(fmt.Sprint("p", i+1))})
				if typ := p.Type(); (typ == patch.Pin || typ == patch.Unpin) && (ids(next) != ids(v) || fmt.Sprint(next.State()) != fmt.Sprint(v.State())) {
					t.Errorf("%v changed the view", p)
				}
				v = next
			}
			if got := pinned(v); got != c.want || ids(v) != c.visible || v.SkippedCount() != c.skipped {
				t.Errorf("pinned %q of %q, %d skipped", got, ids(v), v.SkippedCount())
			}
		})
	}
}

// Every patch except a revert is refused if it would hide a pinned event, unless the options allow it.
func TestPinnedIsNotHidden(t *testing.T) {
	v := view(t, "e1", "e2", "e3", "e4")
	v = apply(t, v, patch.NewSplice(3, 1, event("r", "text:a")).WithID("p1"))
	v = apply(t, v, patch.NewPin("e2").WithID("p2"))
	v = apply(t, v, patch.NewPin("r").WithID("p3"))
	for _, c := range []struct {
		p    *patch.PatchEvent
		hits string
	}{
		{patch.NewSplice(1, 1), "e2"},
		{patch.NewSplice(0, 4), "e2 r"},
		{patch.NewSummarise(0, 2, event("S", "text:a")), "e2"},
		{patch.NewTruncateBefore("e3"), "e2"},
		{patch.NewTruncateBefore("e2"), ""},
		{patch.NewSplice(0, 1), ""},
		{patch.NewSplice(2, 1), ""},
		{patch.NewSplice(2, 0, event("x")), ""},
		{patch.NewPin("e2"), ""},
		{patch.NewRevert("p1"), ""},
	} {
		err := withAllRecords(t, v).Check(c.p, fold.CheckOptions{})
		var refusal *fold.PinnedError
		if c.hits == "" {
			if err != nil {
				t.Errorf("%v: %v", c.p, err)
			}
			continue
		}
		if !errors.Is(err, fold.ErrPinned) || !errors.As(err, &refusal) {
			t.Errorf("%v: %v", c.p, err)
			continue
		}
		var hit []string
		for _, e := range refusal.Events {
			hit = append(hit, e.Event.ID())
			if v.At(e.Index) != e.Event || !strings.Contains(err.Error(), fmt.Sprintf("%d (id %q)", e.Index, e.Event.ID())) {
				t.Errorf("%v names %d %s", err, e.Index, e.Event.ID())
			}
		}
		if strings.Join(hit, " ") != c.hits {
			t.Errorf("%v would hide %v, want %s", c.p, hit, c.hits)
		}
		if err := withAllRecords(t, v).Check(c.p, fold.CheckOptions{AllowPinned: true}); err != nil {
			t.Errorf("%v, allowed: %v", c.p, err)
		}
	}
	// If a patch would hide a pinned event and leave an orphan, the error reports the pinned event.
	v = view(t, "q", "c call:c1", "r resp:c1")
	v = apply(t, v, patch.NewPin("r").WithID("p1"))
	testlog.ErrorIs(t, v.Check(patch.NewSplice(2, 1), fold.CheckOptions{}), fold.ErrPinned, "pinned and orphaned")
	testlog.ErrorIs(t, v.Check(patch.NewSplice(2, 1), fold.CheckOptions{AllowPinned: true}), fold.ErrOrphanedCall, "allowed and orphaned")
}

// The text of a PinnedError lists only the first of many events.
func TestPinnedMessage(t *testing.T) {
	v := view(t, "e1", "e2", "e3", "e4", "e5", "e6", "e7")
	for i := range 7 {
		v = apply(t, v, patch.NewPin(fmt.Sprint("e", i+1)).WithID(fmt.Sprint("p", i)))
	}
	err := v.Check(patch.NewSplice(0, 7), fold.CheckOptions{})
	if text := fmt.Sprint(err); !strings.Contains(text, `"e5"`) || strings.Contains(text, `"e6"`) || !strings.Contains(text, "2 more") {
		t.Error(text)
	}
}

// No patch blocks the revert of a pin. If the pin is already reverted, the error names the newest active revert.
func TestRevertOfPinIsNotBlocked(t *testing.T) {
	v := view(t, "e1", "e2")
	for _, p := range []*patch.PatchEvent{
		patch.NewPin("e1").WithID("p3"), patch.NewUnpin("e1").WithID("p4"), patch.NewUnpin("e1").WithID("p5"),
		patch.NewPin("e2").WithID("p6"), patch.NewRevert("p6").WithID("p7"), patch.NewRevert("p7").WithID("p8"), patch.NewRevert("p6").WithID("p9"),
	} {
		v = apply(t, v, p)
	}
	for id, want := range map[string]uint64{"p3": 0, "p4": 0, "p5": 0, "p6": 9, "p7": 8, "p8": 0, "p9": 0} {
		err := v.Check(patch.NewRevert(id), fold.CheckOptions{})
		if want == 0 {
			testlog.WantNil(t, err)
			continue
		}
		var blocked *fold.BlockedError
		if !errors.As(err, &blocked) || *blocked != (fold.BlockedError{PatchID: id, Blocking: fmt.Sprint("p", want), BlockingSeq: want, AlreadyReverted: true}) {
			t.Errorf("reverting %s: %v", id, err)
		}
	}
}

// A rewind restores the earlier pins, even if the pinned events are hidden.
func TestRewindOfPins(t *testing.T) {
	for name, c := range map[string]struct {
		log  []any
		from uint64
		want string
	}{
		"later pin goes":            {[]any{"e1", "e2", patch.NewPin("e1")}, 2, ""},
		"earlier pin stays":         {[]any{"e1", patch.NewPin("e1"), "e3"}, 3, "e1"},
		"later unpin goes":          {[]any{"e1", patch.NewPin("e1"), "e3", patch.NewUnpin("e1")}, 3, "e1"},
		"later revert goes":         {[]any{"e1", patch.NewPin("e1"), "e3", patch.NewRevert("p2")}, 3, "e1"},
		"pinned and taken back":     {[]any{"e1", "e2", patch.NewPin("e1"), patch.NewRevert("p3")}, 2, ""},
		"unpinned and pinned again": {[]any{"e1", patch.NewPin("e1"), "e3", patch.NewUnpin("e1"), patch.NewPin("e1")}, 3, "e1"},
		"revert, then another pin":  {[]any{"e1", patch.NewPin("e1"), "e3", patch.NewRevert("p2"), patch.NewPin("e1")}, 3, "e1"},
		"hidden by a summary":       {[]any{"e1", "e2", patch.NewPin("e2"), "e4", patch.NewSummarise(0, 3, event("S", "text:a"))}, 4, "e2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := newKeeper(t, c.log...)
			k, _ := newKeeper(t, c.log...)
			patches := testlog.Must(v.Rewind(c.from))(t)
			var after fold.View
			err := k.retry(v, func(v fold.View) (err error) {
				after, err = v.Preview(patches, fold.CheckOptions{AllowOrphans: true, AllowPinned: true})
				return err
			})
			if err != nil || pinned(after) != c.want {
				t.Errorf("%v: pinned are %q, want %q", err, pinned(after), c.want)
			}
		})
	}
}

// A rewind makes the same pins and unpins active as before, including those that had no effect.
func TestRewindOfRedundantPins(t *testing.T) {
	k, v := newKeeper(t, "e1", patch.NewPin("e1"), patch.NewPin("e1"), "e4", patch.NewRevert("p2"), patch.NewPin("e1"))
	for i, p := range append(testlog.Must(v.Rewind(4))(t), patch.NewRevert("p3")) {
		r := patch.Record{Seq: v.Seq() + 1, Patch: p.WithID(fmt.Sprint("r", i))}
		k.log = append(k.log, r)
		v = testlog.Must(k.apply(v, r))(t)
	}
	if pinned(v) != "e1" || v.SkippedCount() > 0 {
		t.Errorf("with the first of two pins active, pinned are %q", pinned(v))
	}
}
