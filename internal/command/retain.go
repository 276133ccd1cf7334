package command

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) retainCommand() *cobra.Command {
	cmd := command(`retain [APP...]
Delete unused sessions and erase hidden events, by age

Sessions of these APPs, or of all apps, are deleted if they were not used for the time of --delete-after. In other
sessions, events that were hidden for the time of --erase-hidden-after are erased, except pinned events. Summaries, visible
events, the state and shared values (app: and user: keys) stay. A session is used when it is created and when a record is
logged.

If a run is interrupted, the next run continues it. On PostgreSQL, only one process can run at a time. With --json each
session is a line as from 'patchlog sessions', with "used", "deleted", "kept" and "erased".

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
		return a.withStore(cmd.Context(), writingUnless(*dryRun), func(s *store.Store) error {
			return a.retain(s.Retain(cmd.Context(), policies, store.RetainOptions{DryRun: *dryRun}), policy.EraseHiddenAfter > 0, *dryRun)
		})
	}
	return cmd
}

// retain reports the sessions that a retention deletes, keeps or erases, while the retention runs.
func (a *app) retain(run iter.Seq2[store.Retained, error], erases bool, dryRun bool) error {
	gone, kept, erased := 0, 0, 0
	var skipped damaged
	for r, err := range run {
		switch {
		case skipped.is(a, err):
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
		text := fmt.Sprintf("%s %sdeleted", present.Counted(gone, "session"), to)
		if kept > 0 { // sessions that are not old enough are not counted as kept
			text += fmt.Sprintf(", %d kept", kept)
		}
		if erases {
			text += fmt.Sprintf("; %s %serased", present.Counted(erased, "hidden event"), to)
		}
		a.out.Line(text)
	}
	return skipped.err()
}

func (a *app) showRetained(r store.Retained, dryRun bool) error {
	would, what := "", ""
	if dryRun {
		would = "would be "
	}
	switch {
	case r.Deleted:
		what = would + "deleted"
	case r.Kept != "":
		what = "kept: " + r.Kept
	}
	switch {
	case r.Erased > 0:
		what = strings.TrimPrefix(what+", "+present.Counted(r.Erased, "hidden event")+" "+would+"erased", ", ")
	case what == "":
		what = "an erasing that was cut short " + would + "finished"
	}
	r.Deleted = r.Deleted && !dryRun
	return a.receipt(r, "%s: used %s, %s; %s", r.Key, r.Used.Format(time.RFC3339), present.Counted(r.Seq, "record"), what)
}
