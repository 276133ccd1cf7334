package fold_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestZeroViewIsEmptyAndUsable(t *testing.T) {
	var v fold.View
	if v.Len() != 0 || v.Seq() != 0 || v.PatchSeq() != 0 || len(v.State()) != 0 || v.SkippedCount() != 0 {
		t.Errorf("the zero view is not empty: %+v", v)
	}
	testlog.ErrorIs(t, v.Check(patch.NewSplice(0, 0, event("r", "call:c")), fold.CheckOptions{}), fold.ErrOrphanedCall, "a call that would come first")
	v = extend(t, v, "e1 k=1", "e2 k=2")
	if ids(v) != "e1 e2" || v.State()["k"] != "2" {
		t.Errorf("visible %s, state %v", ids(v), v.State())
	}
}

func TestAccessors(t *testing.T) {
	v := fold.New("made once", map[string]patch.Value{"tenant": value(`"t1"`), "app:a": value("1"), "user:u": value("1"), "temp:t": value("1")})
	v = extend(t, v, "e1 k=1", "e2", "e3")
	v = apply(t, v, patch.NewSummarise(0, 2, event("S", "text:hi")).WithID("p"))
	if v.Creation() != "made once" || v.Seq() != 4 || v.PatchSeq() != 4 {
		t.Errorf("creation %q, seq %d, patch seq %d", v.Creation(), v.Seq(), v.PatchSeq())
	}
	if !v.Entry(0).Summary || v.Entry(1).Summary || v.Entry(0).Seq != 4 || v.Entry(1).Seq != 3 {
		t.Error("wrong about the summary or the seqs")
	}
	if got, ok := v.Value("k"); !ok || got.Any() != "1" {
		t.Errorf("k is %v, %v", got, ok)
	}
	if _, ok := v.Value("app:a"); ok {
		t.Error("a shared key is in the fold")
	}
	if want := map[string]any{"tenant": "t1", "k": "1"}; !reflect.DeepEqual(v.State(), want) {
		t.Errorf("state %v, want %v", v.State(), want)
	}
	if i, ok := v.Find("e3"); !ok || i != 1 {
		t.Errorf("e3 is at %d, %v", i, ok)
	}
	if _, ok := v.Find("e1"); ok {
		t.Error("a hidden event is found")
	}
	for range v.Values() {
		break
	}
	for _, i := range []int{-1, 2} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), fmt.Sprint(i)) {
					t.Errorf("At(%d): %v", i, p)
				}
			}()
			v.At(i)
		}()
	}
}

func TestWrongSeqIsRefused(t *testing.T) {
	v := view(t, "e1")
	for _, seq := range []uint64{0, 1, 3} {
		next, err := v.Apply(patch.Record{Seq: seq, Event: event("e2")})
		if !errors.Is(err, fold.ErrSeq) || next.Seq() != 1 {
			t.Errorf("seq %d: %v, at %d", seq, err, next.Seq())
		}
	}
	testlog.ErrorIs(t, testlog.ErrorOf(v.Apply(patch.Record{Seq: 2})), patch.ErrInvalid, "an empty record")
	got, err := v.Apply(patch.Record{Seq: 2, Event: event("e2")}, patch.Record{Seq: 4, Event: event("e4")})
	if !errors.Is(err, fold.ErrSeq) || got.Seq() != 1 {
		t.Errorf("a gap: %v, at %d", err, got.Seq())
	}
	if got, err := v.Apply(); err != nil || got.Seq() != 1 {
		t.Errorf("no records: %v", err)
	}
}

// Events keep the order in which they were appended, even if their times are equal or run backward.
func TestEventsKeepIndices(t *testing.T) {
	v := view(t, "e1 at:5 k=1", "e2 at:1 k=2", "e3 at:3", "e4 at:3 k=4", "e5 at:3")
	for i, e := range v.Events() {
		if v.At(i) != e || v.Entry(i).Event != e || v.Entry(i).Index != i || e.ID() != fmt.Sprint("e", i+1) {
			t.Errorf("index %d is not that of %s", i, e.ID())
		}
		if i == 3 {
			break
		}
	}
	cut := apply(t, v, patch.NewTruncateBefore("e4"))
	if ids(cut) != "e4 e5" || cut.State()["k"] != "4" {
		t.Errorf("a cut between equal times: %s %v", ids(cut), cut.State())
	}
}

// If all events are cut, the state is the initial state.
func TestInitialStateSurvivesDrop(t *testing.T) {
	v := extend(t, fold.New("", map[string]patch.Value{"tenant": value(`"t1"`)}), "e1 tenant=t2", "e2 x=1")
	v = apply(t, v, patch.NewSplice(0, 2))
	if want := map[string]any{"tenant": "t1"}; !reflect.DeepEqual(v.State(), want) {
		t.Errorf("state %v, want %v", v.State(), want)
	}
}

