package extractive

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// rows are objects in results of tools: each has an id, or a date, and its other short values on one line, under a header
// with their names.
type rows struct {
	byKey   map[string][]*row   // by ids, under their names
	columns map[string][]string // in the order of the first row that has these, by their sorted names
	within  map[string]bool     // headers of rows with the same ids in different objects, whose ids these rows then have too
	all     []*row
}

func newRows() *rows {
	return &rows{byKey: map[string][]*row{}, columns: map[string][]string{}, within: map[string]bool{}}
}

type row struct {
	header  string
	names   []string
	cells   string // the id first
	of      cell   // the id of the object that it is in
	id      string
	last    int  // when it came, or -1 if a later state has its place
	dated   bool // the id is a date
	used    bool // the user, the agent or a call has used the id
	rank    int  // which of its header's rows it is that nothing used, the newest first; 0 if it was used
	written bool
}

const (
	cellMark  = " | "
	maxCell   = 32 // runes of a value
	maxCells  = 12
	datedMost = 0.25 // of the room, for rows whose id is a date
)

// cell is a value of an object under its name.
type cell struct{ name, value string }

// add adds the objects in the cursor's next value. of is the id of the object that they are in, if it has one.
func (r *rows) add(c *jsonvalue.Cursor, of cell) {
	switch c.Kind() {
	case jsonvalue.Array:
		for c.Enter(); c.More(); {
			r.add(c, of)
		}
	case jsonvalue.Object:
		r.addObject(c, of)
	case jsonvalue.String:
		r.addText(jsonvalue.Unquote(c.Value()))
	default:
		c.Value()
	}
}

// addText adds the objects in a text, if it is JSON: many tools return such a text.
func (r *rows) addText(text string) {
	text = strings.TrimSpace(text)
	if len(text) > 1 && strings.ContainsRune("[{", rune(text[0])) {
		if value, err := jsonvalue.Parse([]byte(text)); err == nil {
			r.add(jsonvalue.NewCursor(value), cell{})
		}
	}
}

// addObject adds the cursor's next object, if one of its values is an id, and the objects in it.
func (r *rows) addObject(c *jsonvalue.Cursor, of cell) {
	var names, values []string
	id, best, own := -1, 0, of
	for c.Enter(); c.More(); {
		key, value, kind := oneLine(string(c.Key())), "", c.Kind()
		switch kind {
		case jsonvalue.String:
			value = jsonvalue.Unquote(c.Value())
			r.addText(value)
		case jsonvalue.Number:
			value = string(c.Value())
		default:
			r.add(c, own)
		}
		if !isCell(key) || !isCell(value) {
			continue
		}
		if rank := idRank(key, value, kind == jsonvalue.String); rank > best {
			best, id = rank, len(names)
			if rank > asDate {
				own = cell{key, value}
			}
		}
		names, values = append(names, key), append(values, value)
	}
	if id < 0 || len(names) < 2 {
		return
	}
	for _, of := range [][]string{names, values} {
		first := of[id]
		copy(of[1:], of[:id])
		of[0] = first
	}
	n := min(len(names), maxCells)
	r.put(names[:n], values[:n], of)
}

// isCell reports whether a text can be a cell or a column's name.
func isCell(text string) bool {
	return text != "" && text == oneLine(text) && utf8.RuneCountInString(text) <= maxCell && !strings.Contains(text, "|")
}

// Ranks of values that are like ids.
const (
	asDate = 1 + iota // identifies an object without another id, such as a person by the date of birth
	asNamed
	asID
)

// idRank says how much like an id a value is; 0 is not at all. A number is one by its name alone.
func idRank(key, value string, text bool) int {
	named := strings.HasSuffix(strings.ToLower(key), "id")
	w, one := oneWord(value)
	switch date := isDate(w.Text); {
	case !one || !text && !named:
		return 0
	case text && isID(w) && !date && !isAmount(w.Text):
		return asID
	case named:
		return asNamed
	case text && date:
		return asDate
	}
	return 0
}

// isAmount reports whether the word is a number or a time, perhaps with a sign before or a unit behind.
func isAmount(s string) bool {
	digit := strings.IndexFunc(s, unicode.IsDigit)
	if digit < 0 || strings.ContainsFunc(s[:digit], unicode.IsLetter) || strings.ContainsAny(s, "_/@") {
		return false
	}
	letters := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			letters++
		}
	}
	return letters <= 2
}

