package terminal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// Cell is a field of a table. It consists of printable text and a style.
type Cell struct {
	Text  string
	Style Style
}

// Of returns a cell with this style. The text is the value as formatted by [fmt.Sprint].
func (s Style) Of(value any) Cell { return Cell{fmt.Sprint(value), s} }

// Table is a table of cells. On a narrow output, it drops columns. If the table is still too wide, it cuts the texts of
// the wide column, unless Whole is set.
type Table struct {
	Wide  int   // index of the wide column, whose texts are cut; by default the last column
	Least int   // columns are dropped while the wide column would be narrower than this
	Whole bool  // never cut the texts of the wide column, so that users can copy them; drop columns until the table fits
	Drops []int // indices of the columns that may be dropped, in the order of dropping

	heads []string
	right []int // indices of the columns that are aligned to the right
	rows  []row
}

// row is a row of a table, with its notes.
type row struct {
	cells []Cell
	notes []note
}

// note is a line of text below a row.
type note struct {
	Cell
	whole bool // wrap a long text instead of cutting it
}

const noteIndent = 8

// NewTable returns an empty table. The columns with the indices in numbers are aligned to the right.
func NewTable(numbers []int, heads ...string) *Table {
	return &Table{heads: heads, right: numbers, Wide: len(heads) - 1}
}

// Add adds a row.
func (t *Table) Add(cells ...Cell) { t.rows = append(t.rows, row{cells: cells}) }

// Note adds a line below the last row. If the line is too long, it is cut, or wrapped if whole is set.
func (t *Table) Note(text Cell, whole bool) {
	last := &t.rows[len(t.rows)-1]
	last.notes = append(last.notes, note{text, whole})
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// LeastWide is the minimum width to which the texts of a table's wide column are cut, even on a narrow terminal.
const LeastWide = 24

const columnGap = 2

// fit returns the width of each column for an output with the given number of columns. A dropped column has the
// width 0.
func (t *Table) fit(columns int, widths []int) []int {
	whole := widths
	widths = slices.Clone(widths)
	rest := func() int { // returns the width that remains for the wide column
		rest := columns
		for i, w := range widths {
			if i != t.Wide && w > 0 {
				rest -= w + columnGap
			}
		}
		return rest
	}
	for _, n := range t.Drops {
		if rest() < widths[t.Wide] && (t.Whole || rest() < t.Least) {
			widths[n] = 0
		}
	}
	for _, n := range slices.Backward(t.Drops) {
		if t.Whole && widths[n] == 0 && whole[n] > 0 && rest()-whole[n]-columnGap >= widths[t.Wide] {
			widths[n] = whole[n]
		}
	}
	if !t.Whole {
		widths[t.Wide] = min(widths[t.Wide], max(rest(), LeastWide))
	}
	return widths
}

// Table writes a table. It leaves out columns without any text.
func (o *Output) Table(t *Table) error {
	heads, rows := row{}, t.rows
	widths := make([]int, len(t.heads))
	for i, head := range t.heads {
		heads.cells = append(heads.cells, Dim.Of(head))
		for _, row := range rows {
			widths[i] = max(widths[i], Width(row.cells[i].Text))
		}
		if widths[i] > 0 {
			widths[i] = max(widths[i], Width(head))
		}
	}
	if strings.Join(t.heads, "") != "" {
		rows = append([]row{heads}, rows...)
	}
	widths = t.fit(o.columns, widths)
	var err error
	for _, row := range rows {
		err = o.row(o.cells(row.cells, widths, t))
		for _, n := range row.notes {
			indent := strings.Repeat(" ", noteIndent)
			if n.whole {
				err = o.Line(indent + n.Text)
			} else {
				err = o.row(Painted(indent) + o.Paint(n.Style, Cut(n.Text, max(o.columns-noteIndent, LeastWide))))
			}
		}
	}
	return err
}

// cells returns a row of a table as one line.
func (o *Output) cells(row []Cell, widths []int, t *Table) Painted {
	var b strings.Builder
	gap := 0 // number of spaces to write before the next text
	for i, c := range row {
		if widths[i] == 0 {
			continue
		}
		text := c.Text
		if i == t.Wide {
			text = Cut(text, widths[i])
		}
		space := max(widths[i]-Width(text), 0)
		if slices.Contains(t.right, i) {
			gap, space = gap+space, 0
		}
		if text != "" {
			b.WriteString(strings.Repeat(" ", gap))
			b.WriteString(string(o.Paint(c.Style, text)))
			gap = 0
		}
		gap += space + columnGap
	}
	return Painted(b.String())
}

// Rows writes names and values in two columns. It wraps long values within their column.
func (o *Output) Rows(rows []present.Row) error {
	width := 0
	for _, r := range rows {
		width = max(width, Width(r.Name)+columnGap)
	}
	var err error
	for _, r := range rows {
		text := safe(r.Text)
		if o.wraps {
			text = strings.ReplaceAll(Wrap(text, max(o.columns-width, LeastWide), ""), "\n", "\n"+strings.Repeat(" ", width))
		}
		err = o.row(o.Paint(Dim, r.Name) + Painted(strings.Repeat(" ", width-Width(r.Name))+text))
	}
	return err
}
