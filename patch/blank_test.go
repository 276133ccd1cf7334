package patch_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/filler"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

const identityJSON = `"id":"e1","invocationId":"i","author":"a","branch":"b","isolationScope":"s","timestamp":"2026-01-02T03:04:05Z"`

func TestBlankEvent(t *testing.T) {
	erasedBy := func(as string) string { return `"erased":{"as":"` + as + `","receipt":"r1"}` }
	mark := `"customMetadata":{"patchlog":{` + erasedBy("e1") + `}}`
	for in, want := range map[string]string{
		`{` + identityJSON + `,"content":{"parts":[{"text":"secret"}],"role":"user","x":"secret"},"usageMetadata":{"promptTokenCount":7},"errorMessage":"secret"}`: `{` + identityJSON + `,"content":{"parts":[{"text":"[erased]"}],"role":"user"},` + mark + `}`,

		`{"id":"e1","content":{"parts":[{"text":"secret","functionCall":{"id":"c","name":"f","args":{"x":"secret"}}},{"thought":true},{"functionResponse":{"id":"c","name":"f","response":{"x":"secret"},"willContinue":true}},{"functionCall":{"name":"g"}},{"functionResponse":{}}]},"longRunningToolIds":["c"]}`: `{"id":"e1","content":{"parts":[{"functionCall":{"id":"c","name":"f"}},{"functionResponse":{"id":"c","name":"f","response":{"erased":true}}},{"functionCall":{"name":"g"}},{"functionResponse":{"response":{"erased":true}}}]},` + mark + `,"longRunningToolIds":["c"]}`,

		`{"id":"e1","actions":{"stateDelta":{"k":"v","app:a":1.0},"artifactDelta":{"secret":1},"transferToAgent":"secret","compaction":{"startTimestamp":1.5,"endTimestamp":"secret","compactedContent":{"parts":[{"text":"secret"}]},"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:02Z","x":"secret"},7,{"invocationId":3,"timestamp":"1970-01-01T00:00:04Z"}]}}}`: `{"id":"e1","actions":{"compaction":{"startTimestamp":1.5,"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:02Z"}]},"stateDelta":{"k":"v","app:a":1.0}},` + mark + `}`,

		`{"id":"e1","customMetadata":{"mine":"secret","patchlog":{"level":1,"tokens":"secret","from":2,"other":"secret","recalled":"e0","as":"e1","cleared":{"as":"e1","id":"e0","seq":3,"tokens":4,"x":"secret"}}}}`: `{"id":"e1","customMetadata":{"patchlog":{"as":"e1","cleared":{"as":"e1","id":"e0","seq":3,"tokens":4},` + erasedBy("e1") + `,"from":2,"level":1,"recalled":"e0"}}}`,

		`{"id":"e1","content":{"parts":[{"functionCall":{"name":"recall_read","args":{"handle":" 12.3/4 ","x":"secret"}}},{"functionCall":{"name":"recall_read","args":{"handle":"id=secret"}}},{"functionCall":{"name":"recall_read","args":{"handle":7}}},{"functionCall":{"name":"read","args":{"handle":"4711"}}},{"functionResponse":{"name":"recall_search","response":{"results":[{"handle":"5","text":"secret"},{"handle":"6.x"},7,{"handle":"08"}],"note":"secret"}}},{"functionResponse":{"name":"recall_search","response":{"results":"secret"}}},{"functionResponse":{"name":"search","response":{"results":[{"handle":"4711"}]}}}]}}`: `{"id":"e1","content":{"parts":[{"functionCall":{"args":{"handle":"12.3"},"name":"recall_read"}},{"functionCall":{"name":"recall_read"}},{"functionCall":{"name":"recall_read"}},{"functionCall":{"name":"read"}},{"functionResponse":{"name":"recall_search","response":{"erased":true,"results":[{"handle":"5"},{"handle":"8"}]}}},{"functionResponse":{"name":"recall_search","response":{"erased":true}}},{"functionResponse":{"name":"search","response":{"erased":true}}}]},` + mark + `}`,

		`{"id":"e1","content":{"role":"user"},"customMetadata":null}`: `{"id":"e1","content":{"role":"user"},` + mark + `}`,
		`{"id":"e1","content":null,"actions":{"stateDelta":{}}}`:      `{"id":"e1","actions":{"stateDelta":{}},` + mark + `}`,
	} {
		e := parseEvent(t, in)
		got := e.Blank("r1", patch.KeepValues)
		if got.String() != want {
			t.Errorf("%s\nbecame %s\nwant   %s", in, got, want)
		}
		if again := got.Blank("r2", patch.KeepValues); again != got {
			t.Errorf("a second blank is %s", again)
		}
		if r, ok := got.ErasedBy(); !ok || r != "r1" {
			t.Errorf("%s says of its erasure %q, %v", got, r, ok)
		}
		if r, ok := e.ErasedBy(); ok || r != "" {
			t.Errorf("%s says that it was erased by %q", e, r)
		}
	}

	nulled := parseEvent(t, `{"id":"e1","actions":{"stateDelta":{"k":"v","app:a":1}}}`).Blank("r1", patch.KeepValues).Blank("r2", patch.NullValues)
	if want := `{"id":"e1","actions":{"stateDelta":{"k":null,"app:a":null}},"customMetadata":{"patchlog":{"erased":{"as":"e1","receipt":"r2"}}}}`; nulled.String() != want {
		t.Errorf("without values it is %s", nulled)
	}
	if again := nulled.Blank("r3", patch.NullValues); again != nulled {
		t.Errorf("a second blank without values is %s", again)
	}
}

