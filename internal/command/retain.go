package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// ageFlag is a flag that takes a time above 0, in days too.
type ageFlag time.Duration

func (f *ageFlag) Type() string   { return "time" }
func (f *ageFlag) String() string { return "" }

func (f *ageFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return errors.New("want a time such as 90d or 36h")
	}
	*f = ageFlag(d)
	return nil
}

func (a *app) retainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retain [APP...]",
		Short: "Delete sessions that were not used, and erase what was hidden, for a time",
		Long: `Sessions of the APPs, or all, that were not used for --delete-after are deleted with their logs. In the others,
events that patches hid --erase-hidden-after ago are erased, but not pinned ones; summaries, visible events and
the state stay. The last use is the creation or the time of the newest records, whichever is later. Shared
values (app: and user: keys) stay.

It may be interrupted at any time; the next run continues. On PostgreSQL one process runs at a time. With
--json each session is a line {"key","seq","created","used","deleted","kept","erased"}.`,
		Example: examples("patchlog retain shop --delete-after 90d --erase-hidden-after 30d --dry-run"),
	}
	fs := cmd.Flags()
	var policy store.Retention
	var opts store.RetainOptions
	fs.Var((*ageFlag)(&policy.DeleteAfter), "delete-after", "delete what was not used for this `TIME`, such as 90d or 36h")
	fs.Var((*ageFlag)(&policy.EraseHiddenAfter), "erase-hidden-after", "erase what events say that were out of sight for this `TIME`")
	fs.BoolVar(&policy.KeepPinned, "keep-pinned", false, "keep sessions that show a pinned event")
	confirmed := declareConfirmation(fs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if policy.DeleteAfter+policy.EraseHiddenAfter == 0 {
			return usagef("say what is to go: --delete-after, --erase-hidden-after or both")
		}
		if err := confirmed.check(); err != nil {
			return err
		}
		opts.DryRun = confirmed.dryRun
		if len(args) == 0 {
			args = []string{""}
		}
		policies := map[string]store.Retention{}
		for _, app := range args {
			policies[app] = policy
		}
		return a.retain(cmd.Context(), policies, policy.EraseHiddenAfter > 0, opts)
	}
	return cmd
}

func (a *app) retain(ctx context.Context, policies map[string]store.Retention, erases bool, opts store.RetainOptions) error {
	return a.withStore(ctx, writingUnless(opts.DryRun), func(s *store.Store) error {
		gone, kept, erased, damaged := 0, 0, 0, 0
		for r, err := range s.Retain(ctx, policies, opts) {
			switch {
			case errors.Is(err, store.ErrCorrupt):
				damaged++
				if err := a.errs.problem(err.Error()); err != nil {
					return err
				}
				continue
			case err != nil:
				return err
			case r.Deleted:
				gone++
			case r.Kept != "":
				kept++
			}
			erased += r.Erased
			if err := a.showRetained(r, opts); err != nil {
				return err
			}
		}
		if !a.json {
			to := ""
			if opts.DryRun {
				to = "to be "
			}
			text := fmt.Sprintf("%s %sdeleted, %d kept", present.Counted(gone, "session"), to, kept)
			if erases {
				text += fmt.Sprintf("; %s %serased", present.Counted(erased, "hidden event"), to)
			}
			a.out.linef("%s", text)
		}
		if damaged > 0 {
			return fmt.Errorf("%s: %w; patchlog verify says more", present.Counted(damaged, "damaged session"), store.ErrCorrupt)
		}
		return nil
	})
}

func (a *app) showRetained(r store.Retained, opts store.RetainOptions) error {
	if a.json {
		return a.out.document(struct {
			Key     string    `json:"key"`
			Seq     uint64    `json:"seq"`
			Created time.Time `json:"created"`
			Used    time.Time `json:"used"`
			Deleted bool      `json:"deleted"`
			Kept    string    `json:"kept,omitempty"`
			Erased  int       `json:"erased,omitempty"`
		}{r.Key.String(), r.Seq, r.Created, r.Used, r.Deleted && !opts.DryRun, r.Kept, r.Erased})
	}
	would := ""
	if opts.DryRun {
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
