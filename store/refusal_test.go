package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

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
		// An event id says which event is meant, whatever came meanwhile.
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewTruncateBefore("a2")))
		// So does a base, whoever gives it.
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
	no(t, err)
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
