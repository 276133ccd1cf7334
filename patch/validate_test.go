package patch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// A malformed patch can be parsed and stored. Its text and its defect do not change.
func TestMalformedPatches(t *testing.T) {
	const summary = `"summaryEvent":{"content":{"parts":[{"text":"s"}]}}`
	for _, c := range []struct {
		name, line, field string
		flaw              patch.Flaw
	}{
		{"unknown type", `{"patchType":"rewind","start":"x"}`, "patchType", patch.UnknownType},
		{"empty type", `{"patchType":""}`, "patchType", patch.UnknownType},

		{"splice without start", `{"patchType":"splice","count":1}`, "start", patch.MissingField},
		{"splice without count", `{"patchType":"splice","start":1}`, "count", patch.MissingField},
		{"start null", `{"patchType":"splice","start":null,"count":1}`, "start", patch.MissingField},
		{"truncate_before without event", `{"patchType":"truncate_before"}`, "eventId", patch.MissingField},
		{"summarise without start", `{"patchType":"summarise","count":1,` + summary + `}`, "start", patch.MissingField},
		{"summarise without count", `{"patchType":"summarise","start":1,` + summary + `}`, "count", patch.MissingField},
		{"summarise without summary", `{"patchType":"summarise","start":0,"count":1}`, "summaryEvent", patch.MissingField},

		{"start a text", `{"patchType":"splice","start":"0","count":1}`, "start", patch.WrongField},
		{"start a fraction", `{"patchType":"splice","start":0.0,"count":1}`, "start", patch.WrongField},
		{"start with an exponent", `{"patchType":"splice","start":1e0,"count":1}`, "start", patch.WrongField},
		{"start out of int64", `{"patchType":"splice","start":9223372036854775808,"count":1}`, "start", patch.WrongField},
		{"count a bool", `{"patchType":"splice","start":0,"count":true}`, "count", patch.WrongField},
		{"base negative", `{"patchType":"splice","start":0,"count":1,"base":-1}`, "base", patch.WrongField},
		{"base a text", `{"patchType":"splice","start":0,"count":1,"base":"` + strings.Repeat("𝄞", 30) + `"}`, "base", patch.WrongField},
		{"state a bool", `{"patchType":"splice","start":0,"count":1,"state":true}`, "state", patch.WrongField},
		{"unknown state", `{"patchType":"splice","start":0,"count":1,"state":"Keep"}`, "state", patch.WrongField},
		{"empty state", `{"patchType":"truncate_before","eventId":"e","state":""}`, "state", patch.WrongField},
		{"eventId a number", `{"patchType":"truncate_before","eventId":5}`, "eventId", patch.WrongField},
		{"replacement an object", `{"patchType":"splice","start":0,"count":1,"replacement":{}}`, "replacement", patch.WrongField},
		{"replacement of texts", `{"patchType":"splice","start":0,"count":1,"replacement":[{},"x"]}`, "replacement/1", patch.WrongField},
		{"replacement of null", `{"patchType":"splice","start":0,"count":1,"replacement":[null]}`, "replacement/0", patch.WrongField},
		{"replacement with a seq", `{"patchType":"splice","start":0,"count":1,"replacement":[{"seq":1}]}`, "replacement/0", patch.WrongField},
		{"replacement malformed", `{"patchType":"splice","start":0,"count":1,"replacement":[{},{"content":5}]}`, "replacement/1", patch.WrongField},
		{"replacement partial", `{"patchType":"splice","start":0,"count":1,"replacement":[{},{"partial":true}]}`, "replacement/1", patch.WrongField},
		{"summary a text", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":"s"}`, "summaryEvent", patch.WrongField},
		{"summary partial", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"partial":true,"content":{"parts":[{"text":"s"}]}}}`, "summaryEvent/partial", patch.WrongField},
		{"the first of two", `{"patchType":"splice","count":"y","start":"x"}`, "count", patch.WrongField},

		{"revert without patchId", `{"patchType":"revert"}`, "patchId", patch.MissingField},
		{"patchId null", `{"patchType":"revert","patchId":null}`, "patchId", patch.MissingField},
		{"patchId a number", `{"patchType":"revert","patchId":5}`, "patchId", patch.WrongField},
		{"revert with state", `{"patchType":"revert","patchId":"p","state":"keep"}`, "state", patch.ForeignField},
		{"revert with start", `{"patchType":"revert","patchId":"p","start":0}`, "start", patch.ForeignField},
		{"revert with eventId", `{"patchType":"revert","patchId":"p","eventId":"e"}`, "eventId", patch.ForeignField},
		{"revert with replacement", `{"patchType":"revert","patchId":"p","replacement":[]}`, "replacement", patch.ForeignField},
		{"revert with content", `{"patchType":"revert","patchId":"p","content":{}}`, "content", patch.ForeignField},

		{"splice with eventId", `{"patchType":"splice","start":0,"count":1,"eventId":"e"}`, "eventId", patch.ForeignField},
		{"splice with summaryEvent", `{"patchType":"splice","start":0,"count":1,` + summary + `}`, "summaryEvent", patch.ForeignField},
		{"splice with patchId", `{"patchType":"splice","start":0,"count":1,"patchId":"p"}`, "patchId", patch.ForeignField},
		{"truncate_before with start", `{"patchType":"truncate_before","eventId":"e","start":0}`, "start", patch.ForeignField},
		{"truncate_before with count", `{"patchType":"truncate_before","eventId":"e","count":0}`, "count", patch.ForeignField},
		{"truncate_before with replacement", `{"patchType":"truncate_before","eventId":"e","replacement":[]}`, "replacement", patch.ForeignField},
		{"summarise with replacement", `{"patchType":"summarise","start":0,"count":1,` + summary + `,"replacement":[{}]}`, "replacement", patch.ForeignField},
		{"content", `{"patchType":"splice","start":0,"count":1,"content":null}`, "content", patch.ForeignField},
		{"actions", `{"patchType":"truncate_before","eventId":"e","actions":{}}`, "actions", patch.ForeignField},
		{"partial", `{"patchType":"truncate_before","eventId":"e","partial":false}`, "partial", patch.ForeignField},

		{"patch inside", `{"patchType":"splice","start":0,"count":1,"replacement":[{},{"patchType":"splice"}]}`, "replacement/1", patch.NestedPatch},
		{"patch as summary", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"patchType":"x"}}`, "summaryEvent", patch.NestedPatch},

		{"summary with a delta", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]},"actions":{"stateDelta":{"k":null}}}}`, "summaryEvent/actions/stateDelta", patch.SummaryDelta},
		{"summary with a shared delta", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"content":{"parts":[{"text":"s"}]},"actions":{"stateDelta":{"app:k":1}}}}`, "summaryEvent/actions/stateDelta", patch.SummaryDelta},
		{"summary without content", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{}}`, "summaryEvent/content", patch.NoContent},
		{"summary without parts", `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"content":{"parts":[]}}}`, "summaryEvent/content", patch.NoContent},
		{"splice of nothing", `{"patchType":"splice","start":3,"count":0}`, "count", patch.NoEffect},
		{"splice of nothing by nothing", `{"patchType":"splice","start":3,"count":0,"replacement":[]}`, "count", patch.NoEffect},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := parse(t, c.line)
			for way, back := range map[string]patch.Record{"parsed": rec, "stored": stored(t, rec), "parsed again": parse(t, marshal(t, rec))} {
				wantDefect(t, back.Patch, c.field, c.flaw)
				if got, want := canonical(t, marshal(t, back)), canonical(t, c.line); got != want {
					t.Errorf("%s, it is\n%s, was\n%s", way, got, want)
				}
				if !patch.Same(rec, back) || back.Size() != len(marshal(t, back)) {
					t.Errorf("%s, it is not the same, or its size is wrong: %s", way, marshal(t, back))
				}
			}
		})
	}
}

func wantDefect(t *testing.T, p *patch.PatchEvent, field string, flaw patch.Flaw) {
	t.Helper()
	err := p.Validate()
	var d *patch.FieldError
	if !errors.As(err, &d) || d.Field != field || d.Flaw != flaw || !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("the defect is %v, want %s of field %q", err, flaw, field)
		return
	}
	if text := err.Error(); !strings.Contains(text, field) || !strings.Contains(text, string(flaw)) || d.Problem == "" {
		t.Errorf("the text %q names not both %q and %q", text, field, flaw)
	}
}

// Accessors treat a malformed field as absent.
func TestAccessorsOfMalformedFields(t *testing.T) {
	p := parsePatch(t, `{"patchType":"splice","start":"x","count":1.5,"base":-1,"state":5,"eventId":1,"replacement":[5],"summaryEvent":[]}`)
	if revert := parsePatch(t, `{"patchType":"revert","patchId":5}`); revert.PatchID() != "" {
		t.Errorf("the patch id is %q", revert.PatchID())
	}
	if p.Start() != 0 || p.Count() != 0 || p.EventID() != "" || p.NewEvents() != nil {
		t.Errorf("the accessors say %d %d %q %v", p.Start(), p.Count(), p.EventID(), p.NewEvents())
	}
	if pin := parsePatch(t, `{"patchType":"pin","eventId":"e","group":5}`); pin.Group() != "" {
		t.Errorf("the group is %q", pin.Group())
	}
	if pin := parsePatch(t, `{"patchType":"pin","eventId":"e","group":null}`); pin.Group() != "" || pin.Validate() != nil {
		t.Errorf("a group that is null: %q, %v", pin.Group(), pin.Validate())
	}
	if pin := parsePatch(t, `{"patchType":"pin","eventId":"e","group":"a\u0062"}`); pin.Group() != "ab" {
		t.Errorf("the group is %q", pin.Group())
	}
	if seq, ok := p.Base(); seq != 0 || ok || p.StatePolicy() != patch.Drop {
		t.Errorf("base %d, %v, state %s", seq, ok, p.StatePolicy())
	}
	if text, ok := p.Field("start"); string(text) != `"x"` || !ok {
		t.Errorf("the malformed start is %s", text)
	}
}

func TestMalformedConstructedPatches(t *testing.T) {
	e := textEvent(t, "a", "x")
	long := strings.Repeat("i", patch.MaxIDBytes+1)
	for _, c := range []struct {
		p     *patch.PatchEvent
		field string
		flaw  patch.Flaw
	}{
		{patch.NewSplice(0, 1, e, nil), "replacement/1", patch.WrongField},
		{patch.NewSplice(0, 1, nil), "replacement/0", patch.WrongField},
		{patch.NewSplice(0, 0), "count", patch.NoEffect},
		{patch.NewSummarise(0, 1, nil), "summaryEvent", patch.MissingField},
		{patch.NewSummarise(0, 1, newEvent(t, patch.Fields{Content: map[string]any{}})), "summaryEvent/content", patch.NoContent},
		{patch.NewTruncateBefore("e").WithState("all"), "state", patch.WrongField},
		{patch.NewRevert("p").WithState(patch.Drop), "state", patch.ForeignField},
		{patch.NewPin("e").WithState(patch.Keep), "state", patch.ForeignField},
		{patch.NewUnpin("e").WithState(patch.Keep), "state", patch.ForeignField},
		{parsePatch(t, `{"patchType":"pin","eventId":"e","start":1}`), "start", patch.ForeignField},
		{parsePatch(t, `{"patchType":"unpin"}`), "eventId", patch.MissingField},
		{parsePatch(t, `{"patchType":"pin","eventId":"e","group":5}`), "group", patch.WrongField},
		{parsePatch(t, `{"patchType":"pin","eventId":"e","group":""}`), "group", patch.WrongField},
	} {
		wantDefect(t, c.p, c.field, c.flaw)
		wantDefect(t, stored(t, patch.Record{Patch: c.p}).Patch, c.field, c.flaw)
		wantDefect(t, parsePatch(t, c.p.String()), c.field, c.flaw)
	}

	// If a patch cannot be written as a line of text, it cannot be encoded in the byte form either.
	for _, c := range []struct {
		p     *patch.PatchEvent
		field string
	}{
		{patch.NewTruncateBefore("\xff"), "eventId"},
		{patch.NewRevert("\xff"), "patchId"},
		{patch.NewPin("e").WithGroup("\xff"), "group"},
		{patch.NewTruncateBefore("e").WithID("\xff"), "id"},
		{patch.NewTruncateBefore("e").WithID(long), "id"},
		{patch.NewTruncateBefore("e").WithAuthor("\xff"), "author"},
		{patch.NewTruncateBefore("e").WithTimestamp(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), "timestamp"},
		{patch.NewTruncateBefore("e").WithState("\xff"), "state"},
	} {
		wantDefect(t, c.p, c.field, patch.WrongField)
		if _, err := patch.AppendRecord(nil, patch.Record{Patch: c.p}); !errors.Is(err, patch.ErrInvalid) {
			t.Errorf("AppendRecord of a patch with a bad %s: %v", c.field, err)
		}
	}
}

// The limit on the number of fields applies to records made from Go values too.
func TestTooManyFields(t *testing.T) {
	extra := map[string]any{}
	for i := range patch.MaxFields {
		extra[fmt.Sprint("x", i)] = i
	}
	if _, err := patch.NewEvent(patch.Fields{Extra: extra}); err != nil {
		t.Error(err)
	}
	testlog.ErrorIs(t, testlog.ErrorOf(patch.NewEvent(patch.Fields{Extra: extra, Partial: true})), patch.ErrTooLarge, "%d fields", patch.MaxFields+1)
	extra["patchType"] = "later"
	text := testlog.Must(json.Marshal(extra))(t)
	r := testlog.Must(patch.ParseRecord(text))(t)
	testlog.ErrorIs(t, testlog.ErrorOf(r.Patch.WithCustomMetadata(map[string]any{"a": 1})), patch.ErrTooLarge, "a patch of %d fields", patch.MaxFields+1)
}

// TestNil checks that a nil or missing argument is refused, and that the error names the argument.
func TestNil(t *testing.T) {
	var none *patch.PatchEvent
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"patch":             {none.Validate, "patch"},
		"replacement event": {patch.NewSplice(0, 1, nil).Validate, "replacement/0"},
		"summary":           {patch.NewSummarise(0, 1, nil).Validate, "summaryEvent"},
		"reader":            {func() error { _, err := patch.NewDecoder(nil, "f").Next(); return err }, "reader"},
		"reader of header":  {func() error { _, _, err := patch.NewDecoder(nil, "f").InitialState(); return err }, "reader"},
		"writer of header":  {func() error { return patch.WriteHeader(nil, nil) }, "writer"},
		"writer":            {func() error { return patch.WriteRecord(nil, parse(t, `{}`)) }, "writer"},
		"record":            {func() error { _, err := patch.AppendRecord(nil, patch.Record{}); return err }, "neither an event nor a patch"},
		"record as text":    {func() error { _, err := patch.Record{}.MarshalJSON(); return err }, "neither an event nor a patch"},
		"target":            {func() error { return parse(t, `{"content":{}}`).Event.Decode("content", nil) }, "content"},
	} {
		if err := c.do(); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
