package store_test

import (
	"errors"
	"math"
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

func TestRefusesInvalidPatches(t *testing.T) {
	cases := []struct {
		name, fields string // beside id and base
		flaw         patch.Flaw
		field        string
	}{
		{"type unknown", `"patchType":"rotate","start":1`, patch.UnknownType, `"rotate"`},
		{"type empty", `"patchType":""`, patch.UnknownType, `""`},

		{"splice without start", `"patchType":"splice","count":1`, patch.MissingField, "start"},
		{"splice without count", `"patchType":"splice","start":1`, patch.MissingField, "count"},
		{"splice with null count", `"patchType":"splice","start":1,"count":null`, patch.MissingField, "count"},
		{"truncate without event", `"patchType":"truncate_before"`, patch.MissingField, "eventId"},
		{"summarise without summary", `"patchType":"summarise","start":1,"count":1`, patch.MissingField, "summaryEvent"},
		{"summarise without start", `"patchType":"summarise","count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]}}`, patch.MissingField, "start"},

		{"start text", `"patchType":"splice","start":"1","count":1`, patch.WrongField, "start"},
		{"start fraction", `"patchType":"splice","start":1.5,"count":1`, patch.WrongField, "1.5"},
		{"start with point", `"patchType":"splice","start":1.0,"count":1`, patch.WrongField, "1.0"},
		{"count huge", `"patchType":"splice","start":1,"count":9223372036854775808`, patch.WrongField, "9223372036854775808"},
		{"count list", `"patchType":"splice","start":1,"count":[1]`, patch.WrongField, "count"},
		{"replacement object", `"patchType":"splice","start":1,"count":1,"replacement":{}`, patch.WrongField, "replacement"},
		{"replacement of text", `"patchType":"splice","start":1,"count":1,"replacement":["x"]`, patch.WrongField, "replacement/0"},
		{"replacement malformed", `"patchType":"splice","start":1,"count":1,"replacement":[{},{"author":1}]`, patch.WrongField, "replacement/1"},
		{"replacement partial", `"patchType":"splice","start":1,"count":1,"replacement":[{"partial":true}]`, patch.WrongField, "replacement/0"},
		{"replacement with seq", `"patchType":"splice","start":1,"count":1,"replacement":[{"seq":1}]`, patch.WrongField, "replacement/0"},
		{"event id number", `"patchType":"truncate_before","eventId":3`, patch.WrongField, "eventId"},
		{"summary text", `"patchType":"summarise","start":1,"count":1,"summaryEvent":"s"`, patch.WrongField, "summaryEvent"},
		{"state number", `"patchType":"splice","start":1,"count":1,"state":1`, patch.WrongField, "state"},
		{"state unknown", `"patchType":"splice","start":1,"count":1,"state":"hold"`, patch.WrongField, `"hold"`},

		{"splice with event id", `"patchType":"splice","start":1,"count":1,"eventId":"a1"`, patch.ForeignField, "eventId"},
		{"splice with summary", `"patchType":"splice","start":1,"count":1,"summaryEvent":{}`, patch.ForeignField, "summaryEvent"},
		{"splice with patch id", `"patchType":"splice","start":1,"count":1,"patchId":"p"`, patch.ForeignField, "patchId"},
		{"truncate with start", `"patchType":"truncate_before","eventId":"a2","start":1`, patch.ForeignField, "start"},
		{"truncate with replacement", `"patchType":"truncate_before","eventId":"a2","replacement":[]`, patch.ForeignField, "replacement"},
		{"summarise with replacement", `"patchType":"summarise","start":1,"count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]}},"replacement":[]`, patch.ForeignField, "replacement"},
		{"content", `"patchType":"splice","start":1,"count":1,"content":{"parts":[{"text":"x"}]}`, patch.ForeignField, "content"},
		{"actions", `"patchType":"splice","start":1,"count":1,"actions":{"stateDelta":{"k":1}}`, patch.ForeignField, "actions"},
		{"partial", `"patchType":"splice","start":1,"count":1,"partial":false`, patch.ForeignField, "partial"},

		{"summary without content", `"patchType":"summarise","start":1,"count":1,"summaryEvent":{"author":"s"}`, patch.NoContent, "summaryEvent"},
		{"summary without parts", `"patchType":"summarise","start":1,"count":1,"summaryEvent":{"content":{"role":"user","parts":[]}}`, patch.NoContent, "summaryEvent"},
		{"summary with delta", `"patchType":"summarise","start":1,"count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]},"actions":{"stateDelta":{"k":1}}}`, patch.SummaryDelta, "summaryEvent"},
		{"summary with shared delta", `"patchType":"summarise","start":1,"count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]},"actions":{"stateDelta":{"app:k":1}}}`, patch.SummaryDelta, "summaryEvent"},
		{"patch in replacement", `"patchType":"splice","start":1,"count":1,"replacement":[{"patchType":"splice","start":0,"count":1}]`, patch.NestedPatch, "replacement/0"},
		{"patch as summary", `"patchType":"summarise","start":1,"count":1,"summaryEvent":{"patchType":"splice","start":0,"count":1}`, patch.NestedPatch, "summaryEvent"},
		{"no effect", `"patchType":"splice","start":1,"count":0`, patch.NoEffect, "count"},
		{"no effect, empty list", `"patchType":"splice","start":1,"count":0,"replacement":[]`, patch.NoEffect, "count"},
	}
	onEach(t, func(e *env) {
		e.create(map[string]any{"tenant": "t1"})
		e.append(says("a", 5)...)
		for _, c := range cases {
			e.Run(c.name, func(t *testing.T) {
				e := e.with(t)
				err := e.refuse(asOfNow, one(parsePatch(`{"id":"p",%s}`, c.fields)), store.ErrInvalid, c.field)
				defect := as[*patch.FieldError](e, err)
				if defect.Flaw != c.flaw {
					e.Errorf("flaw %q, want %q", defect.Flaw, c.flaw)
				}
			})
		}
	})
}

func TestRefusesMalformedBase(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		for _, base := range []string{`"1"`, "-1", "1.0", "18446744073709551616"} {
			p := parsePatch(`{"id":"p","patchType":"splice","start":0,"count":1,"base":%s}`, base)
			e.refuse(asOfNow, one(p), store.ErrInvalid, "base", strings.Trim(base, `"`))
		}
	})
}

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
		_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewTruncateBefore("a2"))
		e.no(err)
		// So does a base, whoever gives it.
		_, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewSplice(0, 1).WithBase(4))
		e.no(err)
		e.same("visible", ids(e.view()), "a3")
	})
}

