package fold_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

type brought struct {
	seq   uint64
	index int
}

// The place of a visible event contains its index. The place of a hidden event names an active patch that
// removed the event. The represented events are the visible events and the events in the history.
func TestPropertyPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 40}).Draw(t, "records")
		k := &keeper{t: t, log: records}
		v := fold.New("", nil)
		shown := make([]map[brought]int, len(records)+1) // for each seq: the indices of the events that were visible then
		now := fold.New("", nil)
		for i := range shown {
			if i > 0 {
				now = k.fold(now, records[i-1:i])
			}
			shown[i] = map[brought]int{}
			for at, e := range now.Entries() {
				for n, of := range records[e.Seq-1].Events() {
					if of == e.Event {
						shown[i][brought{e.Seq, n}] = at
					}
				}
			}
		}
		v = k.fold(v, records)
		if rapid.Bool().Draw(t, "restored") {
			v = k.restore(v)
		}
		places := testlog.Must(v.Places())(t)
		history := k.history(v)
		for _, r := range records {
			for index, e := range r.Events() {
				id := brought{r.Seq, index}
				at, visible := shown[len(records)][id]
				place, ok := places.Of(r.Seq, index)
				ever := slices.ContainsFunc(shown, func(at map[brought]int) bool { _, is := at[id]; return is })
				switch {
				case ok != ever, (place.Index >= 0) != visible, visible && place.Index != at:
					t.Fatalf("%v: %+v, %v; visible %v at %d\n%s", id, place, ok, visible, at, fuzz.Text(records, nil))
				case ok && !visible:
					_, before := shown[place.HiddenBySeq-1][id]
					_, after := shown[place.HiddenBySeq][id]
					by := records[place.HiddenBySeq-1]
					if !before || after || by.ID() != place.HiddenBy {
						t.Fatalf("%v is not hidden by patch %d\n%s", id, place.HiddenBySeq, fuzz.Text(records, nil))
					}
					if by.Patch.Group() != "" || slices.ContainsFunc(records[:place.HiddenBySeq-1], func(r patch.Record) bool { return r.ID() == by.ID() }) {
						break // the event's id is not unique
					}
					standing, err := now.RevertTargets(place.HiddenBy)
					if err != nil && !errors.Is(err, patch.ErrInvalid) || err == nil && !slices.Contains(standing, place.HiddenBy) {
						t.Fatalf("%v is hidden by %q, which is not active: %v, %v\n%s", id, place.HiddenBy, standing, err, fuzz.Text(records, nil))
					}
				}
				stands := e.IsSummary() || r.Patch != nil && r.Patch.Type() == patch.Summarise // a stand-in, which is not in the history itself
				if got, want := places.IsRepresented(r.Seq, index, e.Branch(), e.IsolationScope()), visible || slices.Contains(history, e); got != want && !(got && stands) {
					t.Fatalf("%v is represented: %v, want %v\n%s", id, got, want, fuzz.Text(records, nil))
				}
			}
		}
		if _, ok := places.Of(uint64(len(records)+1), 0); ok {
			t.Fatal("an event that is not there has a place")
		}
	})
}

