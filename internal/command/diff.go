package command

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// showDifference shows how two views of a session differ, with around events on either side of each
// change.
func (a *app) showDifference(head string, d present.Difference, around int) error {
	if a.json {
		return a.out.document(d)
	}
	a.out.line(head)
	return a.out.difference(d, around)
}

// difference writes how two views differ, with around events on either side of each change.
func (o *output) difference(d present.Difference, around int) error {
	if err := o.changes(d.Changes(around)); err != nil {
		return err
	}
	for _, line := range d.PinLines() {
		o.line(line)
	}
	if err := o.stateRows(d.StateRows()); err != nil {
		return err
	}
	for _, row := range d.Rows() {
		o.linef("%-14s  %s", row.Name, row.Text)
	}
	return nil
}

var signStyles = map[present.Sign]style{present.Came: green, present.Went: red, present.Changed: yellow}

// changes writes the change of the visible log.
func (o *output) changes(changes []present.Change) error {
	if len(changes) == 0 {
		return o.line(present.SameEvents)
	}
	t := newTable("", "index", "id", "author", "event")
	t.right[1] = true
	for _, c := range changes {
		cells := append([]cell{{string(c.Sign), plain}, {fmt.Sprint(c.Index), plain}}, eventCells(c.Entry)...)
		if c.Sign != present.Stayed {
			for i := range cells {
				cells[i].style = signStyles[c.Sign]
			}
		}
		t.add(cells...)
	}
	return o.table(t)
}

// stateRows writes what becomes of the state.
func (o *output) stateRows(rows []present.StateRow) error {
	if len(rows) == 0 {
		return o.line(present.SameState)
	}
	t := newTable("", "state key", "value")
	for _, r := range rows {
		s := signStyles[r.Sign]
		t.add(cell{string(r.Sign), s}, cell{r.Key, s}, cell{r.Value, s})
	}
	return o.table(t)
}
