package jsontext_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// Values in one group are equal, and to none of another group.
var equalGroups = [][]string{
	{`null`}, {`true`}, {`false`}, {`""`}, {`{}`}, {`[]`},
	{`"a"`, `"\u0061"`}, {`"/"`, `"\/"`}, {`"𝄞"`, `"\ud834\uDD1E"`},
	{`1`}, {`-1`}, {`1.0`, `1e0`, `1E-0`, `1.00E+0`, `10e-1`, `100e-2`, `0.1e+1`}, {`-1.0`}, {`0`}, {`-0`}, {`0.0`, `0e9`, `0.000`}, {`-0.0`, `-0e-9`},
	{`10`}, {`12`}, {`100`}, {`120`}, {`1e1`, `10.0`}, {`1e2`, `100.0`, `1e02`, `0.01e+4`}, {`0.1`, `1e-1`, `0.10`}, {`1e-400`},
	{`1e400`, `10e399`, `0.1e401`}, {`1e401`}, {`1e11000000000000000`}, {`1e999999999999999999999`, `10e999999999999999999998`},
	{`1e` + strings.Repeat("9", 100)}, {`2e` + strings.Repeat("9", 100)}, {`10e` + strings.Repeat("9", 100)}, {`10e` + strings.Repeat("9", 99) + "8"},
	// An exponent of up to 64 digits is counted with.
	{`1e` + strings.Repeat("9", 64), `10e` + strings.Repeat("9", 63) + "8"}, {`1e` + strings.Repeat("9", 65)}, {`10e` + strings.Repeat("9", 64) + "8"},
	{`9007199254740993`}, {`9007199254740992`}, {`9007199254740993.0`, `9.007199254740993e15`}, {`123456789012345678901234567890`},
	{`[1,2]`}, {`[2,1]`}, {`[1,2,2]`}, {`[[1,2]]`}, {`[1.0,2]`, `[1e0,2]`},
	{`{"a":1,"b":[]}`, `{"b":[],"a":1}`, `{"\u0062":[],"a":1}`}, {`{"a":1}`}, {`{"a":1,"c":[]}`}, {`{"a":1,"b":[0]}`}, {`{"a":null}`}, {`{"b":1}`},
	{`{"x":{"a":{"b":1.50,"c":"d"}}}`, `{"x":{"a":{"c":"\u0064","b":15e-1}}}`},
}

func TestEqual(t *testing.T) {
	for i, as := range equalGroups {
		for j, bs := range equalGroups {
			for _, a := range as {
				for _, b := range bs {
					if got := jsontext.Equal([]byte(a), []byte(b)); got != (i == j) {
						t.Errorf("%.80s equal to %.80s: %v", a, b, got)
					}
				}
			}
		}
	}
}
