package fold_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// indexed returns the index entries of a log that contains the records.
func indexed(records ...patch.Record) fold.Logged {
	log := fold.Logged{Records: map[string]patch.Record{}, Groups: map[string]bool{}}
	for _, r := range records {
		for id := range r.IDs() {
			log.Records[id] = r
		}
		if r.Patch != nil && r.Patch.Group() != "" {
			log.Groups[r.Patch.Group()] = true
		}
	}
	return log
}

func draftOn(t *testing.T, events int) (fold.Draft, []patch.Record) {
	d := fold.Draft{View: fold.New("creation", nil)}
	for i := range events {
		r := patch.Record{Event: testlog.Text(fmt.Sprint("e", i), "", "user", "text")}
		testlog.NoError(t, d.Append(&r))
	}
	log := d.Added
	d.Added = nil
	return d, log
}

func patches(all ...*patch.PatchEvent) (records []patch.Record) {
	for _, p := range all {
		records = append(records, patch.Complete(patch.Record{Patch: p}, func() string { return "new" }, time.Unix(1, 0)))
	}
	return records
}

func visible(v fold.View) (ids string) {
	for _, e := range v.Events() {
		ids += e.ID() + " "
	}
	return ids
}

func TestMatch(t *testing.T) {
	_, log := draftOn(t, 3)
	same, other := testlog.Text("e1", "", "user", "text"), testlog.Text("e1", "", "user", "other")
	fresh := testlog.Text("x", "", "user", "text")
	call := []patch.Record{{Event: fresh}, {Event: same}}
	matched, missing, err := fold.Match(indexed(log...), call, call)
	testlog.NoError(t, err)
	if len(missing) != 1 || missing[0] != 0 || matched[1].Seq != 2 || call[1].Seq != 0 {
		t.Errorf("matched %v, missing %v", matched, missing)
	}
	inside := patches(patch.NewSplice(0, 1, same).WithID("p")) // a new patch that adds an event with a logged id
	for _, call := range [][]patch.Record{{{Event: other}}, inside} {
		_, _, err = fold.Match(indexed(log...), call, call)
		var dup *fold.DuplicateIDError
		if !errors.As(err, &dup) || dup.ID != "e1" || dup.Seq != 2 || !errors.Is(err, fold.ErrDuplicateID) {
			t.Errorf("an id that is used otherwise: %v", err)
		}
	}
	if err := fold.CheckUnique([]patch.Record{{Event: fresh}, {Event: fresh}}); !errors.Is(err, fold.ErrDuplicateID) {
		t.Errorf("an id twice in a call: %v", err)
	}
	testlog.NoError(t, fold.CheckUnique(call))
}

// AddPatches checks the patches of a call group by group. Each group is checked on the view after the preceding
// groups. Each patch gets a base.
func TestDraftAddPatches(t *testing.T) {
	d, log := draftOn(t, 6)
	opts := fold.PatchOptions{On: d.View}
	call := patches(patch.NewSplice(0, 1).WithID("a"), patch.NewSplice(0, 1).WithID("b").WithGroup("g"), patch.NewSplice(0, 1).WithID("c").WithGroup("g"))
	matched, missing, err := fold.Match(indexed(log...), call, call)
	testlog.NoError(t, err)
	testlog.NoError(t, d.AddPatches(indexed(log...), opts, matched, missing))
	testlog.Equal(t, "visible", visible(d.View), "e3 e4 e5 ")
	var bases []uint64
	for i, r := range matched {
		base, _ := r.Patch.Base()
		bases = append(bases, base)
		if r.Seq != uint64(7+i) || d.Added[i].Seq != r.Seq {
			t.Errorf("patch %d has seq %d", i, r.Seq)
		}
	}
	testlog.Equal(t, "bases", fmt.Sprint(bases), "[0 7 8]")

	// If a call is repeated after its first patch was logged, AddPatches adds its other patches as in the first
	// attempt.
	again := fold.Draft{View: opts.On}
	first := matched[0]
	testlog.NoError(t, again.Append(&first))
	matched, missing, err = fold.Match(indexed(append(log, first)...), matched, matched)
	testlog.NoError(t, err)
	testlog.NoError(t, again.AddPatches(indexed(log...), opts, matched, missing))
	testlog.Equal(t, "visible after a retry", visible(again.View), "e3 e4 e5 ")
}

func TestDraftAddPatchesRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		opts func(v fold.View) fold.PatchOptions
		call []*patch.PatchEvent
		want error
	}{
		"no base":    {nil, []*patch.PatchEvent{patch.NewSplice(0, 1)}, patch.ErrInvalid},
		"held group": {nil, []*patch.PatchEvent{patch.NewSplice(0, 1).WithBase(0).WithGroup("held")}, fold.ErrConflict},
		"group as of now": {func(fold.View) fold.PatchOptions { return fold.PatchOptions{AsOfNow: true} },
			[]*patch.PatchEvent{patch.NewSplice(0, 1).WithGroup("held")}, patch.ErrInvalid},
		"stale": {func(v fold.View) fold.PatchOptions { return fold.PatchOptions{On: fold.New(v.Creation(), nil)} },
			[]*patch.PatchEvent{patch.NewSplice(0, 1)}, fold.ErrConflict},
		"erased since": {func(v fold.View) fold.PatchOptions { return fold.PatchOptions{On: v.WithEdition(7)} },
			[]*patch.PatchEvent{patch.NewSplice(0, 1)}, fold.ErrConflict},
		"beyond": {func(v fold.View) fold.PatchOptions { return fold.PatchOptions{On: v} },
			[]*patch.PatchEvent{patch.NewSplice(0, 9)}, fold.ErrOutOfRange},
		"second beyond": {func(v fold.View) fold.PatchOptions { return fold.PatchOptions{On: v} },
			[]*patch.PatchEvent{patch.NewSplice(0, 1), patch.NewSplice(0, 9)}, fold.ErrOutOfRange},
	} {
		d, log := draftOn(t, 3)
		held := patch.Record{Patch: patch.NewPin("e2").WithID("held").WithGroup("held")}
		testlog.NoError(t, d.Append(&held))
		log = append(log, held)
		var opts fold.PatchOptions
		if c.opts != nil {
			opts = c.opts(d.View)
		}
		call := patches(c.call...)
		missing := make([]int, len(call))
		for i := range call {
			missing[i] = i
		}
		if err := d.AddPatches(indexed(log...), opts, call, missing); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A revert in a draft restores supplied events, and events that the draft itself added.
func TestDraftSupplies(t *testing.T) {
	d, log := draftOn(t, 3)
	cut := patches(patch.NewSplice(0, 2).WithID("cut").WithBase(0))
	testlog.NoError(t, d.AddGroup(indexed(log...), fold.CheckOptions{}, cut))
	var need *fold.MissingRecordsError
	undo := func() []patch.Record { return patches(patch.NewRevert("cut").WithID("undo")) }
	if err := d.AddGroup(indexed(log...), fold.CheckOptions{}, undo()); !errors.As(err, &need) {
		t.Fatalf("without the records: %v", err)
	}
	other := undo()[0]
	if err := d.Append(&other); !errors.As(err, &need) || len(d.Added) != 1 {
		t.Fatalf("without the records, not judged: %v", err)
	}
	d.Supplied = log
	unjudged := d
	testlog.NoError(t, d.AddGroup(indexed(log...), fold.CheckOptions{}, undo()))
	testlog.Equal(t, "visible", visible(d.View), "e0 e1 e2 ")
	testlog.NoError(t, unjudged.Append(&other))
	testlog.Equal(t, "visible, not judged", visible(unjudged.View), "e0 e1 e2 ")

	own := d // draft that restores an event that it added and removed itself
	testlog.NoError(t, own.AddGroup(indexed(log...), fold.CheckOptions{}, patches(patch.NewSplice(0, 1, testlog.Text("x", "", "user", "x")).WithID("put"))))
	testlog.NoError(t, own.AddGroup(indexed(log...), fold.CheckOptions{}, patches(patch.NewSplice(0, 1).WithID("out"))))
	testlog.NoError(t, own.AddGroup(indexed(log...), fold.CheckOptions{}, patches(patch.NewRevert("out").WithID("back"))))
	testlog.Equal(t, "visible, own", visible(own.View), "x e1 e2 ")
}

func TestCheckNotErased(t *testing.T) {
	e := testlog.Text("e", "", "user", "text")
	testlog.NoError(t, fold.CheckNotErased(patch.Record{Event: e}))
	blank := e.Blank("receipt", patch.NullValues)
	for _, r := range []patch.Record{{Event: blank}, patches(patch.NewSplice(0, 0, blank))[0]} {
		if err := fold.CheckNotErased(r); !errors.Is(err, patch.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
}

func TestGrouped(t *testing.T) {
	d, _ := draftOn(t, 2)
	id := func() string { return "group" }
	one := fold.Grouped(d.View, "", id, []*patch.PatchEvent{patch.NewSplice(0, 1)})
	two := fold.Grouped(d.View, "me", id, []*patch.PatchEvent{patch.NewSplice(0, 1), patch.NewSplice(0, 1)})
	base, _ := two[1].Patch.Base()
	testlog.Equal(t, "groups, author, seq, base", fmt.Sprint(one[0].Patch.Group(), two[0].Patch.Group(), two[1].Patch.Author(), two[1].Seq, base), "groupme4 3")
}
