package extractive

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// ids are the distinct identifiers of events, with their last use.
type ids struct {
	byValue map[string]*id
	keys    map[string]int // position of each key in the order of first occurrence
	time    int
	ranked  []*id // the most useful identifiers first
}

type id struct {
	value    string
	key      string // key of the value in its JSON text, or ""
	use      use
	uses     int // number of uses
	lastSeen int // value of ids.time at the last occurrence
}

// use says how an identifier was used. If there are several uses, the strongest counts.
type use int

const (
	returned use = iota // only a tool returned the identifier
	written             // a long argument of a call contains the identifier, such as the text of a file
	used
)

const (
	maxIDRunes   = 200 // a longer word counts as data
	longArgBytes = 400 // a longer argument counts as data
)

func newIDs() *ids { return &ids{byValue: map[string]*id{}, keys: map[string]int{}} }

func (l *ids) add(key, value string, as use) {
	if l.time++; value != oneLine(value) {
		return
	}
	e := l.byValue[value]
	if e == nil {
		e = &id{value: value}
		l.byValue[value] = e
	}
	if e.key == "" {
		e.key = key
	}
	if _, known := l.keys[e.key]; !known {
		l.keys[e.key] = len(l.keys)
	}
	e.use, e.lastSeen = max(e.use, as), l.time
	if as == used {
		e.uses++
	}
}

// addText adds the identifiers in a text. It recognises identifiers by their form, in any language.
func (l *ids) addText(text string, as use) {
	for w := range identifiers.Words(text) {
		closes := w.Raw[0] == '/' && w.Start > 0 && text[w.Start-1] == '<' // whether the word is an HTML end tag
		if !isID(w) || w.Cut || closes || quantity.MatchString(w.Text) || strings.Contains(w.Text, ",") || as == returned && (isEncoded(text, w) || meaninglessAlone.MatchString(w.Text)) {
			continue
		}
		if as == written && w.Raw[0] == '.' { // a relative path means little outside its file
			l.add("", withPrefix(w), returned)
		} else {
			l.add("", withPrefix(w), as)
		}
	}
}

// withPrefix returns a word together with the preceding characters that belong to the word, such as a sign or the dots
// of a path.
func withPrefix(w identifiers.Word) string {
	before, after, _ := strings.Cut(w.Raw, w.Text)
	text := w.Text
	if strings.Contains(text, "__") { // keep both pairs of underscores in names such as __init__.py
		text += after[:len(after)-len(strings.TrimLeft(after, "_"))]
		before, text = before[:len(strings.TrimRight(before, "_"))], before[len(strings.TrimRight(before, "_")):]+text
	}
	if before == "." || before == ".." || before == "-" || before == "@" && strings.Contains(text, "/") {
		return before + text
	}
	return text
}

