package migrate

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// decodePrefix closes the values that a truncated text leaves open. A member without a value becomes null.
func TestDecodePrefix(t *testing.T) {
	for text, want := range map[string]string{
		``: ``, `x`: ``, `{"a":1} more`: `{"a":1}`, `{"a":{"b":[1,{"c":"d`: `{"a":{"b":[1,{"c":null}]}}`,
		`{"a":1,`: `{"a":1}`, `{"a":1,"b"`: `{"a":1,"b":null}`, `[[1,2],[`: `[[1,2],[]]`, `{"a":"\ud800","a":2`: `{"a":"\ud800","a":2}`,
		"{\"a\":\"\xff\",": "{\"a\":\"\xff\"}", `{"a":1}}`: `{"a":1}`, `{"a":1;"b":2}`: `{"a":1}`,
	} {
		testlog.Equal(t, text, string(decodePrefix([]byte(text))), want)
	}
}
