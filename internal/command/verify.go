package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) verifyCommand() *cobra.Command {
	cmd := command(`verify [KEY]
Check the database, or one session, for damage

The checksums, seqs and ids of all records are checked, and snapshots are compared with the log. Without KEY, the file's
structure is checked, too. If there are problems, the exit code is 1. With --json each problem is a line {"key", "seq",
"problem"}, and the last line is {"sessions", "problems"}.

$ patchlog verify`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var key store.Key
		if len(args) > 0 {
			var err error
			if key, err = parseKey("KEY", args[0]); err != nil {
				return err
			}
		}
		return a.withFile(cmd.Context(), database.Reading, func(s *store.Store) error {
			return suggestSession(cmd.Context(), s, key, a.verify(cmd.Context(), s, store.VerifyOptions{Key: key}))
		})
	}
	return cmd
}

func (a *app) verify(ctx context.Context, s *store.Store, opts store.VerifyOptions) error {
	sessions, problems := 0, 0
	bar := a.quietProgress("verify")
	defer bar.End()
	opts.Progress = func(key store.Key) {
		sessions++
		bar.Count(sessions, 0, "session")
	}
	for p, err := range s.Verify(ctx, opts) {
		if err != nil {
			return err
		}
		problems++
		a.receipt(struct {
			Key     store.Key `json:"key"`
			Seq     uint64    `json:"seq,omitzero"`
			Problem error     `json:"problem,omitzero"`
		}{p.Key, p.Seq, p.Err}, "%s", present.Printable(p.String()))
	}
	bar.End()
	of := present.Counted(sessions, "session")
	if opts.Key != (store.Key{}) {
		of, sessions = opts.Key.String(), 1 // Verify does not report the progress of a single session
	}
	if a.json {
		a.out.Document(struct {
			Sessions int `json:"sessions"`
			Problems int `json:"problems"`
		}{sessions, problems})
	}
	switch {
	case problems > 0:
		return fmt.Errorf("%s found", present.Counted(problems, "problem"))
	case !a.json:
		return a.out.Linef("%s: nothing is wrong", of)
	}
	return nil
}
