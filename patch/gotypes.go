package patch

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// goType notes the Go type of a value in an `any`, if JSON alone would not restore this type. Examples are int,
// []string and json.Number. A value parsed from JSON has no goType.
type goType struct {
	pointer string // JSON pointer to the value, from the event or Value that contains it
	name    string // result of typeName
}

type goTypes []goType

// within returns the types noted at and below a pointer. The pointers in the result are relative to the given
// pointer.
func (t goTypes) within(pointer string) (inside goTypes) {
	for _, n := range t {
		if rest, ok := strings.CutPrefix(n.pointer, pointer); ok && (rest == "" || rest[0] == '/') {
			inside = append(inside, goType{rest, n.name})
		}
	}
	return inside
}

// byMember returns the types noted inside the object at a pointer, by the name of the member. It iterates over
// t once.
func (t goTypes) byMember(pointer string) map[string]goTypes {
	members := map[string]goTypes{}
	for _, n := range t {
		if path, ok := strings.CutPrefix(n.pointer, pointer+"/"); ok {
			step, _, _ := strings.Cut(path, "/")
			name := jsontext.Pointer("/" + step).LastToken()
			members[name] = append(members[name], goType{path[len(step):], n.name})
		}
	}
	return members
}

// without returns the types, except those for whose pointers the function drop returns true.
func (t goTypes) without(drop func(pointer string) bool) (kept goTypes) {
	for _, n := range t {
		if !drop(n.pointer) {
			kept = append(kept, n)
		}
	}
	return kept
}

// Base types that are restored by name. float64, bool and string need no note.
var baseTypes = map[string]reflect.Type{
	"bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](),
	"int": reflect.TypeFor[int](), "int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](),
	"int32": reflect.TypeFor[int32](), "int64": reflect.TypeFor[int64](),
	"uint": reflect.TypeFor[uint](), "uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](),
	"uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](),
	"float32": reflect.TypeFor[float32](), "float64": reflect.TypeFor[float64](),
	"any": reflect.TypeFor[any](), "json.Number": reflect.TypeFor[stdjson.Number](), "time": reflect.TypeFor[time.Time](),
}

var baseTypeNames = func() map[reflect.Type]string {
	m := make(map[reflect.Type]string, len(baseTypes))
	for name, t := range baseTypes {
		m[t] = name
	}
	return m
}()

// maxTypeNesting is the maximum number of nested slices and maps in a noted type. A limit is necessary because
// stored bytes can name any type, and reflect never frees a type that it has built.
const maxTypeNesting = 8

// typeName names a type that consists of base types, slices, and maps with string keys. Other types have no
// name, because JSON cannot restore them.
func typeName(t reflect.Type) (string, bool) {
	prefix := ""
	for range maxTypeNesting + 1 {
		if name, ok := baseTypeNames[t]; ok {
			return prefix + name, true
		}
		switch {
		case t.Name() != "": // a defined type
			return "", false
		case t.Kind() == reflect.Slice:
			prefix += "[]"
		case t.Kind() == reflect.Map && t.Key() == baseTypes["string"]:
			prefix += "map[string]"
		default:
			return "", false
		}
		t = t.Elem()
	}
	return "", false
}

// typeByName is the inverse of typeName. It refuses the name "any", because reading such a value would look up
// the same note forever.
func typeByName(name string) (reflect.Type, bool) {
	if name == "any" {
		return nil, false
	}
	return parseTypeName(name, maxTypeNesting)
}

func parseTypeName(name string, depth int) (t reflect.Type, ok bool) {
	if t, ok := baseTypes[name]; ok || depth == 0 {
		return t, ok
	}
	if elem, ok := strings.CutPrefix(name, "[]"); ok {
		if t, ok = parseTypeName(elem, depth-1); ok {
			return reflect.SliceOf(t), true
		}
	} else if elem, ok := strings.CutPrefix(name, "map[string]"); ok {
		if t, ok = parseTypeName(elem, depth-1); ok {
			return reflect.MapOf(baseTypes["string"], t), true
		}
	}
	return nil, false
}

// stackPointer contains the methods with which a JSON encoder or decoder reports its position.
type stackPointer interface {
	StackPointer() jsontext.Pointer
	StackDepth() int
	StackIndex(int) (jsontext.Kind, int64)
}

// nextPointer returns the pointer to the next value of an encoder or decoder. In an array, StackPointer returns
// the pointer to the previous element. Before the first element, it returns the pointer to the array.
func nextPointer(c stackPointer) string {
	pointer := c.StackPointer()
	kind, n := c.StackIndex(c.StackDepth())
	if kind != '[' {
		return string(pointer)
	}
	if n > 0 {
		pointer = pointer.Parent()
	}
	return string(pointer) + "/" + strconv.FormatInt(n, 10)
}

// plainJSON encodes and decodes as encoding/json does. In addition it refuses text that is not Unicode, and
// repeated keys. Its errors contain the position.
var plainJSON = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
	jsontext.EscapeForHTML(false),
	jsontext.EscapeForJS(false),
	json.WithMarshalers(json.MarshalToFunc(writeNumber)),
	json.WithUnmarshalers(json.UnmarshalFromFunc(readNumber)),
)

