package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [KEY]",
		Short: "Check the whole database, or a session, for damage",
		Long: `Checksums, places and ids of all records are checked, snapshots are compared with the log, and without KEY
also the structure of the file. The exit code is 1 if there are problems. With --json each problem is a line
{"key","seq","problem"}; the last line is {"sessions","problems"}.`,
		Example: examples("patchlog verify"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var opts store.VerifyOptions
		if len(args) > 0 {
			key, err := parseKey(args[0])
			if err != nil {
				return err
			}
			opts.Key = key
		}
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.verify(cmd.Context(), s, opts) })
	}
	return cmd
}

type problemDocument struct {
	Key     string `json:"key,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	Problem string `json:"problem"`
}

func (a *app) verify(ctx context.Context, s *store.Store, opts store.VerifyOptions) error {
	sessions, problems := int64(0), 0
	if opts.Key != (store.Key{}) {
		sessions = 1 // of one session no progress is told
	}
	bar := a.quietProgress("verify")
	defer bar.end()
	opts.Progress = func(key store.Key) {
		sessions++
		bar.update(sessions, 0, fmt.Sprintf("%d sessions", sessions))
	}
	for p, err := range s.Verify(ctx, opts) {
		if err != nil {
			return err
		}
		problems++
		if err := a.problem(p); err != nil {
			return err
		}
	}
	bar.end()
	if a.json {
		err := a.out.document(struct {
			Sessions int64 `json:"sessions"`
			Problems int   `json:"problems"`
		}{sessions, problems})
		if err != nil {
			return err
		}
	}
	if problems > 0 {
		return fmt.Errorf("%s found", present.Counted(problems, "problem"))
	}
	if a.json {
		return nil
	}
	if opts.Key != (store.Key{}) {
		return a.out.linef("%s: nothing is wrong", opts.Key)
	}
	return a.out.linef("%s: nothing is wrong", present.Counted(sessions, "session"))
}

func (a *app) problem(p store.Problem) error {
	if !a.json {
		return a.out.line(present.Printable(p.String()))
	}
	doc := problemDocument{Seq: p.Seq, Problem: p.Err.Error()}
	if p.Key != (store.Key{}) {
		doc.Key = p.Key.String()
	}
	return a.out.document(doc)
}