// Blank accepts an event whose state has the maximum nesting depth.
func TestBlankOfDeepState(t *testing.T) {
	deep := strings.Repeat("[", 995) + strings.Repeat("]", 995)
	e := parseEvent(t, `{"id":"e1","actions":{"stateDelta":{"k":`+deep+`}}}`)
	want := `{"id":"e1","actions":{"stateDelta":{"k":` + deep + `}},"customMetadata":{"patchlog":{"erased":{"as":"e1","receipt":"r"}}}}`
	if got := e.Blank("r", patch.KeepValues).String(); got != want {
		t.Errorf("it is %.200s", got)
	}
	patch.NewSplice(0, 1).WithID("\xff").Blank("\xff", patch.KeepValues, func(int) bool { return true })
}

// The blank of a summary has the role user, and keeps the summary's level. The blank of any other event keeps its
// role.
func TestBlankSummary(t *testing.T) {
	e := parseEvent(t, `{"id":"e1","content":{"parts":[{"text":"secret"}],"role":"model"},"actions":{"compaction":{"startTimestamp":1,"compactedContent":"secret"}},"customMetadata":{"secret":1,"patchlog":{"level":2}}}`)
	want := `{"id":"e1","actions":{"compaction":{"startTimestamp":1}},"content":{"parts":[{"text":"[erased]"}],"role":"user"},"customMetadata":{"patchlog":{"erased":{"as":"e1","receipt":"r"},"level":2}}}`
	if got := e.Blank("r", patch.KeepValues); got.String() != want || !got.IsBlank(patch.NullValues) || got.Blank("r2", patch.NullValues) != got {
		t.Errorf("it is %s\nwant %s", got, want)
	}
	plain := parseEvent(t, `{"id":"e1","content":{"parts":[{"text":"secret"}],"role":"model"}}`)
	all := func(int) bool { return true }
	for role, p := range map[string]*patch.PatchEvent{"user": patch.NewSummarise(0, 1, plain), "model": patch.NewSplice(0, 1, plain)} {
		if got := p.WithID("p").Blank("r", patch.KeepValues, all).NewEvents()[0].Content().String(); !strings.Contains(got, `"role":"`+role+`"`) {
			t.Errorf("the event of a blank %s is %s, want role %q", p.Type(), got, role)
		}
	}
}

// A copy of an erased event with another id does not count as erased.
func TestErasedByRequiresOwnID(t *testing.T) {
	e := parseEvent(t, `{"id":"e2","customMetadata":{"patchlog":{"erased":{"as":"e1","receipt":"r1"}}}}`)
	if _, ok := e.ErasedBy(); ok {
		t.Error("a copy with another id counts as erased")
	}
}

