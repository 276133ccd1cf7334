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
	byKey         map[string][]*row   // rows by the names and values of their ids
	columns       map[string][]string // key: sorted column names; value: the names in the order of the first row that has these columns
	nestedHeaders map[string]bool     // headers of rows with the same id in different objects; these rows also show the id of the containing object
	all           []*row
}

func newRows() *rows {
	return &rows{byKey: map[string][]*row{}, columns: map[string][]string{}, nestedHeaders: map[string]bool{}}
}

type row struct {
	header    string
	names     []string
	cells     string // the values, beginning with the id
	parent    cell   // id of the containing object
	id        string
	order     int  // position in the order of addition, or -1 if a later state has replaced the row
	hasDateID bool // whether the id is a date
	used      bool // whether the user, the agent or a call used the id
	rank      int  // position among the unused rows with the same header, counted from the newest row; 0 if used
	written   bool
}

const (
	cellSeparator = " | "
	maxCellRunes  = 32 // maximum number of runes of a value
	maxCells      = 12
	maxDatedShare = 0.25 // fraction of the room for rows whose id is a date
)

// cell is a named value of an object.
type cell struct{ name, value string }

// addValue adds the objects in the cursor's next value. The argument parent is the id of the object that contains the
// value, if there is one.
func (r *rows) addValue(c *jsonvalue.Cursor, parent cell) {
	switch c.Kind() {
	case jsonvalue.Array:
		for c.Enter(); c.More(); {
			r.addValue(c, parent)
		}
	case jsonvalue.Object:
		r.addObject(c, parent)
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
			r.addValue(jsonvalue.NewCursor(value), cell{})
		}
	}
}

// addObject adds the cursor's next object, if one of its values is an id, and the objects that it contains.
func (r *rows) addObject(c *jsonvalue.Cursor, parent cell) {
	var names, values []string
	id, best, own := -1, 0, parent
	for c.Enter(); c.More(); {
		key, value, kind := oneLine(string(c.Key())), "", c.Kind()
		switch kind {
		case jsonvalue.String:
			value = jsonvalue.Unquote(c.Value())
			r.addText(value)
		case jsonvalue.Number:
			value = string(c.Value())
		default:
			r.addValue(c, own)
		}
		if !isCell(key) || !isCell(value) {
			continue
		}
		if rank := idRank(key, value, kind == jsonvalue.String); rank > best {
			best, id = rank, len(names)
			if rank > rankDate {
				own = cell{key, value}
			}
		}
		names, values = append(names, key), append(values, value)
	}
	if id < 0 || len(names) < 2 {
		return
	}
	for _, parent := range [][]string{names, values} {
		first := parent[id]
		copy(parent[1:], parent[:id])
		parent[0] = first
	}
	n := min(len(names), maxCells)
	r.putRow(names[:n], values[:n], parent)
}

// isCell reports whether a text can be a value or a column name.
func isCell(text string) bool {
	return text != "" && text == oneLine(text) && utf8.RuneCountInString(text) <= maxCellRunes && !strings.Contains(text, "|")
}

// Ranks of values that can identify an object.
const (
	rankDate = 1 + iota // a date identifies an object that has no other id, such as a person by the date of birth
	rankNamed
	rankID
)

// idRank returns the rank of a value as an id, or 0 if the value is not an id. If the value is a number, only its
// name decides.
func idRank(key, value string, text bool) int {
	hasIDName := strings.HasSuffix(strings.ToLower(key), "id")
	w, isWord := singleWord(value)
	switch date := isDate(w.Text); {
	case !isWord || !text && !hasIDName:
		return 0
	case text && isID(w) && !date && !isAmount(w.Text):
		return rankID
	case hasIDName:
		return rankNamed
	case text && date:
		return rankDate
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

// isDate reports whether the word is a date, which means three numbers with the same separator, one of which can be a
// year. A time after a T is ignored.
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

// putRow adds the row of an object. The argument parent is the id of the containing object. The new row replaces
// older rows with the same ids in the same object, except rows with additional columns. If the only id is a date, the
// new row replaces only an identical row.
func (r *rows) putRow(names, values []string, parent cell) {
	sorted := strings.Join(slices.Sorted(slices.Values(names)), cellSeparator)
	if first := r.columns[sorted]; first != nil {
		ordered := make([]string, len(values))
		for i, name := range first {
			ordered[i] = values[slices.Index(names, name)]
		}
		names, values = first, ordered
	} else {
		r.columns[sorted] = names
	}
	added := &row{header: strings.Join(names, cellSeparator), names: names, cells: strings.Join(values, cellSeparator), parent: parent, order: len(r.all), id: values[0]}
	r.all = append(r.all, added)
	key := added.id
	added.hasDateID = idRank(names[0], added.id, true) == rankDate
	for i := 1; i < len(names); i++ {
		if added.hasDateID || idRank(names[i], values[i], true) > rankDate {
			key += cellSeparator + names[i] + cellSeparator + values[i]
		}
	}
	for _, old := range r.byKey[key] {
		switch {
		case slices.ContainsFunc(old.names, func(name string) bool { return !slices.Contains(names, name) }):
		case old.parent == parent || old.parent.name == "" || parent.name == "" || old.cells == added.cells:
			old.order = -1
		default:
			r.nestedHeaders[old.header], r.nestedHeaders[added.header] = true, true
		}
	}
	r.byKey[key] = append(slices.DeleteFunc(r.byKey[key], func(old *row) bool { return old.order < 0 }), added)
}

// write returns the rows that fit into the room. Rows with a used id come first, then the newest rows of each header.
// Rows that an earlier summary contains are left out. If otherSummary is not nil, it is an index of another writer's
// summary. Then only rows with a used id that the summary lacks are written.
func (r *rows) write(s *reader, otherSummary *identifiers.Index, room tokens.Size) string {
	room -= tokens.Of(rowsHeading + "\n")
	var ranked []*row
	for _, row := range r.all {
		row.written = false
		if r.nestedHeaders[row.header] && row.parent.name != "" {
			row.header, row.cells = row.header+cellSeparator+row.parent.name, row.cells+cellSeparator+row.parent.value
		}
		if row.order >= 0 && !s.earlierIDs.Contains(row.cells) && !identifiers.Invents(row.cells, s.sourceIDs) {
			row.used = s.ids.isUsed(row.id)
			if otherSummary != nil && (!row.used || otherSummary.Contains(row.cells)) {
				continue
			}
			ranked = append(ranked, row)
		}
	}
	nth := map[string]int{} // number of unused rows of each header so far, the newest first
	for _, row := range slices.Backward(ranked) {
		if row.rank = 0; !row.used {
			nth[row.header]++
			row.rank = nth[row.header]
		}
	}
	slices.SortFunc(ranked, func(a, b *row) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.order, a.order)) })
	datedRoom := fraction(room, maxDatedShare)
	lines := make(map[string][]string) // key: the header, which is also the first line
	for _, row := range ranked {
		size := tokens.Of(row.cells + "\n")
		if lines[row.header] == nil {
			size += tokens.Of(bullet + row.header + "\n")
		}
		if row.hasDateID && size > datedRoom {
			continue
		}
		if size <= room {
			room -= size
			if row.hasDateID {
				datedRoom -= size
			}
			row.written = true
			lines[row.header] = []string{bullet + row.header}
		}
	}
	var headers []string
	for _, row := range r.all {
		if !row.written {
			continue
		}
		if len(lines[row.header]) == 1 {
			headers = append(headers, row.header)
		}
		lines[row.header] = append(lines[row.header], row.cells)
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
