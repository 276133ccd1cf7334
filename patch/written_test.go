package patch_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

// Numbers are written as encoding/json writes them, but that those without a fraction
// show that they are floats.
func TestFloatsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	below := func(f float64) float64 { return math.Nextafter(f, 0) }
	for _, f := range []float64{
		0, 0.5, -1.25, 1e-6, below(1e-6), 1e-7, -1e-6, -1e-7, 123.456, 1e20, below(1e21), 1e21, 1e22, -1e21, 1.5e300, 5e-324, math.MaxFloat64,
	} {
		e := newEvent(t, patch.Fields{Extra: map[string]any{"x": map[string]any{"f": f}}})
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer("e-0", "e-", "e+0", "e+").Replace(string(text))
		if !strings.ContainsAny(want, ".e") {
			want += ".0"
		}
		field, ok := e.Field("x")
		got := strings.NewReplacer("e-0", "e-", "e+0", "e+").Replace(string(field))
		if !ok || got != `{"f":`+want+`}` {
			t.Errorf("%v is written as %s, want %s", f, field, want)
		}
	}
}

type (
	Named  struct{ X int }
	Tagged struct {
		Y int `json:"X"`
	}
	Wrapped   struct{ Named }
	ByPointer struct{ *Named }
)

// Of fields of one name the least deeply embedded is written, of these the one with a tag,
// and none if there are several.
func TestEmbeddedFieldsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	for _, v := range []any{
		struct {
			Named
			X int
		}{Named{1}, 2},
		struct {
			X int
			Tagged
		}{2, Tagged{1}},
		struct {
			Named
			Tagged
		}{Named{1}, Tagged{2}},
		struct {
			Tagged
			Named
		}{Tagged{2}, Named{1}},
		struct {
			Wrapped
			Tagged
		}{Wrapped{Named{1}}, Tagged{2}},
		struct {
			Tagged
			Wrapped
		}{Tagged{2}, Wrapped{Named{1}}},
		struct {
			Wrapped
			Named
		}{Wrapped{Named{1}}, Named{2}},
		struct {
			Wrapped
			A int
		}{Wrapped{Named{1}}, 3},
		struct {
			ByPointer
			A int `json:"a,omitempty"`
		}{ByPointer{&Named{1}}, 0},
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		e := newEvent(t, patch.Fields{Extra: map[string]any{"x": v}})
		if got, _ := e.Field("x"); string(got) != string(want) {
			t.Errorf("%T is written as %s, want %s", v, got, want)
		}
	}
}
