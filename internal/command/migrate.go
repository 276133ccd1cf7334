package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the sessions of ADK's services into a database",
		Long: `All sessions of SOURCE, with all their events, their state, their times of creation, and the
state that they share (app: and user: keys). SOURCE is a database of ADK for Go or of ADK for
Python, postgres://... or (with the command patchlog-sqlite) a SQLite file; or a file of JSON,
or - for standard input, with sessions as a GET of ADK's REST API answers: one, an array, or
one a line. Its kind is found out, and said. It is only read, and may be in use.

Migrating again adds nothing, goes on where it was cut short, and adds what the source has got
since. A session arrives as a whole. One that is there with another log is reported and left
alone, the others are migrated, and the exit code is 1. Shared values that are missing come
last; those that differ are reported and stay, with exit code 1, or are written anew with
--overwrite-shared.

Whatever does not come over as it was is listed below its session. Databases have the newest
state, and not the one that a session began with: keys that no event sets are taken to have
been there from the start. Where the events give another state than the database has, an event
that sets the database's values is added, unless --replayed-state is given. Compaction records
become summaries, where they can; those that stay are listed.

With --json each session is a line {"key","status","added","present","seq","error","adopted",
"left","differences"}, where status is created, extended, unchanged, ahead (the session has
gone on by itself), conflict or failed; the last line is {"sessions","shared","dryRun",
"source","differences"}, sessions by status.`,
		Example: examples(
			"patchlog-sqlite migrate --from adk.db --to patchlog.db --dry-run",
			"patchlog migrate --from postgres://app@db.example/adk --to postgres://app@db.example/agents",
			"curl -s http://localhost:8080/api/apps/shop/users/ada/sessions/4711 | patchlog migrate --from -",
		),
	}
	fs := cmd.Flags()
	var from filled
	required(fs, &from, "from", "the `SOURCE` to read")
	to := fs.String("to", "", "the `DATABASE` to write; else that of --db")
	dryRun := fs.Bool("dry-run", false, "show what would be migrated, and write nothing")
	keep := fs.Bool("keep-compactions", false, "leave compaction records the events that they are")
	replayed := fs.Bool("replayed-state", false, "leave the state what the events say, where the database has another")
	overwrite := fs.Bool("overwrite-shared", false, "write shared values in place of others that are there")
	ignored := fs.StringSlice("ignore-column", nil, "a `TABLE.COLUMN` of the source that is not known and may stay behind")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *to != "" && cmd.Flags().Changed("db") {
			return usagef("--to is the database to write; --db is one too many")
		}
		m := migrating{tally: newTally(a, *dryRun), from: string(from), to: *to, ignored: *ignored, opts: migrate.Options{
			DryRun: *dryRun, KeepCompactions: *keep, ReplayedState: *replayed, OverwriteShared: *overwrite,
		}}
		if m.to == "" {
			m.to = a.db
		}
		return m.run(cmd.Context())
	}
	return cmd
}

// migrating is a run of migrate.
type migrating struct {
	*tally
	from, to string
	ignored  []string
	opts     migrate.Options
	done     int // sessions
}

func (m *migrating) run(ctx context.Context) (err error) {
	if sameFile(m.from, m.to) {
		return usagef("--from and the database to write are the same file")
	}
	from, err := m.openSource(ctx, m.from, m.ignored)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, from.close()) }()
	target, err := m.openTarget(ctx, m.to)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	m.bar = m.progress("migrate")
	defer m.bar.end()
	if !m.json {
		if err := m.line(func() error { return m.out.linef("from %s", from) }); err != nil {
			return err
		}
	}
	m.opts.Progress = func(done, total int) {
		if from.count != nil {
			m.bar.update(from.count.n, from.size, present.Counted(done, "session"))
			return
		}
		m.at(done, total)
	}
	m.opts.Session = m.report
	r, err := migrate.Run(ctx, target, from, m.opts)
	m.bar.end()
	if err != nil {
		return err
	}
	return m.end(from, r)
}

// report says what became of a session.
func (m *migrating) report(r migrate.Result) error {
	m.done++
	doc := struct {
		sessionDocument
		*adoption
		Differences []migrate.Difference `json:"differences"`
	}{
		newSessionDocument(r.Key, string(r.Status), r.Added, r.Present, r.Seq, r.Err),
		adoptionOf(r.Adopted, r.Left),
		append([]migrate.Difference{}, r.Differences...),
	}
	if err := m.session(doc.sessionDocument, doc, r.Err); err != nil || m.json {
		return err
	}
	if r.Status == migrate.Unchanged && len(r.Differences) > 0 {
		if err := m.line(func() error { return m.out.linef("%s: %s", r.Key, r.Status) }); err != nil {
			return err
		}
	}
	if n := len(r.Adopted) + len(r.Left); n > 0 {
		if err := m.line(func() error { return m.showAdoption(doc.adoption) }); err != nil {
			return err
		}
	}
	return m.differences(r.Differences)
}

func (m *migrating) differences(all []migrate.Difference) error {
	for _, d := range all {
		if err := m.line(func() error { return m.out.linef("  %s", present.Printable(d.String())) }); err != nil {
			return err
		}
	}
	return nil
}

// end says what the run came to.
func (m *migrating) end(from *source, r migrate.Report) error {
	if r.SharedErr != nil {
		if err := m.noShared(r.SharedErr); err != nil {
			return err
		}
	}
	if !m.opts.OverwriteShared {
		if err := m.different(r.Shared.Different); err != nil {
			return err
		}
	} else if !m.json {
		for _, name := range r.Shared.Different {
			if err := m.out.linef("shared value %s: %s in place of another", name, map[bool]string{true: "would be written", false: "written"}[m.dryRun]); err != nil {
				return err
			}
		}
	}
	if !m.json {
		if err := m.differences(r.Source); err != nil {
			return err
		}
	}
	return m.sum(m.done, r.Shared, "migrated", &sourceDocument{from.String(), append([]migrate.Difference{}, r.Source...)})
}
