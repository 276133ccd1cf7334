package gemini_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/internal/filler"
	"github.com/patchlog-dev/patchlog/patch"
)

// Events take genai's types, and give them back. The tests are here because this is the
// package that imports genai.

func newEvent(t *testing.T, f patch.Fields) *patch.Event {
	t.Helper()
	e, err := patch.NewEvent(f)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// madeAndStored returns an event as it was made, and as it comes out of a store.
func madeAndStored(t *testing.T, f patch.Fields) []*patch.Event {
	t.Helper()
	e := newEvent(t, f)
	form, err := patch.AppendRecord(nil, patch.Record{Seq: 1, Event: e})
	if err != nil {
		t.Fatal(err)
	}
	back, err := patch.DecodeRecord(form)
	if err != nil {
		t.Fatal(err)
	}
	return []*patch.Event{e, back.Event}
}

// comesBack checks that a value comes back deep-equal from a field of an event.
func comesBack[T any](t *testing.T, field string, want *T, f patch.Fields) {
	t.Helper()
	for _, e := range madeAndStored(t, f) {
		var got *T
		if err := e.Decode(field, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%T came back as\n%#v, want\n%#v", want, got, want)
		}
	}
}

func TestContentsComeBack(t *testing.T) {
	hollow := func() *genai.Content {
		var c *genai.Content
		filler.Empty(reflect.ValueOf(&c).Elem(), 4)
		p := new(genai.Part)
		filler.Empty(reflect.ValueOf(p).Elem(), 4)
		c.Parts = append(c.Parts, p, new(genai.Part), nil)
		return c
	}
	for _, c := range []*genai.Content{filler.Fill[genai.Content](), nil, {}, {Parts: []*genai.Part{}}, hollow()} {
		comesBack(t, "content", c, patch.Fields{Content: c})
	}
	usage := filler.Fill[genai.GenerateContentResponseUsageMetadata]()
	comesBack(t, "usageMetadata", usage, patch.Fields{UsageMetadata: usage})
}

func furtherField[T any](t *testing.T) {
	t.Helper()
	hollow := new(T)
	filler.Empty(reflect.ValueOf(hollow).Elem(), 3)
	for _, want := range []*T{filler.Fill[T](), new(T), hollow} {
		comesBack(t, "x", want, patch.Fields{Extra: map[string]any{"x": want}})
	}
}

func TestFurtherFieldsComeBack(t *testing.T) {
	furtherField[genai.CitationMetadata](t)
	furtherField[genai.GroundingMetadata](t)
	furtherField[genai.LogprobsResult](t)
	furtherField[genai.Transcription](t)
	furtherField[genai.Content](t)
	furtherField[genai.ModelStatus](t)
	furtherField[genai.Interval](t)
	furtherField[genai.TokensInfo](t)
	furtherField[genai.TunedModelInfo](t)
}

func TestTextSaysWhatGenaiSays(t *testing.T) {
	for _, text := range []string{"hi", "a\x00\n\"\\\u2028𝄞"} {
		for _, role := range []string{"user", "model", "\n"} {
			ours := newEvent(t, patch.Fields{Content: patch.Text(role, text)})
			theirs := newEvent(t, patch.Fields{Content: genai.NewContentFromText(text, genai.Role(role))})
			if ours.String() != theirs.String() {
				t.Errorf("%s, want %s", ours, theirs)
			}
		}
	}
}

// A duration is written in seconds with every nanosecond, and numbers that JSON's readers
// would round are written as texts, in decimal.
func TestTypesOfGenaiAreWrittenInFull(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: `"0s"`, 1: `"0.000000001s"`, -1: `"-0.000000001s"`, time.Second: `"1s"`, -time.Second: `"-1s"`,
		1500 * time.Millisecond: `"1.5s"`, -2*time.Second - 50*time.Millisecond: `"-2.05s"`, 90 * time.Minute: `"5400s"`,
		math.MaxInt64: `"9223372036.854775807s"`, math.MinInt64: `"-9223372036.854775808s"`,
	} {
		e := newEvent(t, patch.Fields{Content: &genai.Content{Parts: []*genai.Part{{VideoMetadata: &genai.VideoMetadata{StartOffset: d, EndOffset: 1}}}}})
		if text := e.String(); d != 0 && !strings.Contains(text, `"startOffset":`+want) {
			t.Errorf("%d nanoseconds are written in %s, want %s", d, text, want)
		}
		var c *genai.Content
		if err := e.Decode("content", &c); err != nil || c.Parts[0].VideoMetadata.StartOffset != d {
			t.Errorf("%v comes back as %v, %v", d, c, err)
		}
	}
}