var (
	// quantity matches a number with a short unit, such as 123ms, and an approximate number or range.
	quantity = regexp.MustCompile(`^(?:[0-9.]+[a-z]{1,2}|~[0-9]+(?:-[0-9]+)?)$`)

	// meaninglessAlone matches words of a tool result that mean little without their context, which are fractions,
	// versions, and words after a line number.
	meaninglessAlone = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+){1,2}|[0-9]+:.*\pL.*)$`)
)

// isEncoded reports whether a word is part of encoded data, such as a segment of a source map. Such a word has an
// adjacent comma or semicolon without a space.
func isEncoded(text string, w identifiers.Word) bool {
	end := w.Start + len(w.Raw)
	return w.Start > 0 && strings.IndexByte(",;", text[w.Start-1]) >= 0 ||
		end+1 < len(text) && strings.IndexByte(",;", text[end]) >= 0 && text[end+1] > ' '
}

// isID reports whether a word is an identifier of at most maxIDRunes runes, and neither a time of day nor a ratio.
func isID(w identifiers.Word) bool {
	return w.Kind.IsIdentifier() && utf8.RuneCountInString(w.Text) <= maxIDRunes && !isTimeOfDay(w.Text)
}

// isTimeOfDay reports whether the word is a time of day or a ratio.
func isTimeOfDay(s string) bool {
	return strings.Contains(s, ":") && !strings.ContainsFunc(s, func(r rune) bool { return r != ':' && !unicode.IsDigit(r) })
}

// addJSON adds the identifiers in the values of a JSON text.
func (l *ids) addJSON(text json.RawMessage, as use) {
	for leaf := range leaves(text) {
		if w, one := singleWord(leaf.value); one && isID(w) {
			if leaf.isString || strings.HasSuffix(strings.ToLower(leaf.key), "id") {
				l.add(oneLine(leaf.key), withPrefix(w), as)
			}
		} else if len(leaf.value) > longArgBytes {
			l.addText(leaf.value, min(as, written))
		} else {
			l.addText(leaf.value, as)
		}
	}
}

func (l *ids) isUsed(value string) bool {
	e := l.byValue[value]
	return e != nil && e.use != returned
}

// write returns identifiers of at most the size room. It omits identifiers that another text, with the index present,
// already contains. Used identifiers come first, the most recent first. Returned identifiers follow, those with a key
// first. The argument maxReturned limits the size of the returned identifiers.
func (l *ids) write(present *identifiers.Index, s *reader, room, maxReturned tokens.Size) string {
	if l.ranked == nil {
		l.rank(s)
	}
	firstReturned := slices.IndexFunc(l.ranked, func(e *id) bool { return e.use == returned })
	if firstReturned < 0 {
		firstReturned = len(l.ranked)
	}
	usedSection, room := l.section(usedHeading, l.ranked[:firstReturned], present, room)
	returnedSection, _ := l.section(seenHeading, l.ranked[firstReturned:], present, min(maxReturned, room))
	return joinSections(usedSection, returnedSection)
}

// rank sorts the identifiers by usefulness, and omits those in earlier summaries.
func (l *ids) rank(s *reader) {
	l.ranked = make([]*id, 0, len(l.byValue))
	for _, e := range l.byValue {
		if !s.earlierIDs.Has(e.value) && !identifiers.Invents(e.value, s.sourceIDs) {
			l.ranked = append(l.ranked, e)
		}
	}
	hasKey := func(e *id) int { return min(len(e.key), 1) }
	slices.SortFunc(l.ranked, func(a, b *id) int {
		if a.use == returned && b.use == returned && hasKey(a) != hasKey(b) {
			return hasKey(b) - hasKey(a)
		}
		return cmp.Or(cmp.Compare(b.use, a.use), cmp.Compare(min(b.uses, 2), min(a.uses, 2)), cmp.Compare(b.lastSeen, a.lastSeen))
	})
}

// section returns one line per key, in the order in which keys and values occurred. It also returns the room that is
// left.
func (l *ids) section(heading string, all []*id, present *identifiers.Index, room tokens.Size) (string, tokens.Size) {
	byKey := map[string][]*id{}
	for _, e := range all {
		size := tokens.Of(", " + e.value)
		if len(byKey) == 0 {
			size += tokens.Of("\n" + heading)
		}
		if byKey[e.key] == nil {
			size += tokens.Of("\n" + bullet + e.key + ": ")
		}
		if size <= room && !present.Has(e.value) {
			room -= size
			byKey[e.key] = append(byKey[e.key], e)
		}
	}
	if len(byKey) == 0 {
		return "", room
	}
	text := heading
	for _, key := range slices.SortedFunc(maps.Keys(byKey), func(a, b string) int { return cmp.Compare(l.keys[a], l.keys[b]) }) {
		slices.SortFunc(byKey[key], func(a, b *id) int { return cmp.Compare(a.lastSeen, b.lastSeen) })
		text += "\n" + bullet
		if key != "" {
			text += key + ": "
		}
		for i, e := range byKey[key] {
			if i > 0 {
				text += ", "
			}
			text += e.value
		}
	}
	return text, room
}
