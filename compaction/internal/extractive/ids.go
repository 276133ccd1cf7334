package extractive

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// ids are the identifiers that events have, each once, as they met them last.
type ids struct {
	byValue map[string]*id
	keys    map[string]int // in the order in which they come first
	clock   int
	ranked  []*id // the most useful first
}

type id struct {
	value string
	key   string // that the JSON text has for it, or ""
	use   use
	times int // that it was used
	last  int // when it was met last
}

// use says whether an identifier was used: the user or the agent said it, or a call has it.
type use int

const (
	returned use = iota // only a tool returned it
	written             // it stands in a long text that a call has, such as a file's
	used
)

const (
	maxFact = 200 // runes above which a word is data
	longArg = 400 // bytes above which an argument is data
)

func newIDs() *ids { return &ids{byValue: map[string]*id{}, keys: map[string]int{}} }

func (l *ids) add(key, value string, as use) {
	if l.clock++; value != oneLine(value) {
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
	e.use, e.last = max(e.use, as), l.clock
	if as == used {
		e.times++
	}
}

// addText finds identifiers by the looks of words, in any language.
func (l *ids) addText(text string, as use) {
	for w := range identifiers.Words(text) {
		closes := w.Raw[0] == '/' && w.Start > 0 && text[w.Start-1] == '<' // a tag
		if isID(w) && !w.Cut && !closes && !strings.Contains(w.Text, ",") && !(as == returned && isEncoded(text, w)) {
			l.add("", shown(w), as)
		}
	}
}

// shown is a word with what belongs to it before its first letter: the points of a path, and a sign.
func shown(w identifiers.Word) string {
	before, _, _ := strings.Cut(w.Raw, w.Text)
	if before == "." || before == ".." || before == "-" {
		return before + w.Text
	}
	return w.Text
}

// isEncoded reports whether a word stands in data, as a segment of a source map: with a comma or a semicolon and no
// blank beside it.
func isEncoded(text string, w identifiers.Word) bool {
	end := w.Start + len(w.Raw)
	return w.Start > 0 && strings.IndexByte(",;", text[w.Start-1]) >= 0 ||
		end+1 < len(text) && strings.IndexByte(",;", text[end]) >= 0 && text[end+1] > ' '
}

// isID reports whether a word is hardly met by chance.
func isID(w identifiers.Word) bool {
	return w.Kind.IsIdentifier() && utf8.RuneCountInString(w.Text) <= maxFact && !isClock(w.Text)
}

// isClock reports whether the word is a time of day, or a ratio.
func isClock(s string) bool {
	return strings.Contains(s, ":") && !strings.ContainsFunc(s, func(r rune) bool { return r != ':' && !unicode.IsDigit(r) })
}

// addLeaves finds identifiers in the values of a JSON text.
func (l *ids) addLeaves(text json.RawMessage, as use) {
	for leaf := range leaves(text) {
		if w, one := oneWord(leaf.value); one && isID(w) {
			if leaf.text || strings.HasSuffix(strings.ToLower(leaf.key), "id") {
				l.add(oneLine(leaf.key), shown(w), as)
			}
		} else if len(leaf.value) > longArg {
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

// write writes the identifiers that are not told and fit into the room: used ones, those that were met last first, then
// in a part of the room returned ones, those with a key first.
func (l *ids) write(told *identifiers.Index, s *reader, room, most tokens.Size) string {
	if l.ranked == nil {
		l.rank(s)
	}
	kept := map[string]map[string][]*id{usedHeading: {}, returnedHeading: {}}
	for _, e := range l.ranked {
		if told.Has(e.value) {
			continue
		}
		heading, left := usedHeading, &room
		if e.use == returned {
			heading, left = returnedHeading, &most
			most = min(most, room)
		}
		size := tokens.Of(", " + e.value)
		lines := kept[heading]
		if len(lines) == 0 {
			size += tokens.Of("\n" + heading)
		}
		if lines[e.key] == nil {
			size += tokens.Of("\n" + bullet + e.key + ": ")
		}
		if size <= *left {
			*left -= size
			lines[e.key] = append(lines[e.key], e)
		}
	}
	return joined(l.lines(usedHeading, kept[usedHeading]), l.lines(returnedHeading, kept[returnedHeading]))
}

// rank orders the identifiers that no earlier summary has.
func (l *ids) rank(s *reader) {
	l.ranked = make([]*id, 0, len(l.byValue))
	for _, e := range l.byValue {
		if !s.known.Has(e.value) && !identifiers.Invents(e.value, s.source) {
			l.ranked = append(l.ranked, e)
		}
	}
	rank := func(e *id) int {
		if e.use == returned && e.key == "" {
			return -1
		}
		return int(e.use)
	}
	slices.SortFunc(l.ranked, func(a, b *id) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(min(b.times, 2), min(a.times, 2)), cmp.Compare(b.last, a.last))
	})
}

// lines writes a line for each key, in the order in which keys and values were met.
func (l *ids) lines(heading string, byKey map[string][]*id) string {
	var keys []string
	for key := range byKey {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return ""
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(l.keys[a], l.keys[b]) })
	text := heading
	for _, key := range keys {
		slices.SortFunc(byKey[key], func(a, b *id) int { return cmp.Compare(a.last, b.last) })
		var values []string
		for _, e := range byKey[key] {
			values = append(values, e.value)
		}
		text += "\n" + bullet
		if key != "" {
			text += key + ": "
		}
		text += strings.Join(values, ", ")
	}
	return text
}
