package patch

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// jsonField is one field of a struct as encoding/json sees it.
type jsonField struct {
	name      string
	index     []int
	tagged    bool
	omitEmpty bool
	quoted    bool
}

var jsonFieldCache sync.Map // reflect.Type → []jsonField

// jsonFields returns the fields that encoding/json writes and reads, by its rules for
// embedded structs and names that occur twice.
func jsonFields(t reflect.Type) []jsonField {
	if cached, ok := jsonFieldCache.Load(t); ok {
		return cached.([]jsonField)
	}
	all := appendJSONFields(nil, t, nil, nil)
	var fields []jsonField
	for _, f := range all {
		dominates := !slices.ContainsFunc(all, func(o jsonField) bool {
			if o.name != f.name || slices.Equal(o.index, f.index) {
				return false
			}
			// Less deeply embedded goes first, then tagged; equals take each other out.
			return len(o.index) < len(f.index) || len(o.index) == len(f.index) && (o.tagged || !f.tagged)
		})
		if dominates {
			fields = append(fields, f)
		}
	}
	jsonFieldCache.Store(t, fields)
	return fields
}

// appendJSONFields appends all fields, of embedded structs too. within are the types
// that t is embedded in.
func appendJSONFields(fields []jsonField, t reflect.Type, index []int, within []reflect.Type) []jsonField {
	within = append(slices.Clip(within), t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		embedded := f.Type
		if embedded.Name() == "" && embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		isStruct := f.Anonymous && embedded.Kind() == reflect.Struct
		if tag == "-" || !f.IsExported() && !isStruct {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !isJSONName(name) {
			name = ""
		}
		at := append(slices.Clip(index), i)
		switch {
		case name == "" && isStruct:
			if !slices.Contains(within, embedded) {
				fields = appendJSONFields(fields, embedded, at, within)
			}
			continue
		case !f.IsExported():
			continue
		}
		has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
		field := jsonField{name: name, index: at, tagged: name != "", omitEmpty: has("omitempty") || has("omitzero")}
		if name == "" {
			field.name = f.Name
		}
		scalar := f.Type
		if scalar.Name() == "" && scalar.Kind() == reflect.Pointer {
			scalar = scalar.Elem()
		}
		switch scalar.Kind() {
		case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
			reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
			reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
			field.quoted = has("string")
		}
		fields = append(fields, field)
	}
	return fields
}

// isJSONName reports whether encoding/json takes a name from a tag.
func isJSONName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r)
	})
}

// fieldByJSONName finds the field that encoding/json reads a member into: the one of
// that name, else one whose name differs in case alone.
func fieldByJSONName(v reflect.Value, name string) (reflect.Value, bool) {
	fields := jsonFields(v.Type())
	i := slices.IndexFunc(fields, func(f jsonField) bool { return f.name == name })
	if i < 0 {
		i = slices.IndexFunc(fields, func(f jsonField) bool { return strings.EqualFold(f.name, name) })
	}
	if i < 0 {
		return reflect.Value{}, false
	}
	field, err := v.FieldByIndexErr(fields[i].index)
	return field, err == nil
}
