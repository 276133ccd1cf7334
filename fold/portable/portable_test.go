package portable_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// viewOf returns a view of events with single-letter ids.
func viewOf(t *testing.T, ids string) fold.View {
	t.Helper()
	var records []patch.Record
	for i, id := range strings.Split(ids, "") {
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: id, Author: "user", Content: patch.Text("user", id), ZeroTime: true}))(t)
		records = append(records, patch.Record{Seq: uint64(i) + 1, Event: e})
	}
	v := testlog.Must(fold.New("", nil).Apply(records...))(t)
	return v.WithRecords(records)
}

func shown(v fold.View) (ids string) {
	for _, e := range v.Events() {
		ids += e.ID()
	}
	return ids
}

// If the removed events are adjacent in another view, patches apply to that view too. Either all patches of a list
// apply or none.
func TestPatchesOn(t *testing.T) {
	put := viewOf(t, "N").At(0)
	for _, c := range []struct {
		made    string
		patches []*patch.PatchEvent
		on      string
		want    string // "" if the patches do not apply
	}{
		{"abcd", []*patch.PatchEvent{patch.NewSplice(1, 2, put)}, "xcbay", "xNay"},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(1, 2, put)}, "abxcd", ""},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(2, 0, put)}, "dba", "dbNa"},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(0, 0, put)}, "dba", "Ndba"},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(2, 0, put)}, "da", ""},
		{"abcd", []*patch.PatchEvent{patch.NewTruncateBefore("c")}, "bacd", "cd"},
		{"abcd", []*patch.PatchEvent{patch.NewTruncateBefore("c")}, "axbcd", ""},
		{"abcd", []*patch.PatchEvent{patch.NewTruncateBefore("a")}, "xabcd", ""},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(0, 1), patch.NewSplice(0, 1)}, "xab", "x"},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(0, 1), patch.NewSplice(0, 1)}, "a", ""},
		{"abcd", []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p"), patch.NewRevert("p")}, "ab", "ab"},
		{"abcd", []*patch.PatchEvent{patch.NewPin("b")}, "ab", "ab"},
		{"abcd", []*patch.PatchEvent{patch.NewPin("b")}, "ac", ""},
	} {
		t.Run(fmt.Sprint(c.made, c.patches, c.on), func(t *testing.T) {
			for i, p := range c.patches {
				if p.ID() == "" {
					c.patches[i] = p.WithID(fmt.Sprint("p", i))
				}
			}
			made := testlog.Must(portable.New(viewOf(t, c.made), c.patches...))(t)
			text := testlog.Must(made.Text())(t)
			read := portable.Parse("e", text)
			if fmt.Sprint(read.IDs()) != fmt.Sprint(made.IDs()) {
				t.Errorf("ids %q, want %q", read.IDs(), made.IDs())
			}
			v := viewOf(t, c.on)
			patches, ok := read.Resolve(v)
			if ok != (c.want != "") {
				t.Fatalf("they apply: %v", ok)
			}
			var records []patch.Record
			for i, p := range patches {
				records = append(records, patch.Record{Seq: v.Seq() + uint64(i) + 1, Patch: p})
			}
			v = testlog.Must(v.Apply(records...))(t)
			if !ok {
				c.want = c.on
			}
			if got := shown(v); got != c.want {
				t.Errorf("shown %q, want %q", got, c.want)
			}
			if skipped := v.SkippedCount(); ok && skipped > 0 || !ok && skipped != len(c.patches) {
				t.Errorf("%d are skipped", skipped)
			}
		})
	}
}

// Unreadable text becomes one patch of unknown type. If a visible id occurs twice, New refuses the patch as
// ambiguous.
func TestRefusals(t *testing.T) {
	for _, text := range []string{"?", `{"version":9}`, `{"version":1,"patches":[{"patch":7}]}`, `{"version":1,"patches":[{"patch":{"id":"p","patchType":"fancy"}}]}`} {
		v := viewOf(t, "ab")
		patches, ok := portable.Parse("e", text).Resolve(v)
		if ok || len(patches) != 1 {
			t.Fatalf("%s: %v, %v", text, patches, ok)
		}
		v = testlog.Must(v.Apply(patch.Record{Seq: 3, Patch: patches[0]}))(t)
		if skipped, err := v.Skipped(); err != nil || len(skipped) != 1 || skipped[0].Reason != patch.UnknownType {
			t.Errorf("%s: %v, %v", text, skipped, err)
		}
	}
	for _, text := range []string{
		`{"version":1,"patches":[{"patch":{"id":"p","patchType":"splice","start":0,"count":1}}]}`,
		`{"version":1,"patches":[{"patch":{"id":"p","patchType":"truncate_before","eventId":"b"}}]}`,
		`{"version":1,"patches":[{"patch":{"id":"p","patchType":"splice","start":0,"count":2},"place":{"events":["a"]}}]}`,
		`{"version":1,"patches":[{"patch":{"id":"p","patchType":"splice","start":0,"count":2},"place":{"events":["a","a"]}}]}`,
	} {
		if patches, ok := portable.Parse("e", text).Resolve(viewOf(t, "ab")); ok {
			t.Errorf("%s applies as %v", text, patches)
		}
	}
	if _, err := portable.New(viewOf(t, "aab"), patch.NewSplice(1, 1)); err == nil {
		t.Error("a place of an id that is there twice was named")
	}
}
