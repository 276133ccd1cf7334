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

// rows are the objects in tool results that have an id or a date. Each row has the object's short values on one line,
// under a header with their names.
type rows struct {
	byKey   map[string][]*row   // by the names and values of their ids
	columns map[string][]string // sorted column names → names in the order of the first row that has these columns
	within  map[string]bool     // headers whose rows have the same id in different objects; these rows also show the id of the containing object
	all     []*row
}

func newRows() *rows {
	return &rows{byKey: map[string][]*row{}, columns: map[string][]string{}, within: map[string]bool{}}
}

type row struct {
	header  string
	names   []string
	cells   string // the values, the id first
	of      cell   // the id of the containing object
	id      string
	last    int  // when the row was added, or -1 if a later state has replaced it
	dated   bool // the id is a date
	used    bool // the user, the agent or a call used the id
	rank    int  // position among the unused rows of the same header, the newest first; 0 if used
	written bool
}

const (
	cellMark  = " | "
	maxCell   = 32 // runes of a value
	maxCells  = 12
	datedMost = 0.25 // fraction of the room for rows whose id is a date
)

// cell is a named value of an object.
type cell struct{ name, value string }

// add adds the objects in the cursor's next value. The last argument is the id of the containing object, if there is
// one.
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

// addText adds the objects in a text if the text is JSON. Many tools return JSON as text.
func (r *rows) addText(text string) {
	text = strings.TrimSpace(text)
	if len(text) > 1 && strings.ContainsRune("[{", rune(text[0])) {
		if value, err := jsonvalue.Parse([]byte(text)); err == nil {
			r.add(jsonvalue.NewCursor(value), cell{})
		}
	}
}

// addObject adds the cursor's next object if one of its values is an id. It also adds the objects that this object
// contains.
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

// isCell reports whether a text can be a value or a column name.
func isCell(text string) bool {
	return text != "" && text == oneLine(text) && utf8.RuneCountInString(text) <= maxCell && !strings.Contains(text, "|")
}

// Ranks of values that identify an object.
const (
	asDate = 1 + iota // a date identifies an object without another id, such as a person by the date of birth
	asNamed
	asID
)

// idRank returns the rank of a value as an id, or 0 if the value is not an id. For a number, only the name counts.
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

// isAmount reports whether the word is a number or a time, optionally with a sign or a unit.
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

// isDate reports whether the word is a date: three numbers with the same separator, one of which can be a year. A time
// after T is ignored.
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

// put adds the row of an object. The last argument is the id of the containing object. The new row replaces older rows
// with the same ids in the same object, unless these have additional columns. If the only id is a date, it replaces
// only an identical row.
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

// write returns the rows that fit into the room. Rows with a used id come first, then the newest rows of each header.
// Rows that an earlier summary contains are left out. If told is not nil, it is an index of another writer's summary.
// Then only rows with a used id that the summary lacks are written.
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
	nth := map[string]int{} // number of unused rows of each header so far, the newest first
	for _, of := range slices.Backward(ranked) {
		if of.rank = 0; !of.used {
			nth[of.header]++
			of.rank = nth[of.header]
		}
	}
	slices.SortFunc(ranked, func(a, b *row) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.last, a.last)) })
	dated := part(room, datedMost)
	lines := make(map[string][]string) // by header, which is the first line
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
