package jsontext_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestCheckAccepts(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `""`, `0`, `-0`, `-0.0`, `10`, `1.5e+10`, `1E-2`, `1e400`, `{}`, `[]`, " [ 1 , { \"a\" : \"b\" } ]\r\n\t",
		`{"a":1,"b":{"a":1},"A":1,"":2}`, `"\ud800\udc00\udbff\udfff\ue000"`, `["\u0000\u001F\ud834\udd1e\uFFFF\"\\\/\b\f\n\r\t"]`, "\"\u2028\U0010ffff\x7f\"",
		nested(jsontext.MaxDepth), strings.Repeat(`{"a":`, jsontext.MaxDepth) + "0" + strings.Repeat("}", jsontext.MaxDepth),
	} {
		if err := jsontext.Check([]byte(text)); err != nil {
			t.Errorf("%.100s: %v", text, err)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("encoding/json refuses %.100s", text)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		text, pointer string
		offset        int
	}{
		{``, "", 0}, {` `, "", 1}, {`nul`, "", 0}, {`nulll`, "", 4}, {`tru`, "", 0}, {`falsy`, "", 0}, {`x`, "", 0}, {`,`, "", 0}, {`'a'`, "", 0},
		{`1 2`, "", 2}, {`{}}`, "", 2}, {`+1`, "", 0}, {`-`, "", 0}, {`.5`, "", 0}, {`1.`, "", 0}, {`1.e1`, "", 0}, {`1e`, "", 0}, {`1e+`, "", 0}, {`-a`, "", 0},
		{`01`, "", 0}, {`-01`, "", 0}, {`00`, "", 0}, {`0x1`, "", 1}, {`09`, "", 0}, {`1:2`, "", 1}, {`0:1`, "", 1}, {`NaN`, "", 0}, {`1_0`, "", 1},
		{`"`, "", 1}, {`"a`, "", 2}, {`"\`, "", 1}, {`"\"`, "", 3}, {`"\x"`, "", 1}, {`"\u12"`, "", 1}, {`"\u12g4"`, "", 1}, {`"\U0041"`, "", 1},
		{"\"\n\"", "", 1}, {"\"\x1f\"", "", 1}, {"\"\xff\"", "", 1}, {"\"a\xc3\"", "", 2}, {"\"\xed\xa0\x80\"", "", 1}, {"\"\xc0\x80\"", "", 1}, {"\"\xf4\x90\x80\x80\"", "", 1},
		{`"\ud800"`, "", 1}, {`"\ud800\u0041"`, "", 1}, {`"\ud800\ud800"`, "", 1}, {`"\udc00"`, "", 1}, {`"\ud800\ue000"`, "", 1}, {`"\ud834xudd1e"`, "", 1}, {`"\ud834\xdd1e"`, "", 1}, {`"\ud834`, "", 1}, {`"\ud834\udd1`, "", 1}, {`[tr`, "/0", 1}, {`[fals`, "/0", 1}, {`"\ud834x\udd1e"`, "", 1}, {`"\ud834\udd1"`, "", 1},
		{`[`, "/0", 1}, {`[1`, "", 2}, {`[1,`, "/1", 3}, {`[1,]`, "/1", 3}, {`[1 2]`, "", 3}, {`[,1]`, "/0", 1}, {`[1}`, "", 2},
		{`{`, "", 1}, {`{a`, "", 1}, {`{"a"`, "/a", 4}, {`{"a":`, "/a", 5}, {`{"a" 1}`, "/a", 5}, {`{"a":1`, "", 6}, {`{"a":1,`, "", 7}, {`{"a":1,}`, "", 7}, {`{"a":1 "b":2}`, "", 7}, {`{1:2}`, "", 1},
		{`{"a":1,"a":1}`, "/a", 7}, {`{"a":{"b/~":[0,{"":1,"":2}]}}`, "/a/b~1~0/1/", 21}, {`{"a":1,"\u0061":1}`, "/a", 7}, {`{"é":1,"\u00e9":1}`, "/é", 8},
		{`{"a":[{"b":"` + "\x80" + `"}]}`, "/a/0/b", 12}, {`{"a":{"` + "\x80" + `":1}}`, "/a", 7},
		{nested(jsontext.MaxDepth + 1), strings.Repeat("/0", jsontext.MaxDepth), jsontext.MaxDepth},
		{strings.Repeat(`{"a":`, jsontext.MaxDepth+1), strings.Repeat("/a", jsontext.MaxDepth), 5 * jsontext.MaxDepth},
		{strings.Repeat("[", 1<<20), strings.Repeat("/0", jsontext.MaxDepth), jsontext.MaxDepth},
	} {
		err := jsontext.Check(slices.Clip([]byte(c.text))) // nothing behind the end may be read
		var at *jsontext.Error
		if !errors.As(err, &at) || at.Pointer != c.pointer || at.Offset != c.offset || at.Problem == "" {
			t.Errorf("%.100s: %.200v, want one at %.100q, byte %d", c.text, err, c.pointer, c.offset)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, at.Pointer) || !strings.Contains(text, at.Problem) {
			t.Errorf("the text %.200q names not %.100q", text, at.Pointer)
		}
	}
}

func TestErrorText(t *testing.T) {
	deep := strings.Repeat("/0", jsontext.MaxDepth) + ": nested deeper than 1000 (byte 1000)"
	for text, want := range map[string]string{
		`-`:                           "malformed number (byte 0)",
		`["\x"]`:                      `/0: unknown escape \x (byte 2)`,
		nested(jsontext.MaxDepth + 1): deep,
	} {
		if err := jsontext.Check([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.50s: %.300v, want %.300s", text, err, want)
		}
	}
}

func TestCheckFindsARepeatedKeyAmongMany(t *testing.T) {
	for n := range 40 {
		var b strings.Builder
		for i := range n {
			b.WriteString(`"` + strings.Repeat("k", i) + `":0,`)
		}
		for repeated := range n {
			text := `{` + b.String() + `"` + strings.Repeat(`\u006b`, repeated) + `":0}`
			if err := jsontext.Check([]byte(text)); err == nil || !strings.Contains(err.Error(), "twice") {
				t.Fatalf("key %d of %d repeated: %v", repeated, n, err)
			}
		}
		if err := jsontext.Check([]byte(`{` + b.String() + `"other":0}`)); err != nil {
			t.Fatalf("%d keys: %v", n, err)
		}
	}
}

func TestCheckCompact(t *testing.T) {
	for text, compact := range map[string]bool{
		`{"a b":[1,"c\td"]}`: true, `0`: true,
		` 0`: false, `0 `: false, "[1,\n2]": false, `{"a": 1}`: false, `{"a" :1}`: false, `{ }`: false, `[ ]`: false, "[1\t]": false, `{"a":1 }`: false,
	} {
		if err := jsontext.CheckCompact([]byte(text)); (err == nil) != compact {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := jsontext.CheckCompact([]byte(`{"a":1,"a":2}`)); err == nil {
		t.Error("a repeated key is compact")
	}
}

func TestIsNumber(t *testing.T) {
	for text, is := range map[string]bool{
		"0": true, "-0": true, "12.50e-3": true, "1E5": true,
		"": false, "-": false, "1 ": false, " 1": false, "01": false, "1.": false, "1e": false, "NaN": false, "0x1": false, "1,2": false, "+1": false, "1:": false, "09": false,
	} {
		if jsontext.IsNumber(text) != is {
			t.Errorf("%q is a number: %v", text, !is)
		}
	}
}

// repeats reports whether an object in valid JSON repeats a key, by the tokens that
// encoding/json reads.
func repeats(t *testing.T, text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var keys []map[string]bool // nil for an array
	var wantKey []bool
	for {
		token, err := d.Token()
		if err == io.EOF {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		top := len(keys) - 1
		if key, ok := token.(string); ok && top >= 0 && wantKey[top] {
			if keys[top][key] {
				return true
			}
			keys[top][key], wantKey[top] = true, false
			continue
		}
		if top >= 0 && keys[top] != nil {
			wantKey[top] = true // once this value is over
		}
		switch token {
		case json.Delim('{'):
			keys, wantKey = append(keys, map[string]bool{}), append(wantKey, true)
		case json.Delim('['):
			keys, wantKey = append(keys, nil), append(wantKey, false)
		case json.Delim('}'), json.Delim(']'):
			keys, wantKey = keys[:top], wantKey[:top]
			if top > 0 && keys[top-1] != nil {
				wantKey[top-1] = true
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[1,-0.0,1e400,"\ud834\udd1e"]`, `{"a":{"b":[null,true]},"\u0061":1}`, `{"a":1,"b":{"a":1,"a":2}}`, `"\ud834"`, "\"\xff\"", ` { "a" : 01 } `,
		`{"k0":0,"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"k8":8,"k9":9,"ka":1,"kb":2,"kc":3,"kd":4,"ke":5,"kf":6,"kg":7,"k0":8}`, nested(1001),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := jsontext.Check(text)
		valid := json.Valid(text)
		if err == nil {
			if !valid || !utf8.Valid(text) || repeats(t, text) {
				t.Fatalf("%q is accepted", text)
			}
			walk(t, text)
			return
		}
		var at *jsontext.Error
		if !errors.As(err, &at) || at.Offset > len(text) {
			t.Fatalf("the error is %v", err)
		}
		if !valid {
			return
		}
		switch problem := at.Problem; {
		case strings.Contains(problem, "twice"):
			if !repeats(t, text) {
				t.Fatalf("%q repeats no key: %v", text, err)
			}
		case strings.Contains(problem, "UTF-8"):
			if utf8.Valid(text) {
				t.Fatalf("%q is UTF-8: %v", text, err)
			}
		case strings.Contains(problem, "surrogate"), strings.Contains(problem, "deeper"):
		default:
			t.Fatalf("%q is valid JSON: %v", text, err)
		}
	})
}

// walk checks the functions that work on checked text against encoding/json.
func walk(t *testing.T, text []byte) {
	compact := jsontext.Compact(text)
	if err := jsontext.CheckCompact(compact); err != nil {
		t.Fatalf("%q compacted: %v", compact, err)
	}
	if (jsontext.CheckCompact(text) == nil) != bytes.Equal(text, compact) {
		t.Fatalf("CheckCompact of %q: %v", text, jsontext.CheckCompact(text))
	}
	if !jsontext.Equal(compact, compact) || jsontext.Depth(compact) > jsontext.MaxDepth {
		t.Fatalf("%q is not itself", compact)
	}
	d := json.NewDecoder(bytes.NewReader(compact))
	d.UseNumber()
	var want any
	testlog.NoError(t, d.Decode(&want))
	same(t, compact, want)
	reordered := testlog.Must(json.Marshal(want))(t)
	if !jsontext.Equal(compact, reordered) || !jsontext.Equal(reordered, compact) {
		t.Fatalf("%q is not equal to %q", compact, reordered)
	}
}

func same(t *testing.T, value []byte, want any) {
	t.Helper()
	fits := false
	switch want := want.(type) {
	case nil:
		fits = jsontext.KindOf(value) == jsontext.Null
	case bool:
		fits = jsontext.KindOf(value) == jsontext.Bool && (value[0] == 't') == want
	case json.Number:
		fits = jsontext.KindOf(value) == jsontext.Number && string(value) == string(want)
	case string:
		fits = jsontext.KindOf(value) == jsontext.String && jsontext.Unquote(value) == want
	case []any:
		n := 0
		for i, v := range jsontext.Elements(value) {
			same(t, v, want[i])
			n++
		}
		fits = jsontext.KindOf(value) == jsontext.Array && n == len(want)
	case map[string]any:
		n := 0
		for k, v := range jsontext.Members(value) {
			if _, ok := want[k]; !ok {
				t.Fatalf("%q has a key %q", value, k)
			}
			same(t, v, want[k])
			if !bytes.Equal(jsontext.Member(value, k), v) {
				t.Fatalf("Member(%q, %q) is %q", value, k, jsontext.Member(value, k))
			}
			n++
		}
		fits = jsontext.KindOf(value) == jsontext.Object && n == len(want)
	}
	if !fits {
		t.Fatalf("%q is not %v", value, want)
	}
}
