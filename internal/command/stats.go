package command

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) statsCommand() *cobra.Command {
	cmd := command(`stats [KEY]
Show the size of a session, what a model sees of it, and its state

Tokens are estimates. The size of the prompt is estimated from the last count that a model returned (usageMetadata),
unless a patch was logged since. The state includes the current values that sessions share (app: and user: keys). With
--at, it does not.

Without KEY, the size of the database file is shown. Live bytes are keys and values. Free bytes are in free pages, which
later writes use. The other bytes are gaps in pages. 'patchlog vacuum' shrinks the file.

$ patchlog stats shop/ada/4711`)
	var at *uint64
	seqVar(cmd.Flags(), &at, "at", "show the session as of the record with this `SEQ`")
	ofSession := a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		return a.stats(ctx, s, key, at)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return ofSession(cmd, args)
		case at != nil:
			return usagef("KEY is missing; --at is for a session")
		}
		return a.withFile(cmd.Context(), database.Reading, func(s *store.Store) error { return a.space(cmd.Context(), s) })
	}
	return cmd
}

func (a *app) stats(ctx context.Context, s *store.Store, key store.Key, at *uint64) error {
	bar := a.progress("stats")
	st, values, err := present.Measure(ctx, s, key, at, func(seq, of uint64) {
		bar.Count(int(seq), int(of), "record")
	})
	bar.End()
	if err != nil {
		return err
	}
	if a.json {
		return a.out.Document(struct {
			present.Stats
			State map[string]patch.Value `json:"state"`
		}{st, values})
	}
	if err := a.out.Rows(st.Rows()); err != nil || len(values) == 0 {
		return err
	}
	a.out.Line()
	t := terminal.NewTable(nil, "state key", "value")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		t.Add(terminal.Cyan.Of(present.Printable(key)), terminal.Plain.Of(present.ValueText(values[key])))
	}
	return a.out.Table(t)
}
