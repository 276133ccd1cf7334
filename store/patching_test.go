package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestConflictSaysBothSeqs(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 6)...)
		before := e.view()
		e.apply(patch.NewSplice(0, 1))         // record 7
		e.append(say("b1"))                    // record 8
		e.apply(patch.NewTruncateBefore("a3")) // record 9
		e.append(say("b2"), say("b3"))         // up to record 11
		for _, p := range []*patch.PatchEvent{
			patch.NewSplice(0, 1), patch.NewTruncateBefore("a4"), patch.NewSummarise(0, 2, summary("s")), patch.NewSplice(77, 1),
		} {
			for _, c := range []struct {
				base uint64
				opts store.PatchOptions
			}{{0, store.PatchOptions{}}, {7, store.PatchOptions{}}, {8, store.PatchOptions{On: e.view()}}, {0, asOfNow}} {
				err := e.refuse(c.opts, one(p.WithID("p").WithBase(c.base)), store.ErrConflict)
				if got := as[*fold.ConflictError](e, err); got.Base != c.base || got.Newest != 9 {
					e.Errorf("conflict of %d with %d, want %d with 9", got.Base, got.Newest, c.base)
				}
			}
			// A view fills the base.
			err := e.refuse(store.PatchOptions{On: before}, one(p.WithID("p")), store.ErrConflict, "0", "9")
			if got := as[*fold.ConflictError](e, err); got.Base != 0 || got.Newest != 9 {
				e.Errorf("conflict of %d with %d, want 0 with 9", got.Base, got.Newest)
			}
		}
		// The base is what the author has seen; it need not be a patch's seq.
		for _, base := range []uint64{9, 10, 11} {
			e.must(e.store.Preview(ctx, key, store.PatchOptions{}, patch.NewSplice(0, 1).WithBase(base)))
		}
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewSplice(0, 1).WithBase(10)))
	})
}

// An index counts from what the author saw: events that came since do not shift it.
func TestAppendsDoNotConflictWithPatches(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		seen := e.view()
		e.append(says("b", 3)...)
		c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, patch.NewSplice(1, 2))
		e.no(err)
		if base, ok := c.Records[0].Patch.Base(); !ok || base != 0 {
			e.Errorf("the view filled base %d, %t; want 0", base, ok)
		}
		e.same("visible", ids(e.view()), "a1 b1 b2 b3")
		// What the patch says is judged on the log as it is.
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{On: e.view()}, patch.NewSplice(0, 4)))
		e.same("visible", ids(e.view()), "")
	})
}

func TestBaseAbsentMeansAsOfNow(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		for range 3 {
			c, err := e.store.ApplyPatch(ctx, key, asOfNow, parsePatch(`{"patchType":"splice","start":0,"count":1}`))
			e.no(err)
			if base, ok := c.Records[0].Patch.Base(); ok {
				e.Errorf("base %d was made up", base)
			}
		}
		e.same("visible", ids(e.view()), "")
	})
}

func TestBatchChecksFirstBaseOnly(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 6)...)
		seen := e.view()
		c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen},
			patch.NewSplice(0, 1), patch.NewSplice(0, 1), patch.NewTruncateBefore("a4"))
		e.no(err)
		e.same("visible", ids(c.View), "a4 a5 a6")
		for i, want := range []uint64{0, 7, 8} {
			if base, _ := c.Records[i].Patch.Base(); base != want {
				e.Errorf("patch %d has base %d, want %d", i, base, want)
			}
		}
		// Bases that the batch gives itself.
		_, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{},
			patch.NewSplice(0, 1).WithBase(9), patch.NewSplice(0, 1).WithBase(0))
		e.no(err)
		e.refuse(store.PatchOptions{}, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p1").WithBase(9), patch.NewSplice(0, 1).WithID("p2").WithBase(11)},
			store.ErrConflict, "9", "11")
		// What one leaves behind is what the next is judged on.
		e.refuse(store.PatchOptions{On: e.view()}, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p1"), patch.NewSplice(0, 1).WithID("p2")}, fold.ErrOutOfRange)
	})
}

