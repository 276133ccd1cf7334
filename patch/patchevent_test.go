package patch_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func textEvent(t testing.TB, id, text string) *patch.Event {
	t.Helper()
	return newEvent(t, patch.Fields{ID: id, Author: "model", Content: patch.Text("model", text)})
}

func TestPatchConstructors(t *testing.T) {
	a, b := textEvent(t, "a", "x"), textEvent(t, "b", "y")
	splice := patch.NewSplice(1, 2, a, b)
	truncate := patch.NewTruncateBefore("e")
	summarise := patch.NewSummarise(0, 3, a)
	revert := patch.NewRevert("p\"1")
	for _, c := range []struct {
		p       *patch.PatchEvent
		typ     patch.Type
		indexed bool
		state   patch.StatePolicy
		line    string
	}{
		{splice, patch.Splice, true, patch.Drop, `{"patchType":"splice","start":1,"count":2,"replacement":[` + a.String() + `,` + b.String() + `]}`},
		{patch.NewSplice(0, 1), patch.Splice, true, patch.Drop, `{"patchType":"splice","start":0,"count":1,"replacement":[]}`},
		{truncate, patch.TruncateBefore, false, patch.Drop, `{"patchType":"truncate_before","eventId":"e"}`},
		{summarise, patch.Summarise, true, patch.Keep, `{"patchType":"summarise","start":0,"count":3,"summaryEvent":` + a.String() + `}`},
		{revert, patch.Revert, false, patch.Drop, `{"patchType":"revert","patchId":"p\"1"}`},
		{patch.NewPin("e"), patch.Pin, false, patch.Drop, `{"patchType":"pin","eventId":"e"}`},
		{patch.NewUnpin("e"), patch.Unpin, false, patch.Drop, `{"patchType":"unpin","eventId":"e"}`},
		{patch.NewPin("e").WithGroup("g").WithGroup("g\"1"), patch.Pin, false, patch.Drop, `{"patchType":"pin","eventId":"e","group":"g\"1"}`},
		{patch.NewPin("e").WithGroup("g").WithGroup(""), patch.Pin, false, patch.Drop, `{"patchType":"pin","eventId":"e"}`},
	} {
		if err := c.p.Validate(); err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
		if got := c.p.String(); got != c.line || (patch.Record{Patch: c.p}).Size() != len(c.line) {
			t.Errorf("the patch is %s, of size %d, want %s", got, patch.Record{Patch: c.p}.Size(), c.line)
		}
		if c.p.Type() != c.typ || records.IsIndexed(c.p) != c.indexed || c.p.StatePolicy() != c.state {
			t.Errorf("%s: type %s, indexed %v, state %s", c.line, c.p.Type(), records.IsIndexed(c.p), c.p.StatePolicy())
		}
		if seq, ok := c.p.Base(); ok || seq != 0 {
			t.Errorf("%s: base %d", c.line, seq)
		}
		rec := patch.Record{Seq: 9, Patch: c.p}
		for _, back := range []patch.Record{parse(t, marshal(t, rec)), stored(t, rec)} {
			if back.Seq != 9 || marshal(t, back) != marshal(t, rec) || !patch.Same(rec, back) {
				t.Errorf("came back as %s", marshal(t, back))
			}
		}
	}
	if splice.Start() != 1 || splice.Count() != 2 || !slices.Equal(splice.NewEvents(), []*patch.Event{a, b}) {
		t.Errorf("the splice says %d, %d, %v", splice.Start(), splice.Count(), splice.NewEvents())
	}
	if truncate.EventID() != "e" || truncate.NewEvents() != nil || truncate.Start() != 0 {
		t.Errorf("the truncate_before says %s, %v", truncate.EventID(), truncate.NewEvents())
	}
	if !slices.Equal(summarise.NewEvents(), []*patch.Event{a}) {
		t.Errorf("the summarise says %v", summarise.NewEvents())
	}
	if revert.PatchID() != `p"1` || revert.NewEvents() != nil || splice.PatchID() != "" {
		t.Errorf("the revert says %s, %v, the splice %s", revert.PatchID(), revert.NewEvents(), splice.PatchID())
	}
}