// isDate reports whether the word is three numbers with the same sign between them, of which one may be a year, or
// begins with such and a T, as times do.
func isDate(s string) bool {
	if i := strings.IndexByte(s, 'T'); i > 0 {
		s = s[:i]
	}
	for _, sign := range []string{"-", "/", "."} {
		parts := strings.Split(s, sign)
		if len(parts) == 3 && (len(parts[0]) == 4 || len(parts[2]) == 4) && !slices.ContainsFunc(parts, func(p string) bool {
			return p == "" || len(p) > 4 || strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsDigit(r) })
		}) {
			return true
		}
	}
	return false
}

// put adds a row of an object within another one. It replaces rows with the same ids, in the same object, that have no
// other columns; a row whose only id is a date replaces only an identical one.
func (r *rows) put(names, values []string, of cell) {
	sorted := strings.Join(slices.Sorted(slices.Values(names)), cellMark)
	if first := r.columns[sorted]; first != nil {
		ordered := make([]string, len(values))
		for i, name := range first {
			ordered[i] = values[slices.Index(names, name)]
		}
		names, values = first, ordered
	} else {
		r.columns[sorted] = names
	}
	n := &row{header: strings.Join(names, cellMark), names: names, cells: strings.Join(values, cellMark), of: of, last: len(r.all), id: values[0]}
	r.all = append(r.all, n)
	key := n.id
	n.dated = idRank(names[0], n.id, true) == asDate
	for i := 1; i < len(names); i++ {
		if n.dated || idRank(names[i], values[i], true) > asDate {
			key += cellMark + names[i] + cellMark + values[i]
		}
	}
	for _, old := range r.byKey[key] {
		switch {
		case slices.ContainsFunc(old.names, func(name string) bool { return !slices.Contains(names, name) }):
		case old.of == of || old.of.name == "" || of.name == "" || old.cells == n.cells:
			old.last = -1
		default:
			r.within[old.header], r.within[n.header] = true, true
		}
	}
	r.byKey[key] = append(slices.DeleteFunc(r.byKey[key], func(old *row) bool { return old.last < 0 }), n)
}

// write writes the rows that fit into the room: first those with a used id, then the newest of each
// header. It leaves out rows that an earlier summary has. With told, the
// text of a summary, it writes only rows with a used id that the text lacks.
func (r *rows) write(s *reader, told *identifiers.Index, room tokens.Size) string {
	room -= tokens.Of(rowsHeading + "\n")
	var ranked []*row
	for _, of := range r.all {
		of.written = false
		if r.within[of.header] && of.of.name != "" {
			of.header, of.cells = of.header+cellMark+of.of.name, of.cells+cellMark+of.of.value
		}
		if of.last >= 0 && !s.known.Contains(of.cells) && !identifiers.Invents(of.cells, s.source) {
			of.used = s.ids.isUsed(of.id)
			if told != nil && (!of.used || told.Contains(of.cells)) {
				continue
			}
			ranked = append(ranked, of)
		}
	}
	nth := map[string]int{} // of a header's rows, the newest first
	for _, of := range slices.Backward(ranked) {
		if of.rank = 0; !of.used {
			nth[of.header]++
			of.rank = nth[of.header]
		}
	}
	slices.SortFunc(ranked, func(a, b *row) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.last, a.last)) })
	dated := part(room, datedMost)
	lines := make(map[string][]string) // by header, which comes first
	for _, of := range ranked {
		size := tokens.Of(of.cells + "\n")
		if lines[of.header] == nil {
			size += tokens.Of(bullet + of.header + "\n")
		}
		if of.dated && size > dated {
			continue
		}
		if size <= room {
			room -= size
			if of.dated {
				dated -= size
			}
			of.written = true
			lines[of.header] = []string{bullet + of.header}
		}
	}
	var headers []string
	for _, of := range r.all {
		if !of.written {
			continue
		}
		if len(lines[of.header]) == 1 {
			headers = append(headers, of.header)
		}
		lines[of.header] = append(lines[of.header], of.cells)
	}
	if len(headers) == 0 {
		return ""
	}
	text := rowsHeading
	for _, header := range headers {
		text += "\n" + strings.Join(lines[header], "\n")
	}
	return text
}
