package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) diffCommand() *cobra.Command {
	cmd := command(`diff KEY FROM [TO]
Compare what a model sees after two records

FROM and TO are numbers of records; without TO, the newest one counts. Events with - are visible after FROM only, those
with + after TO only, each with its index there.

$ patchlog diff shop/ada/4711 61`)
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, args []string) error {
		before, err := viewAfter(ctx, s, key, "FROM", args[1])
		if err != nil {
			return err
		}
		after, err := s.View(ctx, key)
		if err == nil && len(args) > 2 {
			after, err = viewAfter(ctx, s, key, "TO", args[2])
		}
		if err != nil {
			return err
		}
		return a.showDifference(fmt.Sprintf("%s: from record %d to record %d", key, before.Seq(), after.Seq()), present.DifferenceOf(before, after), 0)
	})
	return cmd
}

// viewAfter returns the view after the record that an operand names.
func viewAfter(ctx context.Context, s *store.Store, key store.Key, name, text string) (fold.View, error) {
	seq, err := parseNumber(name, text)
	if err != nil {
		return fold.View{}, err
	}
	return s.ViewAt(ctx, key, uint64(seq))
}

// showDifference shows how two views of a session differ, with around events on either side of each
// change.
func (a *app) showDifference(head string, d present.Difference, around int) error {
	if a.json {
		return a.out.document(d)
	}
	a.out.line(head)
	if err := a.out.changes(d.Changes(around)); err != nil {
		return err
	}
	a.out.lines(d.PinLines())
	if err := a.out.stateRows(d.StateRows()); err != nil {
		return err
	}
	return a.out.rows(d.Rows())
}

var signStyles = map[present.Sign]style{present.Added: green, present.Removed: red, present.Changed: yellow}

// stateRows writes the change of the state.
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

// changes writes the change of the visible log.
func (o *output) changes(changes []present.Change) error {
	if len(changes) == 0 {
		return o.line(present.SameEvents)
	}
	t := newTable("", "index", "id", "author", "event")
	t.right[1] = true
	for _, c := range changes {
		cells := append([]cell{{string(c.Sign), plain}, {fmt.Sprint(c.Index), plain}}, eventCells(c.Entry)...)
		if c.Sign != present.Unchanged {
			for i := range cells {
				cells[i].style = signStyles[c.Sign]
			}
		}
		t.add(cells...)
	}
	return o.table(t)
}
