package patch_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/filler"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func newValue(t testing.TB, v any) patch.Value {
	t.Helper()
	value, err := patch.NewValue(v)
	if err != nil {
		t.Fatalf("NewValue(%#v): %v", v, err)
	}
	return value
}

func parseValue(t testing.TB, text string) patch.Value {
	t.Helper()
	value, err := patch.ParseValue([]byte(text))
	if err != nil {
		t.Fatalf("ParseValue(%.100s): %v", text, err)
	}
	return value
}

func TestNewValueRoundTrip(t *testing.T) {
	check := func(v any) {
		t.Helper()
		value := newValue(t, v)
		wantEqual(t, "value", value.Any(), v)
		form := testlog.Must(value.MarshalBinary())(t)
		var back patch.Value
		testlog.NoError(t, back.UnmarshalBinary(form))
		clear(form)
		wantEqual(t, "stored value", back.Any(), v)
		if !back.Equal(value) || back.String() != value.String() {
			t.Errorf("%s came back as %s", value, back)
		}
	}
	check(filler.OddMap(3))
	for _, v := range filler.OddMap(4) {
		check(v)
	}
	// This type has the maximum nesting depth.
	check([][][][][][][][]int{{{{{{{{1}}}}}}}})
	check(map[string][]map[string][]map[string][]map[string][]any{"a": {{"b": {{"c": {{"d": {1, nil, "x", json.Number("1e999")}}}}}}}})
}

// anyTree draws a value for an `any`.
var anyTree = func() *rapid.Generator[any] {
	number := rapid.Custom(func(t *rapid.T) json.Number {
		return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number"))
	})
	finite := rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64)
	leaf := rapid.OneOf(
		rapid.Just[any](nil), toAny(rapid.Bool()), toAny(rapid.String()), toAny(rapid.Int()), toAny(rapid.Int8()), toAny(rapid.Int16()), toAny(rapid.Int32()), toAny(rapid.Int64()),
		toAny(rapid.Uint()), toAny(rapid.Uint8()), toAny(rapid.Uint16()), toAny(rapid.Uint32()), toAny(rapid.Uint64()),
		toAny(rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32)), toAny(finite), toAny(number),
		toAny(rapid.SliceOf(rapid.Byte())), toAny(rapid.SliceOf(rapid.String())), toAny(rapid.SliceOf(rapid.Int())), toAny(rapid.SliceOf(number)),
		toAny(rapid.MapOf(rapid.String(), rapid.Int())), toAny(rapid.SliceOf(rapid.SliceOf(finite))),
		rapid.SampledFrom([]any{[]any(nil), map[string]any(nil), []byte(nil), []string(nil), map[string]int(nil), math.Copysign(0, -1), float32(math.Copysign(0, -1)), [][]any(nil)}),
	)
	tree := leaf
	for range 4 {
		inner := tree
		tree = rapid.OneOf(leaf,
			toAny(rapid.SliceOfN(inner, 0, 5)), toAny(rapid.MapOfN(rapid.String(), inner, 0, 5)),
			toAny(rapid.SliceOfN(rapid.SliceOfN(inner, 0, 3), 0, 3)), toAny(rapid.MapOfN(rapid.String(), rapid.MapOfN(rapid.String(), inner, 0, 3), 0, 3)))
	}
	return tree
}()

func toAny[T any](g *rapid.Generator[T]) *rapid.Generator[any] {
	return rapid.Map(g, func(v T) any { return v })
}

func TestPropertyNewValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyTree.Draw(t, "tree")
		value := testlog.Must(patch.NewValue(v))(t)
		if got := value.Any(); !reflect.DeepEqual(got, v) {
			t.Fatalf("%#v came back as %#v", v, got)
		}
		parsed, err := patch.ParseValue([]byte(value.String()))
		if err != nil || !parsed.Equal(value) || len(parsed.String()) != len(value.String()) {
			t.Fatalf("its JSON %s is another value: %v", value, err)
		}
		object := testlog.Must(patch.NewValue(map[string]patch.Value{"a/b": value, "b": parsed, "c": {}}))(t)
		form := testlog.Must(object.MarshalBinary())(t)
		var back patch.Value
		testlog.NoError(t, back.UnmarshalBinary(form))
		if got := back.Members()["a/b"].Any(); !reflect.DeepEqual(got, v) {
			t.Fatalf("%#v came back from an object as %#v", v, got)
		}
		f := patch.Fields{Actions: patch.Actions{StateDelta: map[string]any{"k": v}}, CustomMetadata: map[string]any{"k": []any{v}}}
		e := testlog.Must(patch.NewEvent(f))(t)
		form = testlog.Must(patch.AppendRecord(nil, patch.Record{Event: e}))(t)
		stored := testlog.Must(patch.DecodeRecord(form))(t)
		if got := stored.Event.StateDelta(); !reflect.DeepEqual(got, f.Actions.StateDelta) {
			t.Fatalf("%#v came back in a delta as %#v", v, got)
		}
		if got := stored.Event.CustomMetadata(); !reflect.DeepEqual(got, f.CustomMetadata) {
			t.Fatalf("%#v came back in metadata as %#v", v, got)
		}
	})
}

