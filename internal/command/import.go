package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
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

SOURCE is a file, a folder, a pattern with *, a database (a file or postgres://...), or - for standard input. Other files
in a folder are skipped and listed. The content tells the format:

` + formats.String() + `
KEY names the session of a file, or selects one session of a patchlog database. Without KEY, a session has the key that
the file says; else its app is the format's name, its user is "user", and its id is the file's name.

Importing again adds new records. A session is imported as a whole or not at all. If it exists with another log, it is
reported and not changed, the other sessions are imported, and the exit code is 1. SOURCE is only read, and may be in use.
SQLite files need the command patchlog-sqlite. Differences from the source are listed below each session; the table in
docs/OPERATIONS.md explains them.

ADK's compaction records become summaries where possible; those in lines of events only with --compactions adopt. Values
that sessions share (app: and user: keys) come with databases and with ADK's sessions. Existing values
stay and different ones are reported, but new records of a patchlog database set the values that they change.

$ patchlog import ~/.claude/projects
$ patchlog import shop/ada/4711 session.jsonl
$ patchlog import postgres://app@db.example/adk --dry-run`)
	flags := cmd.Flags()
	r := importing{app: a}
	flags.Int64Var(&r.maxBytes, "max-bytes", store.DefaultImportBytes, "the size of the largest file to read, in `BYTES`")
	choose(cmd, &r.compactions, "compactions", "what ADK's records of compactions become: summaries (adopt) or events (keep)", "adopt", "keep")
	textVar(flags, &r.key.App, "app", "the `APP` of sessions that name none (default the format's name)")
	textVar(flags, &r.key.User, "user", "the `USER` of sessions that name none (default user)")
	flags.BoolVar(&r.opts.ReplayedState, "replayed-state", false, "give ADK's sessions the state that their events produce, where the source has another")
	flags.BoolVar(&r.opts.OverwriteShared, "overwrite-shared", false, "replace existing shared values by those of the source")
	flags.StringSliceVar(&r.ignored, "ignore-column", nil, "an unknown `TABLE.COLUMN` of ADK's database to leave out")
	dryRun := declareDryRun(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("SOURCE is missing")
		case slices.Contains(args, ""):
			return usagef("SOURCE is empty")
		case r.maxBytes < 1:
			return usagef("--max-bytes is %d, below 1", r.maxBytes)
		}
		return nil
	}
	cmd.ValidArgsFunction = completeFile
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.bar, r.opts.DryRun, r.opts.KeepCompactions = a.progress("import"), *dryRun, r.compactions == "keep"
		return r.run(cmd.Context(), args)
	}
	return cmd
}

// importing is a run of import.
type importing struct {
	*app
	maxBytes    int64
	compactions string
	key         store.Key // by KEY, or in parts by --app and --user
	ignored     []string
	opts        migrate.Options

	bar    *progress
	target *store.Store
	many   bool // several sessions: those with nothing new have no line
}

func (r *importing) run(ctx context.Context, args []string) (err error) {
	if key, err := parseKey(args[0]); !isSource(args[0]) {
		switch {
		case err == nil && len(args) == 1:
			return usagef("SOURCE is missing: %s is a KEY, and no file", args[0])
		case err == nil && r.key != (store.Key{}):
			return usagef("--app and --user do not go with a KEY")
		case err == nil:
			r.key, args = key, args[1:]
		case len(args) == 2:
			return err
		}
	}
	inputs := migrate.Inputs(args)
	if len(inputs) != 1 && r.key.Session != "" {
		return usagef("KEY goes with one file or database, and SOURCE is not one")
	}
	defer func() {
		if r.target != nil {
			err = errors.Join(err, r.target.Close())
		}
	}()
	report, err := r.inputs(ctx, inputs)
	if err != nil {
		return err
	}
	if r.json && r.many {
		r.out.document(struct {
			migrate.Report
			DryRun bool `json:"dryRun"`
		}{report, r.opts.DryRun})
	} else if r.many {
		lines, problems := report.Words(r.opts)
		for _, p := range problems {
			r.problem(errors.New(p))
		}
		for _, line := range append(report.UnreadText(), lines...) {
			r.out.line(present.Printable(line))
		}
	}
	if n := report.Problems(r.opts); n > 0 {
		return fmt.Errorf("not all is imported: %s", present.Counted(n, "problem"))
	}
	return nil
}

// inputs imports files and databases.
func (r *importing) inputs(ctx context.Context, inputs []migrate.Input) (migrate.Report, error) {
	inputs = slices.DeleteFunc(inputs, func(in migrate.Input) bool { return in.Folder != "" && sameFile(in.Name, r.db) })
	r.many = r.many || len(inputs) != 1 || inputs[0].Folder != ""
	opts := r.opts
	opts.Progress, opts.Session = r.bar.sessions, r.session
	return migrate.RunAll(ctx, inputs, migrate.Openers{Source: r.open, Target: r.openTarget}, r.problem, opts)
}

// openTarget opens the database to write, once.
func (r *importing) openTarget(ctx context.Context) (_ *store.Store, err error) {
	if r.target != nil {
		return r.target, nil
	}
	use := Creating
	if r.opts.DryRun {
		use = Reading
	}
	r.target, err = r.openDatabase(ctx, r.db, use, r.bulk())
	if errors.Is(err, ErrNoDatabase) && r.opts.DryRun {
		r.target, err = store.OpenMemory(r.bulk())
	}
	return r.target, err
}

// session reports what became of a session.
func (r *importing) session(s migrate.Result) error {
	r.bar.end()
	lines := s.Words(r.opts.DryRun)
	switch {
	case r.json:
		r.out.document(s)
	case s.Err != nil && !r.many:
		return s.Err
	case s.Err != nil:
		return r.problem(s.Err)
	case s.Added > 0 || s.Status == migrate.Created || !r.many || len(lines) > 1:
		for i, line := range lines {
			r.out.linef("%s%s", strings.Repeat("  ", min(i, 1)), present.Printable(line))
		}
	}
	return r.out.flush()
}

// problem writes an error to standard error, after the lines of standard output that come before it.
func (r *importing) problem(err error) error {
	r.bar.end()
	if err := r.out.flush(); err != nil { // so that the lines stay in order
		return err
	}
	r.errs.problem(err.Error())
	return r.errs.flush()
}
