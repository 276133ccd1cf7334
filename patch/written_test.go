package patch_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

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