func TestParseValueKeepsText(t *testing.T) {
	for _, text := range []string{`null`, `1.0`, `9007199254740993`, `1e400`, `-0`, `[1,{"a":[]}]`, `"\u0000"`, strings.Repeat("[", 997) + strings.Repeat("]", 997)} {
		v := parseValue(t, text)
		if v.String() != text || marshal(t, v) != text {
			t.Errorf("%s is %s", text, v)
		}
		if back := parseValue(t, marshal(t, v)); !back.Equal(v) {
			t.Errorf("%s is not equal to itself", text)
		}
	}
	if v := parseValue(t, " [ 1 ,\n2 ] "); v.String() != "[1,2]" {
		t.Errorf("white space is kept: %s", v)
	}
	for text, field := range map[string]string{``: "", `{"a":[0,{"b":1,"b":2}]}`: "a/1/b", `["` + "\xff" + `"]`: "0", `1 2`: "", strings.Repeat("[", 998) + strings.Repeat("]", 998): ""} {
		_, err := patch.ParseValue([]byte(text))
		wantField(t, err, field)
	}
}

func TestZeroValueIsNull(t *testing.T) {
	var v patch.Value
	if v.Any() != nil || v.String() != "null" || marshal(t, v) != "null" || v.Members() != nil {
		t.Errorf("the zero value is %s", v)
	}
	if !v.Equal(newValue(t, nil)) || !parseValue(t, "null").Equal(v) || v.Equal(newValue(t, false)) {
		t.Error("the zero value is not equal to null alone")
	}
	form := testlog.Must(v.MarshalBinary())(t)
	back := newValue(t, 5)
	if err := back.UnmarshalBinary(form); err != nil || !back.Equal(v) {
		t.Errorf("the zero value came back as %s, %v", back, err)
	}
}

func TestValueEqualComparesNumbersByKindAndValue(t *testing.T) {
	if !parseValue(t, `{"a":1e2,"b":[1]}`).Equal(parseValue(t, `{"b":[1],"a":100.0}`)) {
		t.Error("1e2 is not 100.0")
	}
	if newValue(t, 1).Equal(newValue(t, 1.0)) || !newValue(t, int8(1)).Equal(newValue(t, uint64(1))) {
		t.Error("numbers are not compared by kind and value")
	}
}

func TestObjects(t *testing.T) {
	members := map[string]patch.Value{"b": newValue(t, map[string]any{"n": int8(1)}), "a~/": parseValue(t, "1e400"), "": {}}
	object := testlog.Must(patch.NewValue(members))(t)
	if want := `{"":null,"a~/":1e400,"b":{"n":1}}`; object.String() != want {
		t.Errorf("the object is %s, want %s", object, want)
	}
	back := object.Members()
	if len(back) != 3 || !back["a~/"].Equal(members["a~/"]) {
		t.Errorf("the members are %v", back)
	}
	wantEqual(t, "member", back["b"].Any(), map[string]any{"n": int8(1)})
	wantEqual(t, "member's member", back["b"].Members()["n"].Any(), any(int8(1)))
	if parseValue(t, "[1]").Members() != nil || len(newValue(t, map[string]any{}).Members()) != 0 {
		t.Error("a list has members, or an empty object")
	}
	testlog.ErrorIs(t, testlog.ErrorOf(patch.NewValue(map[string]patch.Value{"\xff": {}})), patch.ErrInvalid, "a key that is not UTF-8")
	if empty, err := patch.NewValue(map[string]patch.Value{}); err != nil || empty.String() != "{}" {
		t.Errorf("an object of nothing is %s, %v", empty, err)
	}
}

func TestDamagedValueFormsAreRefused(t *testing.T) {
	form := testlog.Must(newValue(t, map[string]any{"n": 1, "s": []string{"x"}}).MarshalBinary())(t)
	var v patch.Value
	refuse := func(what string, form []byte) {
		t.Helper()
		if err := v.UnmarshalBinary(form); !errors.Is(err, patch.ErrCorrupt) || !v.Equal(patch.Value{}) {
			t.Errorf("%s: %v, %s", what, err, v)
		}
	}
	for i := range form {
		refuse("cut off", form[:i])
		for bit := range 8 {
			form[i] ^= 1 << bit
			refuse("a flipped bit", form)
			form[i] ^= 1 << bit
		}
	}
	refuse("a record", encode(t, sampleRecords(t)[0]))
	for name, payload := range map[string]list{
		"nothing": {}, "another name": {list{"v", []byte("1")}, list{}}, "two": {list{"value", []byte("1"), "x", []byte("1")}, list{}},
		"space": {list{"value", []byte(" 1")}, list{}}, "a note that does not fit": {list{"value", []byte("1")}, list{"/value", "string"}},
		"a field more": {list{"value", []byte("1")}, list{}, nil},
	} {
		refuse(name, seal(pack(t, payload)))
	}
	refuse("a name in more bytes", seal(pack(t, list{list{raw("\xd9\x05value"), []byte("1")}, list{}})))
}

var (
	_ encoding.BinaryMarshaler   = patch.Value{}
	_ encoding.BinaryUnmarshaler = (*patch.Value)(nil)
	_ json.Marshaler             = patch.Value{}
)

// Numbers are written as encoding/json writes them, except that a float without a fraction gets a point.
func TestFloatsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	below := func(f float64) float64 { return math.Nextafter(f, 0) }
	for _, f := range []float64{
		0, 0.5, -1.25, 1e-6, below(1e-6), 1e-7, -1e-6, -1e-7, 123.456, 1e20, below(1e21), 1e21, 1e22, -1e21, 1.5e300, 5e-324, math.MaxFloat64,
	} {
		e := newEvent(t, patch.Fields{Extra: map[string]any{"x": map[string]any{"f": f}}})
		text := testlog.Must(json.Marshal(f))(t)
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
