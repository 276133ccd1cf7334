package fold_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// What a rewind is for, without asking the model: where only patches that keep the state
// came since, the state is that of before; where only summaries did, and none of them is
// left, so is the visible log; and taking the rewind's patches back, newest first, gives
// the view from before the rewind.
func TestPropertyRewindLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &growing{t: t, view: fold.New("c", nil)}
		for range rapid.IntRange(2, 7).Draw(t, "before") {
			s.step(false, false)
		}
		before := s.view
		s.append()
		from := s.view.Seq()
		s.patches = nil // reverts of earlier patches do not keep the state
		onlySummaries := rapid.Bool().Draw(t, "only summaries")
		for range rapid.IntRange(2, 8).Draw(t, "since") {
			s.step(true, onlySummaries)
		}
		since := s.view

		plan, err := since.Rewind(from)
		if err != nil {
			t.Fatalf("%v\n%s", err, s.log.String())
		}
		var done []string
		for i, p := range plan {
			id := fmt.Sprint("rewind", i)
			if !s.put(patch.Record{Patch: p.WithID(id)}) {
				t.Fatalf("%v of the rewind was skipped\n%s", p, s.log.String())
			}
			done = append(done, id)
		}
		if got, want := fmt.Sprint(s.view.State()), fmt.Sprint(before.State()); got != want {
			t.Fatalf("the state is %s, was %s\n%s", got, want, s.log.String())
		}
		left := false // a summary of older events, made since, stays
		for _, e := range s.view.Entries() {
			left = left || e.Summary && e.Seq >= from
		}
		if got, want := ids(s.view), ids(before); onlySummaries && !left && got != want {
			t.Fatalf("visible is %s, was %s\n%s", got, want, s.log.String())
		}
		for _, id := range slices.Backward(done) {
			if !s.put(patch.Record{Patch: patch.NewRevert(id).WithID("undo " + id)}) {
				t.Fatalf("the revert of %s was skipped\n%s", id, s.log.String())
			}
		}
		if ids(s.view) != ids(since) || fmt.Sprint(s.view.State()) != fmt.Sprint(since.State()) {
			t.Fatalf("undone, the view is %s %v, was %s %v\n%s", ids(s.view), s.view.State(), ids(since), since.State(), s.log.String())
		}
	})
}

// growing is a session to which things happen at random.
type growing struct {
	t       *rapid.T
	view    fold.View
	events  int
	patches []string
	records []patch.Record
	log     strings.Builder
}

// put applies a record, and reports whether it did anything.
func (s *growing) put(r patch.Record) bool {
	r.Seq = s.view.Seq() + 1
	next, err := s.view.With(s.records).Apply(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if next.SkippedCount() > 0 {
		return false
	}
	s.view, s.records = next, append(s.records, r)
	fmt.Fprintf(&s.log, "%v → %s %v\n", r, ids(next), next.State())
	return true
}

func (s *growing) event() *patch.Event {
	s.events++
	words := []string{fmt.Sprint("e", s.events), "text:a"}
	if rapid.Bool().Draw(s.t, "sets state") {
		words = append(words, fmt.Sprintf("k%d=%d", rapid.IntRange(0, 2).Draw(s.t, "key"), s.events))
	}
	return event(words...)
}

func (s *growing) append() { s.put(patch.Record{Event: s.event()}) }

// step appends an event or makes a patch: of any kind, or only such as keep the state and
// add nothing to it, or only summaries.
func (s *growing) step(keeps, onlySummaries bool) {
	n := s.view.Len()
	if n == 0 || rapid.IntRange(0, 9).Draw(s.t, "what") < 4 {
		s.append()
		return
	}
	start := rapid.IntRange(0, n-1).Draw(s.t, "start")
	count := rapid.IntRange(1, min(n-start, 4)).Draw(s.t, "count")
	policy := patch.Keep
	if !keeps {
		policy = rapid.SampledFrom([]patch.StatePolicy{patch.Keep, patch.Drop}).Draw(s.t, "policy")
	}
	summarise := func() *patch.PatchEvent {
		s.events++
		return patch.NewSummarise(start, count, event(fmt.Sprint("s", s.events), "text:s"))
	}
	kinds := []func() *patch.PatchEvent{summarise}
	if !onlySummaries {
		kinds = append(kinds,
			func() *patch.PatchEvent { return patch.NewSplice(start, count).WithState(policy) },
			func() *patch.PatchEvent {
				return patch.NewTruncateBefore(s.view.At(start).ID()).WithState(policy)
			})
	}
	if !keeps {
		kinds = append(kinds, func() *patch.PatchEvent {
			return patch.NewSplice(start, rapid.IntRange(0, count).Draw(s.t, "replaced"), s.event()).WithState(policy)
		})
	}
	if len(s.patches) > 0 {
		kinds = append(kinds, func() *patch.PatchEvent { return patch.NewRevert(rapid.SampledFrom(s.patches).Draw(s.t, "revert")) })
	}
	id := fmt.Sprint("p", s.view.Seq()+1)
	if s.put(patch.Record{Patch: rapid.SampledFrom(kinds).Draw(s.t, "kind")().WithID(id)}) {
		s.patches = append(s.patches, id)
	}
}
