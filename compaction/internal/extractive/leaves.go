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
	key   string // key of the value, or of its array
	value string
	text  bool
}

const maxValue = maxArgs / 2 // size of one argument

func (l leaf) String() string {
	value := oneLine(l.value)
	if command, ok := strings.CutPrefix(value, "cd "); ok { // the command matters more than its directory
		if _, after, ok := strings.Cut(command, " && "); ok {
			value = after
		}
	}
	if strings.LastIndexByte(value, '/') > 0 && !strings.Contains(value, " ") && tokens.Of(value) > maxValue {
		value = "…" + value[tailOfPath(value):]
	}
	value = cut(value, maxValue)
	if value == "" {
		value = "…"
	}
	if l.key == "" {
		return value
	}
	return l.key + "=" + value
}

// tailOfPath returns the offset in a path from which its last names fit.
func tailOfPath(path string) int {
	from := len(path)
	for {
		slash := strings.LastIndexByte(path[:max(from-1, 0)], '/')
		if slash < 0 || tokens.Of("…"+path[slash+1:]) > maxValue {
			return from
		}
		from = slash + 1
	}
}

// leaves yields the values of a valid JSON text in order.
func leaves(text json.RawMessage) iter.Seq[leaf] {
	return func(yield func(leaf) bool) {
		if len(text) > 0 {
			nextLeaves(jsonvalue.NewCursor(text), leaf{}, yield)
		}
	}
}

// nextLeaves yields the values within the cursor's next value. The second argument has their key.
func nextLeaves(c *jsonvalue.Cursor, in leaf, yield func(leaf) bool) bool {
	switch kind := c.Kind(); kind {
	case jsonvalue.Null:
		c.Value()
	case jsonvalue.Object, jsonvalue.Array:
		for c.Enter(); c.More(); {
			if kind == jsonvalue.Object {
				in.key = cut(oneLine(string(c.Key())), maxValue)
			}
			if !nextLeaves(c, in, yield) {
				return false
			}
		}
	case jsonvalue.String:
		in.value, in.text = jsonvalue.Unquote(c.Value()), true
		return yield(in)
	default:
		in.value = string(c.Value())
		return yield(in)
	}
	return true
}

// argsText returns as many arguments of a call as fit.
func argsText(args json.RawMessage) string {
	text, n := "", 0
	for l := range leaves(args) {
		if l.value == "" || isWriting(strings.ToLower(l.key)) && len(l.value) > longArg/2 {
			continue
		}
		next := l.String()
		if text != "" {
			next = text + ", " + next
		}
		if n++; n > maxLeaves || tokens.Of(next) > maxArgs {
			if text == "" {
				return cut(next, maxArgs)
			}
			return text + ", …"
		}
		text = next
	}
	return text
}

// oneWord returns the first word of a text, and whether it is the whole text.
func oneWord(text string) (identifiers.Word, bool) {
	for w := range identifiers.Words(text) {
		return w, w.Raw == strings.TrimSpace(text)
	}
	return identifiers.Word{}, false
}
