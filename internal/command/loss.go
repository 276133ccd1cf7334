package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) lossCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "loss KEY",
		Short: "Show what summaries do not say of what they stand for",
		Long: `Of each visible summary, what it stands for, and which identifiers (ids, paths, addresses,
words with digits) of these events
  - are gone: they stand nowhere in the visible log,
  - are elsewhere: another visible event has them;
and which ones the summary has that no event has: it invented them. Numbers that it may have
reckoned, such as sums and counts, are listed by themselves.

With --patch it is the summaries that a patch or its group put in, as they stand now, or, if
they no longer do, as the log was after the patch. With --json each summary is a line
{"key","seq","index","id","level","events","invocations","tokensBefore","tokensAfter","held",
"gone","elsewhere","invented","numbers"}, where seq is of the record after which it is so.`,
		Example: examples(
			"patchlog loss shop/ada/4711",
			"patchlog loss shop/ada/4711 --patch p62",
			"patchlog loss shop/ada/4711 --json | jq -r '.gone[]'",
		),
	}
	patchID := cmd.Flags().String("patch", "", "only the summaries that the patch with this `ID` put in")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("patch") && *patchID == "" {
			return usagef("--patch: an id is missing")
		}
		return a.loss(cmd.Context(), args[0], *patchID)
	}
	return cmd
}

func (a *app) loss(ctx context.Context, keyText, patchID string) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		v, losses, err := present.LossesOf(ctx, s, key, patchID)
		if err != nil {
			return err
		}
		if !a.json {
			a.out.linef("%s: %s after record %d", key, present.Counted(len(losses), "summary"), v.Seq())
		}
		for _, l := range losses {
			if a.json {
				if err := a.out.document(l); err != nil {
					return err
				}
				continue
			}
			a.out.line()
			for _, line := range l.Lines() {
				a.out.line(line)
			}
		}
		return nil
	})
}
