package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// canonical writes JSON in one way: keys in order, number literals as they are, and
// the top-level time as an instant. It shares no code with package patch.
func canonical(t testing.TB, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%.200s is not one JSON value: %v", text, err)
	}
	if object, ok := v.(map[string]any); ok {
		if text, ok := object["timestamp"].(string); ok {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			object["timestamp"] = fmt.Sprintf("instant %d.%09d", at.Unix(), at.Nanosecond())
		}
	}
	var b bytes.Buffer
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(b, "%q:", k)
			writeCanonical(b, v[k])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for _, e := range v {
			writeCanonical(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case string:
		fmt.Fprintf(b, "%q", v)
	default: // nil, bool, json.Number
		fmt.Fprint(b, v)
	}
}