func TestViewOfAnotherCreation(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		old := e.view()
		e.no(e.store.Delete(ctx, key))
		_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: old}, patch.NewSplice(0, 1))
		e.is(err, store.ErrNotFound, key.String())
		e.create(nil)
		e.append(says("a", 3)...)
		e.refuse(store.PatchOptions{On: old}, one(patch.NewSplice(0, 1).WithID("p")), store.ErrNotFound)
		e.refuse(store.PatchOptions{On: old}, one(patch.NewTruncateBefore("a2").WithID("p")), store.ErrNotFound)
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{Creation: old.Creation()}, say("b1"))
		e.is(err, store.ErrNotFound)
		e.must(e.store.AppendEvents(ctx, key, store.AppendOptions{Creation: e.view().Creation()}, say("b1")))
		// The old view itself stays as it was.
		e.same("old view", ids(old), "a1 a2 a3")
		if old.Creation() == e.view().Creation() {
			e.Error("two creations have one id")
		}
	})
}

func TestExpectedSeq(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		seq := func(n uint64) store.AppendOptions { return store.AppendOptions{IfSeq: &n} }
		e.must(e.store.AppendEvents(ctx, key, seq(0), say("a1"), say("a2")))
		e.must(e.store.AppendEvents(ctx, key, seq(2), say("a3")))
		for _, n := range []uint64{0, 2, 4} {
			stored := e.dump()
			_, err := e.store.AppendEvents(ctx, key, seq(n), say("a4"))
			e.is(err, store.ErrConflict, "3", string(rune('0'+n)), key.String())
			if got := as[*store.SeqError](e, err); got.Expected != n || got.Last != 3 {
				e.Errorf("expected %d, last %d; want %d and 3", got.Expected, got.Last, n)
			}
			e.same("stored", e.dump(), stored)
		}
		// Patches are records too.
		e.apply(patch.NewSplice(0, 1))
		_, err := e.store.AppendEvents(ctx, key, seq(3), say("a4"))
		e.is(err, store.ErrConflict)
		e.must(e.store.AppendEvents(ctx, key, seq(4), say("a4")))
		// A retry is looked at before anything else.
		c, err := e.store.AppendEvents(ctx, key, seq(4), say("a4"))
		e.no(err)
		if c.Records[0].Seq != 5 || c.View.Seq() != 5 {
			e.Errorf("the retry gave record %d and a view at %d, want 5 and 5", c.Records[0].Seq, c.View.Seq())
		}
		e.must(e.store.AppendEvents(ctx, key, seq(1), event(`{"id":"piece","partial":true}`)))
	})
}

func visibleIDs(events []fold.Entry) string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.Event.ID())
	}
	return strings.Join(ids, " ")
}

// A patch that is in the log would do nothing, and a preview is written nowhere.
func TestPreview(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		stored, seen := e.dump(), e.view()
		p, err := e.store.Preview(ctx, key, store.PatchOptions{On: seen}, patch.NewSplice(1, 2, say("r")).WithID("p"))
		e.no(err)
		e.same("removed, added, visible and where", fmt.Sprint(visibleIDs(p.Removed), "; ", visibleIDs(p.Added), "; ", ids(p.After), "; ", p.First), "a2 a3; r; a1 r a4; 1")
		e.same("stored", e.dump(), stored)
		e.same("view", e.viewText(e.view()), e.viewText(seen))
		e.apply(p.Patches[0])
		p, err = e.store.Preview(ctx, key, asOfNow, p.Patches[0])
		e.no(err)
		e.same("preview of a retry", e.viewText(p.After), e.viewText(e.view()))
		if len(p.Removed)+len(p.Added) != 0 {
			e.Errorf("a retry would remove %d events and add %d", len(p.Removed), len(p.Added))
		}
	})
}

// asOfNow are the options of a patch whose author has just looked.
var asOfNow = store.PatchOptions{AsOfNow: true}

