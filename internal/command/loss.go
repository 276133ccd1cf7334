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
		Long: `Of each visible summary: which identifiers (ids, paths, addresses, words with digits) of the events that it
stands for are gone from the visible log, which other visible events still have, and which the summary invented.

With --patch, the summaries that a patch or its group inserted: as they stand now, or, if they are hidden, as
they stood after the patch. With --json each summary is a line {"key","seq","index","id","level","events",
"invocations","tokensBefore","tokensAfter","held","gone","elsewhere","invented","numbers"}.`,
		Example: examples("patchlog loss shop/ada/4711"),
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
