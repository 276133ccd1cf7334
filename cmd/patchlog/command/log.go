package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log KEY",
		Short: "Show the events that a model sees",
		Long: `The index in front is what patches count by. With --json each line is
{"index","seq","event"}, where seq is of the record that brought the event.`,
		Example: examples(
			"patchlog log shop/ada/4711",
			"patchlog log shop/ada/4711 --last 10",
			"patchlog log shop/ada/4711 --at 61        # as it stood after record 61",
			"patchlog log shop/ada/4711 --json | jq -r .event.author",
		),
	}
	fs := cmd.Flags()
	var last int // 0 means all
	var at seq
	fs.Var(number{&last, 1}, "last", "only the last `N` visible events")
	fs.Var(&at, "at", "as it stood after the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.log(cmd.Context(), args[0], last, at)
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

func (a *app) log(ctx context.Context, keyText string, last int, at seq) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		v, err := viewAt(ctx, s, key, at)
		if err != nil {
			return err
		}
		n := v.Len()
		if 0 < last && last < n {
			n = last
		}
		if a.json {
			return a.logLines(ctx, v, n)
		}
		which := counted(n, "visible event")
		if n < v.Len() {
			which = fmt.Sprintf("last %d of %s", n, counted(v.Len(), "visible event"))
		}
		a.out.linef("%s: %s after record %d", key, which, v.Seq())
		return a.out.eventTable(v, n)
	})
}

// logLine is a line of the visible log as JSON.
type logLine struct {
	Index  int          `json:"index"`
	Seq    uint64       `json:"seq,omitempty"`
	Event  *patch.Event `json:"event"`
	Pinned bool         `json:"pinned,omitempty"`
}

// logLines writes the last n events of a view for programs.
func (a *app) logLines(ctx context.Context, v fold.View, n int) error {
	for i := v.Len() - n; i < v.Len(); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := entryAt(v, i)
		if err := a.out.document(logLine{i, e.Seq, e.Event, e.Pinned}); err != nil {
			return err
		}
	}
	return nil
}

// eventTable writes the last n events of a view for people.
func (o *output) eventTable(v fold.View, n int) error {
	t := newTable("index", "seq", "id", "author", "event").numbers(2)
	for i := v.Len() - n; i < v.Len(); i++ {
		e := entryAt(v, i)
		t.add(append([]cell{{fmt.Sprint(i), plain}, {fmt.Sprint(e.Seq), dim}}, eventCells(e)...)...)
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
