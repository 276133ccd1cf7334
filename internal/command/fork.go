package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) forkCommand() *cobra.Command {
	cmd := command(`fork KEY NEWKEY
Copy a session's log to a new session

The new session has the initial state and all records, or the records up to --at. Later changes of one session do not
change the other. Values that sessions share (app: and user: keys) are not copied.

$ patchlog fork shop/ada/4711 shop/ada/what-if --at 61`)
	var at *uint64
	seqVar(cmd.Flags(), &at, "at", "copy the log up to the record with this `SEQ`")
	dryRun := declareDryRun(cmd)
	cmd.RunE = a.onSession(dryRun, func(ctx context.Context, s *store.Store, key store.Key, args []string) error {
		to, err := parseKey("NEWKEY", args[1])
		if err != nil {
			return err
		}
		var v fold.View
		head := ""
		if *dryRun {
			head = "dry run; nothing is written: "
			v, err = previewFork(ctx, s, key, to, at)
		} else {
			var forked store.Session
			forked, err = s.Fork(ctx, key, to, store.ForkOptions{At: at})
			v = forked.View
		}
		if err != nil {
			return err
		}
		return a.receipt(struct {
			Key     store.Key `json:"key"`
			From    store.Key `json:"from"`
			Seq     uint64    `json:"seq"`
			Visible int       `json:"visible"`
			DryRun  bool      `json:"dryRun"`
		}{to, key, v.Seq(), v.Len(), *dryRun},
			"%s%s forked from %s with %s; %s", head, to, key, present.Counted(v.Seq(), "record"), present.Counted(v.Len(), "visible event"))
	})
	return cmd
}

// previewFork returns the view that a fork at the record with the seq at would have. If at is nil, the fork is
// at the newest record.
func previewFork(ctx context.Context, s *store.Store, key, to store.Key, at *uint64) (fold.View, error) {
	switch _, err := s.Info(ctx, to); {
	case err == nil:
		return fold.View{}, fmt.Errorf("session %s: %w", to, store.ErrExists)
	case !errors.Is(err, store.ErrNotFound):
		return fold.View{}, err
	}
	return viewAt(ctx, s, key, at)
}
