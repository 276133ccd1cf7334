package jsontext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

func TestMembersAndElements(t *testing.T) {
	const text = ` {"a":1 , "\u0062/\"":{"}":[ "]" ]},"c" : "x\\" ,"d":[],"e":null,"f":-1.5e3} `
	object := []byte(strings.TrimSpace(text))
	want := []string{`a`, `1`, `b/"`, `{"}":[ "]" ]}`, `c`, `"x\\"`, `d`, `[]`, `e`, `null`, `f`, `-1.5e3`}
	var got []string
	for k, v := range jsontext.Members(object) {
		got = append(got, k, string(v))
		if string(jsontext.Member(object, k)) != string(v) {
			t.Errorf("Member(%q) is %s", k, jsontext.Member(object, k))
		}
		if cap(v) != len(v) {
			t.Errorf("appending to %s would overwrite what follows", v)
		}
	}
	if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		t.Errorf("the members are %q, want %q", got, want)
	}
	if jsontext.Member(object, "absent") != nil || jsontext.Member([]byte(`"text"`), "a") != nil || jsontext.Member(nil, "a") != nil {
		t.Error("there is a member where none is")
	}
	var elements []string
	for i, v := range jsontext.Elements([]byte(`[ 1, [2,"]"] ,{"a":[3]},"",true ]`)) {
		if i != len(elements) {
			t.Errorf("element %d has index %d", len(elements), i)
		}
		elements = append(elements, string(v))
	}
	if strings.Join(elements, " ") != `1 [2,"]"] {"a":[3]} "" true` {
		t.Errorf("the elements are %q", elements)
	}
	for _, v := range []string{`{}`, `1`, `"[1]"`, `null`, ``} {
		for range jsontext.Elements([]byte(v)) {
			t.Errorf("%s has elements", v)
		}
	}
	for _, v := range []string{`[]`, `1`, `"{}"`, `true`, ``} {
		for range jsontext.Members([]byte(v)) {
			t.Errorf("%s has members", v)
		}
	}
	for range jsontext.Members(object) {
		break
	}
	for range jsontext.Elements([]byte(`[1,2]`)) {
		break
	}
}

func TestKindOf(t *testing.T) {
	for text, kind := range map[string]jsontext.Kind{
		"": jsontext.Null, "null": jsontext.Null, "true": jsontext.Bool, "false": jsontext.Bool,
		"-1": jsontext.Number, "0": jsontext.Number, `""`: jsontext.String, "[]": jsontext.Array, "{}": jsontext.Object,
	} {
		if got := jsontext.KindOf([]byte(text)); got != kind {
			t.Errorf("the kind of %q is %d, want %d", text, got, kind)
		}
	}
}

func TestDepth(t *testing.T) {
	for text, depth := range map[string]int{
		`1`: 0, `"[[["`: 0, `[]`: 1, `{"a":{}}`: 2, `[[],{"a":[1]},[]]`: 3, `["]\"[",{"[":"{"}]`: 2, `[["a"],["b"],["c"]]`: 2, nested(1000): 1000,
	} {
		if got := jsontext.Depth([]byte(text)); got != depth {
			t.Errorf("the depth of %.50s is %d, want %d", text, got, depth)
		}
	}
}

func TestEscapeStep(t *testing.T) {
	for step, want := range map[string]string{"a": "a", "": "", "a/b": "a~1b", "~": "~0", "~1/": "~01~1"} {
		if got := jsontext.EscapeStep(step); got != want {
			t.Errorf("the step %q is %q, want %q", step, got, want)
		}
	}
}

func TestPropertyQuoteAndUnquoteAreInverse(t *testing.T) {
	for quoted, text := range map[string]string{
		`""`: "", `"\"\\\/\b\f\n\r\t\u0000"`: "\"\\/\b\f\n\r\t\x00", `"\u00E9\u20ac\uD834\uDD1e\u2028"`: "é€𝄞\u2028", `"a\u0062c"`: "abc", `"\ufffd"`: "\ufffd",
	} {
		if got := jsontext.Unquote([]byte(quoted)); got != text {
			t.Errorf("%s is %q, want %q", quoted, got, text)
		}
		if got, want := jsontext.RuneLen([]byte(quoted)), utf8.RuneCountInString(text); got != want {
			t.Errorf("RuneLen(%s) = %d, want %d", quoted, got, want)
		}
	}
	ascii := make([]byte, 128)
	for i := range ascii {
		ascii[i] = byte(i)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Just(string(ascii))).Draw(t, "text")
		quoted := jsontext.AppendQuote([]byte("x"), text)[1:]
		if err := jsontext.CheckCompact(quoted); err != nil {
			t.Fatalf("%s: %v", quoted, err)
		}
		if got := jsontext.Unquote(quoted); got != text {
			t.Fatalf("%s came back as %q, was %q", quoted, got, text)
		}
		theirs := testlog.Must(json.Marshal(text))(t)
		if got, want := jsontext.RuneLen(theirs), utf8.RuneCountInString(text); got != want {
			t.Fatalf("RuneLen(%s) = %d, want %d", theirs, got, want)
		}
		if got := jsontext.Unquote(theirs); got != text {
			t.Fatalf("%s came back as %q, was %q", theirs, got, text)
		}
		if !jsontext.Equal(quoted, theirs) {
			t.Fatalf("%s and %s are not equal", quoted, theirs)
		}
	})
}
