package patch_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
)

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
		if at := (&patch.FieldError{}); !asField(err, &at) || !strings.HasPrefix(at.Field, "content") {
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

func asField(err error, at **patch.FieldError) bool {
	f, ok := err.(*patch.FieldError)
	*at = f
	return ok
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
			(&filler{}).fill(want.Elem())
			e := newEvent(t, patch.Fields{Extra: map[string]any{"x": want.Interface()}})
			for _, e := range []*patch.Event{e, storedEvent(t, e)} {
				got := reflect.New(v)
				if err := e.Decode("x", got.Interface()); err != nil {
					t.Fatal(err)
				}
				wantEqual(t, "it", got.Interface(), want.Interface())
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
