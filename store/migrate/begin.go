package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
)

// object is a JSON object at the beginning of a file. A member whose value is cut off is there, as far as it goes.
type object map[string]any

// has reports whether one of the members is there, and is not null unless it is cut off.
func (o object) has(names ...string) bool {
	for _, name := range names {
		if _, ok := o[name]; ok {
			return true
		}
	}
	return false
}

func (o object) text(name string) string   { s, _ := o[name].(string); return s }
func (o object) object(name string) object { m, _ := o[name].(map[string]any); return m }
func (o object) list(name string) []any    { l, _ := o[name].([]any); return l }

// beginning is the beginning of a file, as objects: those on its lines, or one that spans lines, or the elements of
// an array. items are the elements of lists in them, in which several formats keep messages.
type beginning struct {
	name    string
	lines   bool // one object a line
	objects []object
	items   []object
}

// count returns how many of the objects are so.
func (b *beginning) count(is func(o object) bool) int { return countOf(b.objects, is) }

func (b *beginning) has(is func(o object) bool) bool { return b.count(is) > 0 }

func countOf(objects []object, is func(o object) bool) (n int) {
	for _, o := range objects {
		if is(o) {
			n++
		}
	}
	return n
}

// listNames are the members in which files have their messages as a list.
var listNames = []string{"messages", "history", "traj", "conversation", "items"}

// begin reads the beginning of a file.
func begin(head []byte, name string) *beginning {
	b := &beginning{name: filepath.Base(name)}
	head = trim(bytes.TrimPrefix(trim(head), byteOrderMark))
	if spansLines(head) {
		b.add(decodePrefix(head))
	} else {
		b.lines = true
		for line := range bytes.Lines(head) {
			b.add(decodePrefix(trim(line)))
		}
	}
	for _, o := range b.objects {
		for _, list := range listNames {
			b.items = append(b.items, objectsOf(o.list(list))...)
		}
	}
	return b
}

func (b *beginning) add(v any) {
	switch v := v.(type) {
	case map[string]any:
		b.objects = append(b.objects, v)
	case []any:
		if len(b.objects) == 0 { // it is no odd line
			b.objects, b.lines = objectsOf(v), false
		}
	}
}

func objectsOf(list []any) (objects []object) {
	for _, v := range list {
		if o, ok := v.(map[string]any); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// trim takes white space off both ends of a line, and NULs, which a crash leaves.
func trim(line []byte) []byte { return bytes.Trim(line, "\x00 \t\r\n") }

// spansLines reports whether the first value of a text goes on behind its line.
func spansLines(text []byte) bool {
	first, rest, more := bytes.Cut(text, []byte("\n"))
	if !more || len(trim(rest)) == 0 || json.Valid(trim(first)) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	for depth := 0; ; {
		token, err := d.Token()
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		var wrong *json.SyntaxError
		if err != nil || depth == 0 {
			return !errors.As(err, &wrong) && d.InputOffset() > int64(len(first))
		}
	}
}

// maxDepth is how deep the beginning of a file is looked into.
const maxDepth = 1000

// decodePrefix returns the value that a text begins with, as far as the text has it.
func decodePrefix(text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	v, _ := decodeValue(d, 0)
	return v
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil || depth > maxDepth {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() && err == nil {
			var v any
			v, err = decodeValue(d, depth+1)
			list = append(list, v)
		}
		if err == nil {
			_, err = d.Token()
		}
		return list, err
	case json.Delim('{'):
		members := map[string]any{}
		for d.More() && err == nil {
			var name any
			if name, err = d.Token(); err == nil {
				key, _ := name.(string)
				members[key], err = decodeValue(d, depth+1)
			}
		}
		if err == nil {
			_, err = d.Token()
		}
		return members, err
	}
	return token, nil
}
