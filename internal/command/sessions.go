package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) sessionsCommand() *cobra.Command {
	cmd := command(`sessions [APP[/USER]]
List the sessions

They are sorted by key. APP and USER, each percent-escaped, select theirs. The columns are the records in the log, the
events that a model sees, the estimated tokens of all events and of the visible ones, and the time of the last activity.

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
		if isInspector(a.db) { // of which a listing copies no session
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

func (a *app) statsCommand() *cobra.Command {
	cmd := command(`stats [KEY]
Show the size of a session, what a model sees of it, and its state

Tokens are estimated. The size of the prompt is estimated from the last count that a model returned (usageMetadata),
unless a patch was logged since. The state includes the current values that sessions share (app: and user: keys); with
--at it does not.

Without KEY, the size of the database file is shown: live bytes are in use, and 'patchlog vacuum' returns the free ones.

$ patchlog stats shop/ada/4711`)
	var at *uint64
	seqVar(cmd.Flags(), &at, "at", "as it stood after the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return a.stats(cmd.Context(), args[0], at)
		case at != nil:
			return usagef("KEY is missing; --at is for a session")
		}
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.space(cmd.Context(), s) })
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
	t.wide, t.least, t.drops = 0, store.MaxKeyPartBytes, []int{2, 1, 5, 3}
	damaged := 0
	for i, err := range list {
		switch {
		case errors.Is(err, store.ErrCorrupt): // the others are still worth a listing
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

// errDamaged is the error of sessions that were left out because they are damaged, or nil if there are none.
func errDamaged(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; patchlog verify says more", present.Counted(n, "damaged session"), store.ErrCorrupt)
}

func (a *app) stats(ctx context.Context, keyText string, at *uint64) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		bar := a.progress("stats")
		st, values, err := present.Measure(ctx, s, key, at, func(seq, of uint64) {
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

func (a *app) exportCommand() *cobra.Command {
	cmd := command(`export KEY
Write a session as JSON lines

Each line is a record with its seq, below a header with the initial state. Importing this text gives an equal session. On
a terminal, control characters are escaped.

` + redactHelp + `
The header then says "redacted". Importing it gives a log of the same shape.

$ patchlog export shop/ada/4711 > session.jsonl`)
	fs := cmd.Flags()
	lines := fs.Bool("lines", false, "write the lines of the imported session file of a coding agent")
	visible := fs.Bool("visible", false, "write only the visible events, without header and seqs")
	html := fs.Bool("html", false, "write an HTML page with the visible events and the whole log")
	var redacted redaction
	redacted.declare(cmd)
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		by, err := a.redactor(redacted)
		switch {
		case err != nil:
			return err
		case *lines && (*visible || by != nil):
			return usagef("--lines gives back whole files; neither --visible nor --redact goes with it")
		case *html && (*lines || *visible):
			return usagef("--html has both logs; neither --lines nor --visible goes with it")
		case *html:
			return inspector.WriteHTML(ctx, s, key, a.out.w, by)
		}
		counts := "record"
		if *lines {
			counts = "line"
		}
		bar := a.quietProgress("export")
		defer bar.end()
		out := &countingLines{w: a.out.w, after: func(n int64) { bar.update(0, 0, present.Counted(n, counts)) }}
		if a.out.screen {
			out.w = &safeJSON{w: a.out.w}
		}
		if !*lines {
			return s.Export(ctx, key, out, store.ExportOptions{Visible: *visible, Redact: by})
		}
		err = migrate.WriteLines(out, s.RawEvents(ctx, key, 1))
		if err == nil && out.n == 0 {
			err = fmt.Errorf("session %s was not read from a session file", key)
		}
		return err
	})
	return cmd
}