// refuse applies patches that must be refused with an error that matches target and
// names what is at fault; that nothing was written; and that Preview says the same.
func (e *env) refuse(opts store.PatchOptions, patches []*patch.PatchEvent, target error, names ...string) error {
	e.Helper()
	stored, view := e.dump(), e.viewText(e.view())
	taken := e.taken(patches)
	c, err := e.store.ApplyPatch(ctx, key, opts, patches...)
	e.is(err, target, append(names, key.String())...)
	if errors.Is(err, store.ErrOutcomeUnknown) || len(c.Records) > 0 || c.View.Seq() != 0 {
		e.Errorf("a refusal returned %d records and a view at %d, and the error %v", len(c.Records), c.View.Seq(), err)
	}
	e.same("stored after a refusal", e.dump(), stored)
	e.same("view after a refusal", e.viewText(e.view()), view)
	if after := e.taken(patches); after != taken {
		e.Errorf("ids after a refusal: %q, before %q", after, taken)
	}
	if len(patches) == 1 {
		_, previewErr := e.store.Preview(ctx, key, opts, patches[0])
		if previewErr == nil || err != nil && previewErr.Error() != err.Error() {
			e.Errorf("Preview: %v, but ApplyPatch: %v", previewErr, err)
		}
	}
	return err
}

// taken says which of the patches' ids are taken in the session, and by which record.
func (e *env) taken(patches []*patch.PatchEvent) string {
	e.Helper()
	var ids []string
	for _, p := range patches {
		for id := range (patch.Record{Patch: p}).IDs() {
			ids = append(ids, id)
		}
	}
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if info.Key != key {
			continue
		}
		seqs, err := e.backend.Lookup(ctx, e.nameOf(info), info.Creation, ids)
		e.no(err)
		var b strings.Builder
		for i, id := range ids {
			b.WriteString(id + " " + string(rune('0'+seqs[i])) + ", ")
		}
		return b.String()
	}
	return ""
}

func one(p *patch.PatchEvent) []*patch.PatchEvent { return []*patch.PatchEvent{p} }

func TestRefusesIndicesWithoutBase(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		for _, p := range []*patch.PatchEvent{patch.NewSplice(0, 1), patch.NewSummarise(0, 1, summary("s"))} {
			err := e.refuse(store.PatchOptions{}, one(p.WithID("p")), store.ErrInvalid, "base")
			if f := as[*patch.FieldError](e, err); f.Field != "base" {
				e.Errorf("field %q, want base", f.Field)
			}
		}
		// An event id names the event, so later records do not matter.
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewTruncateBefore("a2")))
		// A base that the caller sets does the same.
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewSplice(0, 1).WithBase(4)))
		e.same("visible", ids(e.view()), "a3")
	})
}

func TestRefusesOntoUnknownPatch(t *testing.T) {
	onEach(t, func(e *env) {
		e.importText("f", `{"id":"a1"}
{"id":"a2"}
{"id":"a3"}
{"id":"p1","patchType":"splice","start":0,"count":1}
{"id":"x","patchType":"rotate","by":2}
`)
		v := e.view()
		if s := e.skipped(v); len(s) != 1 || s[0].Seq != 5 || v.PatchSeq() != 5 {
			e.Fatalf("skipped %v, newest patch %d", s, v.PatchSeq())
		}
		for _, p := range []*patch.PatchEvent{
			patch.NewSplice(0, 1), patch.NewTruncateBefore("a3"), patch.NewSummarise(0, 1, summary("s")), patch.NewSplice(0, 9),
		} {
			for _, opts := range []store.PatchOptions{asOfNow, {On: v}, {On: v, AllowOrphans: true}} {
				e.refuse(opts, one(p.WithID("p")), fold.ErrUnknownPatch)
			}
		}
		// Events still go to the end, and what is there already can be retried.
		e.append(say("a4"))
		c, err := e.store.ApplyPatch(ctx, key, asOfNow, parsePatch(`{"id":"p1","patchType":"splice","start":0,"count":1}`))
		e.no(err)
		if c.Records[0].Seq != 4 {
			e.Errorf("the retry gave record %d, want 4", c.Records[0].Seq)
		}
		e.same("visible", ids(e.view()), "a2 a3 a4")
	})
}