func TestPatchIsImmutable(t *testing.T) {
	a, b := textEvent(t, "a", "x"), textEvent(t, "b", "y")
	events := []*patch.Event{a, b}
	p := patch.NewSplice(0, 1, events...)
	was := p.String()
	events[0] = b
	p.NewEvents()[0] = b
	metadata := map[string]any{"k": []any{1}}
	at := time.Date(2024, 1, 1, 0, 0, 0, 1, time.UTC)
	full := p.WithID("i").WithAuthor("a").WithTimestamp(at).WithBase(0).WithState(patch.Keep)
	full = testlog.Must(full.WithCustomMetadata(metadata))(t)
	metadata["k"].([]any)[0] = 2
	if p.String() != was {
		t.Errorf("the patch became %s, was %s", p, was)
	}
	want := strings.Replace(was, `{`, `{"id":"i","author":"a","timestamp":"2024-01-01T00:00:00.000000001Z",`, 1)
	want = strings.TrimSuffix(want, `}`) + `,"base":0,"state":"keep","customMetadata":{"k":[1]}}`
	if got := full.String(); got != want || (patch.Record{Patch: full}).Size() != len(want) {
		t.Errorf("the copy is\n%s, want\n%s", got, want)
	}
	if seq, ok := full.Base(); seq != 0 || !ok || full.StatePolicy() != patch.Keep || full.ID() != "i" || !full.Timestamp().Equal(at) {
		t.Errorf("the copy says base %d, %v, state %s", seq, ok, full.StatePolicy())
	}
	back := stored(t, patch.Record{Patch: full}).Patch
	wantEqual(t, "custom metadata", back.CustomMetadata(), map[string]any{"k": []any{1}})
	back.CustomMetadata()["k"] = 0
	wantEqual(t, "custom metadata", back.CustomMetadata(), map[string]any{"k": []any{1}})

	// A With method replaces a value that was set before.
	again := testlog.Must(full.WithBase(7).WithState(patch.Drop).WithCustomMetadata(map[string]any{"n": 1}))(t)
	if want := strings.NewReplacer(`"base":0`, `"base":7`, `"keep"`, `"drop"`, `{"k":[1]}`, `{"n":1}`).Replace(want); again.String() != want {
		t.Errorf("the second copy is\n%s, want\n%s", again, want)
	}
	if none, err := full.WithCustomMetadata(nil); err != nil || none.CustomMetadata() != nil || strings.Contains(none.String(), "Metadata") {
		t.Errorf("without metadata the patch is %v, %v", none, err)
	}
	wantEqual(t, "custom metadata", full.CustomMetadata(), map[string]any{"k": []any{1}})
}

