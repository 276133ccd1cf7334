package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) diffCommand() *cobra.Command {
	cmd := command(`diff KEY FROM [TO]
Compare what a model sees after two records

FROM and TO are numbers of records. Without TO, the newest record is used. Events with - are visible only after FROM, and
events with + only after TO. Their indices are those after FROM and after TO.

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

// viewAfter returns the view after the record whose number is text. Errors contain the operand's name.
func viewAfter(ctx context.Context, s *store.Store, key store.Key, name, text string) (fold.View, error) {
	seq, err := parseNumber(name, text)
	if err != nil {
		return fold.View{}, err
	}
	return s.ViewAt(ctx, key, uint64(seq))
}

// showDifference writes the difference between two views of a session. Around each change, it also writes up to that
// many unchanged events.
func (a *app) showDifference(head string, d present.Difference, around int) error {
	if a.json {
		return a.out.Document(d)
	}
	a.out.Line(head)
	a.showChanges(d.Changes(around))
	a.out.Lines(d.PinLines())
	a.showState(d.StateRows())
	return a.out.Rows(d.Rows())
}

var signStyles = map[present.Sign]terminal.Style{present.Added: terminal.Green, present.Removed: terminal.Red, present.Changed: terminal.Yellow}

func (a *app) showState(rows []present.StateRow) error {
	if len(rows) == 0 {
		return a.out.Line(present.SameState)
	}
	t := terminal.NewTable(nil, "", "state key", "value")
	for _, r := range rows {
		s := signStyles[r.Sign]
		t.Add(s.Of(r.Sign), s.Of(r.Key), s.Of(r.Value))
	}
	return a.out.Table(t)
}

func (a *app) showChanges(changes []present.Change) error {
	if len(changes) == 0 {
		return a.out.Line(present.SameEvents)
	}
	t := terminal.NewTable([]int{1}, "", "index", "id", "author", "event")
	for _, c := range changes {
		cells := append([]terminal.Cell{terminal.Plain.Of(c.Sign), terminal.Plain.Of(c.Index)}, eventCells(c.Entry)...)
		if c.Sign != present.Unchanged {
			for i := range cells {
				cells[i].Style = signStyles[c.Sign]
			}
		}
		t.Add(cells...)
	}
	return a.out.Table(t)
}
