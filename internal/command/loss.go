package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) lossCommand() *cobra.Command {
	cmd := command(`loss KEY
Show which identifiers the summaries lack

Identifiers are ids, paths, addresses and words with digits. Each visible summary is compared with the events that it
covers. The lists have the identifiers that are missing from the visible log, those that other visible events still have,
and those that the summary invented.

With --patch, only the summaries that the patch or its group inserted are shown. If these summaries are hidden now, they
are compared with the visible log after the patch. PATCH is the number of its record, its id, or the beginning of its id.

With --json each summary is a line {"key", "seq", "level", "index", "summary", "events", "invocations", "tokens",
"identifiers", "notVisible", "inOtherEvents", "invented", "numbers"}.

$ patchlog loss shop/ada/4711`)
	id := ""
	textVar(cmd.Flags(), &id, "patch", "only the summaries that this `PATCH` inserted")
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		var err error
		if id != "" {
			if id, err = ops.PatchID(ctx, s, key, id); err != nil {
				return err
			}
		}
		v, losses, err := present.LossesOf(ctx, s, key, id)
		if err != nil {
			return err
		}
		if !a.json {
			a.out.Linef("%s: %s after record %d", key, present.Counted(len(losses), "summary"), v.Seq())
		}
		for _, l := range losses {
			if a.json {
				if err := a.out.Document(l); err != nil {
					return err
				}
				continue
			}
			a.out.Line()
			for _, line := range l.Lines() {
				a.out.Line(present.ShortIDs(line))
			}
		}
		return nil
	})
	return cmd
}
