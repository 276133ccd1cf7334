package jsonvalue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

func TestParse(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for text, want := range map[string]string{
		` { "b" : [ 1.0 , 1e2 , "\u00e9\/" ] , "a" : { } } `: `{"b":[1.0,1e2,"\u00e9\/"],"a":{}}`,
		"\n-0\t": "-0", `"\ud834\udd1e"`: `"\ud834\udd1e"`, `{"a":1,"A":1}`: `{"a":1,"A":1}`,
		deep(jsonvalue.MaxDepth): deep(jsonvalue.MaxDepth), `9007199254740993`: `9007199254740993`,
	} {
		if got, err := jsonvalue.Parse([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%.60s is %.60s, %v", text, got, err)
		}
	}
	for text, want := range map[string]jsonvalue.Error{
		``: {}, ` `: {Offset: 1}, `{} x`: {Offset: 3}, `{}{}`: {Offset: 3}, `[1,]`: {Offset: 3, Pointer: "/1"}, `{"a":[0,01]}`: {Pointer: "/a", Offset: 9},
		`{"a/b":{"x":1,"x":2}}`: {Pointer: "/a~1b/x", Offset: 14}, "{\"k\":\"\xff\"}": {Pointer: "/k", Offset: 6}, `["\ud834"]`: {Pointer: "/0", Offset: 2},
		deep(jsonvalue.MaxDepth + 1): {}, strings.Repeat("[", 1<<20): {},
	} {
		var at *jsonvalue.Error
		if got, err := jsonvalue.Parse([]byte(text)); !errors.As(err, &at) || at.Pointer != want.Pointer || at.Problem == "" || len(err.Error()) > 200 {
			t.Errorf("%.60q is %.60s, %v, want an error at %q", text, got, err, want.Pointer)
		} else if len(text) < 100 && at.Offset != want.Offset {
			t.Errorf("%q: %v, want byte %d", text, err, want.Offset)
		}
	}
}

// Parse rejects repeated keys in long and in short texts. Different code searches the keys of long and of short
// texts.
func TestRepeatedKeys(t *testing.T) {
	for _, c := range []struct{ text, pointer string }{
		{`{"a":{"b":1},"c":{"b":1},"b":[{"b":1},{"b":2}]}`, ""}, {"\t{ \"a\" : { \"a\" : 1 } , \"b\" : { \"a\" : 1 } }\n", ""},
		{`{"a":1,"b":2,"a":3}`, "/a"}, {"\n[ 1 , { \"x\" : { \"a/b\" : [ ] , \"c\" : 0 , \"a/b\" : 2 } } ]", "/1/x/a~1b"}, {`{"a":1,"\u0061":2}`, "/a"}, {`[{"":1,"":1}]`, "/0/"},
		{`{"x":[[{}]],"y":{"a":1,"z":{"k":1,"k":2},"a":2}}`, "/y/z/k"},
	} {
		_, short := jsonvalue.Parse([]byte(c.text))
		_, long := jsonvalue.Parse([]byte(c.text + strings.Repeat(" ", 100_000)))
		if fmt.Sprint(short) != fmt.Sprint(long) {
			t.Errorf("%s: %v if it is short, %v if it is long", c.text, short, long)
		}
		var at *jsonvalue.Error
		if errors.As(long, &at) != (c.pointer != "") || at != nil && at.Pointer != c.pointer {
			t.Errorf("%s: %v, want an error at %q", c.text, long, c.pointer)
		}
	}
}

// If an object has many keys, Parse needs at most a few times the memory of the text.
func TestManyKeysTakeLittleMemory(t *testing.T) {
	text := []byte{'{'}
	for i := range 200_000 {
		text = fmt.Appendf(jsonvalue.AppendKey(text, strconv.FormatInt(int64(i), 36)), "0")
	}
	for name, text := range map[string][]byte{"distinct": append(slices.Clone(text), '}'), "one twice": append(jsonvalue.AppendKey(text, "0"), "0}"...)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := jsonvalue.Parse(text)
		runtime.ReadMemStats(&after)
		if (err != nil) != (name == "one twice") {
			t.Errorf("%s: %v", name, err)
		}
		if most := uint64(1<<20 + 12*len(text)); after.TotalAlloc-before.TotalAlloc > most {
			t.Errorf("%s: %d bytes cost %d bytes of memory", name, len(text), after.TotalAlloc-before.TotalAlloc)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[2,null]}`, `{"b":[2,null],"a":1}`, true}, {`{"a":1}`, `{"a":1,"b":1}`, false}, {`{"a":1,"b":1}`, `{"a":1}`, false},
		{`[1,2]`, `[2,1]`, false}, {`[1]`, `[1,2]`, false}, {`"é"`, `"\u00e9"`, true}, {`"a"`, `"b"`, false}, {`true`, `false`, false}, {`null`, `false`, false},
		{`1.0`, `1e0`, true}, {`1`, `1.0`, false}, {`100`, `1e2`, false}, {`1.50`, `15e-1`, true}, {`0.0`, `-0.0`, false}, {`0e5`, `0.0`, true},
		{`1e1000000000000000000000`, `10e999999999999999999999`, true}, {`9007199254740993`, `9007199254740992`, false}, {`1e-2`, `0.01`, true},
		{strings.Repeat("[", 5000) + "1" + strings.Repeat("]", 5000), strings.Repeat("[", 5000) + "2" + strings.Repeat("]", 5000), false},
	} {
		if jsonvalue.Equal([]byte(c.a), []byte(c.b)) != c.same || jsonvalue.Equal([]byte(c.b), []byte(c.a)) != c.same {
			t.Errorf("%.40s and %.40s are the same: %v, want %v", c.a, c.b, !c.same, c.same)
		}
	}
}

func TestEdit(t *testing.T) {
	object := []byte(`{"a":1,"\"b":{"x":2},"c":null}`)
	for _, c := range [][2]string{
		{string(jsonvalue.With(object, `"b`, nil)), `{"a":1,"c":null}`}, {string(jsonvalue.With(object, "a", []byte("[]"))), `{"\"b":{"x":2},"c":null,"a":[]}`},
		{string(jsonvalue.With(nil, "a", []byte("1"))), `{"a":1}`}, {string(jsonvalue.With([]byte("7"), "a", nil)), `{}`},
		{string(jsonvalue.Member(object, `"b`, "x")), `2`}, {string(jsonvalue.Member(object, "a", "x")), ``}, {string(jsonvalue.Member(object, "c")), `null`},
		{string(jsonvalue.Edit([]byte("[1]"), nil)), `[1]`}, {jsonvalue.Step("a/~"), "a~1~0"}, {jsonvalue.Text([]byte("5")), ""},
		{fmt.Sprint(jsonvalue.Depth([]byte(`{"[":[{}]}`))), "3"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s, want %s", c[0], c[1])
		}
	}
}