// The blank of an event with all fields has only the fields that the documentation of Blank names. The values of
// these fields keep their Go types.
func TestBlankOfFullEvent(t *testing.T) {
	f := patch.Fields{ID: "e1", InvocationID: "i", Author: "a", Content: mustContent(t, filler.Fill[sdkContent]()), Actions: *filler.Fill[patch.Actions]()}
	f.Actions.Extra = map[string]any{"secret": "secret"}
	f.Extra = map[string]any{"secret": []any{"secret"}}
	f.CustomMetadata = map[string]any{"secret": int8(3)}
	e := newEvent(t, f)
	for _, values := range []patch.ValuePolicy{patch.KeepValues, patch.NullValues} {
		got := storedEvent(t, e.Blank("r1", values))
		if strings.Contains(got.String(), "secret") || len(got.CustomMetadata()) != 1 {
			t.Errorf("it has %s", got)
		}
		if values == patch.KeepValues && fmt.Sprintf("%#v", got.StateDelta()) != fmt.Sprintf("%#v", e.StateDelta()) {
			t.Errorf("the delta is %#v, want %#v", got.StateDelta(), e.StateDelta())
		}
		for key, v := range got.StateDelta() {
			if values == patch.NullValues && v != nil {
				t.Errorf("%s is %v", key, v)
			}
		}
		c := new(sdkContent)
		if err := got.Content().Decode(c); err != nil || len(c.Parts) == 0 {
			t.Errorf("content %+v, %v", c, err)
		}
	}
}

func eventsOf(r patch.Record) []*patch.Event { return r.Events() }

// A blank keeps every field that the fold reads. A malformed patch stays malformed.
func TestBlankFoldsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ref := fuzz.NewReference(nil)
		var r patch.Record
		for i := range rapid.IntRange(1, 6).Draw(t, "records") {
			r = patch.Record{Seq: uint64(i + 1)}
			if rapid.Bool().Draw(t, "patch") {
				r.Patch = fuzz.PatchOn(fmt.Sprint("p", i+1), ref).Draw(t, "patch")
			} else {
				r.Event = fuzz.Event(fmt.Sprint("e", i+1), ref.Visible()).Draw(t, "event")
			}
			r = patch.Complete(r, func() string { return fmt.Sprint("new", i) }, time.Unix(1, 0))
			ref.Apply(r)
		}
		values := rapid.SampledFrom([]patch.ValuePolicy{patch.KeepValues, patch.NullValues}).Draw(t, "values")
		of := patch.Erasure{Seqs: []patch.Span{{From: r.Seq, To: r.Seq}}, Values: values}
		kept := -1
		if n := len(eventsOf(r)); r.Patch != nil && n > 1 && rapid.Bool().Draw(t, "one stays") {
			kept = rapid.IntRange(0, n-1).Draw(t, "which")
			var within []int
			for i := range n {
				if i != kept {
					within = append(within, i)
				}
			}
			of.EventIndices = map[uint64][]int{r.Seq: within}
		}
		got := of.Blank(r, "receipt")
		if text, err := patch.AppendRecord(nil, got); err != nil {
			t.Fatal(err)
		} else if back, err := patch.DecodeRecord(text); err != nil || fmt.Sprint(back) != fmt.Sprint(got) {
			t.Fatalf("%v came back as %v, %v", got, back, err)
		}
		if receipt, ok := records.Envelope(got).ErasedBy(); !ok || receipt != "receipt" {
			t.Fatalf("%v does not say that it was erased", got)
		}
		if !patch.Same(got, r) {
			t.Fatalf("a retry of %v is refused after %v", r, got)
		}
		if again := of.Blank(got, "other"); again != got {
			t.Fatalf("a second blank of %v is %v", got, again)
		}
		if !slices.Equal(slices.Collect(got.IDs()), slices.Collect(r.IDs())) {
			t.Fatalf("ids %v, want %v", slices.Collect(got.IDs()), slices.Collect(r.IDs()))
		}
		for i, e := range eventsOf(got) {
			was := eventsOf(r)[i]
			if i == kept {
				if e != was {
					t.Fatalf("event %d was to stay, and is %v", i, e)
				}
				continue
			}
			role := was.Role()
			if was.SaysSomething() && (was.IsSummary() || r.Patch != nil && r.Patch.Type() == patch.Summarise) {
				role = "user"
			}
			if e.Role() != role || e.SaysSomething() != was.SaysSomething() || e.IsSummary() != was.IsSummary() ||
				!slices.Equal(functions(e), functions(was)) || !slices.Equal(e.LongRunningToolIDs(), was.LongRunningToolIDs()) ||
				!slices.Equal(changed(e, values), changed(was, values)) {
				t.Fatalf("%v\nbecame %v", was, e)
			}
		}
		if r.Patch == nil {
			return
		}
		p, was := got.Patch, r.Patch
		if (p.Validate() == nil) != (was.Validate() == nil) || flawOf(p) == patch.UnknownType != (flawOf(was) == patch.UnknownType) {
			t.Fatalf("%v: %v\nbecame %v: %v", was, was.Validate(), p, p.Validate())
		}
		if p.Type() != was.Type() || p.Start() != was.Start() || p.Count() != was.Count() || p.EventID() != was.EventID() ||
			p.PatchID() != was.PatchID() || p.Group() != was.Group() || p.StatePolicy() != was.StatePolicy() {
			t.Fatalf("%v\nbecame %v", was, p)
		}
		if text, ok := p.Field("unknown"); ok {
			t.Fatalf("a field without a meaning is left: %s", text)
		}
	})
}

