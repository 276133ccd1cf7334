package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/sources"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) importCommand() *cobra.Command {
	var formats strings.Builder
	for _, f := range migrate.Formats() {
		fmt.Fprintf(&formats, "  %-18s %s\n", f.Name, f.Title)
	}
	cmd := command(`import [KEY] SOURCE...
Import sessions of agents and of ADK, from files and databases

SOURCE is a file, a folder, a pattern with *, a database (a file or postgres://...), or - for standard input. The content
tells the format:

` + formats.String() + `
Files of other formats in a folder are skipped and listed. SQLite files need the command patchlog-sqlite. SOURCE is not
changed, and other programs may use it meanwhile.

If SOURCE is a file, KEY names its session. If SOURCE is a patchlog database, KEY selects a session. Without KEY, the key
is taken from the file. If the file has none, the app is the format's name, the user is "user", and the session is the
file's name. For a file in a folder below SOURCE, the names of the folders come before it.

A session is imported as a whole or not at all. If the database has the session, new records are added. If it has the
session with a different log, the session is not changed, the other sessions are imported, and the exit code is 1.
Differences from the source are listed below each session; docs/OPERATIONS.md explains them.

ADK's compaction records become summaries where possible. In files of single events, they stay events unless --compactions
adopt is set. Databases and ADK's sessions have shared values (app: and user: keys). An existing shared value stays, and a
different value of the source is reported. If a new record of a patchlog database sets a shared value, it is overwritten.

$ patchlog import ~/.claude/projects
$ patchlog import shop/ada/4711 session.jsonl
$ patchlog import postgres://app@db.example/adk --dry-run`)
	flags := cmd.Flags()
	r := a.importing("import")
	compactions := ""
	numberVar(flags, &r.MaxBytes, 1, "max-bytes", "the size of the largest file to read, in `BYTES`")
	choose(cmd, &compactions, "compactions", "turn ADK's compaction records into summaries (adopt), or keep them as events (keep)", "adopt", "keep")
	textVar(flags, &r.Key.App, "app", "the `APP` of sessions whose file has none (default the format's name)")
	textVar(flags, &r.Key.User, "user", "the `USER` of sessions whose file has none (default user)")
	flags.BoolVar(&r.opts.ReplayedState, "replayed-state", false, "keep the state that the events of ADK's sessions produce, even if the source has another state")
	flags.BoolVar(&r.opts.OverwriteShared, "overwrite-shared", false, "replace existing shared values by those of the source")
	flags.StringSliceVar(&r.IgnoreColumns, "ignore-column", nil, "ignore an unknown `TABLE.COLUMN` of ADK's database; may be repeated")
	dryRun := declareDryRun(cmd)
	cmd.ValidArgsFunction = completeFile
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Target, r.opts.DryRun, r.opts.KeepCompactions, r.AdoptLines = a.db, *dryRun, compactions == "keep", compactions == "adopt"
		return r.run(cmd.Context(), args)
	}
	return cmd
}

type importing struct {
	*app
	sources.Opener
	opts   migrate.Options
	bar    *terminal.Progress
	target *store.Store
	many   bool // the source may have several sessions, so sessions without new records are not reported
	quiet  bool
}

func (a *app) importing(label string) *importing {
	r := &importing{app: a, bar: a.progress(label)}
	r.opts.Session, r.opts.Progress = r.session, func(done, total int) { r.bar.Count(done, total, "session") }
	r.Opener = sources.Opener{
		Target: a.db, Stdin: a.stdin, ParseKey: func(text string) (store.Key, error) { return parseKey("KEY", text) },
		MaxBytes: store.DefaultImportBytes, Database: database.Options{Store: a.bulk(), Token: a.env("PATCHLOG_TOKEN")},
		Progress: func(done, total int, name string) { r.bar.Update(done, total, name) },
	}
	return r
}

func (r *importing) run(ctx context.Context, args []string) (err error) {
	defer func() {
		if r.target != nil {
			err = errors.Join(err, r.target.Close())
		}
	}()
	inputs, err := r.Inputs(args)
	if err != nil {
		return err
	}
	report, err := r.inputs(ctx, inputs)
	if err != nil {
		return err
	}
	if r.json && r.many {
		r.out.Document(report)
	} else if r.many {
		lines, problems := report.Describe(r.opts)
		for _, p := range problems {
			r.report(errors.New(p))
		}
		r.out.Lines(append(report.UnreadText(), lines...))
	}
	if n := report.Problems(r.opts); n > 0 {
		return fmt.Errorf("not all is imported: %s", present.Counted(n, "problem"))
	}
	return nil
}

// inputs imports files and databases, and reports the result of each session.
func (r *importing) inputs(ctx context.Context, inputs []migrate.Input) (migrate.Report, error) {
	r.many = r.many || len(inputs) != 1 || inputs[0].Folder != ""
	return migrate.RunAll(ctx, inputs, migrate.Openers{Source: r.openSource, Target: r.openTarget}, r.report, r.opts)
}

// openSource opens a source. If the source may contain several sessions, openSource writes its description.
func (r *importing) openSource(ctx context.Context, in migrate.Input) (migrate.Source, error) {
	source, err := r.Open(ctx, in)
	if err != nil {
		return nil, err
	}
	n, err := source.Count(ctx)
	if _, isFile := source.(*migrate.File); err == nil && (!isFile || n > 1) {
		if r.many = true; !r.json && !r.quiet {
			r.out.Linef("from %s", source)
		}
	}
	return source, err
}

// openTarget opens the target database for writing. Later calls return the same store.
func (r *importing) openTarget(ctx context.Context) (_ *store.Store, err error) {
	if r.target == nil {
		use := map[bool]database.Use{true: database.Trying, false: database.Creating}[r.opts.DryRun]
		r.target, err = r.openDatabase(ctx, r.Target, use, r.bulk())
	}
	return r.target, err
}

func (r *importing) session(s migrate.Result) error {
	r.bar.End()
	lines := s.Describe(r.opts.DryRun)
	switch {
	case r.json && !r.quiet:
		r.out.Document(s)
	case s.Err != nil && r.many:
		return r.report(s.Err)
	case s.Err != nil:
		return s.Err
	case !r.quiet && (s.Added > 0 || s.Status == migrate.Created || !r.many || len(lines) > 1):
		r.out.Lines(lines)
	}
	return r.out.Flush()
}

// report writes a problem to standard error. It first flushes standard output, so that a terminal shows the lines in
// order.
func (r *importing) report(err error) error {
	r.bar.End()
	if failed := r.out.Flush(); failed != nil {
		return failed
	}
	r.problem(r.errs, err.Error())
	return r.errs.Flush()
}