// For any bytes, a traversal terminates and stays within the bytes. For text that Parse accepts, it yields the same
// values as encoding/json.
func FuzzWalk(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\\"",{}],"b":-1e5}`, `{""""""`, `{"\\\\`, `{,,:`, `[[}]`, `{"a"}`, `"`, `{"a":}`, `tru`, "\\"} {
		f.Add([]byte(seed))
	}
	var walk func(v []byte, depth int) any
	walk = func(v []byte, depth int) any {
		switch jsonvalue.KindOf(v) {
		case jsonvalue.Object:
			m := map[string]any{}
			for k, v := range jsonvalue.Members(v) {
				if depth > 0 {
					m[k] = walk(v, depth-1)
				}
			}
			return m
		case jsonvalue.Array:
			list := []any{}
			for _, v := range jsonvalue.Elements(v) {
				if depth > 0 {
					list = append(list, walk(v, depth-1))
				}
			}
			return list
		case jsonvalue.String:
			return jsonvalue.Unquote(v)
		}
		return json.RawMessage(v)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		walk(text, 20)
		jsonvalue.Depth(text)
		jsonvalue.Equal(text, append([]byte(nil), text...))
		own, err := jsonvalue.Parse(text)
		if err != nil || jsonvalue.Depth(own) > 20 {
			return
		}
		again, err := json.Marshal(walk(own, 20))
		if err != nil || !jsonvalue.Equal(own, again) {
			t.Fatalf("%s is read as %s, %v", own, again, err)
		}
	})
}
