package command

import (
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// cell is a field of a table. Its text is printable.
type cell struct {
	text  string
	style style
}

// table is rows of cells in columns. Only the last column is cut to the width.
type table struct {
	heads []string
	right []bool // by column: numbers stand at the right
	rows  [][]cell
}

func newTable(heads ...string) *table {
	return &table{heads: heads, right: make([]bool, len(heads))}
}

// numbers makes the first n columns stand at the right.
func (t *table) numbers(n int) *table {
	for i := range n {
		t.right[i] = true
	}
	return t
}

func (t *table) add(cells ...cell) {
	t.rows = append(t.rows, cells)
}

// leastLast is the least width of the last column, however narrow the terminal.
const leastLast = 24

func (o *output) table(t *table) error {
	heads := make([]cell, len(t.heads))
	named := false
	for i, h := range t.heads {
		heads[i] = cell{h, dim}
		named = named || h != ""
	}
	rows := t.rows
	if named {
		rows = append([][]cell{heads}, rows...)
	}
	widths := make([]int, len(t.heads))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], columnsOf(c.text))
		}
	}
	last := len(t.heads) - 1
	taken := 0
	for _, w := range widths[:last] {
		taken += w + 2
	}
	widths[last] = min(widths[last], max(o.columns-taken, leastLast))
	for _, row := range rows {
		if err := o.line(o.row(row, widths, t.right)); err != nil {
			return err
		}
	}
	return nil
}

// rows writes figures with their names.
func (o *output) rows(rows []present.Row) error {
	t := newTable("", "")
	for _, r := range rows {
		t.add(cell{r.Name, dim}, cell{r.Text, plain})
	}
	return o.table(t)
}

func (o *output) row(row []cell, widths []int, right []bool) painted {
	var b strings.Builder
	gap := 0 // blanks that are due before the next text
	for i, c := range row {
		text := c.text
		if i == len(widths)-1 {
			text = cut(text, widths[i])
		}
		space := max(widths[i]-columnsOf(text), 0)
		if right[i] {
			gap, space = gap+space, 0
		}
		if text != "" {
			b.WriteString(strings.Repeat(" ", gap))
			b.WriteString(string(o.paint(c.style, text)))
			gap = 0
		} else {
			space = widths[i]
			if right[i] {
				space = 0
			}
		}
		gap += space + 2
	}
	return painted(b.String())
}
