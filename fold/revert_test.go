package fold_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// plainLog draws a long log of events and patches without function calls. Most of the patches are reverts of
// active patches.
func plainLog(t *rapid.T) []patch.Record {
	var records []patch.Record
	add := func(e *patch.Event, p *patch.PatchEvent) {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Event: e, Patch: p})
	}
	ref := fuzz.NewReference(nil)
	folded, at := 0, 0
	for range rapid.IntRange(1, 40).Draw(t, "rounds") {
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			n := len(records) + 1
			add(event(fmt.Sprint("e", n), fmt.Sprintf("k%d=%d", n%5, n)), nil)
		}
		for ; folded < len(records); folded++ {
			ref.Apply(records[folded])
		}
		visible := ref.Visible()
		start := rapid.IntRange(0, len(visible)).Draw(t, "start")
		if rapid.Bool().Draw(t, "where the last one was") {
			start = min(at+rapid.IntRange(0, 2).Draw(t, "or a little further"), len(visible))
		}
		at = start
		count := min(rapid.SampledFrom([]int{0, 1, 2, 40, 1000}).Draw(t, "count"), len(visible)-start)
		id := fmt.Sprint("p", len(records)+1)
		p := patch.NewSplice(start, count)
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind > 4 && len(ref.PatchIDs()) > 0:
			ids := ref.PatchIDs()
			p = patch.NewRevert(ids[len(ids)-1-min(rapid.IntRange(0, 8).Draw(t, "back"), len(ids)-1)])
		case kind == 1 && count > 0:
			p = patch.NewSummarise(start, count, event(id+".1", "text:a", "role:user"))
		case kind == 2 && count > 0:
			p = patch.NewTruncateBefore(visible[start].ID())
		case kind == 3:
			p = patch.NewSplice(start, count, event(id+".1", "k1=1"), event(id+".2"), event(id+".3"))
		}
		if p.Type() != patch.Revert && rapid.Bool().Draw(t, "keep") {
			p = p.WithState(patch.Keep)
		}
		add(nil, p.WithID(id))
	}
	return records
}

// In long logs, reverts are applied or refused as in the reference model. This holds for full views, for views
// without hidden events, and for restored views.
func TestPropertyRevertsInLongLogs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := plainLog(t)
		ref := fuzz.NewReference(initialState)
		v := fold.New("creation", initialState)
		k := &keeper{t: t, log: records, initial: initialState}
		for i := 0; i < len(records); {
			n := rapid.IntRange(1, len(records)-i).Draw(t, "piece")
			if n == 1 {
				v = testlog.Must(k.apply(v, records[i]))(t)
			} else {
				v = k.fold(v, records[i:i+n])
			}
			for _, r := range records[i : i+n] {
				ref.Apply(r)
			}
			i += n
			if rapid.IntRange(0, 2).Draw(t, "then") == 0 {
				v = k.restore(v)
			}
		}
		if err := fuzz.Compare(v, ref); err != nil {
			t.Fatalf("%v\n%s", err, fuzz.Text(records, initialState))
		}
		whole := testlog.Must(fold.New("creation", initialState).Apply(records...))(t)
		if got, want := formOf(t, v), formOf(t, whole); !bytes.Equal(got, want) {
			t.Fatalf("saved it is\n%x, want\n%x\n%s", got, want, fuzz.Text(records, initialState))
		}
		for _, id := range ref.PatchIDs() {
			p := patch.NewRevert(id)
			got, want := k.check(v, p, fold.CheckOptions{}), ref.Check(fuzz.CheckOptions{}, p)
			if kindOf(got) != kindOf(want) {
				t.Fatalf("%v: got %v, want %v\n%s", p, got, want, fuzz.Text(records, initialState))
			}
			compareBlocking(t, p, got, want, records)
		}
	})
}

func TestRevertRefused(t *testing.T) {
	v := view(t, "e1", "e2", "e3")
	v = apply(t, v, patch.NewSummarise(0, 2, event("S", "text:a")).WithID("p1"))
	v = apply(t, v, patch.NewSplice(0, 1).WithID("p2"))
	for id, want := range map[string]error{"p1": fold.ErrBlocked, "p3": patch.ErrInvalid, "e1": patch.ErrInvalid, "": patch.ErrInvalid} {
		err := v.Check(patch.NewRevert(id), fold.CheckOptions{})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", id)) {
			t.Errorf("reverting %q: %v, want %v", id, err, want)
		}
	}
	var blocked *fold.BlockedError
	if err := v.Check(patch.NewRevert("p1"), fold.CheckOptions{}); !errors.As(err, &blocked) || *blocked != (fold.BlockedError{PatchID: "p1", Blocking: "p2", BlockingSeq: 5}) {
		t.Errorf("blocked by %+v", err)
	}
	testlog.ErrorIs(t, v.Check(patch.NewRevert("p2").WithBase(4), fold.CheckOptions{}), fold.ErrConflict, "reverting on an older base")
}

