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
