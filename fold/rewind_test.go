package fold_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// rewound plans a rewind of a view and applies the patches to the log, as a store does.
func rewound(t rapid.TB, v fold.View, log []patch.Record, from uint64) (fold.View, []patch.Record) {
	t.Helper()
	patches := testlog.Must(v.Rewind(from))(t)
	var records []patch.Record
	for _, p := range patches {
		p = p.WithID(fmt.Sprint("rewind ", v.Seq()+1))
		at := v.WithRecords(slices.Concat(log, records))
		if err := at.Check(p, fold.CheckOptions{AllowOrphans: true, AllowPinned: true}); err != nil {
			t.Fatalf("%v was planned: %v", p, err)
		}
		records = append(records, patch.Record{Seq: v.Seq() + 1, Patch: p})
		v = testlog.Must(at.Apply(records[len(records)-1]))(t)
	}
	return v, records
}

// A rewind gives the visible log and the state of the reference model. A second rewind to the same record plans no
// patches. If the log has no later patch, the rewind gives the view before the record.
func TestPropertyRewindMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := plainLog(t)
		if rapid.Bool().Draw(t, "hard log") {
			records = fuzz.Records(fuzz.Options{Accepted: true}).Draw(t, "records")
		}
		ref := fuzz.NewReference(initialState, records...)
		v := testlog.Must(fold.New("creation", initialState).Apply(records...))(t)
		var starts []uint64 // seqs of the events, because a rewind starts at an event
		for _, r := range records {
			if r.Event != nil {
				starts = append(starts, r.Seq)
			}
		}
		from := rapid.SampledFrom(append(starts, uint64(len(records)+1))).Draw(t, "from")
		after, more := rewound(t, v, records, from)
		explain := func() string {
			return fmt.Sprintf("rewound to %d:\n%s", from, fuzz.Text(append(records[:len(records):len(records)], more...), initialState))
		}
		visible, state, pins := ref.Rewind(from)
		if got := slices.Collect(eventsIn(after)); !slices.Equal(got, visible) {
			t.Fatalf("visible are %s, want %d events\n%s", ids(after), len(visible), explain())
		}
		for i, want := range pins {
			if after.IsPinned(i) != want {
				t.Fatalf("visible event %d is pinned: %v\n%s", i, !want, explain())
			}
		}
		for key, value := range after.Values() {
			if want, ok := state[key]; !ok || !value.Equal(want) {
				t.Fatalf("%s is %v, want %v\n%s", key, value, want, explain())
			}
			delete(state, key)
		}
		if len(state) > 0 {
			t.Fatalf("not there: %v\n%s", state, explain())
		}

		if again, err := after.Rewind(from); err != nil || len(again) > 0 {
			t.Fatalf("again: %v, %v\n%s", again, err, explain())
		}
		if v.PatchSeq() < from {
			before := testlog.Must(fold.New("creation", initialState).Apply(records[:from-1]...))(t)
			if d := before.Diff(after); len(d.Removed)+len(d.Added)+len(d.StateChanged) > 0 {
				t.Fatalf("no patch came since, but %+v\n%s", d, explain())
			}
		}
		undone := after
		for i, r := range slices.Backward(more) {
			p := patch.NewRevert(r.ID()).WithID(fmt.Sprint("undo ", i))
			undone = undone.WithRecords(append(records[:len(records):len(records)], more...))
			undone = testlog.Must(undone.Apply(patch.Record{Seq: undone.Seq() + 1, Patch: p}))(t)
		}
		if d := v.Diff(undone); len(d.Removed)+len(d.Added)+len(d.StateChanged) > 0 || undone.SkippedCount() > v.SkippedCount() {
			t.Fatalf("undone, it differs by %+v\n%s", d, explain())
		}
	})
}

func eventsIn(v fold.View) func(func(*patch.Event) bool) {
	return func(yield func(*patch.Event) bool) {
		for _, e := range v.Events() {
			if !yield(e) {
				return
			}
		}
	}
}

