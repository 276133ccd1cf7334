package fold_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// For every log, the fold gives the result of the reference model.
func TestPropertyFoldMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
		err := fuzz.Check(records, initialState, func(initial map[string]patch.Value, records []patch.Record) (fuzz.View, error) {
			return fold.New("", initial).Apply(records...)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

var initialState = map[string]patch.Value{
	"k": value(`{"from":"the start"}`), "tenant": value(`"t1"`), "app:x": value("1"), "temp:y": value("2"),
}

func value(text string) patch.Value {
	v, err := patch.ParseValue([]byte(text))
	if err != nil {
		panic(err)
	}
	return v
}

// Applying records one by one, in pieces, or all at once gives the same view. Reading the state of a view does not
// change later results, and older views stay the same.
func TestPropertyIncrementalMatchesRefold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 60}).Draw(t, "records")
		ref := fuzz.NewReference(initialState)
		v := fold.New("", initialState)
		k := &keeper{t: t, log: records, initial: initialState}
		var kept []fold.View
		for i := 0; i < len(records); {
			var err error
			n := 1
			if rapid.Bool().Draw(t, "piece") {
				n = rapid.IntRange(1, len(records)-i).Draw(t, "length")
				v = k.fold(v, records[i:i+n])
			} else {
				v, err = k.apply(v, records[i])
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records[i : i+n] {
				ref.Apply(r)
			}
			i += n
			if rapid.Bool().Draw(t, "read") {
				if err := fuzz.Compare(v, ref); err != nil {
					t.Fatalf("%v\n%s", err, fuzz.Text(records[:i], initialState))
				}
			}
			kept = append(kept, v)
		}
		for _, v := range kept {
			again := fuzz.NewReference(initialState, records[:v.Seq()]...)
			if err := fuzz.Compare(v, again); err != nil {
				t.Fatalf("the view at seq %d: %v\n%s", v.Seq(), err, fuzz.Text(records, initialState))
			}
		}
	})
}

// Check refuses the same patches as the reference model, with the same reason and the same suggestion. An
// accepted patch can be applied, and the result equals its preview.
func TestPropertyCheckMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 25}).Draw(t, "records")
		v := testlog.Must(fold.New("", nil).Apply(records...))(t)
		ref := fuzz.NewReference(nil, records...)
		for range 4 {
			p := fuzz.PatchOn("the patch", ref).Draw(t, "patch")
			if hasGroup(records, p.Group()) { // the caller of Check must refuse a repeated group
				p = p.WithGroup("")
			}
			if rapid.Bool().Draw(t, "with base") {
				p = p.WithBase(rapid.Uint64Range(v.PatchSeq(), v.Seq()+1).Draw(t, "base"))
			}
			opts := fold.CheckOptions{AllowOrphans: rapid.Bool().Draw(t, "allow orphans"), AllowPinned: rapid.Bool().Draw(t, "allow pinned")}
			allowed := fuzz.CheckOptions{AllowOrphans: opts.AllowOrphans, AllowPinned: opts.AllowPinned}
			got := v.WithRecords(records).Check(p, opts)
			want := ref.Check(allowed, p)
			if kindOf(got) != kindOf(want) {
				t.Fatalf("patch %v: got %v, want %v\n%s", p, got, want, fuzz.Text(records, nil))
			}
			compareBlocking(t, p, got, want, records)
			compareSuggestion(t, v, ref, p, allowed, got, records)
			comparePreview(t, v, ref, p, opts, got, records)
		}
	})
}

// Preview refuses the same groups as the reference model, with the same reason. For an accepted group, it
// returns the same view as logging the group. This also holds if the view contains no hidden events and needs
// records several times.
func TestPropertyPreviewMatchesReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 25}).Draw(t, "records")
		k := &keeper{t: t, log: records}
		v := k.fold(fold.New("", nil), records)
		ref := fuzz.NewReference(nil, records...)
		for range 4 {
			group := fuzz.Group("the group", ref).Draw(t, "group")
			opts := fold.CheckOptions{AllowOrphans: rapid.Bool().Draw(t, "allow orphans"), AllowPinned: rapid.Bool().Draw(t, "allow pinned")}
			if len(group) == 1 || rapid.Bool().Draw(t, "one by one") {
				for i, p := range group {
					group[i] = p.WithGroup("")
				}
			}
			want := ref.Check(fuzz.CheckOptions{AllowOrphans: opts.AllowOrphans, AllowPinned: opts.AllowPinned}, group...)
			var after fold.View
			got := k.retry(v, func(v fold.View) (err error) {
				after, err = v.Preview(group, opts)
				return err
			})
			if kindOf(got) != kindOf(want) {
				t.Fatalf("patches %v: got %v, want %v\n%s", group, got, want, fuzz.Text(records, nil))
			}
			if got != nil {
				continue
			}
			next := fuzz.NewReference(nil, records...)
			for i, p := range group {
				next.Apply(patch.Record{Seq: v.Seq() + uint64(i) + 1, Patch: p})
			}
			if err := fuzz.Compare(after, next); err != nil {
				t.Fatalf("after %v: %v\n%s", group, err, fuzz.Text(records, nil))
			}
		}
	})
}