func TestPlaces(t *testing.T) {
	raw := []string{"e0", "e1", "e2", "e3", "e4", "e5"}
	summarise := func(start, count int, id string) *patch.PatchEvent {
		return patch.NewSummarise(start, count, event(id, "text:s")).WithID("p" + id)
	}
	for _, c := range []struct {
		name    string
		patches []*patch.PatchEvent
		want    string // for e1: its index, the patch that hides it, and whether it is represented
	}{
		{"in sight", nil, `1 "" true`},
		{"behind a summary", []*patch.PatchEvent{summarise(0, 2, "s")}, `-1 "ps" true`},
		{"behind a summary of summaries", []*patch.PatchEvent{summarise(0, 2, "s"), summarise(0, 2, "t")}, `-1 "ps" true`},
		{"cut", []*patch.PatchEvent{patch.NewSplice(1, 1).WithID("cut")}, `-1 "cut" false`},
		{"behind a summary that was cut", []*patch.PatchEvent{summarise(0, 2, "s"), patch.NewSplice(0, 1).WithID("cut")}, `-1 "ps" false`},
		{"back again", []*patch.PatchEvent{patch.NewSplice(1, 1).WithID("cut"), patch.NewRevert("cut").WithID("back")}, `1 "" true`},
		{"and gone again", []*patch.PatchEvent{patch.NewSplice(1, 1).WithID("cut"), patch.NewRevert("cut").WithID("back"), patch.NewRevert("back").WithID("redo")}, `-1 "cut" false`},
		{"patches of a group that hide each other's", []*patch.PatchEvent{
			patch.NewSummarise(2, 1, event("s", "text:s")).WithID("s1").WithGroup("g"),
			patch.NewSplice(0, 3).WithID("cut").WithState(patch.Keep).WithGroup("g"),
		}, `-1 "cut" false`},
	} {
		k := &keeper{t: t, log: logWith(raw, c.patches)}
		v := k.fold(fold.New("", nil), k.log)
		places := testlog.Must(v.Places())(t)
		place, _ := places.Of(2, 0)
		if got := fmt.Sprintf("%d %q %v", place.Index, place.HiddenBy, places.IsRepresented(2, 0, "", "")); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func logWith(raw []string, patches []*patch.PatchEvent) (records []patch.Record) {
	for i, e := range events(raw...) {
		records = append(records, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	for _, p := range patches {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
	}
	return records
}

func TestPropertyHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 40}).Draw(t, "records")
		v := fold.New("", nil)
		ref := fuzz.NewReference(nil, records...)
		want := map[fold.Ref]uint64{}
		for at, seq := range ref.Hidden() {
			want[fold.Ref(at)] = seq
		}
		got, err := (&keeper{t: t, log: records}).fold(v, records).HiddenSince()
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("hidden is %v, %v, want %v\n%s", got, err, want, fuzz.Text(records, nil))
		}
	})
}

// If a redo hides an event again, HiddenSince returns the seq of the redo. If a summary is reverted,
// HiddenSince also returns the summary event.
func TestHidden(t *testing.T) {
	k := &keeper{t: t}
	for i, e := range events("question", "call call:c1", "answer") {
		k.log = append(k.log, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	n := uint64(len(k.log))
	v := k.fold(fold.New("", nil), k.log)
	apply := func(p *patch.PatchEvent) {
		t.Helper()
		k.log = append(k.log, patch.Record{Seq: v.Seq() + 1, Patch: p})
		v = k.fold(v, k.log[v.Seq():])
	}
	shows := func(want string) {
		t.Helper()
		if got, err := v.HiddenSince(); err != nil || fmt.Sprint(got) != want {
			t.Errorf("hidden is %v, %v, want %s", got, err, want)
		}
	}
	s := testlog.Must(patch.NewEvent(patch.Fields{ID: "s", Content: patch.Text("user", "told")}))(t)
	shows("map[]")
	apply(patch.NewSummarise(0, 1, s).WithID("sum"))
	shows(fmt.Sprintf("map[{1 0}:%d]", n+1))
	apply(patch.NewRevert("sum").WithID("undo"))
	shows(fmt.Sprintf("map[{%d 0}:%d]", n+1, n+2))
	apply(patch.NewRevert("undo").WithID("redo"))
	shows(fmt.Sprintf("map[{1 0}:%d]", n+3))
	apply(patch.NewPin("call"))
	apply(patch.NewSplice(1, 1).WithID("cut"))
	shows(fmt.Sprintf("map[{1 0}:%d]", n+3)) // the pinned event "call" is left out
	v = k.restore(v)
	shows(fmt.Sprintf("map[{1 0}:%d]", n+3))
}