// Token ids are of genai's types that write whole numbers as texts.
func TestWholeNumbersOfGenaiAreWrittenAsText(t *testing.T) {
	ids := []int64{0, 7, 11, -12, math.MaxInt64, math.MinInt64}
	e := newEvent(t, patch.Fields{Extra: map[string]any{"x": &genai.TokensInfo{TokenIDs: ids}}})
	field, _ := e.Field("x")
	if want := `["0","7","11","-12","9223372036854775807","-9223372036854775808"]`; !strings.Contains(string(field), want) {
		t.Errorf("%v are written in %s, want %s", ids, field, want)
	}
}

// probes are values of every kind, and such as some types take and others of the same
// kind do not.
var probes = []string{
	`null`, `true`, `0`, `-7`, `1.0`, `1e2`, `2147483647`, `2147483648`, `-2147483649`, `1e400`, `""`, `"x"`, `"5"`, `"1.5s"`, `"-2h"`, `"1.5"`,
	`"AAAA"`, `"AA=="`, `"AA"`, `"_-8="`, `"+\/8="`, `[]`, `[null]`, `[1]`, `[0,255]`, `[256]`, `["x"]`, `[{}]`, `[[]]`, `{}`, `{"x":1}`, `{"x":{"y":[1]}}`,
}

// A content is taken if, and only if, genai's types can hold it: at every place where
// they have a field, a value of every kind is tried.
func TestContentsAreTakenThatGenaiCanHold(t *testing.T) {
	taken, refused := 0, 0
	try := func(content string) {
		var c *genai.Content
		e, err := patch.ParseEvent([]byte(`{"content":` + content + `}`))
		if err == nil {
			content = e.Content().String() // as ADK's JSON has it; Python's base64 differs
		}
		want := json.Unmarshal([]byte(content), &c)
		if (err == nil) != (want == nil) {
			t.Errorf("%s: %v, but genai says %v", content, err, want)
		}
		if err == nil {
			taken++
			return
		}
		refused++
		if at := (*patch.FieldError)(nil); !errors.As(err, &at) || !strings.HasPrefix(at.Field, "content") {
			t.Errorf("%s: the error is %v", content, err)
		}
		if _, err := patch.NewEvent(patch.Fields{Content: json.RawMessage(content)}); err == nil {
			t.Errorf("NewEvent takes %s", content)
		}
	}
	places := 0
	var walk func(at reflect.Type, around func(string) string)
	walk = func(at reflect.Type, around func(string) string) {
		places++
		for _, p := range probes {
			if places > 1 || p != "null" {
				try(around(p))
			}
		}
		switch at.Kind() {
		case reflect.Pointer:
			places--
			walk(at.Elem(), around)
		case reflect.Slice:
			if at.Elem().Kind() != reflect.Uint8 {
				walk(at.Elem(), func(v string) string { return around(`[` + v + `]`) })
			}
		case reflect.Struct:
			for i := range at.NumField() {
				name, _, _ := strings.Cut(at.Field(i).Tag.Get("json"), ",")
				walk(at.Field(i).Type, func(v string) string { return around(`{"unknown":[{}],"` + name + `":` + v + `}`) })
				upper := strings.ToUpper(name)
				walk(reflect.TypeFor[any](), func(v string) string { return around(`{"` + upper + `":` + v + `}`) })
			}
		}
	}
	walk(reflect.TypeFor[genai.Content](), func(v string) string { return v })
	if places < 100 || taken < 1000 || refused < 1000 {
		t.Errorf("only %d places, %d taken, %d refused", places, taken, refused)
	}
}