// A With method replaces a null or malformed value.
func TestWithReplacesMalformedField(t *testing.T) {
	p := parsePatch(t, `{"patchType":"splice","start":0,"count":1,"author":null,"id":"","timestamp":null,"base":"x","state":5,"customMetadata":null,"count2":{}}`)
	var d *patch.FieldError
	if !errors.As(p.Validate(), &d) || d.Field != "base" {
		t.Errorf("the defect is %v", d)
	}
	if !errors.As(p.WithBase(1).Validate(), &d) || d.Field != "state" {
		t.Errorf("after base is set the defect is %v", d)
	}
	full, err := p.WithBase(1).WithState(patch.Keep).WithAuthor("a").WithID("i").WithTimestamp(time.Unix(0, 0)).WithCustomMetadata(map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"i","author":"a","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"base":1,"state":"keep","count2":{},"customMetadata":{}}`
	if full.String() != want || full.Validate() != nil {
		t.Errorf("the patch is\n%s, want\n%s (%v)", full, want, full.Validate())
	}
	stored(t, parse(t, want))
	if got := p.WithState(patch.Drop).String(); !strings.Contains(got, `"base":"x"`) {
		t.Errorf("another malformed field is gone: %s", got)
	}
}

func TestLacksBase(t *testing.T) {
	for base, want := range map[string]bool{``: true, `,"base":null`: true, `,"base":0`: false, `,"base":7`: false, `,"base":"x"`: false, `,"base":-1`: false} {
		p := parsePatch(t, `{"patchType":"splice","start":0,"count":1`+base+`}`)
		if got := records.LacksBase(p); got != want {
			t.Errorf("%q: the patch lacks a base: %v", base, got)
		}
		if records.LacksBase(p.WithBase(0)) {
			t.Errorf("%q: it lacks the base that was set", base)
		}
	}
}

func TestPatchesInJSON(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"splice": {`{"start":1,"count":2,"patchType":"splice","replacement":[{"text":1}]}`,
			`{"patchType":"splice","start":1,"count":2,"replacement":[{"text":1}]}`},
		"another patch's patch_id": {`{"patchType":"splice","start":0,"count":1,"patch_id":5}`,
			`{"patchType":"splice","start":0,"count":1,"patch_id":5}`},
		"identity, base and state": {`{"seq":4,"base":0,"state":"keep","patchType":"truncate_before","eventId":"","id":"p","invocationId":"v","author":"a","branch":"b","isolationScope":"s","timestamp":"1970-01-01T00:00:01.5Z"}`,
			`{"seq":4,"id":"p","invocationId":"v","author":"a","branch":"b","isolationScope":"s","timestamp":"1970-01-01T00:00:01.5Z","patchType":"truncate_before","eventId":"","base":0,"state":"keep"}`},
		"unknown fields": {`{"patchType":"splice","start":0,"count":1,"why":{"deep":[1e400]},"customMetadata":{"a":1.0},"usageMetadata":[]}`,
			`{"patchType":"splice","start":0,"count":1,"why":{"deep":[1e400]},"customMetadata":{"a":1.0},"usageMetadata":[]}`},
		"nulls": {`{"patchType":"splice","start":0,"count":1,"eventId":null,"summaryEvent":null,"base":null,"state":null,"replacement":null,"patchId":null,"author":null}`,
			`{"patchType":"splice","start":0,"count":1,"eventId":null,"summaryEvent":null,"base":null,"state":null,"replacement":null,"patchId":null,"author":null}`},
		"largest numbers": {fmt.Sprintf(`{"patchType":"splice","start":%d,"count":%d,"base":18446744073709551615}`, math.MaxInt, math.MinInt),
			fmt.Sprintf(`{"patchType":"splice","start":%d,"count":%d,"base":18446744073709551615}`, math.MaxInt, math.MinInt)},
	} {
		t.Run(name, func(t *testing.T) {
			rec := parse(t, c.line)
			if rec.Patch == nil {
				t.Fatal("it is no patch")
			}
			for _, back := range []patch.Record{rec, stored(t, rec), parse(t, marshal(t, rec))} {
				if got := marshal(t, back); got != c.want {
					t.Errorf("came back as\n%s, want\n%s", got, c.want)
				}
			}
			for _, e := range rec.Patch.NewEvents() {
				if e.SaysSomething() && e.Content().String() == "null" {
					t.Errorf("%s has lost its content", e)
				}
			}
		})
	}
	why, ok := parsePatch(t, `{"patchType":"x","why":[1.0]}`).Field("why")
	if string(why) != "[1.0]" || !ok {
		t.Errorf("the unknown field is %s, %v", why, ok)
	}
}

// ParseRecord refuses field names of other programs, and does not keep them as unknown fields.
func TestForeignNamesAreRefused(t *testing.T) {
	for line, field := range map[string]string{
		`{"patch_type":"splice","start":1,"count":2}`:                      "patch_type",
		`{"patchType":"splice","patch_type":"splice"}`:                     "patch_type",
		`{"patchType":"truncate_before","event_id":"a"}`:                   "event_id",
		`{"patchType":"truncate_before","event_id":null,"eventId":"a"}`:    "event_id",
		`{"patchType":"summarise","start":0,"count":1,"summary_event":{}}`: "summary_event",
		`{"author":"a","summary_event":{}}`:                                "summary_event",
		`{"id":"e","event_data":{"author":"a"}}`:                           "event_data",
	} {
		_, err := patch.ParseRecord([]byte(line))
		wantField(t, err, field)
	}
	_, err := patch.ParseRecord([]byte(`{"patchType":"splice","id":"` + strings.Repeat("i", patch.MaxIDBytes+1) + `"}`))
	wantField(t, err, "id")
}