// If all later patches kept the state, a rewind restores the earlier state.
func TestPropertyRewindKeepsKeptState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []patch.Record
		v := fold.New("", nil)
		add := func(e *patch.Event, p *patch.PatchEvent) {
			r := patch.Record{Seq: v.Seq() + 1, Event: e, Patch: p}
			v = testlog.Must(v.Apply(r))(t)
			records = append(records, r)
		}
		for range rapid.IntRange(1, 30).Draw(t, "records") {
			n := len(records) + 1
			if v.Len() == 0 || rapid.IntRange(0, 2).Draw(t, "is an event") > 0 {
				add(event(fmt.Sprint("e", n), fmt.Sprintf("k%d=%d", rapid.IntRange(0, 2).Draw(t, "key"), n)), nil)
				continue
			}
			start := rapid.IntRange(0, v.Len()-1).Draw(t, "start")
			count := rapid.IntRange(1, v.Len()-start).Draw(t, "count")
			p := patch.NewSummarise(start, count, event(fmt.Sprint("s", n), "text:a"))
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 1:
				p = patch.NewSplice(start, count).WithState(patch.Keep)
			case 2:
				p = patch.NewTruncateBefore(v.At(start).ID()).WithState(patch.Keep)
			}
			add(nil, p.WithID(fmt.Sprint("p", n)))
		}
		from := rapid.IntRange(1, len(records)).Draw(t, "from")
		before := testlog.Must(fold.New("", nil).Apply(records[:from-1]...))(t)
		after, more := rewound(t, v, records, uint64(from))
		if d := before.Diff(after); len(d.StateChanged) > 0 {
			t.Fatalf("rewound to %d, the state is %v, was %v\n%s", from, after.State(), before.State(), fuzz.Text(append(records, more...), nil))
		}
	})
}

