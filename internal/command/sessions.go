package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions [APP[/USER]]",
		Short: "List the sessions",
		Long: `They are sorted by key; with APP or APP/USER, only theirs are listed, each percent-escaped. Shown are the records of the log, the events that a model sees, the estimated
tokens of all events and of the visible ones, and the time of the newest event or patch.`,
		Example: examples("patchlog sessions shop/ada"),
	}
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
		return a.sessions(cmd.Context(), opts)
	}
	return cmd
}

func (a *app) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats [KEY]",
		Short: "Show a session's size, how much of it a model sees, and its state",
		Long: `Bytes are those of the text form, of the whole log and of the visible events. Tokens are estimated.
The prompt's size is estimated from the newest count that a model returned (usageMetadata), unless a
patch was logged since. The state has the values that sessions share (app: and user: keys) as they are
now; with --at, which shows an earlier moment, they are left out.

Without KEY, it is the size of the database file: live bytes are in use, and 'patchlog vacuum' returns
the free ones.`,
		Example: examples("patchlog stats shop/ada/4711"),
	}
	var at seq
	cmd.Flags().Var(&at, "at", "as it stood after the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return a.stats(cmd.Context(), args[0], at)
		case at.given:
			return usagef("KEY is missing; --at is for a session")
		}
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.space(cmd.Context(), s) })
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete KEY",
		Short: "Delete a session with its whole log",
		Long: `This cannot be undone. What patches have hidden is deleted too. Values that sessions share (app: and
user: keys) stay.`,
		Example: examples("patchlog delete shop/ada/4711 --yes"),
	}
	confirmed := declareConfirmation(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := confirmed.check(); err != nil {
			return err
		}
		return a.delete(cmd.Context(), args[0], confirmed.dryRun)
	}
	return cmd
}

func (a *app) sessions(ctx context.Context, opts store.ListOptions) error {
	return a.withStore(ctx, Reading, func(s *store.Store) error {
		t := newTable("session", "records", "visible", "tokens", "visible tokens", "last activity")
		t.right[1], t.right[2], t.right[3], t.right[4] = true, true, true, true
		damaged := 0
		for i, err := range s.List(ctx, opts) {
			switch {
			case errors.Is(err, store.ErrCorrupt): // the others are still worth a listing
				damaged++
				if err := a.errs.problem(err.Error()); err != nil {
					return err
				}
				continue
			case err != nil:
				return err
			}
			if a.json {
				err = a.out.document(struct {
					Key           string    `json:"key"`
					App           string    `json:"app"`
					User          string    `json:"user"`
					Session       string    `json:"session"`
					Seq           uint64    `json:"seq"`
					Created       time.Time `json:"created"`
					Visible       int       `json:"visible"`
					Tokens        int       `json:"tokens"`
					VisibleTokens int       `json:"visibleTokens"`
					Active        time.Time `json:"active,omitzero"`
					Compacted     time.Time `json:"compacted,omitzero"`
				}{i.Key.String(), i.Key.App, i.Key.User, i.Key.Session, i.Seq, i.Created,
					i.Visible, i.Tokens, i.VisibleTokens, i.Active, i.Compacted})
				if err != nil {
					return err
				}
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
		if err == nil && damaged > 0 {
			err = fmt.Errorf("%s: %w; patchlog verify says more", present.Counted(damaged, "damaged session"), store.ErrCorrupt)
		}
		return err
	})
}

func (a *app) stats(ctx context.Context, keyText string, at seq) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		bar := a.progress("stats")
		st, values, err := present.Measure(ctx, s, key, at.pointer(), func(seq, of uint64) {
			bar.update(int64(seq), int64(of), present.Counted(seq, "record"))
		})
		bar.end()
		if err != nil {
			return err
		}
		if a.json {
			return a.out.document(struct {
				present.Stats
				State map[string]patch.Value `json:"state"`
			}{st, values})
		}
		if err := a.out.rows(st.Rows()); err != nil || len(values) == 0 {
			return err
		}
		a.out.line()
		t := newTable("state key", "value")
		for _, key := range slices.Sorted(maps.Keys(values)) {
			t.add(cell{present.Printable(key), cyan}, cell{present.ValueText(values[key]), plain})
		}
		return a.out.table(t)
	})
}

func (a *app) delete(ctx context.Context, keyText string, dryRun bool) error {
	return a.withSession(ctx, keyText, writingUnless(dryRun), func(s *store.Store, key store.Key) error {
		info, err := s.Info(ctx, key)
		if err == nil && !dryRun {
			err = s.Delete(ctx, key)
		}
		if err != nil {
			return err
		}
		if a.json {
			return a.out.document(struct {
				Key     string `json:"key"`
				Seq     uint64 `json:"seq"`
				Deleted bool   `json:"deleted"`
			}{key.String(), info.Seq, !dryRun})
		}
		did := "deleted"
		if dryRun {
			did = "would be deleted; nothing is written"
		}
		return a.out.linef("%s: %s, %s", key, present.Counted(info.Seq, "record"), did)
	})
}
