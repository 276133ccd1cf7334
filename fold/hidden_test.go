package fold_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestPropertyHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 40}).Draw(t, "records")
		v := fold.New("", nil)
		ref := fuzz.NewReference(nil)
		for _, r := range records {
			ref.Apply(r)
		}
		want := map[fold.Ref]uint64{}
		for at, seq := range ref.Hidden() {
			want[fold.Ref(at)] = seq
		}
		got, err := (&keeper{t: t, log: records}).fold(v, records).Hidden()
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("hidden is %v, %v, want %v\n%s", got, err, want, fuzz.Text(records, nil))
		}
	})
}

// What a redo hides again is hidden since the redo; the body of a summary that is taken back is hidden too.
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
		if got, err := v.Hidden(); err != nil || fmt.Sprint(got) != want {
			t.Errorf("hidden is %v, %v, want %s", got, err, want)
		}
	}
	s, err := patch.NewEvent(patch.Fields{ID: "s", Content: patch.Text("user", "told")})
	if err != nil {
		t.Fatal(err)
	}
	shows("map[]")
	apply(patch.NewSummarise(0, 1, s).WithID("sum"))
	shows(fmt.Sprintf("map[{1 0}:%d]", n+1))
	apply(patch.NewRevert("sum").WithID("undo"))
	shows(fmt.Sprintf("map[{%d 0}:%d]", n+1, n+2))
	apply(patch.NewRevert("undo").WithID("redo"))
	shows(fmt.Sprintf("map[{1 0}:%d]", n+3))
	apply(patch.NewPin("call"))
	apply(patch.NewSplice(1, 1).WithID("cut"))
	shows(fmt.Sprintf("map[{1 0}:%d]", n+3)) // the pinned one is not among them
	v = k.restore(v)
	shows(fmt.Sprintf("map[{1 0}:%d]", n+3))
}
