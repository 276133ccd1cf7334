package extractive

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// leaf is a value in a JSON text that is neither object nor array.
type leaf struct {
	key   string // that it stands under, or that its array does
	value string
	list  bool // it stands in an array of objects, or of arrays
	text  bool
}

func (l leaf) String() string {
	value := cut(oneLine(l.value), maxValue)
	if value == "" {
		value = "…"
	}
	if l.key == "" {
		return value
	}
	return l.key + "=" + value
}

const maxValue = 32 * tokens.Token // of one argument

// leaves yields the values of a valid JSON text, in its order.
func leaves(text json.RawMessage) iter.Seq[leaf] {
	return func(yield func(leaf) bool) { nextLeaves(jsonvalue.NewCursor(text), leaf{}, false, yield) }
}

// nextLeaves yields the values within the cursor's next value. in has the key and the list of the values, and inArray
// says whether the next value is an element of an array.
func nextLeaves(c *jsonvalue.Cursor, in leaf, inArray bool, yield func(leaf) bool) bool {
	switch kind := c.Kind(); kind {
	case jsonvalue.Null:
		c.Value()
	case jsonvalue.Object, jsonvalue.Array:
		in.list = in.list || inArray
		for c.Enter(); c.More(); {
			if kind == jsonvalue.Object {
				in.key = cut(oneLine(string(c.Key())), maxValue)
			}
			if !nextLeaves(c, in, kind == jsonvalue.Array, yield) {
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

// oneWord returns the first word of a text, and whether it is the whole text.
func oneWord(text string) (identifiers.Word, bool) {
	for w := range identifiers.Words(text) {
		return w, w.Raw == text
	}
	return identifiers.Word{}, false
}

// Widths of a value that is told with its key, in runes and words.
const (
	maxWordsWidth = 32
	maxWords      = 3
)

// factsOfArgs finds the facts of a call. What was done to a path, the function's name says.
func factsOfArgs(name string, args json.RawMessage) []fact {
	facts := factsOfLeaves(args, true)
	for i, f := range facts {
		if w, ok := oneWord(f.value); ok && groupOf(w) == pathGroup {
			facts[i].key, facts[i].named = name, true
		}
	}
	return facts
}

// factsOfLeaves finds the facts of a call's arguments, or of what a function returned.
func factsOfLeaves(text json.RawMessage, args bool) []fact {
	var facts []fact
	for l := range leaves(text) {
		facts = append(facts, l.facts(args)...)
	}
	return facts
}

// facts are those of a value: the value, if it is short, or else what stands in it. Of a
// list, and of a long text that a tool returned, only those that are hardly met by chance.
func (l leaf) facts(args bool) []fact {
	w, one := oneWord(l.value)
	if l.key != "" && l.value != "" && utf8.RuneCountInString(l.value) <= maxWordsWidth && len(strings.Fields(l.value)) <= maxWords || one && utf8.RuneCountInString(l.value) <= maxFact {
		f := fact{key: l.key, value: oneLine(l.value), form: formOf(l.value), named: l.key != ""}
		if f.value == "" || f.form == common && (l.list || !l.text && (utf8.RuneCountInString(f.value) < 2 || !hasDigit(f.value))) {
			return nil
		}
		if f.key == "" {
			f.key = groupOf(w)
		}
		return []fact{f}
	}
	if args {
		return findFacts(l.value)
	}
	return slices.DeleteFunc(findFacts(l.value), func(f fact) bool { return f.form == common })
}