func hasGroup(records []patch.Record, group string) bool {
	return slices.ContainsFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Group() == group })
}

func compareBlocking(t *rapid.T, p *patch.PatchEvent, got, want error, records []patch.Record) {
	var blocked *fold.BlockedError
	var refusal *fuzz.Refusal
	if errors.As(got, &blocked) && errors.As(want, &refusal) && (blocked.BlockingSeq != refusal.Blocking || blocked.AlreadyReverted != refusal.AlreadyReverted || blocked.PatchID != p.PatchID()) {
		t.Fatalf("patch %v: got %v, want it blocked by the patch at seq %d, already reverted: %v\n%s", p, got, refusal.Blocking, refusal.AlreadyReverted, fuzz.Text(records, nil))
	}
}

func compareSuggestion(t *rapid.T, v fold.View, ref *fuzz.Reference, p *patch.PatchEvent, allowed fuzz.CheckOptions, err error, records []patch.Record) {
	var orphans *fold.OrphanError
	if !errors.As(err, &orphans) {
		return
	}
	if p.Type() == patch.Revert {
		if orphans.Suggested {
			t.Fatalf("patch %v: suggests %d+%d, but a revert is what it is", p, orphans.Start, orphans.Count)
		}
		return
	}
	start, count, ok := ref.Suggest(p, allowed)
	if p.Type() == patch.TruncateBefore {
		if ok != orphans.Suggested || ok && ref.Visible()[count].ID() != orphans.EventID {
			t.Fatalf("patch %v: suggests %v %q, want %v, event %d\n%s", p, orphans.Suggested, orphans.EventID, ok, count, fuzz.Text(records, nil))
		}
		return
	}
	if ok != orphans.Suggested || start != orphans.Start || count != orphans.Count {
		t.Fatalf("patch %v: suggests %v %d+%d, want %v %d+%d\n%s", p, orphans.Suggested, orphans.Start, orphans.Count,
			ok, start, count, fuzz.Text(records, nil))
	}
	if v.Len() < start+count {
		t.Fatalf("suggestion %d+%d is out of range", start, count)
	}
}

func comparePreview(t *rapid.T, v fold.View, ref *fuzz.Reference, p *patch.PatchEvent, opts fold.CheckOptions, refused error, records []patch.Record) {
	next, err := v.WithRecords(records).Preview([]*patch.PatchEvent{p}, opts)
	if (err == nil) != (refused == nil) {
		t.Fatalf("preview: %v, check: %v", err, refused)
	}
	if err != nil {
		return
	}
	after := fuzz.NewReference(nil, append(records[:len(records):len(records)], patch.Record{Seq: v.Seq() + 1, Patch: p})...)
	if err := fuzz.Compare(next, after); err != nil {
		t.Fatalf("preview of %v: %v\n%s", p, err, fuzz.Text(records, nil))
	}
	if next.SkippedCount() != v.SkippedCount() {
		t.Fatalf("%v was accepted, and skipped", p)
	}
	pre := v.Diff(next)
	if changed := changedKeys(ref.State(), after.State()); !slices.Equal(changed, pre.StateChanged) {
		t.Fatalf("%v: the preview reports that %q change, but %q do\n%s", p, pre.StateChanged, changed, fuzz.Text(records, nil))
	}
	before, now := ref.Visible(), after.Visible()
	if len(before)-len(pre.Removed)+len(pre.Added) != len(now) {
		t.Fatalf("preview removes %d and adds %d, but %d visible events become %d", len(pre.Removed), len(pre.Added), len(before), len(now))
	}
	for i, e := range pre.Removed {
		if before[pre.FirstChanged+i] != e.Event || e.Index != pre.FirstChanged+i {
			t.Fatalf("the preview reports that %v is removed, but visible event %d is %v", e, pre.FirstChanged+i, before[pre.FirstChanged+i])
		}
	}
	for i, e := range pre.Added {
		if now[pre.FirstChanged+i] != e.Event || e.Index != pre.FirstChanged+i {
			t.Fatalf("the preview reports that %v is added, but visible event %d is %v", e, pre.FirstChanged+i, now[pre.FirstChanged+i])
		}
	}
}

func changedKeys(before, after map[string]patch.Value) []string {
	var changed []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		old, was := before[key]
		now, is := after[key]
		if was != is || !old.Equal(now) {
			changed = append(changed, key)
		}
	}
	return changed
}

// kindOf returns the reference model's name for an error.
func kindOf(err error) string {
	var refusal *fuzz.Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return refusal.Kind
	case errors.Is(err, fold.ErrUnknownPatch):
		return "unknown patch in log"
	case errors.Is(err, fold.ErrConflict):
		return "conflict"
	case errors.Is(err, patch.ErrInvalid):
		return "invalid"
	case errors.Is(err, fold.ErrOutOfRange):
		return "out of range"
	case errors.Is(err, fold.ErrEventNotFound):
		return "event not found"
	case errors.Is(err, fold.ErrBlocked):
		return "revert blocked"
	case errors.Is(err, fold.ErrPinned):
		return "pinned"
	case errors.Is(err, fold.ErrOrphanedCall):
		return "orphaned call"
	}
	return err.Error()
}