func TestRefusesTooLarge(t *testing.T) {
	long := strings.Repeat("x", 3000)
	onEachWith(t, store.Options{MaxRecordBytes: 2000}, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.refuse(asOfNow, one(patch.NewSplice(0, 1, event(`{"id":"r","content":{"parts":[{"text":%q}]}}`, long)).WithID("big")),
			store.ErrTooLarge, "big", "2000")
		e.refuse(asOfNow, one(patch.NewSummarise(0, 1, event(`{"id":"r","content":{"parts":[{"text":%q}]}}`, long)).WithID("big")),
			store.ErrTooLarge, "big", "2000")
		// One that is too large takes the others of the call with it.
		e.refuse(asOfNow, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("small"),
			patch.NewSplice(0, 1, event(`{"id":"r","content":{"parts":[{"text":%q}]}}`, long)).WithID("big")}, store.ErrTooLarge, "big")

		stored := e.dump()
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("b1"), event(`{"id":"big","content":{"parts":[{"text":%q}]}}`, long))
		e.is(err, store.ErrTooLarge, "big", "2000", key.String())
		_, err = e.store.Create(ctx, store.Key{App: "a", User: "u", Session: "other"}, map[string]any{"k": long})
		e.is(err, store.ErrTooLarge, "2000")
		_, err = e.store.Create(ctx, store.Key{App: "a", User: "u", Session: "other"}, map[string]any{"app:k": long})
		e.is(err, store.ErrTooLarge, "app:k", "2000")
		e.same("stored", e.dump(), stored)
	})
}

// A record of just the size that is allowed can be stored, exported and imported.
func TestLargestRecord(t *testing.T) {
	largest := event(`{"id":"e","timestamp":"2025-11-20T10:30:00Z","author":"a","content":{"parts":[{"text":%q}]}}`, strings.Repeat("x", 1000))
	form, err := patch.AppendRecord(nil, patch.Record{Seq: 1, Event: largest})
	testlog.NoError(t, err)
	onEachWith(t, store.Options{MaxRecordBytes: len(form)}, func(e *env) {
		e.create(nil)
		e.append(largest)
		text := e.export()
		view := e.viewText(e.view())
		e.no(e.store.Delete(ctx, key))
		e.importText("f", text)
		e.same("view", withoutCreation(e.viewText(e.view())), withoutCreation(view))
	})
	onEachWith(t, store.Options{MaxRecordBytes: len(form) - 1}, func(e *env) {
		e.create(nil)
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, largest)
		e.is(err, store.ErrTooLarge)
		_, err = e.store.Import(ctx, key, strings.NewReader(largest.String()+"\n"), store.ImportOptions{Name: "f"})
		e.is(err, store.ErrTooLarge, "f:1")
	})
}

func TestOrderOfJudgement(t *testing.T) {
	onEachWith(t, store.Options{MaxRecordBytes: 2000}, func(e *env) {
		e.create(nil)
		e.append(say("a1"), call("c", "inv1", "id1"), answer("r", "inv1", "id1"), say("a2"))
		e.apply(patch.NewSplice(3, 1).WithID("p1")) // record 5
		long := strings.Repeat("x", 3000)
		// All is wrong with it. What is named is put right step by step.
		fields := map[string]string{
			"id": `"a1"`, "base": "0", "state": `"hold"`, "start": "77", "count": "1",
			"replacement": `[{"id":"new","content":{"parts":[{"text":"` + long + `"}]}}]`,
		}
		opts := store.PatchOptions{}
		build := func() []*patch.PatchEvent {
			text := `{"patchType":"splice"`
			for k, v := range fields {
				text += `,"` + k + `":` + v
			}
			return one(parsePatch("%s}", text))
		}
		e.refuse(opts, build(), store.ErrDuplicateID, `"a1"`)
		fields["id"] = `"p2"`
		e.refuse(opts, build(), store.ErrConflict, "0", "5")
		fields["base"] = "6"
		e.refuse(opts, build(), store.ErrInvalid, "base", "6", "5")
		fields["base"] = "5"
		e.refuse(opts, build(), store.ErrInvalid, `"hold"`)
		fields["state"] = `"keep"`
		e.refuse(opts, build(), fold.ErrOutOfRange, "77")
		fields["start"] = "1"
		e.refuse(opts, build(), fold.ErrOrphanedCall, `"id1"`)
		opts.AllowOrphans = true
		e.refuse(opts, build(), store.ErrTooLarge, "p2")
		fields["replacement"] = `[{"id":"new"}]`
		e.must(e.store.ApplyPatch(ctx, key, opts, build()...))
		e.same("visible", ids(e.view()), "a1 new r")
	})
}

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

