package extractive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

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

// leaves yields the values of a JSON text, in its order.
func leaves(text json.RawMessage) func(yield func(leaf) bool) {
	type level struct {
		object bool
		list   bool // in an array of such
		key    string
		isKey  bool // the next token is a key
	}
	return func(yield func(leaf) bool) {
		var levels []level
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		for {
			token, err := decoder.Token()
			if err != nil {
				return
			}
			var in level
			top := len(levels) - 1
			if top >= 0 {
				in = levels[top]
			}
			if in.object && in.isKey {
				if key, ok := token.(string); ok {
					levels[top].isKey = false
					levels[top].key = cut(oneLine(key), maxValue)
					continue
				}
			}
			if top >= 0 {
				levels[top].isKey = true
			}
			more := true
			switch token := token.(type) {
			case json.Delim:
				switch token {
				case '{', '[':
					levels = append(levels, level{token == '{', in.list || top >= 0 && !in.object, in.key, true})
				default:
					levels = levels[:top]
				}
			case string:
				more = yield(leaf{in.key, token, in.list, true})
			case json.Number:
				more = yield(leaf{in.key, token.String(), in.list, false})
			case bool:
				more = yield(leaf{in.key, fmt.Sprint(token), in.list, false})
			}
			if !more {
				return
			}
		}
	}
}

// oneWord is the text if it is one word, and else nothing.
func oneWord(text string) string {
	if text == "" || strings.ContainsFunc(text, splitsWords) {
		return ""
	}
	return text
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
		if isPath(oneWord(f.value)) && groupOf(f.value) == pathGroup {
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
	if l.key != "" && l.value != "" && utf8.RuneCountInString(l.value) <= maxWordsWidth && len(strings.Fields(l.value)) <= maxWords || oneWord(l.value) != "" && utf8.RuneCountInString(l.value) <= maxFact {
		f := fact{key: l.key, value: oneLine(l.value), form: formOf(l.value), named: l.key != ""}
		if f.value == "" || f.form == common && (l.list || !l.text && (utf8.RuneCountInString(f.value) < 2 || !hasDigit(f.value))) {
			return nil
		}
		if f.key == "" {
			f.key = groupOf(f.value)
		}
		return []fact{f}
	}
	if args {
		return findFacts(l.value)
	}
	return slices.DeleteFunc(findFacts(l.value), func(f fact) bool { return f.form == common })
}