// checkNumber returns an error unless n is a JSON number.
func checkNumber(n stdjson.Number) error {
	if literal := jsontext.Value(n); strings.Trim(string(n), " \t\r\n") != string(n) || literal.Kind() != '0' || !literal.IsValid() {
		return fmt.Errorf("json.Number %q is not a number", clip(string(n)))
	}
	return nil
}

func writeNumber(enc *jsontext.Encoder, n stdjson.Number) error {
	if err := checkNumber(n); err != nil {
		return err
	}
	return enc.WriteValue(jsontext.Value(n))
}

func readNumber(dec *jsontext.Decoder, n *stdjson.Number) error {
	if dec.PeekKind() == 'n' {
		return errors.ErrUnsupported
	}
	literal, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*n = stdjson.Number(literal)
	if jsonvalue.KindOf(literal) == jsonvalue.String { // encoding/json also accepts a quoted number
		*n = stdjson.Number(jsonvalue.Unquote(literal))
	}
	return checkNumber(*n)
}

// goWriter writes Go values as JSON from which they are restored deep-equal. It notes the Go types that JSON
// does not restore. In an `any`, it refuses values that cannot be restored: structs, errors, and maps whose
// keys are not strings. The error names the field. Floats in an `any` are written with a point or an exponent.
type goWriter struct {
	event      bool // true while writing an event, false while writing a value
	types      goTypes
	options    json.Options
	anyOptions json.Options // options inside an `any`
}

// goWriters caches writers, because a writer caches the encoding of each type that it has written.
var goWriters = sync.Pool{New: func() any {
	w := &goWriter{}
	hooks := json.JoinMarshalers(json.MarshalToFunc(w.any), json.MarshalToFunc(w.value), json.MarshalToFunc(writeNumber))
	w.options = json.JoinOptions(plainJSON, json.WithMarshalers(hooks))
	w.anyOptions = json.WithMarshalers(json.JoinMarshalers(hooks, json.MarshalToFunc(writeFloat[float64]), json.MarshalToFunc(writeFloat[float32]), json.MarshalToFunc(writeTime)))
	return w
}}

// writeGo returns the JSON of v and the Go types to note. If event is true, v is an event. Otherwise v is a
// value.
func writeGo(v any, event bool) ([]byte, goTypes, *FieldError) {
	w := goWriters.Get().(*goWriter)
	defer goWriters.Put(w)
	w.types, w.event = nil, event
	text, err := json.Marshal(v, w.options)
	if err != nil {
		return nil, nil, jsonError(err)
	}
	if depth := jsonvalue.Depth(text); depth > maxValueDepth && (!event || depth > maxValueDepth+1) {
		at := fieldErr("", "nested deeper than %d", maxValueDepth)
		for name, v := range jsonvalue.Members(text) {
			if event && jsonvalue.Depth(v) > maxValueDepth {
				at.Field = jsonvalue.Step(name)
			}
		}
		return nil, nil, at
	}
	return text, w.types, nil
}

// isAtField reports whether the next value is a field of an event or of its actions. It returns false for a value
// nested in such a field.
func (w *goWriter) isAtField(enc *jsontext.Encoder) bool {
	depth := enc.StackDepth()
	return w.event && (depth == 1 || depth == 2 && strings.HasPrefix(string(enc.StackPointer()), "/actions/"))
}

// maxValueDepth is the maximum nesting depth of a value. An event may be nested one level deeper. The limit
// leaves room for the levels that a patch adds around an event, so [ParseRecord] accepts the line of the patch.
const maxValueDepth = jsonvalue.MaxDepth - 3

// any writes a value held in an `any`.
func (w *goWriter) any(enc *jsontext.Encoder, p *any) error {
	needsNote := true
	switch v := (*p).(type) {
	case nil, bool, Value, map[string]Value:
		return errors.ErrUnsupported
	case string:
		if !utf8.ValidString(v) {
			return notUTF8("", v)
		}
		return errors.ErrUnsupported
	case float64:
		return writeFloat(enc, v)
	case []any:
		needsNote = v == nil
	case map[string]any:
		needsNote = v == nil
	}
	t := reflect.TypeOf(*p)
	name, ok := typeName(t)
	switch {
	case !ok && w.isAtField(enc):
		return errors.ErrUnsupported // a field can have any type that encoding/json supports
	case !ok:
		return fmt.Errorf("a value of Go type %s cannot be restored from storage; "+
			"use booleans, numbers, strings, slices and maps with string keys", t)
	case needsNote:
		w.types = append(w.types, goType{nextPointer(enc), name})
	}
	return json.MarshalEncode(enc, *p, w.anyOptions)
}

// value writes a Value and notes its types.
func (w *goWriter) value(enc *jsontext.Encoder, v Value) error {
	if v.fault != nil {
		return v.fault
	}
	if len(v.types) > 0 {
		at := nextPointer(enc)
		for _, t := range v.types {
			w.types = append(w.types, goType{at + t.pointer, t.name})
		}
	}
	return enc.WriteValue(v.json())
}

