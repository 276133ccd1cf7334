package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// ageVar declares a flag that takes a positive duration, also in days.
func ageVar(fs *pflag.FlagSet, value *time.Duration, name, usage string) {
	fs.Func(name, usage, func(text string) (err error) {
		*value, err = time.ParseDuration(text)
		if days, found := strings.CutSuffix(text, "d"); found {
			var n uint64
			n, err = strconv.ParseUint(days, 10, 16)
			*value = time.Duration(n) * 24 * time.Hour
		}
		if err != nil || *value <= 0 {
			return errors.New("want a time such as 90d or 36h")
		}
		return nil
	})
}

func (a *app) retainCommand() *cobra.Command {
	cmd := command(`retain [APP...]
Delete unused sessions and erase hidden events, by age

Sessions of these APPs, or of all, are deleted if they were not used for --delete-after. In the others, events that were
hidden for --erase-hidden-after are erased, except pinned ones. Summaries, visible events, the state and shared values
(app: and user: keys) stay. A session is used when it is created and when a record is logged.

An interrupted run is continued by the next one. On PostgreSQL only one process runs at a time. With --json each session
is a line as 'patchlog sessions' writes it, with "used", "deleted", "kept" and "erased".

$ patchlog retain shop --delete-after 90d --erase-hidden-after 30d --dry-run`)
	fs := cmd.Flags()
	var policy store.Retention
	ageVar(fs, &policy.DeleteAfter, "delete-after", "delete sessions that were not used for this `TIME`, such as 90d or 36h")
	ageVar(fs, &policy.EraseHiddenAfter, "erase-hidden-after", "erase events that were hidden for this `TIME`")
	fs.BoolVar(&policy.KeepPinned, "keep-pinned", false, "keep sessions with a visible pinned event")
	dryRun := confirm(cmd, func([]string) error {
		if policy.DeleteAfter+policy.EraseHiddenAfter == 0 {
			return usagef("give --delete-after, --erase-hidden-after or both")
		}
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{""}
		}
		policies := map[string]store.Retention{}
		for _, app := range args {
			policies[app] = policy
		}
		return a.retain(cmd.Context(), policies, policy.EraseHiddenAfter > 0, *dryRun)
	}
	return cmd
}

func (a *app) retain(ctx context.Context, policies map[string]store.Retention, erases bool, dryRun bool) error {
	return a.withStore(ctx, writingUnless(dryRun), func(s *store.Store) error {
		gone, kept, erased, damaged := 0, 0, 0, 0
		for r, err := range s.Retain(ctx, policies, store.RetainOptions{DryRun: dryRun}) {
			switch {
			case errors.Is(err, store.ErrCorrupt):
				damaged++
				a.errs.problem(err.Error())
				continue
			case err != nil:
				return err
			case r.Deleted:
				gone++
			case r.Kept != "":
				kept++
			}
			erased += r.Erased
			if err := a.showRetained(r, dryRun); err != nil {
				return err
			}
		}
		if !a.json {
			to := ""
			if dryRun {
				to = "to be "
			}
			text := fmt.Sprintf("%s %sdeleted, %d kept", present.Counted(gone, "session"), to, kept)
			if erases {
				text += fmt.Sprintf("; %s %serased", present.Counted(erased, "hidden event"), to)
			}
			a.out.line(text)
		}
		return errDamaged(damaged)
	})
}

func (a *app) showRetained(r store.Retained, dryRun bool) error {
	if a.json {
		r.Deleted = r.Deleted && !dryRun
		return a.out.document(r)
	}
	would := ""
	if dryRun {
		would = "would be "
	}
	var what []string
	switch {
	case r.Deleted:
		what = append(what, would+"deleted")
	case r.Kept != "":
		what = append(what, "kept: "+r.Kept)
	}
	switch {
	case r.Erased > 0:
		what = append(what, present.Counted(r.Erased, "hidden event")+" "+would+"erased")
	case what == nil:
		what = append(what, "an erasing that was cut short "+would+"finished")
	}
	return a.out.linef("%s: used %s, %s; %s", r.Key, r.Used.Format(time.RFC3339), present.Counted(r.Seq, "record"), strings.Join(what, ", "))
}
