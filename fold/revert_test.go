package fold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
)

// plainLog draws a long log of events and patches, most of them reverts of patches in
// force, without what is hard about function calls.
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

// In logs of any length, with views that let go of what is hidden and views that come
// from a skeleton, reverts do and are refused as in the model.
func TestPropertyRevertsInLongLogs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := plainLog(t)
		ref := fuzz.NewReference(initialState)
		v := fold.New("creation", initialState)
		for i := 0; i < len(records); {
			n := rapid.IntRange(1, len(records)-i).Draw(t, "piece")
			var err error
			if n == 1 {
				v, err = v.Apply(records[i])
			} else {
				v, err = fold.Fold(v, records[i:i+n])
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records[i : i+n] {
				ref.Apply(r)
			}
			i += n
			switch rapid.IntRange(0, 2).Draw(t, "then") {
			case 1:
				v = v.Release(source(records))
			case 2:
				if v, err = v.Skeleton().Restore(context.Background(), source(records)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := fuzz.Compare(v, ref); err != nil {
			t.Fatalf("%v\n%s", err, fuzz.Text(records, initialState))
		}
		whole, err := fold.Fold(fold.New("creation", initialState), records)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(v.Skeleton()), fmt.Sprint(whole.Skeleton()); got != want {
			t.Fatalf("the skeleton is\n%s, want\n%s\n%s", got, want, fuzz.Text(records, initialState))
		}
		for _, id := range ref.PatchIDs() {
			p := patch.NewRevert(id)
			got, want := v.Check(p, fold.CheckOptions{}), ref.Check(p, false)
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
	if err := v.Check(patch.NewRevert("p2").WithBase(4), fold.CheckOptions{}); !errors.Is(err, fold.ErrConflict) {
		t.Errorf("reverting on an older base: %v", err)
	}
}

// A revert is held to the rules for function calls as any patch is, but no other span is
// suggested.
func TestRevertOrphans(t *testing.T) {
	v := view(t, "q by:user", "c call:c1", "r resp:c1", "a")
	v = apply(t, v, patch.NewSplice(1, 1, event("c2", "call:c1")).WithID("p1").WithState(patch.Keep))
	v = extend(t, v, "more")
	v = apply(t, v, patch.NewSplice(1, 2).WithID("p2"))
	if err := v.Check(patch.NewRevert("p2"), fold.CheckOptions{}); err != nil {
		t.Errorf("bringing back call and response: %v", err)
	}
	v = apply(t, view(t, "q by:user"), patch.NewSplice(1, 0, event("c", "call:c1")).WithID("p1"))
	v = extend(t, v, "r resp:c1")
	err := v.Check(patch.NewRevert("p1"), fold.CheckOptions{})
	var orphans *fold.OrphanError
	if !errors.As(err, &orphans) || len(orphans.Orphans) != 1 || orphans.Suggested || strings.Contains(err.Error(), "span") {
		t.Errorf("taking away the call alone: %v", err)
	}
	if err := v.Check(patch.NewRevert("p1"), fold.CheckOptions{AllowOrphans: true}); err != nil {
		t.Error(err)
	}
}

// brokenSource fails, or gives records that are not those of the log.
type brokenSource func(seqs []uint64) ([]patch.Record, error)

func (s brokenSource) Records(_ context.Context, seqs []uint64) ([]patch.Record, error) {
	return s(seqs)
}

var errBroken = errors.New("the disk is broken")

// Whatever a source does, a revert that needs it fails as a whole, and can be tried
// again: it is never skipped.
func TestBrokenSources(t *testing.T) {
	var records []patch.Record
	add := func(e *patch.Event, p *patch.PatchEvent) {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Event: e, Patch: p})
	}
	for _, e := range events("e1 a=1", "e2 b=2", "e3", "e4") {
		add(e, nil)
	}
	add(nil, patch.NewSplice(1, 1, event("r1"), event("r2", "c=3")).WithID("p1"))
	add(nil, patch.NewSplice(0, 9).WithID("skipped"))
	add(nil, patch.NewSplice(1, 3).WithID("p2"))
	add(nil, patch.NewRevert("p2").WithID("p3"))
	broken := func(fail func(source) brokenSource) brokenSource { return fail(source(records)) }
	for name, s := range map[string]fold.Source{
		"none":  nil,
		"fails": broken(func(source) brokenSource { return func([]uint64) ([]patch.Record, error) { return nil, errBroken } }),
		"gives too little": broken(func(good source) brokenSource {
			return func(seqs []uint64) ([]patch.Record, error) {
				return good.Records(context.Background(), seqs[:len(seqs)-1])
			}
		}),
		"gives others": broken(func(good source) brokenSource {
			return func(seqs []uint64) ([]patch.Record, error) {
				out, err := good.Records(context.Background(), seqs)
				for i := range out {
					out[i].Seq++
				}
				return out, err
			}
		}),
		"gives other content": broken(func(good source) brokenSource {
			return func(seqs []uint64) ([]patch.Record, error) {
				out, err := good.Records(context.Background(), seqs)
				for i := range out {
					out[i].Event, out[i].Patch = nil, patch.NewRevert("x")
				}
				return out, err
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			v, err := fold.Fold(fold.New("", nil), records[:7])
			if err != nil {
				t.Fatal(err)
			}
			skeleton := v.Skeleton()
			v = v.Release(s)
			for range 2 {
				next, err := v.Apply(records[7])
				if !errors.Is(err, fold.ErrSource) || next.Seq() != 7 || next.SkippedCount() != 1 {
					t.Errorf("applied: %v, at seq %d", err, next.Seq())
				}
				if _, err := fold.Fold(v, records[7:]); !errors.Is(err, fold.ErrSource) {
					t.Errorf("folded: %v", err)
				}
				if err := v.Check(records[7].Patch, fold.CheckOptions{}); !errors.Is(err, fold.ErrSource) || errors.Is(err, patch.ErrInvalid) {
					t.Errorf("checked: %v", err)
				}
				if _, err := v.Preview(records[7].Patch, fold.CheckOptions{}); !errors.Is(err, fold.ErrSource) {
					t.Errorf("previewed: %v", err)
				}
			}
			if _, err := skeleton.Restore(context.Background(), s); !errors.Is(err, fold.ErrSource) {
				t.Errorf("restored: %v", err)
			}
			flaky := &flakySource{good: source(records), bad: s}
			restored, err := skeleton.Restore(context.Background(), flaky)
			if err != nil {
				t.Fatal(err)
			}
			flaky.broken = true
			if next, err := restored.Apply(records[7]); !errors.Is(err, fold.ErrSource) || next.Seq() != 7 {
				t.Errorf("applied to a restored view: %v, at seq %d", err, next.Seq())
			}
			if _, err := restored.Skipped(); !errors.Is(err, fold.ErrSource) {
				t.Errorf("skipped patches: %v", err)
			}
			flaky.broken = false
			if next, err := restored.Apply(records[7]); err != nil || ids(next) != "e1 r1 r2 e3 e4" {
				t.Errorf("tried again: %v, %s", err, ids(next))
			}
			if skipped, err := restored.Skipped(); err != nil || len(skipped) != 1 || skipped[0].Seq != 6 {
				t.Errorf("skipped patches: %v, %v", skipped, err)
			}
		})
	}
}

type flakySource struct {
	good, bad fold.Source
	broken    bool
}

func (s *flakySource) Records(ctx context.Context, seqs []uint64) ([]patch.Record, error) {
	switch {
	case !s.broken:
		return s.good.Records(ctx, seqs)
	case s.bad == nil:
		return nil, errBroken
	}
	return s.bad.Records(ctx, seqs)
}

// A skeleton that no view has, or not of this log, gives an error, not a view or a panic.
func TestMalformedSkeletons(t *testing.T) {
	records := source{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Patch: patch.NewSplice(0, 1, event("r")).WithID("p")}}
	for name, s := range map[string]fold.Skeleton{
		"patch seq beyond seq":  {Seq: 1, PatchSeq: 2},
		"skips without a patch": {Seq: 3, Skips: 1},
		"skips below 0":         {Seq: 3, PatchSeq: 3, Skips: -1},
		"node beyond seq":       {Seq: 1, PatchSeq: 1, Nodes: []fold.NodeRef{{Seq: 2, Pos: 1}}},
		"index below 0":         {Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 3, Index: -1}}},
		"place beyond seq":      {Seq: 2, PatchSeq: 2, Nodes: []fold.NodeRef{{Seq: 2, Pos: 3}}},
		"places go back":        {Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 2, Pos: 2}, {Seq: 1, Pos: 1}}},
		"a marker, no patch":    {Seq: 3, Nodes: []fold.NodeRef{{}}},
		"no such event":         {Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 3, Index: 1}}},
		"more beyond seq":       {Seq: 1, Nodes: []fold.NodeRef{{Seq: 1, Pos: 1, More: 1}}},
		"more of a summary":     {Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 1, Pos: 1, More: 1, Summary: true}}},
		"stretches overlap":     {Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 1, Pos: 1, More: 1}, {Seq: 1, Pos: 1}}},
		"skips beyond seq":      {Seq: 3, PatchSeq: 3, Skips: 4},
		"no such event either":  {Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 2, Index: 1}}},
	} {
		if _, err := s.Restore(context.Background(), records); !errors.Is(err, patch.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// That its places are others, or its markers, shows when they are needed.
	misplaced := fold.Skeleton{Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 3, Pos: 0}, {Seq: 2, Pos: 2}}}
	if v, err := misplaced.Restore(context.Background(), records); err != nil {
		t.Error(err)
	} else if err := v.Check(patch.NewRevert("p"), fold.CheckOptions{}); !errors.Is(err, patch.ErrCorrupt) {
		t.Errorf("a node at another place: %v", err)
	}
	s := fold.Skeleton{Seq: 3, PatchSeq: 3, Nodes: []fold.NodeRef{{Seq: 3}, {Seq: 2, Pos: 2}, {Pos: 2}}}
	v, err := s.Restore(context.Background(), records)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Apply(patch.Record{Seq: 4, Patch: patch.NewRevert("p")}); !errors.Is(err, patch.ErrCorrupt) {
		t.Errorf("markers that the log does not have: %v", err)
	}
}

