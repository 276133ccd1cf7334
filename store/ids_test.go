package store_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestDuplicateIDsOfPatches(t *testing.T) {
	nested := func(id string) *patch.Event { return event(`{"id":%q,"author":"r"}`, id) }
	cases := []struct {
		name    string
		patches []*patch.PatchEvent
		id      string
		seq     uint64
	}{
		{"own, an event's", one(patch.NewSplice(0, 1).WithID("a2")), "a2", 2},
		{"own, another patch's", one(patch.NewSplice(1, 1).WithID("p1")), "p1", 4},
		{"own, other start", one(patch.NewSplice(1, 1, nested("r1")).WithID("p1")), "p1", 4},
		{"own, other type", one(patch.NewTruncateBefore("a3").WithID("p1")), "p1", 4},
		{"own, other replacement", one(patch.NewSplice(0, 1, nested("r2")).WithID("p1")), "p1", 4},
		{"own, other policy", one(patch.NewSplice(0, 1, nested("r1")).WithID("p1").WithState(patch.Keep)), "p1", 4},
		{"own, other base", one(patch.NewSplice(0, 1, nested("r1")).WithID("p1").WithBase(3)), "p1", 4},
		{"own, other author", one(patch.NewSplice(0, 1, nested("r1")).WithID("p1").WithAuthor("x")), "p1", 4},
		{"own, a replacement's", one(patch.NewSplice(0, 1).WithID("r1")), "r1", 4},
		{"own, a summary's", one(patch.NewSplice(0, 1).WithID("s1")), "s1", 5},
		{"replacement, an event's", one(patch.NewSplice(0, 1, nested("a1")).WithID("p")), "a1", 1},
		{"replacement, second", one(patch.NewSplice(0, 1, nested("r"), nested("p2")).WithID("p")), "p2", 5},
		{"replacement, a replacement's", one(patch.NewSplice(0, 1, nested("r1")).WithID("p")), "r1", 4},
		{"summary, an event's", one(patch.NewSummarise(0, 1, summary("a3")).WithID("p")), "a3", 3},
		{"summary, a summary's with its content", one(patch.NewSummarise(0, 1, summary("s1")).WithID("p")), "s1", 5},
		{"twice, own", []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p"), patch.NewSplice(0, 1).WithID("p")}, "p", 0},
		{"twice, own and replacement", one(patch.NewSplice(0, 1, nested("p")).WithID("p")), "p", 0},
		{"twice, own and summary", one(patch.NewSummarise(0, 1, summary("p")).WithID("p")), "p", 0},
		{"twice, in replacement", one(patch.NewSplice(0, 1, nested("r"), nested("r")).WithID("p")), "r", 0},
		{"twice, across", []*patch.PatchEvent{patch.NewSplice(0, 1, nested("q")).WithID("p"), patch.NewSplice(0, 1).WithID("q")}, "q", 0},
		{"twice, in patches that are refused themselves", []*patch.PatchEvent{patch.NewSplice(9, 1, nested("r")).WithID("p"), patch.NewSplice(9, 1, nested("r")).WithID("q")}, "r", 0},
		{"second of the call", []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p"), patch.NewSplice(0, 1).WithID("a1")}, "a1", 1},
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.apply(patch.NewSplice(0, 1, nested("r1")).WithID("p1"))
		e.apply(patch.NewSummarise(0, 1, summary("s1")).WithID("p2"))
		for _, c := range cases {
			e.Run(c.name, func(t *testing.T) {
				e := e.with(t)
				err := e.refuse(store.PatchOptions{On: e.view(), AllowOrphans: true}, c.patches, store.ErrDuplicateID, `"`+c.id+`"`)
				if got := as[*store.DuplicateIDError](e, err); got.ID != c.id || got.Seq != c.seq {
					e.Errorf("id %q of record %d, want %q of %d", got.ID, got.Seq, c.id, c.seq)
				}
			})
		}
	})
}

func TestDuplicateIDsOfEvents(t *testing.T) {
	cases := []struct {
		name   string
		events []*patch.Event
		id     string
		seq    uint64
	}{
		{"other content", []*patch.Event{event(`{"id":"a1","author":"x"}`)}, "a1", 1},
		{"other time", []*patch.Event{event(`{"id":"t","timestamp":"2025-01-01T00:00:00.000000001Z"}`)}, "t", 3},
		{"other kind of number", []*patch.Event{sets("n", `{"k":1.0}`)}, "n", 2},
		{"less", []*patch.Event{event(`{"id":"n","author":"agent"}`)}, "n", 2},
		{"more", []*patch.Event{event(`{"id":"n","author":"agent","actions":{"stateDelta":{"k":1}},"extra":null}`)}, "n", 2},
		{"a patch's", []*patch.Event{say("p1")}, "p1", 4},
		{"a replacement's with its content", []*patch.Event{say("r1")}, "r1", 4},
		{"twice", []*patch.Event{say("b1"), say("b1")}, "b1", 0},
		{"twice, of one that is there", []*patch.Event{say("a1"), say("a1")}, "a1", 0},
		{"after others", []*patch.Event{say("b1"), say("a1"), say("p1")}, "p1", 4},
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), sets("n", `{"k":1}`), event(`{"id":"t","timestamp":"2025-01-01T00:00:00Z"}`))
		e.apply(patch.NewSplice(0, 1, say("r1")).WithID("p1"))
		stored, view := e.dump(), e.viewText(e.view())
		for _, c := range cases {
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, c.events...)
			e.is(err, store.ErrDuplicateID, c.id, key.String())
			if got := as[*store.DuplicateIDError](e, err); got.ID != c.id || got.Seq != c.seq {
				e.Errorf("%s: id %q of record %d, want %q of %d", c.name, got.ID, got.Seq, c.id, c.seq)
			}
			e.same(c.name+": stored", e.dump(), stored)
			e.same(c.name+": view", e.viewText(e.view()), view)
		}
		e.append(say("b1")) // was not taken by what was refused
	})
}
