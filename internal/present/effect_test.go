package present_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestEffects(t *testing.T) {
	records, views := viewsOf(t,
		said("e1", "user", "one"), said("e2", "agent", "two"), said("e3", "user", "three"), said("e4", "agent", "four"),
		`{"id":"p1","patchType":"splice","start":1,"count":2,"replacement":[{"id":"r\u001b","author":"agent"}],"state":"keep","base":0,"group":"g\n"}`,
		`{"id":"p2","patchType":"splice","start":90,"count":2,"group":"g"}`,
		`{"id":"p3","patchType":"truncate_before","eventId":"r\u001b"}`,
		`{"id":"p4","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s1","author":"user","content":{"role":"user","parts":[{"text":"sum"}]}}}`,
		`{"id":"p5","patchType":"pin","eventId":"s1"}`,
		`{"id":"p6","patchType":"unpin","eventId":"s1","base":9}`,
		`{"id":"p7","patchType":"revert","patchId":"p4"}`,
		`{"id":"p8","patchType":"splice","start":1,"count":0,"replacement":[{"id":"r2","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}},{"id":"r3"}]}`,
		`{"id":"p9","patchType":"later"}`,
	)
	type effect struct {
		text  string // expected PatchText
		did   string
		notes []present.Note
	}
	hid := func(text string) present.Note { return present.Note{Kind: present.NoteHidden, Text: text} }
	added := func(text string) present.Note { return present.Note{Kind: present.NoteAdded, Text: text} }
	for i, want := range []effect{
		{did: "applied hid added e1"},
		{did: "applied hid added e2"},
		{did: "applied hid added e3"},
		{did: "applied hid added e4"},
		{"start 1, count 2, state keep, base 0", "applied hid 1:e2,2:e3 added r\u001b",
			[]present.Note{{present.NoteGroup, "group g"}, hid("hid 2 visible events: index 1 to 2"), added(`added at index 1, id r\u001b: (no content)`)}},
		{"start 90, count 2, state drop", "skipped: out of range hid added ",
			[]present.Note{{present.NoteGroup, "group g"}, {present.NoteSkipped, "skipped: out of range"}}},
		{`event r\u001b, state drop`, "applied hid 0:e1 added ",
			[]present.Note{hid("hid 1 visible event: index 0")}},
		{"start 0, count 1, state keep", "applied hid 0:r\u001b added s1",
			[]present.Note{hid("hid 1 visible event: index 0"), added("added at index 0, id s1: summary: sum")}},
		{"event s1", "applied hid added ", []present.Note{hid("hid nothing")}},
		{"event s1, base 9", "applied hid added ", []present.Note{hid("hid nothing")}},
		{"patch p4", "applied hid 0:s1 added r\u001b",
			[]present.Note{hid("hid 1 visible event: index 0"), added(`added at index 0, id r\u001b: (no content)`)}},
		{"start 1, count 0, state drop", "applied hid added r2,r3",
			[]present.Note{hid("hid nothing"), added("added at index 1, id r2: summary: (no content)"), added("added at index 2, id r3: (no content)")}},
		{"state drop", "skipped: unknown type hid added ", []present.Note{{present.NoteSkipped, "skipped: unknown type"}}},
	} {
		r := records[i]
		f := testlog.Must(present.EffectOf(views[i], views[i+1], r))(t)
		testlog.Equal(t, "notes of "+r.ID(), f.Notes(), want.notes)
		state := "applied"
		if !f.Applied {
			state = "skipped: " + string(f.Reason)
		}
		var hid, added []string
		for n, e := range f.Hidden {
			hid = append(hid, fmt.Sprintf("%d:%s", f.Start+n, e.ID()))
		}
		for _, e := range f.Added {
			added = append(added, e.ID())
		}
		testlog.Equal(t, "effect of "+r.ID(), strings.Join(strings.Fields(fmt.Sprintf("%s hid %s added %s", state, strings.Join(hid, ","), strings.Join(added, ","))), " "), strings.TrimSpace(want.did))
		if r.Patch != nil {
			testlog.Equal(t, "text of "+r.ID(), present.PatchText(r.Patch), want.text)
		} else {
			testlog.Equal(t, "index of "+r.ID(), f.Start, i)
		}
	}
}

// A view that was restored from a snapshot still lists the skipped patches.
func TestEffectOnRestoredView(t *testing.T) {
	records, views := viewsOf(t, said("e1", "user", "one"), `{"id":"p1","patchType":"splice","start":9,"count":1}`, `{"id":"p2","patchType":"splice","start":9,"count":1}`)
	form := testlog.Must(views[2].AppendBinary(nil))(t)
	before := testlog.Must(fold.Restore(views[0].WithRecords(records[:1]), form, 3))(t)
	after := testlog.Must(before.Apply(records[2]))(t)
	if f, err := present.EffectOf(before, after, records[2]); err != nil || f.Applied || f.Reason != patch.OutOfRange {
		t.Errorf("got %+v, %v", f, err)
	}
}