func TestRewind(t *testing.T) {
	type log []any // strings that describe events, and patches
	text := event("S", "text:what was said", "role:user")
	for name, c := range map[string]struct {
		log     log
		from    uint64
		want    string
		state   string
		records int
	}{
		"no patch at all": {log{"e1 a=1", "e2 b=2", "e3 a=3"}, 2, "e1", "map[a:1]", 1},
		"to the start":    {log{"e1 a=1", "e2"}, 1, "", "map[]", 1},
		"beyond the end":  {log{"e1 a=1", "e2"}, 3, "e1 e2", "map[a:1]", 0},
		"a later summary of older events stays": {
			log{"e1 a=1", "e2", "e3", patch.NewSummarise(0, 2, text), "e5"}, 3, "S", "map[a:1]", 1},
		"the middle of a summary": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", patch.NewSummarise(0, 3, text), "e5"}, 3, "e1 e2", "map[a:1 b:2]", 2},
		"a summary of later events goes": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", patch.NewSummarise(1, 2, text), "e5"}, 2, "e1", "map[a:1]", 1},
		"a drop-cut across stays": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", "e4", patch.NewSplice(1, 2)}, 3, "e1", "map[a:1]", 1},
		"a truncation across stays": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", "e4", patch.NewTruncateBefore("e4")}, 3, "", "map[]", 1},
		"a keep-cut across is cut again": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", "e4", patch.NewSplice(1, 2).WithState(patch.Keep)}, 3, "e1", "map[a:1 b:2]", 3},
		"a keep-truncation across is cut again": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", "e4", patch.NewTruncateBefore("e4").WithState(patch.Keep)}, 3, "", "map[a:1 b:2]", 3},
		"a mixed replacement that drops is reverted, its older events stay hidden": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", patch.NewSplice(1, 2, event("r", "c=9"))}, 3, "e1", "map[a:1]", 3},
		"a mixed replacement that keeps is reverted, its older events are restored": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", patch.NewSplice(1, 2, event("r", "c=9")).WithState(patch.Keep)}, 3, "e1 e2", "map[a:1 b:2]", 2},
		"an insertion between older events": {
			log{"e1", "e2", "e3", patch.NewSplice(1, 0, event("x", "a=1")), "e5"}, 3, "e1 e2", "map[]", 2},
		"an older insertion stays": {
			log{"e1", patch.NewSplice(0, 0, event("x", "a=1")), "e3"}, 3, "x e1", "map[a:1]", 1},
		"the state that a newer cut carries is dropped": {
			log{"e1 a=1", "e2 a=2", "e3 b=3", patch.NewSplice(1, 2).WithState(patch.Keep), "e5"}, 2, "e1", "map[a:1]", 2},
		"a revert of an older patch stays": {
			log{"e1 a=1", "e2", patch.NewSummarise(0, 2, text), "e4", patch.NewRevert("p3")}, 4, "e1 e2", "map[a:1]", 1},
		"a reverted patch is not put in force": {
			log{"e1 a=1", "e2", "e3", patch.NewSplice(0, 2), patch.NewRevert("p4")}, 2, "e1", "map[a:1]", 1},
		"nested summaries across": {
			log{"e1 a=1", "e2", "e3 b=3", patch.NewSummarise(1, 2, text), patch.NewSummarise(0, 2, event("T", "text:more"))}, 3, "e1 e2", "map[a:1]", 3},
		"a summary within a keep-cut across stays hidden": {
			log{"e1", "e2 a=1", "e3 b=3", patch.NewSummarise(1, 2, text), patch.NewSplice(1, 1).WithState(patch.Keep)}, 3, "e1", "map[a:1]", 4},
		"a drop-cut in the way": {
			log{"e1 a=1", "e2 b=2", "e3 a=3", patch.NewSplice(1, 2, event("r"), event("s")), patch.NewSplice(0, 2)}, 3, "", "map[]", 4},
		"a drop-cut in the way, within a keep-cut": {
			log{"e1 a=1", "e2 b=2", "e3 c=3", "e4", "e5", patch.NewSplice(2, 3, event("r"), event("s")), patch.NewSplice(1, 2), patch.NewSplice(0, 2).WithState(patch.Keep)},
			5, "", "map[a:1]", 6},
		"the state of a keep-cut is dropped again, after the rest": {
			log{"e1 a=1", "e2 b=2", "e3 c=3", patch.NewSplice(1, 1).WithState(patch.Keep), patch.NewSplice(0, 2, event("r"))}, 3, "", "map[]", 4},
		"the state of a keep-cut is dropped again, before the rest": {
			log{"e1 a=1", "e2 b=2", "e3 c=3", patch.NewSplice(0, 0, event("x")), patch.NewSplice(1, 1).WithState(patch.Keep), patch.NewSplice(0, 2, event("r"))},
			3, "", "map[]", 5},
		"the state of a keep-cut is dropped again, among the rest": {
			log{"e1 a=1", "e2 b=2", "e3 c=3", "e4", patch.NewSplice(1, 1).WithState(patch.Keep), patch.NewSplice(0, 3, event("r"))}, 4, "", "map[]", 3},
		"a summary around a newer event that was dropped stays": {
			log{"e1 a=1", "e2", "e3", patch.NewSplice(1, 0, event("x", "c=3")), patch.NewSplice(1, 1), patch.NewSummarise(0, 2, text)}, 3, "S", "map[a:1]", 1},
		"a summary around a newer event whose state was kept is reverted": {
			log{"e1 a=1", "e2", "e3", patch.NewSplice(1, 0, event("x", "c=3")), patch.NewSplice(1, 1).WithState(patch.Keep), patch.NewSummarise(0, 2, text)},
			3, "e1 e2", "map[a:1]", 4},
		"a summary of an older summary stays": {
			log{"e1 a=1", patch.NewSummarise(0, 1, text), "e3", patch.NewSummarise(0, 1, event("T", "text:more"))}, 3, "T", "map[a:1]", 1},
		"cuts of a group are each for itself": {
			log{"e1 a=1", "e2 b=2", "e3", patch.NewSplice(2, 1).WithGroup("g"), patch.NewSplice(0, 1).WithGroup("g")}, 3, "e2", "map[b:2]", 0},
		"summaries of a group are one": {
			log{"e1 a=1", "e2", "e3", patch.NewSummarise(2, 1, event("T", "text:more")).WithGroup("g"), patch.NewSummarise(0, 1, text).WithGroup("g")},
			3, "e1 e2", "map[a:1]", 3},
		"events that a group added and removed do not count": {
			log{"e1 a=1", "e2", patch.NewSplice(0, 0, event("x")).WithGroup("g"), patch.NewSummarise(0, 2, text).WithGroup("g")}, 2, "S", "map[a:1]", 1},
		"a replacement across, in a group by itself": {
			log{"e1", "e2", "e3", patch.NewSplice(1, 2, event("r")).WithGroup("g")}, 3, "e1", "map[]", 3},
		"a replacement of events that a group added": {
			log{"e1", "e2", patch.NewSummarise(0, 1, text).WithGroup("g"), patch.NewSplice(0, 2, event("r")), "e5", patch.NewSummarise(1, 1, event("T", "text:more")).WithGroup("g")},
			5, "e1", "map[]", 5},
		"a cut of all events that a group put in": {
			log{"e1", "e2", "e3", "e4", patch.NewSummarise(1, 1, text).WithGroup("g"), patch.NewSplice(3, 1).WithGroup("g"), patch.NewSplice(1, 1)},
			4, "e1 e3", "map[]", 5},
	} {
		t.Run(name, func(t *testing.T) {
			v := fold.New("", nil)
			ref := fuzz.NewReference(nil)
			for i, r := range c.log {
				rec := patch.Record{Seq: uint64(i + 1)}
				switch r := r.(type) {
				case string:
					rec.Event = event(strings.Fields(r)...)
					v = extend(t, v, r)
				case *patch.PatchEvent:
					rec.Patch = r.WithID(fmt.Sprint("p", i+1))
					v = apply(t, v, rec.Patch)
				}
				ref.Apply(rec)
			}
			if visible, _, _ := ref.Rewind(c.from); len(visible) != len(strings.Fields(c.want)) {
				t.Errorf("the model shows %v", visible)
			}
			after, records := rewound(t, v, logs[t], c.from)
			if got := ids(after); got != c.want {
				t.Errorf("visible are %q, want %q", got, c.want)
			}
			if got := fmt.Sprint(after.State()); got != c.state {
				t.Errorf("the state is %s, want %s", got, c.state)
			}
			if len(records) != c.records {
				t.Errorf("%d patches, want %d: %v", len(records), c.records, records)
			}
		})
	}
}