// A revert that is imported behind the log brings back what the session in memory has let
// go of.
func TestImportOfRevert(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.apply(patch.NewSplice(0, 4).WithID("p"))
		e.same("visible", ids(e.view()), "")
		text := e.export() + `{"id":"r","patchType":"revert","patchId":"p"}` + "\n"
		done := e.importText("s.jsonl", text)
		if done.Added != 1 || done.Created {
			e.Errorf("it added %d records", done.Added)
		}
		e.same("visible", ids(e.view()), "q1 c1 r1 a1")
	})
}

// Patches made from a view are logged with the base that their author saw; each counts
// those before it as seen.
func TestBasesOfACall(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.append(turn(2)...)
		on := e.view()
		done, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: on, AllowOrphans: true},
			patch.NewSplice(7, 1).WithGroup("g"), patch.NewSplice(3, 1).WithGroup("g"),
			patch.NewSplice(0, 1).WithGroup("h"), patch.NewSplice(2, 1).WithGroup("h"))
		e.no(err)
		for i, want := range []uint64{0, 9, 10, 11} {
			if base, ok := done.Records[i].Patch.Base(); !ok || base != want {
				e.Errorf("patch %d has base %d, %t; want %d", i, base, ok, want)
			}
		}
	})
}

// A group may name what it brings back itself, though the session in memory has let go of
// it; what has to be read is known only by and by.
func TestGroupNamesWhatComesBack(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.append(turn(2)...)
		e.apply(patch.NewSplice(0, 4).WithID("first"))
		e.apply(patch.NewSplice(0, 4).WithID("second"))
		before, stored := ids(e.view()), e.dump()
		refused := func(target error, name string, patches ...*patch.PatchEvent) {
			e.Helper()
			for i, p := range patches {
				patches[i] = p.WithGroup("g")
			}
			_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patches...)
			e.is(err, target, name)
			_, err = e.store.Preview(ctx, key, store.PatchOptions{AsOfNow: true}, patches...)
			e.is(err, target, name)
			e.same("visible", ids(e.view()), before)
			e.same("stored", e.dump(), stored)
		}
		refused(fold.ErrEventNotFound, `"q1"`, patch.NewRevert("second"), patch.NewPin("q1"))
		refused(fold.ErrPinned, `"q2"`, patch.NewRevert("second"), patch.NewPin("q2"), patch.NewSplice(0, 1))
		refused(fold.ErrOrphanedCall, `"r2"`, patch.NewRevert("second"), patch.NewTruncateBefore("r2"), patch.NewPin("r2"))
		done := e.apply(patch.NewRevert("second").WithGroup("g"), patch.NewPin("q2").WithGroup("g"),
			patch.NewRevert("first").WithGroup("g"), patch.NewPin("q1").WithGroup("g"))
		e.same("visible", ids(done.View), "q1 c1 r1 a1 q2 c2 r2 a2")
		if !done.View.IsPinned(0) || !done.View.IsPinned(4) {
			e.Error("what came back is not pinned")
		}
		e.same("visible", ids(e.view()), ids(done.View))
	})
}