// Every type that genai's contents, answers and requests are made of, and that writes and
// reads its JSON with code of its own, comes back deep-equal.
func TestGenaiTypesWithJSONOfTheirOwnComeBack(t *testing.T) {
	var seen []reflect.Type
	own := 0
	var walk func(v reflect.Type)
	walk = func(v reflect.Type) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(v.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if slices.Contains(seen, v) || v.PkgPath() != reflect.TypeFor[genai.Content]().PkgPath() {
			return
		}
		seen = append(seen, v)
		for i := range v.NumField() {
			walk(v.Field(i).Type)
		}
		if !reflect.PointerTo(v).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return
		}
		own++
		t.Run(v.Name(), func(t *testing.T) {
			want := reflect.New(v)
			filler.FillValue(want.Elem())
			for _, e := range madeAndStored(t, patch.Fields{Extra: map[string]any{"x": want.Interface()}}) {
				got := reflect.New(v)
				if err := e.Decode("x", got.Interface()); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got.Interface(), want.Interface()) {
					t.Errorf("it came back as\n%#v, want\n%#v", got, want)
				}
			}
		})
	}
	for _, root := range []any{
		genai.Content{}, genai.GenerateContentResponseUsageMetadata{}, genai.CitationMetadata{}, genai.GroundingMetadata{},
		genai.LogprobsResult{}, genai.Transcription{}, genai.Candidate{}, genai.LiveServerMessage{}, genai.Tool{},
		genai.TokensInfo{}, genai.Model{}, genai.Document{}, genai.FileSearchStore{}, genai.CachedContent{}, genai.GenerateContentConfig{},
	} {
		walk(reflect.TypeOf(root))
	}
	if len(seen) < 100 || own < 12 {
		t.Errorf("%d types, %d with JSON of their own", len(seen), own)
	}
}

var updateNames = flag.Bool("update-names", false, "write the names of genai's fields to schema_names.go anew")

// The names that Python's spelling is translated to are those of the genai that the tests
// are built with, each of them.
func TestSchemaHasGenaisNames(t *testing.T) {
	const file = "../../internal/adkjson/schema_names.go"
	w := namesWriter{seen: map[reflect.Type]bool{}}
	for _, top := range []any{
		genai.Content{}, genai.GenerateContentResponseUsageMetadata{}, genai.GroundingMetadata{}, genai.CitationMetadata{},
		genai.LogprobsResult{}, genai.Transcription{}, genai.LiveServerSessionResumptionUpdate{},
	} {
		w.mirror(t, reflect.TypeOf(top))
	}
	var source bytes.Buffer
	source.WriteString("// Code generated by TestSchemaHasGenaisNames with -update-names; DO NOT EDIT.\n\npackage adkjson\n\n")
	source.WriteString("// The names of genai's fields; see eventSchema.\ntype (\n" + strings.Join(w.types, "\n") + ")\n")
	want, err := format.Source(source.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if *updateNames {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has not the names of this version of genai (%v); run: go test ./compaction/gemini -run TestSchemaHasGenaisNames -update-names", file, err)
	}
}

// namesWriter writes types with the names of other types' fields, and with their types as
// far as names or bytes are in them.
type namesWriter struct {
	types []string
	seen  map[reflect.Type]bool
}

func (w *namesWriter) mirror(t *testing.T, of reflect.Type) {
	if w.seen[of] {
		return
	}
	w.seen[of] = true
	at := len(w.types)
	w.types = append(w.types, "")
	var b strings.Builder
	fmt.Fprintf(&b, "%s struct {\n", mirrored(of))
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case f.Anonymous || name == "":
			t.Fatalf("%s.%s has no name of its own", of, f.Name)
		}
		fmt.Fprintf(&b, "%s %s `json:%q`\n", f.Name, w.typeOf(t, f.Type), name)
	}
	w.types[at] = b.String() + "}\n"
}

// typeOf returns what stands for a type of a field.
func (w *namesWriter) typeOf(t *testing.T, of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Pointer:
		if inner := w.typeOf(t, of.Elem()); inner != "datum" {
			return "*" + inner
		}
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return "[]byte"
	case of.Kind() == reflect.Slice:
		if inner := w.typeOf(t, of.Elem()); inner != "datum" {
			return "[]" + inner
		}
	case of.Kind() == reflect.Struct && of.PkgPath() == reflect.TypeFor[genai.Content]().PkgPath():
		w.mirror(t, of)
		return mirrored(of)
	}
	return "datum"
}

func mirrored(of reflect.Type) string { return "genai" + of.Name() }