func TestRefusesOutOfRange(t *testing.T) {
	s := summary("s")
	cases := []struct {
		name  string
		patch *patch.PatchEvent
		names []string
	}{
		{"start negative", patch.NewSplice(-1, 1), []string{"start", "-1"}},
		{"start negative, least", patch.NewSplice(math.MinInt, 1), []string{"start", "-9223372036854775808"}},
		{"start negative, insertion", patch.NewSplice(-1, 0, say("r")), []string{"start", "-1"}},
		{"count negative", patch.NewSplice(1, -2), []string{"count", "-2"}},
		{"count negative with replacement", patch.NewSplice(1, -2, say("r")), []string{"count", "-2"}},
		{"one too many", patch.NewSplice(2, 4), []string{"2", "4", "5"}},
		{"start at the end", patch.NewSplice(5, 1), []string{"5", "1"}},
		{"start beyond the end", patch.NewSplice(6, 1), []string{"6"}},
		{"insertion beyond the end", patch.NewSplice(6, 0, say("r")), []string{"6", "0"}},
		{"sum overflows", patch.NewSplice(1, math.MaxInt), []string{"9223372036854775807"}},
		{"both most", patch.NewSplice(math.MaxInt, math.MaxInt), []string{"9223372036854775807"}},
		{"summary of nothing", patch.NewSummarise(1, 0, s), []string{"count", "0"}},
		{"summary of nothing at the end", patch.NewSummarise(5, 0, s), []string{"count", "0"}},
		{"summary of too many", patch.NewSummarise(0, 6, s), []string{"6", "5"}},
		{"summary from below", patch.NewSummarise(-3, 2, s), []string{"start", "-3"}},
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		for _, c := range cases {
			e.Run(c.name, func(t *testing.T) {
				e := e.with(t)
				e.refuse(asOfNow, one(c.patch.WithID("p")), fold.ErrOutOfRange, c.names...)
				e.refuse(store.PatchOptions{On: e.view()}, one(c.patch.WithID("p")), fold.ErrOutOfRange, c.names...)
			})
		}
		// What is at the border is in range.
		e.apply(patch.NewSplice(5, 0, say("end")), patch.NewSplice(0, 0, say("front")), patch.NewSplice(0, 7))
		e.same("visible", ids(e.view()), "")
		e.refuse(asOfNow, one(patch.NewSplice(0, 1)), fold.ErrOutOfRange, "0", "1")
	})
}

func TestRefusesEventNotFound(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		e.apply(patch.NewSplice(0, 2, say("r")).WithID("p1"))
		e.apply(patch.NewSummarise(0, 1, summary("s")).WithID("p2"))
		for _, id := range []string{"never", "a1", "r", "p1", "p2", "", "A3", "a"} {
			e.refuse(asOfNow, one(patch.NewTruncateBefore(id).WithID("p")), fold.ErrEventNotFound, `"`+id+`"`)
		}
		e.apply(patch.NewTruncateBefore("s"), patch.NewTruncateBefore("a4"))
		e.same("visible", ids(e.view()), "a4")
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
	if err != nil {
		t.Fatal(err)
	}
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
		_, err := e.store.ApplyPatch(ctx, key, opts, build()...)
		e.no(err)
		e.same("visible", ids(e.view()), "a1 new r")
	})
}
