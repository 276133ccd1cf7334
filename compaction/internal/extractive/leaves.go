package extractive

import (
	"encoding/json"
	"iter"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// leaf is a value in a JSON text that is neither an object nor an array.
type leaf struct {
	key      string // key of the value, or of the array that contains it
	value    string
	isString bool
}

const maxValueSize = maxArgsSize / 2 // size of one argument

func (l leaf) String() string {
	value := oneLine(l.value)
	if command, ok := strings.CutPrefix(value, "cd "); ok { // a command matters more than the directory that it changes to
		if _, after, ok := strings.Cut(command, " && "); ok {
			value = after
		}
	}
	if strings.LastIndexByte(value, '/') > 0 && !strings.Contains(value, " ") && tokens.Of(value) > maxValueSize {
		value = "…" + value[pathTail(value):]
	}
	value = truncate(value, maxValueSize)
	if value == "" {
		value = "…"
	}
	if l.key == "" {
		return value
	}
	return l.key + "=" + value
}

// pathTail returns the offset of the longest end of a path that is short enough and begins with a whole name.
func pathTail(path string) int {
	from := len(path)
	for {
		slash := strings.LastIndexByte(path[:max(from-1, 0)], '/')
		if slash < 0 || tokens.Of("…"+path[slash+1:]) > maxValueSize {
			return from
		}
		from = slash + 1
	}
}

// leaves yields the values of a valid JSON text in order.
func leaves(text json.RawMessage) iter.Seq[leaf] {
	return func(yield func(leaf) bool) {
		if len(text) > 0 {
			yieldLeaves(jsonvalue.NewCursor(text), leaf{}, yield)
		}
	}
}

// yieldLeaves yields the leaves in the cursor's next value. The argument in has the key of that value.
func yieldLeaves(c *jsonvalue.Cursor, in leaf, yield func(leaf) bool) bool {
	switch kind := c.Kind(); kind {
	case jsonvalue.Null:
		c.Value()
	case jsonvalue.Object, jsonvalue.Array:
		for c.Enter(); c.More(); {
			if kind == jsonvalue.Object {
				in.key = truncate(oneLine(string(c.Key())), maxValueSize)
			}
			if !yieldLeaves(c, in, yield) {
				return false
			}
		}
	case jsonvalue.String:
		in.value, in.isString = jsonvalue.Unquote(c.Value()), true
		return yield(in)
	default:
		in.value = string(c.Value())
		return yield(in)
	}
	return true
}

// argsText returns the first arguments of a call, as many as fit.
func argsText(args json.RawMessage) string {
	text, n := "", 0
	for l := range leaves(args) {
		if l.value == "" || isFileText(strings.ToLower(l.key)) && len(l.value) > longArgBytes/2 {
			continue
		}
		next := l.String()
		if text != "" {
			next = text + ", " + next
		}
		if n++; n > maxLeaves || tokens.Of(next) > maxArgsSize {
			if text == "" {
				return truncate(next, maxArgsSize)
			}
			return text + ", …"
		}
		text = next
	}
	return text
}

// singleWord returns the first word of a text, and whether the text has no other word.
func singleWord(text string) (identifiers.Word, bool) {
	for w := range identifiers.Words(text) {
		return w, w.Raw == strings.TrimSpace(text)
	}
	return identifiers.Word{}, false
}
