package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

SOURCE is a file, a folder, whose files are imported as far as they are recognised, a pattern with *, a
database (a file, or postgres://...), or - for standard input. Its content tells the format:

` + formats.String() + `
KEY names the session of a file, or selects one of a patchlog database. Without it a session has the key
that the file says; else its app is the format's name, its user is "user", and its id is the file's name.

Importing again adds what is new. A session arrives whole or not at all. A session that is there with
another log is reported and stays as it is, the others are imported, and the exit code is 1. SOURCE is only
read, and may be in use. SQLite files are read by the command patchlog-sqlite. What does not come over as
it was is listed below its session; OPERATIONS.md has a table.

Compaction records of ADK's become summaries, where they can; for events on lines, this takes
--compactions adopt. Values that sessions share (app: and user: keys) come with databases and with ADK's
sessions; those that are there with other values stay and are reported.

$ patchlog import ~/.claude/projects
$ patchlog import shop/ada/4711 session.jsonl
$ patchlog import postgres://app@db.example/adk --dry-run`)
	flags := cmd.Flags()
	r := importing{app: a, told: a.out}
	flags.Int64Var(&r.maxBytes, "max-bytes", store.DefaultImportBytes, "how many `bytes` a file may have")
	choose(cmd, &r.compactions, "compactions", "adopt compaction records of ADK's as summaries, or keep them as events", "adopt", "keep")
	textVar(flags, &r.key.App, "app", "the `APP` of sessions that say none; else the format's name")
	textVar(flags, &r.key.User, "user", "the `USER` of sessions that say none (default user)")
	flags.BoolVar(&r.opts.ReplayedState, "replayed-state", false, "let ADK's sessions have the state that their events give, where the source has another")
	flags.BoolVar(&r.opts.OverwriteShared, "overwrite-shared", false, "replace shared values that are there by those of the source")
	flags.StringSliceVar(&r.ignored, "ignore-column", nil, "a `TABLE.COLUMN` of ADK's database that is unknown and may stay behind")
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
	key         store.Key // what is given of it
	ignored     []string
	opts        migrate.Options

	bar     *progress
	target  *store.Store
	copies  bool              // sessions of patchlog's
	folders map[string]string // those of files that are in one
	many    bool              // sessions: those of which nothing is new get no lines
	told    *output           // where the files that are not imported are listed
	total   migrate.Report
	refused int                 // files that were named and are not recognised
	unread  map[string][]string // files that are not imported, by the reason
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
	sources, folders := expand(args)
	r.folders = folders
	if len(sources) != 1 && r.key.Session != "" {
		return usagef("KEY goes with one SOURCE")
	}
	r.many = len(sources) != 1 || folders[sources[0]] != ""
	defer func() {
		if r.target != nil {
			err = errors.Join(err, r.target.Close())
		}
	}()
	if err := r.files(ctx, sources); err != nil {
		return err
	}
	if n := r.total.Problems(r.opts) + r.refused; n > 0 {
		return fmt.Errorf("not all is imported: %s", present.Counted(n, "problem"))
	}
	return nil
}

// files imports sources, and tells what became of them.
func (r *importing) files(ctx context.Context, sources []string) error {
	folders := r.folders
	for _, name := range sources {
		if folders[name] != "" && sameFile(name, r.db) {
			continue
		}
		err := r.source(ctx, name)
		var unknown *migrate.UnknownFormatError
		var unopened openError
		var usage *usageError
		reason := ""
		switch {
		case errors.As(err, &unknown) && r.many:
			reason = unknown.Reason
		case errors.As(err, &unopened) && folders[name] != "" && !errors.As(err, &usage):
			reason = strings.TrimPrefix(strings.ReplaceAll(err.Error(), name, "it"), "SOURCE: ")
		}
		switch {
		case err == nil:
		case reason != "" && ctx.Err() == nil:
			if r.unread == nil {
				r.unread = map[string][]string{}
			}
			r.unread[reason] = append(r.unread[reason], name)
			if folders[name] == "" {
				r.refused++
			}
		case len(sources) == 1 || ctx.Err() != nil || migrate.StatusOf(err) == "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return err
		default:
			r.total.Add(migrate.Report{Sessions: map[migrate.Status]int{migrate.Failed: 1}, Failures: 1})
			if err := r.problem(err); err != nil {
				return err
			}
		}
	}
	return r.sum()
}

// openError is the error of a source that cannot be opened.
type openError struct{ error }

func (e openError) Unwrap() error { return e.error }

// source imports the sessions of a source.
func (r *importing) source(ctx context.Context, name string) error {
	from, closeSource, err := r.open(ctx, name)
	if err != nil {
		return openError{err}
	}
	defer closeSource()  // it was only read
	if r.target == nil { // only now, for it locks the file
		use := writingUnless(r.opts.DryRun)
		if use != Reading {
			use = Creating
		}
		r.target, err = r.openDatabase(ctx, r.db, use, r.bulk())
		if errors.Is(err, ErrNoDatabase) && r.opts.DryRun {
			r.target, err = store.OpenMemory(r.bulk())
		}
		if err != nil {
			return err
		}
	}
	if n, err := from.Count(ctx); err != nil {
		return err
	} else if _, isFile := from.(*migrate.File); !isFile || n > 1 {
		if r.many = true; !r.json && !r.copies {
			r.out.linef("from %s", from)
		}
	}
	opts := r.opts
	opts.Progress, opts.Session = r.bar.sessions, r.session
	report, err := migrate.Run(ctx, r.target, from, opts)
	r.bar.end()
	r.total.Add(report)
	return err
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

// sum reports what became of all sources.
func (r *importing) sum() error {
	lines, problems := r.total.Words(r.opts)
	switch {
	case r.json && r.many:
		r.out.document(struct {
			Sessions    map[migrate.Status]int `json:"sessions,omitzero"`
			Shared      any                    `json:"shared,omitzero"`
			DryRun      bool                   `json:"dryRun"`
			Differences []migrate.Difference   `json:"differences,omitempty"`
			Unread      map[string][]string    `json:"unread,omitempty"`
		}{r.total.Sessions, struct {
			Added     int      `json:"added"`
			Different []string `json:"different"`
			Error     error    `json:"error,omitzero"`
		}{r.total.SharedAdded, r.total.SharedDifferent, r.total.SharedErr}, r.opts.DryRun, r.total.Source, r.unread})
	case r.many:
		for _, p := range problems {
			r.problem(errors.New(p))
		}
		for _, reason := range slices.Sorted(maps.Keys(r.unread)) {
			names, more := r.unread[reason], ""
			if n := len(names) - 3; n > 0 {
				more = fmt.Sprintf(" and %d more", n)
			}
			r.told.line(present.Printable(fmt.Sprintf("not imported (%s): %s: %s%s", reason, present.Counted(len(names), "file"), strings.Join(names[:min(3, len(names))], ", "), more)))
		}
		if len(r.unread) > 0 {
			r.out.line("the formats that can be read are " + migrate.Names())
		}
		for _, line := range lines {
			r.out.line(present.Printable(line))
		}
	}
	return errors.Join(r.out.flush(), r.told.flush())
}
