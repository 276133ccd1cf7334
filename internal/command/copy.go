package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) copyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copy [KEY...]",
		Short: "Copy sessions from one database to another",
		Long: `All sessions, or those named, with their whole logs as they are: seqs, ids, times, patches,
initial states and times of creation. One of --from and --to may be left out: it is that of
--db, or of PATCHLOG_DB. The database copied to is made if it is not there; the other one is
only read, and may be written to meanwhile if it is on PostgreSQL.

Copying again adds nothing, goes on where it was cut short, and brings what the source has
got since. A session arrives as a whole. One that is there with another content is reported
and left alone, the others are copied, and the exit code is 1.

A session that is created or has grown brings the values of its shared scopes (app: and
user: keys), in place of those that are there. Without KEY, values that are missing all the
same come last, and those that differ are reported and left alone, with exit code 1.

A session takes as much memory as its log, one at a time. With --json each session is a line
{"key","status","added","present","seq","error"}, where status is created, extended,
unchanged, ahead (the copy has gone on by itself), gone (deleted meanwhile), conflict or
failed; the last line is {"sessions","shared","dryRun"}, by status.`,
		Example: examples(
			"patchlog copy --from patchlog.db --to postgres://app@db.example/agents",
			"patchlog copy --from postgres: --to backup.db",
			"patchlog copy --from old.db --to new.db shop/ada/4711 shop/ada/4712 --dry-run",
		),
	}
	fs := cmd.Flags()
	from := fs.String("from", "", "the `DATABASE` to read")
	to := fs.String("to", "", "the `DATABASE` to write")
	dryRun := fs.Bool("dry-run", false, "show what would be copied, and write nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := copying{tally: newTally(a, *dryRun), from: *from, to: *to, keys: make([]store.Key, len(args)), named: len(args) > 0}
		c.opts.DryRun = *dryRun
		switch {
		case c.from == "" && c.to == "":
			return usagef("--from or --to is missing")
		case c.from != "" && c.to != "" && cmd.Flags().Changed("db"):
			return usagef("--from and --to are the databases; --db is one too many")
		case c.from == "":
			c.from = a.db
		case c.to == "":
			c.to = a.db
		}
		for i, text := range args {
			var err error
			if c.keys[i], err = parseKey(text); err != nil {
				return err
			}
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// copying is a run of copy.
type copying struct {
	*tally
	from, to string
	keys     []store.Key
	named    bool // by the user
	opts     store.CopyOptions

	source, target *store.Store
}

func (c *copying) run(ctx context.Context) (err error) {
	if sameFile(c.from, c.to) {
		return usagef("--from and --to are the same file")
	}
	if c.source, err = c.openDatabase(ctx, c.from, Reading, c.bulk()); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, c.source.Close()) }()
	if c.target, err = c.openTarget(ctx, c.to); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, c.target.Close()) }()
	c.bar = c.progress("copy")
	defer c.bar.end()
	return c.copyAll(ctx)
}

func (c *copying) copyAll(ctx context.Context) error {
	if !c.named {
		for info, err := range c.source.List(ctx, store.ListOptions{}) {
			switch {
			case errors.Is(err, store.ErrCorrupt): // the others are still worth a copy
				if err := c.report(info.Key, statusFailed, store.Copied{}, err); err != nil {
					return err
				}
			case err != nil:
				return fmt.Errorf("--from: %w", err)
			default:
				c.keys = append(c.keys, info.Key)
			}
		}
	}
	for i, key := range c.keys {
		c.at(i, len(c.keys))
		done, err := c.target.CopyFrom(ctx, c.source, key, c.opts)
		status := statusOf(done, err)
		switch {
		case status == "":
			return err
		case status == statusFailed && errors.Is(err, store.ErrNotFound) && !c.named:
			status, err = statusGone, nil
		}
		if err := c.report(key, status, done, err); err != nil {
			return err
		}
	}
	var shared store.CopiedShared
	if !c.named {
		var err error
		if shared, err = c.copyShared(ctx); err != nil {
			return err
		}
	}
	c.bar.end()
	return c.sum(len(c.keys), shared, "copied", nil)
}

// statusOf returns "" for an error that ends the run: the next session would meet it too.
func statusOf(done store.Copied, err error) string {
	switch {
	case err != nil:
		return string(migrate.StatusOf(err))
	case done.Created:
		return statusCreated
	case done.Added > 0:
		return statusExtended
	case done.Seq > uint64(done.Present):
		return statusAhead
	}
	return statusUnchanged
}

// copyShared copies the shared values that no session brought.
func (c *copying) copyShared(ctx context.Context) (store.CopiedShared, error) {
	none := c.counts[statusCreated]+c.counts[statusExtended]+c.counts[statusUnchanged]+c.counts[statusAhead] == 0
	shared, err := c.target.CopyShared(ctx, c.source, c.opts)
	if errors.Is(err, store.ErrNotFound) && none {
		return store.CopiedShared{}, c.noShared(err)
	}
	if err != nil {
		return shared, err
	}
	if c.opts.DryRun {
		return shared, nil // sessions that were not copied would have brought theirs
	}
	return shared, c.different(shared.Different)
}

// report says what became of a session. One that is as it was is only counted.
func (c *copying) report(key store.Key, status string, done store.Copied, err error) error {
	doc := newSessionDocument(key, status, done.Added, done.Present, done.Seq, err)
	return c.session(doc, doc, err)
}