func flawOf(p *patch.PatchEvent) patch.Flaw {
	var d *patch.FieldError
	errors.As(p.Validate(), &d)
	if d == nil {
		return ""
	}
	return d.Flaw
}

func functions(e *patch.Event) (all []patch.FunctionPart) {
	for p := range e.FunctionParts() {
		p.Index = 0
		all = append(all, p)
	}
	return all
}

func changed(e *patch.Event, values patch.ValuePolicy) (all []string) {
	add := func(c patch.Change) {
		if values == patch.NullValues {
			all = append(all, c.Key)
		} else {
			all = append(all, c.Key+" "+c.Value.String())
		}
	}
	e.Changes()(func(c patch.Change) bool { add(c); return true })
	e.SharedChanges()(func(c patch.Change) bool { add(c); return true })
	return all
}

// After an erasure, a patch has the same effect on the visible log, and no metadata or unknown fields.
func TestBlankPatch(t *testing.T) {
	p := parsePatch(t, `{"id":"p","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s","content":{"parts":[{"text":"secret"}]}},"base":0,"group":"g","why":"secret","customMetadata":{"mine":"secret","patchlog":{"tokens":3,"text":"secret"}}}`)
	all := func(int) bool { return true }
	got := p.Blank("r1", patch.KeepValues, all)
	want := `{"id":"p","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s","content":{"parts":[{"text":"[erased]"}],"role":"user"},"customMetadata":{"patchlog":{"erased":{"as":"s","receipt":"r1"}}}},"base":0,"group":"g","customMetadata":{"patchlog":{"erased":{"as":"p","receipt":"r1"},"tokens":3}}}`
	if got.String() != want || got.Validate() != nil {
		t.Errorf("it became %s: %v\nwant %s", got, got.Validate(), want)
	}
	for _, text := range []string{
		`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"content":"secret"}]}`,
		`{"id":"p","patchType":"splice","start":0,"count":1,"base":"secret"}`,
		`{"id":"p","patchType":"truncate_before","eventId":"e","content":"secret"}`,
		`{"id":"p","patchType":"pin","eventId":"e","group":["secret"]}`,
		`{"id":"p","patchType":"revert","patchId":["secret"]}`,
		`{"id":"p","patchType":"other","what":"secret"}`,
		`{"id":"p","patchType":"splice","start":0,"count":0,"replacement":[{"id":"in","partial":true,"content":{"parts":[{"text":"secret"}]}}]}`,
	} {
		p := parsePatch(t, text)
		got := p.Blank("r1", patch.KeepValues, all)
		if p.Validate() == nil || got.Validate() == nil || strings.Contains(got.String(), "secret") {
			t.Errorf("%s: %v\nbecame %s: %v", p, p.Validate(), got, got.Validate())
		}
	}
}