// writeFloat writes f so that reading it gives a float with the same bits.
func writeFloat[F float32 | float64](enc *jsontext.Encoder, f F) error {
	bits, x := reflect.TypeFor[F]().Bits(), float64(f)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("JSON cannot represent the number %v", f)
	}
	// Like encoding/json, writeFloat uses an exponent for very small and very large numbers.
	if abs := math.Abs(x); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return enc.WriteValue(strconv.AppendFloat(nil, x, 'e', -1, bits))
	}
	text := strconv.AppendFloat(nil, x, 'f', -1, bits)
	if bytes.IndexByte(text, '.') < 0 {
		text = append(text, ".0"...)
	}
	return enc.WriteValue(text)
}

func writeTime(enc *jsontext.Encoder, t time.Time) error {
	text, err := t.Round(0).UTC().MarshalJSON()
	if err != nil {
		return err
	}
	return enc.WriteValue(text)
}

// jsonError converts an error of the JSON library to a *[FieldError].
func jsonError(err error) *FieldError {
	var at *FieldError
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	var text *jsonvalue.Error
	pointer, problem := "", err.Error()
	switch {
	case errors.As(err, &text):
		pointer, problem = text.Pointer, fmt.Sprintf("%s (byte %d)", text.Problem, text.Offset)
	case errors.As(err, &semantic):
		pointer = string(semantic.JSONPointer)
		if errors.As(semantic.Err, &at) {
			return at.within(pointer)
		}
		if semantic.Err != nil {
			problem = semantic.Err.Error()
			if errors.As(semantic.Err, &syntactic) {
				problem = syntactic.Err.Error()
			}
		}
	case errors.As(err, &syntactic):
		pointer, problem = string(syntactic.JSONPointer), syntactic.Err.Error()
	}
	return fieldErr(strings.TrimPrefix(pointer, "/"), "%s", clip(problem))
}

// typedReader reads JSON into Go values. A value in an `any` gets the Go type noted for it.
type typedReader struct {
	typeNames map[string]string // type names by pointer
	used      int               // number of notes used so far
	number    func(literal string) any
	options   json.Options
}

// typedReaders caches readers, because a reader caches the decoding of each type that it has read.
var typedReaders = sync.Pool{New: func() any {
	r := &typedReader{}
	r.options = json.JoinOptions(plainJSON, json.WithUnmarshalers(json.JoinUnmarshalers(json.UnmarshalFromFunc(r.any), json.UnmarshalFromFunc(readNumber))))
	return r
}}

// any reads a value into an `any`.
func (r *typedReader) any(dec *jsontext.Decoder, p *any) error {
	if len(r.typeNames) > 0 {
		if name, ok := r.typeNames[nextPointer(dec)]; ok {
			r.used++
			t, known := typeByName(name)
			if !known {
				return fmt.Errorf("unknown Go type %q", clip(name))
			}
			v := reflect.New(t)
			err := json.UnmarshalDecode(dec, v.Interface())
			*p = v.Elem().Interface()
			return err
		}
	}
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	literal, err := dec.ReadValue()
	*p = r.number(string(literal))
	return err
}

// readTyped decodes text into the variable that into points to. If a number in an `any` has no noted type,
// readTyped converts it with number. The result used is the number of notes that were used.
func readTyped(text []byte, types goTypes, number func(literal string) any, into any) (used int, err error) {
	r := typedReaders.Get().(*typedReader)
	defer typedReaders.Put(r)
	r.number, r.typeNames, r.used = number, nil, 0
	if len(types) > 0 {
		r.typeNames = make(map[string]string, len(types))
		for _, t := range types {
			r.typeNames[t.pointer] = t.name
		}
	}
	err = json.Unmarshal(text, into, r.options)
	return r.used, err
}

// decodeTyped decodes the text of a field for [Event.Decode] and [Value.Decode].
func decodeTyped(field string, text []byte, types goTypes, into any) error {
	if len(types) == 0 && json.Unmarshal(text, into, plainJSON) == nil {
		return nil
	}
	// This step is needed if there are noted types, or if a number in an `any` exceeds float64. If the value
	// does not fit the variable, it returns the error.
	if _, err := readTyped(text, types, numberAsFloat, into); err != nil {
		return jsonError(err).within("/" + field)
	}
	return nil
}

// numberByKind converts a number and keeps its kind and value. An integer becomes an int64. A number with a
// point or an exponent becomes a float64. A number that neither type can hold becomes a json.Number.
func numberByKind(literal string) any {
	if !strings.ContainsAny(literal, ".eE") && literal != "-0" {
		if i, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return i
		}
		return stdjson.Number(literal)
	}
	return numberAsFloat(literal)
}

// numberAsFloat converts a number to a float64. If the number exceeds float64, it becomes a json.Number.
func numberAsFloat(literal string) any {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || math.IsInf(f, 0) {
		return stdjson.Number(literal)
	}
	return f
}