// A summary and a cut of the summary give the same state as a cut of the events. If a marker next to the cut
// carries state, the marker keeps this state.
func TestSummariseThenTruncate(t *testing.T) {
	start := view(t, "e1 a=1 b=1", "e2 b=2", "e3 c=3", "e4 d=4", "e5 d=5", "e6 a=6")
	alone := apply(t, start, patch.NewTruncateBefore("e6"))
	both := apply(t, start, patch.NewSummarise(0, 4, event("S", "text:sum")))
	if !reflect.DeepEqual(both.State(), start.State()) {
		t.Errorf("summarising changed the state to %v", both.State())
	}
	both = apply(t, both, patch.NewTruncateBefore("e6"))
	if ids(both) != ids(alone) || !reflect.DeepEqual(both.State(), alone.State()) {
		t.Errorf("%s %v, want %s %v", ids(both), both.State(), ids(alone), alone.State())
	}

	kept := view(t, "e1", "e2 x=2", "e3")
	kept = apply(t, kept, patch.NewSplice(1, 1, event("r")).WithState(patch.Keep))
	kept = apply(t, kept, patch.NewTruncateBefore("r"))
	if ids(kept) != "r e3" || kept.State()["x"] != "2" {
		t.Errorf("%s %v: the state of e2 must count", ids(kept), kept.State())
	}

	border := view(t, "e1", "e2 x=2", "e3")
	border = apply(t, border, patch.NewSplice(1, 1).WithState(patch.Keep)) // leaves a marker between e1 and e3
	border = apply(t, border, patch.NewSplice(1, 1))                       // removes e3; the marker is before e3
	if border.State()["x"] != "2" {
		t.Errorf("a cut took the marker at its border: %v", border.State())
	}
}

// A summary of many events keeps the state that the events set.
func TestSummariseLong(t *testing.T) {
	v := fold.New("", nil)
	want := map[string]any{}
	for i := range 5000 {
		key, set := fmt.Sprint("k", i%3000), fmt.Sprint(i)
		v = extend(t, v, fmt.Sprintf("e%d %s=%s", i, key, set))
		want[key] = set
	}
	v = apply(t, v, patch.NewSummarise(0, 5000, event("S", "text:sum")))
	if !reflect.DeepEqual(v.State(), want) {
		t.Error("the state is another one")
	}
}

func TestSkippedIsListed(t *testing.T) {
	v := view(t, "e1", "e2")
	for _, text := range []string{
		`{"patchType":"splice","start":1,"count":5}`,
		`{"patchType":"truncate_before","eventId":"nobody"}`,
		`{"patchType":"splice","start":"1","count":1}`,
		`{"patchType":"splice","start":1}`,
		`{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]},"actions":{"stateDelta":{"k":1}}}}`,
		`{"patchType":"splice","start":0,"count":0,"replacement":[{"patchType":"splice","start":0,"count":1}]}`,
	} {
		r := testlog.Must(patch.ParseRecord([]byte(text)))(t)
		r.Seq = v.Seq() + 1
		v = testlog.Must(v.Apply(r))(t)
	}
	reasons := []patch.Flaw{"out of range", "event not found", "wrong-typed field", "missing field",
		"summary with a state delta", "patch inside a replacement"}
	var want []patch.Skip
	for i, reason := range reasons {
		want = append(want, patch.Skip{Seq: uint64(i + 3), Reason: reason})
	}
	if got, err := v.Skipped(); err != nil || !reflect.DeepEqual(got, want) || v.SkippedCount() != len(want) {
		t.Errorf("skipped %v (%v), want %v", got, err, want)
	}
	if ids(v) != "e1 e2" || v.PatchSeq() != 8 {
		t.Errorf("%s, patch seq %d", ids(v), v.PatchSeq())
	}
	if err := v.Check(patch.NewSplice(0, 1), fold.CheckOptions{}); err != nil {
		t.Errorf("skipped patches of known type are no reason to refuse: %v", err)
	}
	unknown := testlog.Must(patch.ParseRecord([]byte(`{"patchType":"reorder"}`)))(t)
	unknown.Seq = 9
	v = testlog.Must(v.Apply(unknown))(t)
	testlog.ErrorIs(t, v.Check(patch.NewSplice(0, 1), fold.CheckOptions{}), fold.ErrUnknownPatch, "after a patch of unknown type")
}

// Goroutines may read a view while other views are made from it. The race detector checks this.
func TestViewsAreSharedWithoutRaces(t *testing.T) {
	v := view(t, "e1 a=1 call:c", "e2 b=2 resp:c", "e3 a=3", "e4")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			w := v
			for j := range 50 {
				var err error
				if w, err = w.Apply(patch.Record{Seq: w.Seq() + 1, Event: event(fmt.Sprint("n", i, "-", j), "k=1")}); err != nil {
					t.Error(err)
				}
				if j%5 == 0 {
					if _, err := w.Preview([]*patch.PatchEvent{patch.NewSplice(0, 2).WithState(patch.Keep)}, fold.CheckOptions{}); err != nil {
						t.Error(err)
					}
				}
				_, _, _ = w.State(), v.State(), w.Len()
			}
		})
	}
	wg.Wait()
	if ids(v) != "e1 e2 e3 e4" || v.State()["a"] != "3" {
		t.Errorf("the view changed: %s %v", ids(v), v.State())
	}
}

// TestNil checks that a nil or missing argument is refused, and that the error names the argument.
func TestNil(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(fold.View) error
		says string
	}{
		"check": {func(v fold.View) error { return v.Check(nil, fold.CheckOptions{}) }, "patch is nil"},
		"preview": {func(v fold.View) error {
			_, err := v.Preview([]*patch.PatchEvent{nil}, fold.CheckOptions{})
			return err
		}, "patch is nil"},
		"apply":   {func(v fold.View) error { _, err := v.Apply(patch.Record{Seq: v.Seq() + 1}); return err }, "neither an event nor a patch"},
		"summary": {func(v fold.View) error { return v.Check(patch.NewSummarise(0, 1, nil), fold.CheckOptions{}) }, "summaryEvent"},
	} {
		for kind, v := range map[string]fold.View{"zero view": {}, "new view": fold.New("c", nil)} {
			if err := c.do(v); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s on a %s: %v", name, kind, err)
			}
		}
	}
}
