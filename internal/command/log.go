package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log KEY",
		Short: "Show the events that a model sees",
		Long: `The index in front is what patches count by. With --json each line is
{"index","seq","event"}, where seq is of the record that brought the event.

With --history it is what people should see: the events that summaries stand for, in place of the
summaries. What was cut or rewound stays out. There is no index: patches are made from what a
model sees.`,
		Example: examples(
			"patchlog log shop/ada/4711",
			"patchlog log shop/ada/4711 --last 10",
			"patchlog log shop/ada/4711 --at 61        # as it stood after record 61",
			"patchlog log shop/ada/4711 --history",
			"patchlog log shop/ada/4711 --json | jq -r .event.author",
		),
	}
	fs := cmd.Flags()
	var last int // 0 means all
	var at seq
	fs.Var(number{&last, 1}, "last", "only the last `N` events")
	fs.Var(&at, "at", "as it stood after the record with this `SEQ`")
	history := fs.Bool("history", false, "what summaries stand for, in their place")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.log(cmd.Context(), args[0], last, at, *history)
	}
	return cmd
}

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit KEY",
		Short: "Show everything that was logged, and what each patch hid",
		Long: `With --json each line is {"seq","record","applied","reason","hid","added"}: hid are the
visible events that the record took out, with the index that they had, and added the ids
of those that it put in. A patch that could not be applied says why in reason.`,
		Example: examples(
			"patchlog audit shop/ada/4711",
			"patchlog audit shop/ada/4711 --from 62",
			"patchlog audit shop/ada/4711 --json | jq 'select(.hid != [])'",
		),
	}
	fs := cmd.Flags()
	var from seq
	fs.Var(&from, "from", "begin with the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.audit(cmd.Context(), args[0], from.n)
	}
	return cmd
}

func (a *app) stateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state KEY",
		Short: "Show a session's state",
		Long: `The state is replayed from the initial state and the events that still count. Values that
sessions share (app: and user: keys) are shown as they are now; with --at they are left
out, since they have no past. With --json it is one object.`,
		Example: examples(
			"patchlog state shop/ada/4711",
			"patchlog state shop/ada/4711 --at 61",
			"patchlog state shop/ada/4711 --json | jq .tenant",
		),
	}
	fs := cmd.Flags()
	var at seq
	fs.Var(&at, "at", "as it stood after the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.state(cmd.Context(), args[0], at)
	}
	return cmd
}

// viewAt returns the newest view, or an earlier one.
func viewAt(ctx context.Context, s *store.Store, key store.Key, at seq) (fold.View, error) {
	if at.given {
		return s.ViewAt(ctx, key, at.n)
	}
	session, err := s.Get(ctx, key)
	return session.View, err
}

func (a *app) log(ctx context.Context, keyText string, last int, at seq, history bool) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		v, err := viewAt(ctx, s, key, at)
		if err != nil {
			return err
		}
		entries := entriesOf(v)
		which := present.Counted(len(entries), "visible event")
		if history {
			if entries, err = s.History(ctx, key, v); err != nil {
				return err
			}
			entries = compaction.WithoutRecalled(entries)
			which = present.Counted(len(entries), "event") + " of the history"
		}
		first := 0
		if 0 < last && last < len(entries) {
			first = len(entries) - last
		}
		if a.json {
			return a.logLines(ctx, entries, first, !history)
		}
		if first > 0 {
			which = fmt.Sprintf("last %d of %s", last, which)
		}
		a.out.linef("%s: %s after record %d", key, which, v.Seq())
		return a.out.eventTable(entries, first, !history)
	})
}

// logLines writes events for programs, from one on.
func (a *app) logLines(ctx context.Context, entries []fold.Entry, first int, indexed bool) error {
	for i, e := range entries[first:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		line := present.Line{Seq: e.Seq, Event: e.Event, Pinned: e.Pinned}
		if i += first; indexed {
			line.Index = &i
		}
		if err := a.out.document(line); err != nil {
			return err
		}
	}
	return nil
}

// eventTable writes events for people, from one on.
func (o *output) eventTable(entries []fold.Entry, first int, indexed bool) error {
	columns := []string{"index", "seq", "id", "author", "event"}
	if !indexed {
		columns = columns[1:]
	}
	t := newTable(columns...).numbers(len(columns) - 3)
	for i, e := range entries[first:] {
		cells := append([]cell{{fmt.Sprint(first + i), plain}, {fmt.Sprint(e.Seq), dim}}, eventCells(e)...)
		t.add(cells[len(cells)-len(columns):]...)
	}
	if len(t.rows) == 0 {
		return nil
	}
	return o.table(t)
}

func (a *app) state(ctx context.Context, keyText string, at seq) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		var values map[string]patch.Value
		if at.given {
			v, err := s.ViewAt(ctx, key, at.n)
			if err != nil {
				return err
			}
			values = valuesOf(v)
		} else {
			session, err := s.Get(ctx, key)
			if err != nil {
				return err
			}
			values = session.Values()
		}
		if a.json {
			return a.out.document(values)
		}
		return a.out.stateTable(values)
	})
}