// If a patch's id occurs twice in the log, a rewind that must revert the patch fails.
func TestRewindOfRepeatedIDs(t *testing.T) {
	v := view(t, "e1", "e2", "e3")
	v = apply(t, v, patch.NewSplice(0, 1).WithID("p"))
	v = apply(t, v, patch.NewSummarise(0, 2, event("S", "text:a")).WithID("p"))
	if _, err := v.Rewind(3); err == nil || !strings.Contains(err.Error(), `"p"`) {
		t.Errorf("rewound: %v", err)
	}
}

// If all later patches kept the state, a rewind restores the earlier state. If all later patches were summaries
// and the rewind reverts them, it restores the visible log. Reverting the patches of the rewind, newest first,
// restores the view before the rewind.
func TestPropertyRewindLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &growing{t: t, view: fold.New("c", nil)}
		for range rapid.IntRange(2, 7).Draw(t, "before") {
			s.step(false, false)
		}
		before := s.view
		s.append()
		from := s.view.Seq()
		s.patches = nil // prevents reverts of earlier patches, which might not keep the state
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
		left := false // whether a newer summary of older events is still visible
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

// growing is a session that grows by random records.
type growing struct {
	t       *rapid.T
	view    fold.View
	events  int
	patches []string
	records []patch.Record
	log     strings.Builder
}

// put applies a record and reports whether the record had an effect.
func (s *growing) put(r patch.Record) bool {
	r.Seq = s.view.Seq() + 1
	next, err := s.view.WithRecords(s.records).Apply(r)
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

// step appends an event or a patch. If keeps is true, the patch keeps the state and adds no state. If
// onlySummaries is true, the patch is a summary. Otherwise it is of any kind.
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
