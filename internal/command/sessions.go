package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions",
		Long: `They come in the order of app, user and session. With --json each line is
{"key","app","user","session","seq","created"}, where seq is of the last record.`,
		Example: examples(
			"patchlog sessions",
			"patchlog sessions --app shop --user ada",
			"patchlog sessions --json | jq -r .key",
		),
	}
	fs := cmd.Flags()
	var opts store.ListOptions
	fs.StringVar(&opts.App, "app", "", "this `APP`'s alone")
	fs.StringVar(&opts.User, "user", "", "this `USER`'s alone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.sessions(cmd.Context(), opts)
	}
	return cmd
}

func (a *app) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats [KEY]",
		Short: "Show how large a session is, and how much of it a model sees",
		Long: `Without KEY, how large the database's file is: live are the bytes that are stored, free what
is kept for the next writes, which 'patchlog vacuum' gives back. The rest is order and gaps.

Bytes are those of the text form: raw of the whole log, visible of the events that a model
sees. Tokens are estimated, a quarter of the runes of texts, tool calls and results: raw as
if no patch had been made. The prompt is the visible log's size, resting on the newest count
that an event brought from its model (usageMetadata), if no patch was logged since. Below it
stands what 'patchlog compact', or a program with the same means, has done.`,
		Example: examples(
			"patchlog stats",
			"patchlog stats shop/ada/4711",
			"patchlog stats shop/ada/4711 --json | jq .tokens.visible",
			"patchlog stats shop/ada/4711 --json | jq .compaction.last.ratio",
		),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.space(cmd.Context(), s) })
		}
		return a.stats(cmd.Context(), args[0])
	}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete KEY",
		Short: "Delete a session with its whole log",
		Long: `This cannot be undone: what patches have hidden is gone as well. Values that sessions
share (app: and user: keys) stay.`,
		Example: examples("patchlog delete shop/ada/4711 --yes"),
	}
	fs := cmd.Flags()
	yes := fs.Bool("yes", false, "you mean it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*yes {
			return usagef("deleting cannot be undone; --yes is missing")
		}
		return a.delete(cmd.Context(), args[0])
	}
	return cmd
}

func (a *app) sessions(ctx context.Context, opts store.ListOptions) error {
	return a.withStore(ctx, Reading, func(s *store.Store) error {
		t := newTable("session", "records", "created")
		t.right[1] = true
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
					Key     string    `json:"key"`
					App     string    `json:"app"`
					User    string    `json:"user"`
					Session string    `json:"session"`
					Seq     uint64    `json:"seq"`
					Created time.Time `json:"created"`
				}{i.Key.String(), i.Key.App, i.Key.User, i.Key.Session, i.Seq, i.Created})
				if err != nil {
					return err
				}
			}
			t.add(cell{i.Key.String(), cyan}, cell{fmt.Sprint(i.Seq), plain}, cell{i.Created.Format(time.RFC3339), dim})
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

func (a *app) stats(ctx context.Context, keyText string) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		bar := a.progress("stats")
		st, err := present.Measure(ctx, s, key, func(seq, of uint64) {
			bar.update(int64(seq), int64(of), present.Counted(seq, "record"))
		})
		bar.end()
		if err != nil {
			return err
		}
		if a.json {
			return a.out.document(st)
		}
		return a.out.rows(st.Rows())
	})
}

func (a *app) delete(ctx context.Context, keyText string) error {
	return a.withSession(ctx, keyText, Writing, func(s *store.Store, key store.Key) error {
		if err := s.Delete(ctx, key); err != nil {
			return err
		}
		if a.json {
			return a.out.document(struct {
				Key     string `json:"key"`
				Deleted bool   `json:"deleted"`
			}{key.String(), true})
		}
		return a.out.linef("%s: deleted", key)
	})
}
