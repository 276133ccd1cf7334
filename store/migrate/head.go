package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// fileHead is the start of a file, decoded as objects. The objects are the lines of the file, the elements of an
// array, or one object that spans several lines. A truncated value is kept up to the truncation. The field items has
// the elements of all lists of messages in the objects.
type fileHead struct {
	name    string
	lines   bool // whether each line is an object
	objects []obj
	items   []obj
}

// count returns the number of objects for which the function is returns true.
func (b *fileHead) count(is func(o obj) bool) int { return countMatching(b.objects, is) }

func (b *fileHead) has(is func(o obj) bool) bool { return b.count(is) > 0 }

func countMatching(objects []obj, match func(o obj) bool) (n int) {
	for _, o := range objects {
		if match(o) {
			n++
		}
	}
	return n
}

// listNames are the members that can have lists of messages.
var listNames = []string{"messages", "history", "traj", "conversation", "items"}

func parseHead(head []byte, name string) *fileHead {
	b := &fileHead{name: filepath.Base(name)}
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
			b.items = append(b.items, parseObjects(o.list(list))...)
		}
	}
	return b
}

func (b *fileHead) add(v json.RawMessage) {
	if o := parse(v); o != nil {
		b.objects = append(b.objects, o)
	} else if isArray(v) && len(b.objects) == 0 { // the first value is an array
		b.objects, b.lines = parseObjects(arrayElements(v)), false
	}
}

func parseObjects(list []json.RawMessage) (objects []obj) {
	for _, v := range list {
		if o := parse(v); o != nil {
			objects = append(objects, o)
		}
	}
	return objects
}

// trim removes white space and NULs from both ends. A crash may leave NULs in a file.
func trim(line []byte) []byte { return bytes.Trim(line, "\x00 \t\r\n") }

// spansLines reports whether the first JSON value of a text continues on the next line.
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
		var syntaxErr *json.SyntaxError
		if err != nil || depth == 0 {
			return !errors.As(err, &syntaxErr) && d.InputOffset() > int64(len(first))
		}
	}
}

// decodePrefix returns the first JSON value of a text. If the text is truncated, decodePrefix closes the open values.
func decodePrefix(text []byte) json.RawMessage {
	d, end := json.NewDecoder(bytes.NewReader(text)), int64(0)
	var open []string // by open value: the text that closes it, including null if the value of a member is missing
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
