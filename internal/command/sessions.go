package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) sessionsCommand() *cobra.Command {
	cmd := command(`sessions [APP[/USER]]
List the sessions

They are sorted by key. APP, or APP and USER, limit the list; each is percent-escaped. The columns are the records in the log, the
events that a model sees, the estimated tokens of all events and of the visible ones, and the time of the last activity.
Beside long keys, a narrow terminal has fewer columns; --json has all.

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
		if isInspector(a.db) { // list without copying the sessions
			from, err := a.inspectorClient(a.db)
			if err != nil {
				return err
			}
			return a.sessions(from.list(cmd.Context(), opts))
		}
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.sessions(s.List(cmd.Context(), opts)) })
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	cmd := command(`delete KEY
Delete a session and its whole log

This cannot be undone, also for hidden events. Values that sessions share (app: and user: keys) stay.

$ patchlog delete shop/ada/4711 --yes`)
	dryRun := confirm(cmd, func(args []string) error {
		_, err := parseKey(args[0])
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
		did := "deleted"
		if *dryRun {
			did = "would be deleted; nothing is written"
		}
		return a.receipt(struct {
			Key     store.Key `json:"key"`
			Seq     uint64    `json:"seq"`
			Deleted bool      `json:"deleted"`
		}{key, info.Seq, !*dryRun}, "%s: %s, %s", key, present.Counted(info.Seq, "record"), did)
	})
	return cmd
}

func (a *app) sessions(list iter.Seq2[store.Info, error]) error {
	t := newTable("session", "records", "visible", "tokens", "visible tokens", "last activity")
	t.right[1], t.right[2], t.right[3], t.right[4] = true, true, true, true
	t.wide, t.whole, t.drops = 0, true, []int{2, 1, 5, 3, 4}
	damaged := 0
	for i, err := range list {
		switch {
		case errors.Is(err, store.ErrCorrupt): // list the others
			damaged++
			a.errs.problem(err.Error())
			continue
		case err != nil:
			return err
		case a.json:
			if err := a.out.document(i); err != nil {
				return err
			}
			continue
		}
		t.add(cell{i.Key.String(), cyan}, cell{fmt.Sprint(i.Seq), plain}, cell{fmt.Sprint(i.Visible), plain},
			cell{present.Grouped(i.Tokens), plain}, cell{present.Grouped(i.VisibleTokens), plain}, cell{present.LastActivity(i).UTC().Format(time.DateTime), dim})
	}
	var err error
	switch {
	case a.json:
	case len(t.rows) > 0:
		err = a.out.table(t)
	case damaged == 0:
		err = a.out.line("no sessions")
	}
	return cmp.Or(err, errDamaged(damaged))
}

// errDamaged returns the error about n sessions that were skipped as damaged, or nil if n is 0.
func errDamaged(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; 'patchlog verify' lists the damage", present.Counted(n, "damaged session"), store.ErrCorrupt)
}
