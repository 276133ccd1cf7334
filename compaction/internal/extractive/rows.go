package extractive

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// rows are objects that tools returned, each with an id, or a date, and its other short values on one line,
// under a header that names these.
type rows struct {
	byKey map[[2]string]*row // by header and ids
	all   []*row
}

type row struct {
	header  string
	cells   string // the id first
	id      string
	last    int  // when it came, or -1 if a later state has its place
	dated   bool // the id is a date
	used    bool // the user, the agent or a call has used the id
	written bool
}

const (
	rowsHeading = "Rows:"
	cellMark    = " | "
	maxCell     = 32 // runes of a value
	maxCells    = 12
	datedMost   = 0.25 // of the room, for rows whose id is a date
)

// add adds the objects in the cursor's next value.
func (r *rows) add(c *jsonvalue.Cursor) {
	switch c.Kind() {
	case jsonvalue.Array:
		for c.Enter(); c.More(); {
			r.add(c)
		}
	case jsonvalue.Object:
		r.addObject(c)
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
			r.add(jsonvalue.NewCursor(value))
		}
	}
}

// addObject adds the cursor's next object, if one of its values is an id, and the objects in it.
func (r *rows) addObject(c *jsonvalue.Cursor) {
	var names, values []string
	id, best := -1, 0
	for c.Enter(); c.More(); {
		key, cell, kind := oneLine(string(c.Key())), "", c.Kind()
		switch kind {
		case jsonvalue.String:
			cell = jsonvalue.Unquote(c.Value())
			r.addText(cell)
		case jsonvalue.Number:
			cell = string(c.Value())
		default:
			r.add(c)
		}
		if !isCell(key) || !isCell(cell) {
			continue
		}
		if rank := idRank(key, cell, kind == jsonvalue.String); rank > best {
			best, id = rank, len(names)
		}
		if len(names) < maxCells {
			names, values = append(names, key), append(values, cell)
		}
	}
	if id < 0 || id >= len(names) || len(names) < 2 {
		return
	}
	for _, of := range [][]string{names, values} {
		first := of[id]
		copy(of[1:], of[:id])
		of[0] = first
	}
	r.put(strings.Join(names, cellMark), strings.Join(values, cellMark))
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
	switch group := groupOf(w); {
	case !one || !text && !named:
		return 0
	case text && wordForm(w) == unique && group != dateGroup && group != numberGroup:
		return asID
	case named:
		return asNamed
	case text && group == dateGroup:
		return asDate
	}
	return 0
}

// put adds a row. It replaces the row with the same header and ids; a row whose only id is a date replaces only an
// identical row.
func (r *rows) put(header, cells string) {
	if r.byKey == nil {
		r.byKey = make(map[[2]string]*row)
	}
	n := &row{header: header, cells: cells, last: len(r.all)}
	r.all = append(r.all, n)
	names, values := strings.Split(header, cellMark), strings.Split(cells, cellMark)
	n.id = values[0]
	key := [2]string{header, n.id}
	n.dated = idRank(names[0], n.id, true) == asDate
	for i := 1; i < min(len(names), len(values)); i++ {
		if n.dated || idRank(names[i], values[i], true) > asDate {
			key[1] += cellMark + values[i]
		}
	}
	if old := r.byKey[key]; old != nil {
		old.last = -1
	}
	r.byKey[key] = n
}

// read adds a line under the heading of rows, and returns the header of the next line.
func (r *rows) read(line, header string) string {
	if rest, ok := strings.CutPrefix(line, bullet); ok {
		return rest
	}
	if strings.Contains(line, cellMark) && header != "" {
		r.put(header, line)
	}
	return header
}

// write writes the rows that fit into the room: first those with a used id, then the newest.
// before has the lines of earlier summaries.
func (r *rows) write(isUsed func(id string) bool, before map[string]bool, room tokens.Size) string {
	room -= tokens.Of(rowsHeading + "\n")
	var ranked []*row
	for _, of := range r.all {
		if of.last >= 0 && !before[of.cells] {
			of.used = isUsed(of.id)
			ranked = append(ranked, of)
		}
	}
	slices.SortFunc(ranked, func(a, b *row) int {
		if a.used == b.used {
			return cmp.Compare(b.last, a.last)
		} else if a.used {
			return -1
		}
		return 1
	})
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
