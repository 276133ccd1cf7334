package fuzz

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
)

type modelView struct{ *Reference }

func (v modelView) Len() int              { return len(v.Visible()) }
func (v modelView) At(i int) *patch.Event { return v.Visible()[i] }
func (v modelView) IsPinned(i int) bool   { return v.Reference.Pinned()[i] }

func (v modelView) Values() iter.Seq2[string, patch.Value] {
	return func(yield func(string, patch.Value) bool) {
		for key, value := range v.State() {
			if !yield(key, value) {
				return
			}
		}
	}
}

func (v modelView) Skipped() ([]patch.Skip, error) { return v.Reference.Skipped(), nil }

func foldModel(initial map[string]patch.Value, records []patch.Record) (View, error) {
	return modelView{NewReference(initial, records...)}, nil
}

// Each type of patch has the effect on the visible log that the specification describes.
func TestLawVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewReference(nil)
		for _, rec := range Records(Options{}).Draw(t, "records") {
			v, skipped := r.Visible(), len(r.Skipped())
			r.Apply(rec)
			want := v
			switch p := rec.Patch; {
			case p == nil:
				want = append(v, rec.Event)
			case len(r.Skipped()) > skipped:
			case p.Type() == patch.Revert:
				continue // TestLawRevert tests reverts
			case p.Type() == patch.Pin, p.Type() == patch.Unpin:
			case p.Type() == patch.TruncateBefore:
				want = v[slices.IndexFunc(v, func(e *patch.Event) bool { return e.ID() == p.EventID() }):]
			default:
				want = slices.Concat(v[:p.Start()], p.NewEvents(), v[p.Start()+p.Count():])
			}
			if !slices.Equal(r.Visible(), want) {
				t.Fatalf("after seq %d: %s\n%s", rec.Seq, showVisible(r), Text(r.log, nil))
			}
		}
	})
}

func TestLawKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		initial := InitialState().Draw(t, "initial")
		r := NewReference(initial)
		for _, rec := range Records(Options{}).Draw(t, "records") {
			before := showState(r.State())
			r.Apply(rec)
			if p := rec.Patch; p == nil || p.StatePolicy() != patch.Keep ||
				slices.ContainsFunc(p.NewEvents(), hasDelta) {
				continue
			}
			if after := showState(r.State()); after != before {
				t.Fatalf("%s, then %s after seq %d\n%s", before, after, rec.Seq, Text(r.log, initial))
			}
		}
	})
}

// A summary does not change the effect of later patches on the state. A cut that removes all of the summarised range
// or none of it has the same effect with and without the summary.
func TestLawKeepThenDrop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "events")
		alone, both := NewReference(nil), NewReference(nil)
		apply := func(r *Reference, e *patch.Event, p *patch.PatchEvent) {
			r.Apply(patch.Record{Seq: r.Seq() + 1, Event: e, Patch: p})
		}
		for i := range n {
			key := rapid.SampledFrom([]string{"k", "j"}).Draw(t, "key")
			e := object{"id": fmt.Sprintf("e%d", i), "actions": object{"stateDelta": object{key: i}}}.event()
			apply(alone, e, nil)
			apply(both, e, nil)
		}
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		to := rapid.IntRange(from+1, n).Draw(t, "to")
		apply(both, nil, patch.NewSummarise(from, to-from, object{"id": "S", "content": content("user", textPart("x"))}.event()))
		// after maps an index outside the summarised range to its index after the summary.
		after := func(i int) int {
			if i >= to {
				return i - (to - from) + 1
			}
			return i
		}
		outside := slices.Concat(seqRange(0, from), seqRange(to, n))
		a := rapid.SampledFrom(outside).Draw(t, "a")
		b := rapid.SampledFrom(outside).Draw(t, "b")
		a, b = min(a, b), max(a, b)
		if a < b {
			apply(alone, nil, patch.NewSplice(a, b-a))
			apply(both, nil, patch.NewSplice(after(a), after(b)-after(a)))
		}
		if v := both.Visible(); len(v) > 0 {
			first := rapid.SampledFrom(v).Draw(t, "first")
			same := first.ID()
			if same == "S" {
				same = fmt.Sprintf("e%d", from)
			}
			apply(both, nil, patch.NewTruncateBefore(first.ID()))
			apply(alone, nil, patch.NewTruncateBefore(same))
		}
		if len(alone.Skipped())+len(both.Skipped()) > 0 {
			t.Fatalf("skipped: %s; %s", showSkipped(alone), showSkipped(both))
		}
		if got, want := showState(both.State()), showState(alone.State()); got != want {
			t.Fatalf("%s, want %s\n%s", got, want, Text(both.log, nil))
		}
	})
}

