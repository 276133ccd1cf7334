package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) sessionsCommand() *cobra.Command {
	cmd := command(`sessions [APP[/USER]]
List the sessions

APP or APP/USER selects sessions; each part is percent-escaped. The list is sorted by key. It has the number of records, the
number of events that a model sees, the estimated tokens of all events and of the visible ones, and the time of the last
activity. If the terminal is too narrow, columns are left out. --json has all columns.

$ patchlog sessions shop/ada`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var opts store.ListOptions
		if len(args) > 0 {
			key, err := store.ParseKey(args[0] + strings.Repeat("/-", max(2-strings.Count(args[0], "/"), 0)))
			if err != nil || strings.Count(args[0], "/") > 1 {
				return usagef("%q is not APP or APP/USER, each percent-escaped", args[0])
			}
			if opts.App = key.App; strings.Contains(args[0], "/") {
				opts.User = key.User
			}
		}
		if database.IsInspector(a.db) { // an inspector can list its sessions without copying them
			from, err := database.NewInspector(a.db, a.env("PATCHLOG_TOKEN"))
			if err != nil {
				return err
			}
			return a.sessions(from.List(cmd.Context(), opts))
		}
		return a.withStore(cmd.Context(), database.Reading, func(s *store.Store) error { return a.sessions(s.List(cmd.Context(), opts)) })
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	cmd := command(`delete KEY
Delete a session and its whole log

This cannot be undone. Hidden events are deleted, too. Values that sessions share (app: and user: keys) stay.

$ patchlog delete shop/ada/4711 --yes`)
	dryRun := confirm(cmd, func(args []string) error {
		_, err := parseKey("KEY", args[0])
		return err
	})
	cmd.RunE = a.onSession(dryRun, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		info, err := s.Info(ctx, key)
		if err == nil && !*dryRun {
			err = s.Delete(ctx, key)
		}
		if err != nil {
			return err
		}
		return a.receipt(struct {
			Key     store.Key `json:"key"`
			Seq     uint64    `json:"seq"`
			Deleted bool      `json:"deleted"`
		}{key, info.Seq, !*dryRun}, "%s: %s, %s", key, present.Counted(info.Seq, "record"), would("deleted", *dryRun))
	})
	return cmd
}

func (a *app) sessions(list iter.Seq2[store.Info, error]) error {
	t := terminal.NewTable([]int{1, 2, 3, 4}, "session", "records", "visible", "tokens", "visible tokens", "last activity")
	t.Wide, t.Whole, t.Drops = 0, true, []int{2, 1, 3, 4, 5}
	var skipped damaged
	for i, err := range list {
		switch {
		case skipped.is(a, err):
		case err != nil:
			return err
		case a.json:
			a.out.Document(i)
		default:
			t.Add(terminal.Cyan.Of(i.Key), terminal.Plain.Of(i.Seq), terminal.Plain.Of(i.Visible), terminal.Plain.Of(present.Grouped(i.Tokens)),
				terminal.Plain.Of(present.Grouped(i.VisibleTokens)), terminal.Dim.Of(present.LastActivity(i).UTC().Format(time.DateTime)))
		}
	}
	switch {
	case a.json:
	case t.Len() > 0:
		a.out.Table(t)
	case skipped == 0:
		a.out.Line("no sessions")
	}
	return skipped.err()
}

// damaged counts the sessions that were skipped because they are damaged.
type damaged int

// is reports whether err means that a session is damaged. If so, it counts the session and writes the error.
func (d *damaged) is(a *app, err error) bool {
	if !errors.Is(err, store.ErrCorrupt) {
		return false
	}
	*d++
	a.problem(a.errs, err.Error())
	return true
}

// err returns an error about the skipped sessions, or nil if no session was skipped.
func (d damaged) err() error {
	if d == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; 'patchlog verify' lists the damage", present.Counted(int(d), "damaged session"), store.ErrCorrupt)
}