// A revert is checked for orphans like any patch, but the error suggests no other span.
func TestRevertOrphans(t *testing.T) {
	v := view(t, "q by:user", "c call:c1", "r resp:c1", "a")
	v = apply(t, v, patch.NewSplice(1, 1, event("c2", "call:c1")).WithID("p1").WithState(patch.Keep))
	v = extend(t, v, "more")
	v = apply(t, v, patch.NewSplice(1, 2).WithID("p2"))
	if err := withAllRecords(t, v).Check(patch.NewRevert("p2"), fold.CheckOptions{}); err != nil {
		t.Errorf("bringing back call and response: %v", err)
	}
	v = apply(t, view(t, "q by:user"), patch.NewSplice(1, 0, event("c", "call:c1")).WithID("p1"))
	v = extend(t, v, "r resp:c1")
	err := withAllRecords(t, v).Check(patch.NewRevert("p1"), fold.CheckOptions{})
	var orphans *fold.OrphanError
	if !errors.As(err, &orphans) || len(orphans.Orphans) != 1 || orphans.Suggested || strings.Contains(err.Error(), "span") {
		t.Errorf("taking away the call alone: %v", err)
	}
	testlog.WantNil(t, withAllRecords(t, v).Check(patch.NewRevert("p1"), fold.CheckOptions{AllowOrphans: true}))
}

// In a restored view, adjacent markers have the same pos. If a node is then inserted after them, it can still be
// found when the effects of patches are loaded.
func TestInsertionBehindRestoredMarkers(t *testing.T) {
	k, v := newKeeper(t, "e1", "e2", "e3", "e4", "e5", patch.NewSplice(0, 2).WithID("p1"), patch.NewSplice(0, 2).WithID("p2"))
	add := func(p *patch.PatchEvent) {
		t.Helper()
		r := patch.Record{Seq: v.Seq() + 1, Patch: p}
		v = testlog.Must(k.apply(v, r))(t)
		k.log = append(k.log, r)
	}
	v = k.restore(v)
	add(patch.NewSplice(0, 0, event("x")).WithID("p3"))
	for _, step := range []struct{ id, want string }{{"p2", "e3 e4 x e5"}, {"p3", "e3 e4 e5"}, {"p1", "e1 e2 e3 e4 e5"}} {
		add(patch.NewRevert(step.id).WithID("r" + step.id))
		if got := ids(v); got != step.want {
			t.Errorf("after reverting %s: %s, want %s", step.id, got, step.want)
		}
	}
}

// Views that share hidden events can be read and changed concurrently.
func TestConcurrentReverts(t *testing.T) {
	var log []any
	for n := range 40 {
		log = append(log, fmt.Sprintf("e%d k%d=%d", n, n%3, n))
	}
	for n := range 8 {
		log = append(log, patch.NewSplice(2*n, 3, event(fmt.Sprint("r", n))).WithState(patch.Keep).WithID(fmt.Sprint("p", n)))
		log = append(log, patch.NewSplice(2*n+1, 1).WithState(patch.Keep).WithID(fmt.Sprint("q", n)))
	}
	k, v := newKeeper(t, log...)
	restored := k.restore(v)
	want := formOf(t, v)
	var wg sync.WaitGroup
	for n := range 8 {
		for _, v := range []fold.View{v, restored} {
			wg.Go(func() {
				k, mine := &keeper{t: t, log: k.log}, v
				for _, id := range []string{fmt.Sprint("q", n), fmt.Sprint("p", n)} {
					p := patch.NewRevert(id).WithID("r" + id)
					testlog.WantNil(t, k.check(mine, p, fold.CheckOptions{}))
					r := patch.Record{Seq: mine.Seq() + 1, Patch: p}
					next, err := k.apply(mine, r)
					if err != nil || next.Len() <= mine.Len() || len(next.State()) != 3 {
						t.Error(next.Len(), err)
					}
					mine, k.log = next, append(k.log[:r.Seq-1:r.Seq-1], r)
				}
			})
			wg.Go(func() {
				if got := formOf(t, v); !bytes.Equal(got, want) {
					t.Error("the view changed")
				}
			})
		}
	}
	wg.Wait()
}

// Among thousands of patches with the same id, the oldest is found.
func TestRevertAmongManyPatches(t *testing.T) {
	v := view(t, "e1", "e2")
	testlog.ErrorIs(t, v.Check(patch.NewRevert("p"), fold.CheckOptions{}), patch.ErrInvalid, "without any patch")
	const n = 1500
	for i := range n {
		id := fmt.Sprint("p", i)
		if i%700 == 3 {
			id = "again" // patches 3, 703 and 1403 have this id
		}
		v = apply(t, v, patch.NewSplice(1, 0, event(fmt.Sprint("x", i))).WithID(id))
	}
	for _, i := range []int{0, 1, 254, 255, 256, 257, 511, 512, 1279, 1280, 1281, n - 1} {
		after := apply(t, v, patch.NewRevert(fmt.Sprint("p", i)))
		if _, ok := after.Find(fmt.Sprint("x", i)); ok || after.Len() != v.Len()-1 {
			t.Errorf("reverting p%d leaves it there", i)
		}
	}
	if after := apply(t, v, patch.NewRevert("again")); after.Len() != v.Len()-1 {
		t.Error("the first of those with one id was not reverted")
	} else if _, ok := after.Find("x3"); ok {
		t.Error("a later one of those with one id was reverted")
	}
}
