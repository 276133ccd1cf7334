package patch_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Each of these lines is written exactly as it was read, even after it was stored.
func TestJSONRoundTrip(t *testing.T) {
	for name, line := range map[string]string{
		"nothing":                 `{}`,
		"identity":                `{"id":"i","invocationId":"v","author":"a","branch":"b","isolationScope":"s","timestamp":"2024-02-29T23:59:59.123456789Z"}`,
		"empty identity":          `{"invocationId":"","author":null,"branch":"","isolationScope":null}`,
		"unknown fields":          `{"id":"i","later":{"x":[{"y":null}]},"content":{"new":1,"parts":[{"text":"a","new":{"deep":[1.0]},"functionCall":{"name":"f","args":{},"new":true}}]},"actions":{"new":{"a":[]},"stateDelta":{}}}`,
		"empty list of parts":     `{"content":{"role":"model","parts":[]},"errorCode":"X"}`,
		"empty content":           `{"content":{}}`,
		"null everywhere":         `{"content":null,"actions":null,"partial":null,"longRunningToolIds":null,"usageMetadata":null,"customMetadata":null}`,
		"null within":             `{"content":{"role":null,"parts":[null,{"text":null,"functionCall":null}]},"actions":{"stateDelta":null,"artifactDelta":null,"skipSummarization":null,"transferToAgent":null,"escalate":null,"compaction":null}}`,
		"false and empty":         `{"partial":false,"longRunningToolIds":[],"customMetadata":{},"actions":{"escalate":false,"transferToAgent":""}}`,
		"numbers":                 `{"actions":{"stateDelta":{"a":9007199254740993,"b":1.0,"c":1e2,"d":1e400,"e":-0,"f":-0.0,"g":0.1,"h":1E+2,"i":100000000000000000000000000,"j":1.50}}}`,
		"numbers in arguments":    `{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":9007199254740993,"b":1e400,"c":[-1e400,1.0]}}},{"functionResponse":{"name":"f","response":{"r":1e400}}}]}}`,
		"numbers in metadata":     `{"customMetadata":{"a":1e400},"usageMetadata":{"promptTokenCount":5,"new":1e400}}`,
		"control characters":      `{"content":{"parts":[{"text":"\u0000\u001b\u2028 \ud834\udd1e \u00e9 \/ \b"}]}}`,
		"raw characters":          "{\"content\":{\"parts\":[{\"text\":\"\u2028\u2029 \U0001d11e \U0010ffff \x7f é\"}]},\"\U0001d11e\":1}",
		"escapes in keys":         `{"a":{"\u0062\n":1,"":2},"actions":{"stateDelta":{"\u0000":1,"a\/b":2}}}`,
		"replacement character":   `{"author":"` + "\ufffd" + `"}`,
		"many keys":               `{"a":{` + manyKeys(100) + `}}`,
		"deep":                    `{"a":` + strings.Repeat(`[`, 997) + strings.Repeat(`]`, 997) + `}`,
		"upper case":              `{"ID":"x","Content":1}`,
		"names of a patch":        `{"start":1,"count":"x","state":null,"base":-1,"eventId":5,"replacement":0}`,
		"escaped known names":     `{"id":"i","longRunningToolIds":["a\u0062"]}`,
		"a call and its response": `{"content":{"role":"user","parts":[{"functionCall":{"id":"c","name":"f"}},{"functionResponse":{"id":"c","name":"f","response":{}}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			rec := parse(t, line)
			if rec.Event == nil {
				t.Fatal("it is no event")
			}
			if got := marshal(t, rec); got != line {
				t.Errorf("came back as\n%s, was\n%s", got, line)
			}
			if got := marshal(t, stored(t, rec)); got != line {
				t.Errorf("came back from the store as\n%s, was\n%s", got, line)
			}
			if rec.Size() != len(line) {
				t.Errorf("Size is %d, want %d", rec.Size(), len(line))
			}
			testlog.WantNil(t, rec.Event.Content().Decode(new(sdkContent)))
		})
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = `"k` + strings.Repeat("x", i) + `":0`
	}
	return strings.Join(keys, ",")
}

func TestJSONKeepsAllButWhiteSpaceAndOrder(t *testing.T) {
	for line, want := range map[string]string{
		" {\t\"a\" : [ 1 , \"b c\" ] }\r\n":         `{"a":[1,"b c"]}`,
		`{"later":1,"author":"a","id":"i"}`:         `{"id":"i","author":"a","later":1}`,
		`{"id":"","timestamp":null,"author":"a"}`:   `{"author":"a"}`,
		`{"\u0069d":"i","\u0061":"\u0062"}`:         `{"id":"i","a":"\u0062"}`,
		`{"id":null}`:                               `{}`,
		`{"author":"\u0061\u2028\/"}`:               `{"author":"a` + "\u2028" + `/"}`,
		`{"seq":7,"id":"i"}`:                        `{"seq":7,"id":"i"}`,
		`{"seq":18446744073709551615}`:              `{"seq":18446744073709551615}`,
		`{"timestamp":"2024-02-29T23:59:59+01:00"}`: `{"timestamp":"2024-02-29T22:59:59Z"}`,
	} {
		if got := marshal(t, parse(t, line)); got != want {
			t.Errorf("%s came back as %s, want %s", line, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	for literal, want := range map[string]string{
		`"2024-02-29T23:59:59Z"`:                "2024-02-29T23:59:59Z",
		`"2024-02-29T23:59:59.000000001Z"`:      "2024-02-29T23:59:59.000000001Z",
		`"2024-02-29T23:59:59.120000000000Z"`:   "2024-02-29T23:59:59.12Z",
		`"2024-02-29T23:59:59.999999999-11:59"`: "2024-03-01T11:58:59.999999999Z",
		`"0001-01-01T00:00:00Z"`:                "0001-01-01T00:00:00Z",
		`"9999-12-31T23:59:59.999999999Z"`:      "9999-12-31T23:59:59.999999999Z",
		`"2024-02-29T23:59:59.5\u002b01:00"`:    "2024-02-29T22:59:59.5Z",
	} {
		e := parseEvent(t, `{"timestamp":`+literal+`}`)
		if got := e.Timestamp().Format(time.RFC3339Nano); got != want || e.Timestamp().Location() != time.UTC {
			t.Errorf("%s is %s, want %s", literal, got, want)
		}
	}
	for _, literal := range []string{
		`""`, `"now"`, `"2024-02-30T00:00:00Z"`, `"2024-02-29"`, `"2024-02-29T23:59:59"`, `"2024-02-29T23:59:59,0000000001Z"`,
		`"0000-12-31T23:59:59Z"`, `"0001-01-01T00:00:00+00:01"`,
		`"9999-12-31T23:59:59-00:01"`, `"10000-01-01T00:00:00Z"`, `"2024-02-29T23:59:59.0000000001Z"`,
		`true`, `{}`, `[1]`, `0`, `1748509874.5`,
	} {
		t.Run(literal, func(t *testing.T) {
			_, err := patch.ParseEvent([]byte(`{"timestamp":` + literal + `}`))
			wantField(t, err, "timestamp")
		})
	}
}

func TestNumbersKeepKindAndValue(t *testing.T) {
	e := storedEvent(t, parseEvent(t, `{"actions":{"stateDelta":{"int":9007199254740993,"max":18446744073709551615,
		"float":1.0,"exp":1e2,"huge":1e400,"neg":-0,"negf":-0.0,"null":null,"list":[1,1.5,{}],"text":"1"}},
		"content":{"parts":[{"functionCall":{"name":"f","args":{"int":1,"huge":[1e400,{"x":2}],"null":null}}}]}}`))
	wantEqual(t, "state delta", e.StateDelta(), map[string]any{
		"int": int64(9007199254740993), "max": json.Number("18446744073709551615"), "float": 1.0, "exp": 100.0,
		"huge": json.Number("1e400"), "neg": math.Copysign(0, -1), "negf": math.Copysign(0, -1), "null": nil,
		"list": []any{int64(1), 1.5, map[string]any{}}, "text": "1",
	})
	// Arguments are decoded as encoding/json decodes them, except that a number beyond float64 becomes a
	// json.Number.
	wantEqual(t, "arguments", *decoded[any](t, e, "content"), any(map[string]any{"parts": []any{map[string]any{"functionCall": map[string]any{
		"name": "f", "args": map[string]any{"int": 1.0, "huge": []any{json.Number("1e400"), map[string]any{"x": 2.0}}, "null": nil},
	}}}}))
	wantEqual(t, "arguments", decoded[sdkContent](t, e, "content").Parts[0].FunctionCall.Args, map[string]any{
		"int": 1.0, "huge": []any{json.Number("1e400"), map[string]any{"x": 2.0}}, "null": nil,
	})
}

func TestParseEventCopiesText(t *testing.T) {
	text := []byte(`{"id":"i","actions":{"stateDelta":{"k":"v"}},"x":[1]}`)
	e := testlog.Must(patch.ParseEvent(text))(t)
	form := encode(t, patch.Record{Event: e})
	back := testlog.Must(patch.DecodeRecord(form))(t)
	was := e.String()
	clear(text)
	clear(form)
	if e.String() != was || marshal(t, back) != was {
		t.Error("changing the text changed the event")
	}
}

func TestDecodeIntoWrongType(t *testing.T) {
	e := parseEvent(t, `{"x":{"a":1},"usageMetadata":{"promptTokenCount":"many"},"actions":{"compaction":{"startTimestamp":"x"}}}`)
	wantField(t, e.Decode("x", new(string)), "x")
	wantField(t, e.Decode("x", map[string]int{}), "x")
	wantField(t, e.Decode("x", nil), "x")
	wantField(t, e.Decode("x", (*int)(nil)), "x")
	kept := "kept"
	if err := e.Decode("absent", &kept); err != nil || kept != "kept" {
		t.Errorf("an absent field: %v, %q", err, kept)
	}
	if raw, ok := e.Field("absent"); ok || raw != nil {
		t.Errorf("an absent field is %q", raw)
	}
	wantField(t, e.Decode("usageMetadata", new(sdkUsage)), "usageMetadata/promptTokenCount")
	_, err := e.Compaction()
	wantField(t, err, "actions/compaction/startTimestamp")
	if c, err := parseEvent(t, `{"actions":{"compaction":null}}`).Compaction(); c != nil || err != nil {
		t.Errorf("no compaction is %v, %v", c, err)
	}

	// A value with noted Go types can be decoded into a variable of a more specific type.
	made := newEvent(t, patch.Fields{Extra: map[string]any{"x": map[string]any{"a": 1, "b": []any{int8(2), "s"}}}})
	var typed struct {
		A float64
		B [1]int
	}
	if err := made.Decode("x", &typed); err != nil || typed.A != 1 || typed.B[0] != 2 {
		t.Errorf("decoded %+v, %v", typed, err)
	}
	var tree any
	testlog.WantNil(t, made.Decode("x", &tree))
	wantEqual(t, "tree", tree, any(map[string]any{"a": 1, "b": []any{int8(2), "s"}}))
	testlog.WantNil(t, parseEvent(t, `{"x":{"a":1e400,"b":2}}`).Decode("x", &tree))
	wantEqual(t, "tree of JSON", tree, any(map[string]any{"a": json.Number("1e400"), "b": 2.0}))
}
