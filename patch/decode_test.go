package patch_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

type level string

type embedded struct{ Inner int }

// target has a field for each kind of Go type that a value can be decoded into.
type target struct {
	Bool    bool
	Int     int8
	Uint    uint16 `json:"u"`
	Float   float32
	Double  *float64 `json:"double,omitempty"`
	Text    level
	Number  json.Number
	Bytes   []byte
	Time    time.Time
	Any     any
	List    []*target
	Floats  []float64
	Array   [2]uint
	Map     map[string]any
	Typed   map[string]*uint8
	Keyed   map[int]string
	Ignored int      `json:"-"`
	Within  struct { // decoded by encoding/json
		embedded
		A, B   []string
		Quoted int64 `json:",string"`
	}
}

// Event.Decode gives the same values as encoding/json, and fails for the same input.
func TestDecodeMatchesEncodingJSON(t *testing.T) {
	values := strings.Fields(`null true false 0 -0 1 -1 1.5 1e2 128 255 256 65535 65536 -129 3e38 3e39 1e-400 ""
		"a" "YQ==" "7" "2020-01-02T03:04:05Z" "é\n\u0001" [] [1,2] [1,2,3] [null,1] [0.5,-2] ["x",null] {} {"7":"x"} {"a":7,"b":null} {"a":300} {"inner":1,"a":["x"],"B":[],"quoted":"7"}`)
	for _, name := range strings.Fields("Bool int INT u Uint float double Text Number Bytes Time Any Floats Array Map Typed Keyed Ignored - Within other") {
		for _, of := range values {
			text := fmt.Sprintf(`{%q:%s,"List":[null,{%q:%s}]}`, name, of, name, of)
			value := testlog.Must(patch.ParseValue([]byte(text)))(t)
			var got, want target
			err := value.Decode(&got)
			if wanted := json.Unmarshal([]byte(text), &want); (err == nil) != (wanted == nil) || err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, %v, want %+v, %v", text, got, err, want, wanted)
			}
		}
	}
}
