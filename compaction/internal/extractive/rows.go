package extractive

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// rows are objects that tools returned, each with an id and its other short values on one line,
// under a header that names these.
type rows struct {
	byKey map[[2]string]*row // by header and ids
	all   []*row
}

type row struct {
	header string
	cells  string // the id first
	id     string
	last   int // when it came, or -1 if a later state has its place
}

const (
	rowsHeading = "Rows:"
	cellMark    = " | "
	maxCell     = 32 // runes of a value
	maxCells    = 12
)

// object takes in the objects of a JSON text.
func (r *rows) object(text json.RawMessage, depth int) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || depth > maxDepth {
		return
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	switch text[0] {
	case '[':
		for _, err := dec.Token(); err == nil && dec.More(); {
			var value json.RawMessage
			if dec.Decode(&value) != nil {
				return
			}
			r.object(value, depth+1)
		}
	case '"': // many tools return JSON in a text
		var inside string
		if json.Unmarshal(text, &inside) == nil && len(inside) > 1 && strings.ContainsRune("[{", rune(inside[0])) && json.Valid([]byte(inside)) {
			r.object(json.RawMessage(inside), depth+1)
		}
	case '{':
		r.members(dec, depth)
	}
}

// maxDepth is how deep rows are looked for.
const maxDepth = 16

// members takes in an object, if one of its values is an id, and the objects in it.
func (r *rows) members(dec *json.Decoder, depth int) {
	var names, values []string
	id, best := -1, 0
	for _, err := dec.Token(); err == nil && dec.More(); {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			break
		}
		cell := ""
		switch value[0] {
		case '[', '{':
			r.object(value, depth+1)
		case '"':
			if json.Unmarshal(value, &cell) == nil && len(cell) > 1 && (cell[0] == '{' || cell[0] == '[') {
				r.object(value, depth+1)
			}
		default:
			cell = string(value)
		}
		key := oneLine(name.(string))
		if cell != oneLine(cell) || cell == "" || cell == "null" || cell == "true" || cell == "false" || utf8.RuneCountInString(cell) > maxCell || strings.ContainsAny(cell+key, "|") || key == "" || utf8.RuneCountInString(key) > maxCell {
			continue
		}
		if rank := idRank(key, cell, value[0] == '"'); rank > best {
			best, id = rank, len(names)
		}
		if len(names) < maxCells {
			names, values = append(names, key), append(values, cell)
		}
	}
	if id < 0 || id >= len(names) || len(names) < 2 {
		return
	}
	first := func(of []string) []string {
		return append([]string{of[id]}, slices.Delete(slices.Clone(of), id, id+1)...)
	}
	r.put(strings.Join(first(names), cellMark), strings.Join(first(values), cellMark))
}

// idRank says how much like an id a value is; 0 is not at all. A number is one by its name alone.
func idRank(key, value string, text bool) int {
	key = strings.ToLower(key)
	named := strings.HasSuffix(key, "id")
	group := groupOf(value)
	switch word := oneWord(value); {
	case word == "" || !text && !named:
		return 0
	case text && isUnique(word) && group != dateGroup && group != numberGroup:
		return 3
	case named:
		return 2
	case hasDigit(word) && group == idGroup:
		return 1
	}
	return 0
}

// put takes in a row, in place of one with its header and ids.
func (r *rows) put(header, cells string) {
	if r.byKey == nil {
		r.byKey = make(map[[2]string]*row)
	}
	n := &row{header: header, cells: cells, last: len(r.all)}
	r.all = append(r.all, n)
	names, values := strings.Split(header, cellMark), strings.Split(cells, cellMark)
	n.id = values[0]
	key := [2]string{header, n.id}
	for i := 1; i < min(len(names), len(values)); i++ {
		if idRank(names[i], values[i], true) > 1 {
			key[1] += cellMark + values[i]
		}
	}
	if old := r.byKey[key]; old != nil {
		old.last = -1
	}
	r.byKey[key] = n
}

// read takes in a line under the heading of rows, and returns the header that holds for the next.
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
	var order []*row
	headers := make(map[string]int)
	for _, of := range r.all {
		if of.last >= 0 && !before[of.cells] {
			order = append(order, of)
		}
	}
	used := make(map[*row]bool)
	for _, of := range order {
		used[of] = isUsed(of.id)
	}
	ranked := slices.Clone(order)
	slices.SortStableFunc(ranked, func(a, b *row) int {
		if used[a] != used[b] {
			if used[a] {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.last, a.last)
	})
	kept := make(map[*row]bool)
	for _, of := range ranked {
		size := tokens.Of(of.cells + "\n")
		if headers[of.header] == 0 {
			size += tokens.Of(bullet + of.header + "\n")
		}
		if size > room {
			continue
		}
		room -= size
		headers[of.header]++
		kept[of] = true
	}
	var lines []string
	var named []string
	byHeader := make(map[string][]string)
	for _, of := range order {
		if !kept[of] {
			continue
		}
		if byHeader[of.header] == nil {
			named = append(named, of.header)
		}
		byHeader[of.header] = append(byHeader[of.header], of.cells)
	}
	for _, header := range named {
		lines = append(lines, bullet+header)
		lines = append(lines, byHeader[header]...)
	}
	if len(lines) == 0 {
		return ""
	}
	return rowsHeading + "\n" + strings.Join(lines, "\n")
}