// Of markers side by side a skeleton has the last one's place: what is put in behind them
// on a restored view is found there when they are told apart again.
func TestInsertionBehindRestoredMarkers(t *testing.T) {
	v := view(t, "e1", "e2", "e3", "e4", "e5")
	var log source
	for i, e := range events("e1", "e2", "e3", "e4", "e5") {
		log = append(log, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	add := func(p *patch.PatchEvent) {
		t.Helper()
		v = apply(t, v, p)
		log = append(log, patch.Record{Seq: v.Seq(), Patch: p})
	}
	add(patch.NewSplice(0, 2).WithID("p1"))
	add(patch.NewSplice(0, 2).WithID("p2"))
	v, err := v.Skeleton().Restore(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	add(patch.NewSplice(0, 0, event("x")).WithID("p3"))
	for _, step := range []struct{ id, want string }{{"p2", "e3 e4 x e5"}, {"p3", "e3 e4 e5"}, {"p1", "e1 e2 e3 e4 e5"}} {
		add(patch.NewRevert(step.id).WithID("r" + step.id))
		if got := ids(v); got != step.want {
			t.Errorf("after reverting %s: %s, want %s", step.id, got, step.want)
		}
	}
}

// What judging a revert reads is not read again to apply it.
func TestRevertReadsOnce(t *testing.T) {
	log := source{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Patch: patch.NewSplice(0, 2).WithID("p")}}
	v, err := fold.Fold(fold.New("", nil), log)
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	v = v.Release(brokenSource(func(seqs []uint64) ([]patch.Record, error) {
		reads++
		return log.Records(context.Background(), seqs)
	}))
	for n := range 3 {
		if after := apply(t, v, patch.NewRevert("p")); ids(after) != "e1 e2" || reads != n+1 {
			t.Errorf("after %d reads: %s", reads, ids(after))
		}
	}
}

// Views that share what they hide may be read, changed and released at the same time.
func TestConcurrentReverts(t *testing.T) {
	var log source
	v := fold.New("", nil)
	add := func(e *patch.Event, p *patch.PatchEvent) {
		r := patch.Record{Seq: v.Seq() + 1, Event: e, Patch: p}
		log = append(log, r)
		var err error
		if v, err = v.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 40 {
		add(event(fmt.Sprint("e", n), fmt.Sprintf("k%d=%d", n%3, n)), nil)
	}
	for n := range 8 {
		add(nil, patch.NewSplice(2*n, 3, event(fmt.Sprint("r", n))).WithState(patch.Keep).WithID(fmt.Sprint("p", n)))
		add(nil, patch.NewSplice(2*n+1, 1).WithState(patch.Keep).WithID(fmt.Sprint("q", n)))
	}
	restored, err := v.Skeleton().Restore(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(v.Skeleton())
	var wg sync.WaitGroup
	for n := range 8 {
		for _, v := range []fold.View{v, restored} {
			wg.Go(func() {
				mine := v
				if n%2 == 0 {
					mine = v.Release(log)
				}
				for _, id := range []string{fmt.Sprint("q", n), fmt.Sprint("p", n)} {
					p := patch.NewRevert(id).WithID("r" + id)
					if err := mine.Check(p, fold.CheckOptions{}); err != nil {
						t.Error(err)
					}
					next, err := mine.Apply(patch.Record{Seq: mine.Seq() + 1, Patch: p})
					if err != nil || next.Len() <= mine.Len() || len(next.State()) != 3 {
						t.Error(next.Len(), err)
					}
					mine = next
				}
			})
			wg.Go(func() {
				if got := fmt.Sprint(v.Skeleton()); got != want {
					t.Error("the skeleton changed")
				}
			})
		}
	}
	wg.Wait()
}

// Among thousands of patches the first with an id is found.
func TestRevertAmongManyPatches(t *testing.T) {
	v := view(t, "e1", "e2")
	if err := v.Check(patch.NewRevert("p"), fold.CheckOptions{}); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("without any patch: %v", err)
	}
	const n = 1500
	for i := range n {
		id := fmt.Sprint("p", i)
		if i%700 == 3 {
			id = "again" // 3, 703 and 1403
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
