package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// beginning is the beginning of a file, as objects: those on its lines, or one that spans lines, or the elements of
// an array. A member whose value is cut off is there, as far as it goes. items are the elements of lists in them, in which several formats keep messages.
type beginning struct {
	name    string
	lines   bool // one object a line
	objects []obj
	items   []obj
}

// count returns how many of the objects are so.
func (b *beginning) count(is func(o obj) bool) int { return countOf(b.objects, is) }

func (b *beginning) has(is func(o obj) bool) bool { return b.count(is) > 0 }

func countOf(objects []obj, is func(o obj) bool) (n int) {
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

func (b *beginning) add(v json.RawMessage) {
	if o := parse(v); o != nil {
		b.objects = append(b.objects, o)
	} else if isArray(v) && len(b.objects) == 0 { // it is no odd line
		b.objects, b.lines = objectsOf(listOf(v)), false
	}
}

func objectsOf(list []json.RawMessage) (objects []obj) {
	for _, v := range list {
		if o := parse(v); o != nil {
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

// decodePrefix returns the value that a text begins with, as far as the text has it: what is open at its end is closed.
func decodePrefix(text []byte) json.RawMessage {
	d, end := json.NewDecoder(bytes.NewReader(text)), int64(0)
	var open []string // what closes each of the open values: an object behind a name has a null, too
	for token, err := d.Token(); err == nil; token, err = d.Token() {
		end = d.InputOffset()
		if n := len(open) - 1; token == json.Delim(']') || token == json.Delim('}') {
			open = open[:n]
		} else if n >= 0 && open[n] == "}" {
			open[n] = ":null}"
		} else if n >= 0 && open[n] == ":null}" {
			open[n] = "}"
		}
		switch token {
		case json.Delim('['):
			open = append(open, "]")
		case json.Delim('{'):
			open = append(open, "}")
		}
		if len(open) == 0 {
			break
		}
	}
	slices.Reverse(open)
	return trim(slices.Concat(text[:end], []byte(strings.Join(open, ""))))
}