func seqRange(from, to int) []int {
	var all []int
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

func TestLawStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := Records(Options{}).Draw(t, "records")
		initial := InitialState().Draw(t, "initial")
		packed := rapid.Bool().Draw(t, "packed")
		err := Check(records, initial, func(initial map[string]patch.Value, records []patch.Record) (View, error) {
			for i, rec := range records {
				form, err := patch.AppendRecord(nil, rec)
				if err != nil {
					return nil, err
				}
				if packed {
					form = recordform.Compress(form)
				}
				if records[i], err = patch.DecodeRecord(form); err != nil {
					return nil, err
				}
			}
			return foldModel(initial, records)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A span that Suggest returns passes the checks. If a splice or summarise passes the checks, Suggest returns the
// patch's own span.
func TestLawSuggestions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewReference(nil, Records(Options{Max: 16, Accepted: true}).Draw(t, "records")...)
		p := Patch("last", r.Visible()).Draw(t, "patch")
		err := r.Check(CheckOptions{}, p)
		start, count, ok := r.Suggest(p, CheckOptions{})
		if ok && p.Type() == patch.TruncateBefore {
			before := patch.NewTruncateBefore(r.Visible()[count].ID())
			if err := r.Check(CheckOptions{}, before); err != nil {
				t.Fatalf("%v was suggested for %v: %v\n%s", before, p, err, Text(r.log, nil))
			}
		} else if ok {
			wider := patch.NewSplice(start, count, p.NewEvents()...)
			if p.Type() == patch.Summarise {
				wider = patch.NewSummarise(start, count, p.NewEvents()[0])
			}
			if err := r.Check(CheckOptions{}, wider); err != nil {
				t.Fatalf("%v was suggested for %v: %v\n%s", wider, p, err, Text(r.log, nil))
			}
			if own := start == p.Start() && count == p.Count(); err == nil && !own {
				t.Fatalf("%v was suggested for %v, which passes\n%s", wider, p, Text(r.log, nil))
			}
		}
	})
}

// Reverting any patch of a group reverts the whole group, and a redo restores the whole group.
func TestLawRevertOfGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := complexLog(t)
		apply := func(patches []*patch.PatchEvent) (ids []string) {
			for _, p := range patches {
				r.Apply(patch.Record{Seq: r.Seq() + 1, Patch: p})
				ids = append(ids, p.ID())
			}
			return ids
		}
		group := Group("the group", r).Draw(t, "group")
		if r.Check(CheckOptions{AllowOrphans: true, AllowPinned: true}, group...) != nil {
			t.Skip("refused")
		}
		before := describe(r)
		ids := apply(group)
		after := describe(r)
		for i, want := range []string{before, after, before} {
			var reverts []*patch.PatchEvent
			back, blocked, ok := r.RevertAll(rapid.SampledFrom(ids).Draw(t, "member"))
			for j, id := range back {
				reverts = append(reverts, patch.NewRevert(id).WithID(fmt.Sprint("back ", i, j)).WithGroup(fmt.Sprint("back ", i)))
			}
			if group[0].Group() != "group the group" || slices.ContainsFunc(group, func(p *patch.PatchEvent) bool { return p.Group() != group[0].Group() }) {
				t.Skip("of several groups")
			}
			if err := r.Check(CheckOptions{AllowOrphans: true}, reverts...); !ok || err != nil {
				t.Fatalf("blocked by %q, %v\n%s", blocked, err, Text(r.log, r.initial))
			}
			ids = apply(reverts)
			if got := describe(r); got != want {
				t.Fatalf("the group was reverted %d times to %s\nwant %s\n%s", i+1, got, want, Text(r.log, r.initial))
			}
		}
	})
}

// If all active patches are reverted, newest first, all logged events are visible in order, without pins.
func TestLawRevertAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := denseLog(t, denseKinds)
		var raw []*patch.Event
		for _, rec := range r.log {
			if rec.Event != nil {
				raw = append(raw, rec.Event)
			}
		}
		for _, a := range slices.Backward(slices.Clone(r.applied)) {
			if a.target != nil {
				continue
			}
			for r.isActive(a) {
				s, reason, blocking := r.revertStep(a)
				if reason != "" {
					s, reason, _ = r.revertStep(blocking)
				}
				if reason != "" || r.nextSeq() > 1000 {
					t.Fatalf("%q cannot be reverted: %s\n%s", a.id, reason, Text(r.log, nil))
				}
				r.commit(s, applied{seq: r.nextSeq()})
			}
		}
		if !slices.Equal(r.Visible(), raw) || slices.Contains(r.Pinned(), true) {
			t.Fatalf("%s\n%s", describe(r), Text(r.log, nil))
		}
	})
}

func TestLawPinned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewReference(nil)
		for _, rec := range Records(Options{}).Draw(t, "records") {
			before := r.visible()
			var pinned []*node
			for i, is := range r.Pinned() {
				if is {
					pinned = append(pinned, before[i])
				}
			}
			allowed := rec.Patch == nil || r.Check(CheckOptions{AllowOrphans: true}, rec.Patch) == nil
			r.Apply(rec)
			for _, n := range pinned {
				hidden := !slices.Contains(r.visible(), n)
				if hidden && allowed && rec.Patch.Type() != patch.Revert {
					t.Fatalf("seq %d hides %s\n%s", rec.Seq, n.event.ID(), Text(r.log, nil))
				}
				turned := rec.Patch != nil && (rec.Patch.Type() == patch.Unpin || rec.Patch.Type() == patch.Revert)
				if !turned && !r.isPinned(n) {
					t.Fatalf("seq %d unpins %s\n%s", rec.Seq, n.event.ID(), Text(r.log, nil))
				}
			}
		}
	})
}