func TestReceipt(t *testing.T) {
	for _, c := range []struct {
		e    patch.Erasure
		line string
	}{
		{patch.Erasure{}, `{"patchType":"erase","seqs":[]}`},
		{patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}, {From: 2, To: 9}}, EventIndices: map[uint64][]int{9: {0, 2}, 4: {1}}, Summaries: patch.KeepSummaries, Values: patch.NullValues, Initial: []string{"a\"", "b"}, Reason: "asked", ClosedAt: 12},
			`{"patchType":"erase","seqs":[[1,1],[2,9]],"within":[[4,1],[9,0,2]],"summaries":"keep","values":"null","initial":["a\"","b"],"reason":"asked","closed":12}`},
	} {
		p := patch.NewErase(c.e)
		if p.String() != c.line || p.Validate() != nil || records.IsIndexed(p) || len(p.NewEvents()) != 0 {
			t.Errorf("%s: %v", p, p.Validate())
		}
		rec := patch.Record{Seq: 9, Patch: p}
		for _, back := range []patch.Record{parse(t, marshal(t, rec)), stored(t, rec)} {
			got, ok := back.Patch.Erasure()
			if want := c.e; !ok || got.Values == "" || want.Values != "" && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("it came back as %+v, %v", got, ok)
			}
		}
		if got := (patch.Erasure{Seqs: []patch.Span{{From: 1, To: 20}}}).Blank(rec, "r"); got != rec {
			t.Errorf("a receipt was erased: %v", got)
		}
	}
	e := patch.Erasure{Seqs: []patch.Span{{From: 2, To: 2}, {From: 4, To: 6}}}
	for seq, want := range []bool{false, false, true, false, true, true, true, false} {
		if e.CoversEvent(uint64(seq), -1) != want {
			t.Errorf("covers record %d: %v", seq, !want)
		}
	}
	e.EventIndices = map[uint64][]int{4: {}, 5: {1}}
	for at, want := range map[[2]int]bool{{2, 0}: true, {2, -1}: true, {3, 0}: false, {3, -1}: false, {4, 0}: false, {4, -1}: true, {5, 1}: true, {5, 0}: false, {6, 3}: true} {
		if e.CoversEvent(uint64(at[0]), at[1]) != want {
			t.Errorf("covers event %v: %v", at, !want)
		}
	}
	e.Summaries, e.ClosedAt = patch.BlankSummaries, 7
	upTo, ok := patch.NewErase(e).WithID("r").ErasureUpTo(5)
	if got, _ := upTo.Erasure(); !ok || upTo.ID() != "r" || fmt.Sprintf("%v %v %v %v", got.Seqs, got.EventIndices, got.Summaries, got.ClosedAt) != "[{2 2} {4 5}] map[4:[] 5:[1]] blank 5" {
		t.Errorf("up to record 5 it is %s", upTo)
	}
	for text, flaw := range map[string]patch.Flaw{
		`"seqs":[[1,2]],"closed":-1`: patch.WrongField, `"seqs":[[1,2]],"within":{}`: patch.WrongField,
		``: patch.MissingField, `"seqs":null`: patch.WrongField, `"seqs":5`: patch.WrongField, `"seqs":[[0,1]]`: patch.WrongField,
		`"seqs":[[2,1]]`: patch.WrongField, `"seqs":[[1,2],[2,3]]`: patch.WrongField, `"seqs":[[1]]`: patch.WrongField, `"seqs":[[1,2.5]]`: patch.WrongField,
		`"seqs":[],"within":[[1,0]]`: patch.WrongField, `"seqs":[[1,2]],"within":[[]]`: patch.WrongField, `"seqs":[[1,2]],"within":[[1,0],[1,1]]`: patch.WrongField,
		`"seqs":[[1,2]],"within":[[1,1,0]]`: patch.WrongField, `"seqs":[],"values":"gone"`: patch.WrongField, `"seqs":[],"initial":"k"`: patch.WrongField,
		`"seqs":[],"reason":1`: patch.WrongField, `"seqs":[],"summaries":"remake"`: patch.WrongField, `"seqs":[],"summaries":true`: patch.WrongField,
		`"seqs":[],"state":"keep"`: patch.ForeignField, `"seqs":[],"start":1`: patch.ForeignField, `"seqs":[],"patchId":"p"`: patch.ForeignField, `"seqs":[],"content":{}`: patch.ForeignField,
	} {
		if text != "" {
			text = "," + text
		}
		p := parsePatch(t, `{"patchType":"erase"`+text+`}`)
		if _, ok := p.Erasure(); flawOf(p) != flaw || ok && flaw != patch.ForeignField {
			t.Errorf("%s: %v, want %s", p, p.Validate(), flaw)
		}
	}
}
