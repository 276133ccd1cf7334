// Package command implements the command patchlog, except its main function.
//
// root.go has the tree of commands. Each command is in the file with its name, with these exceptions: patch, pin,
// repair, revert and rewind are in change.go, and delete is in sessions.go.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/sources"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Exit codes
const (
	exitDone   = 0
	exitFailed = 1 // a request was refused or failed
	exitUsage  = 2
)

// app is one run of the command, with its streams, its environment and the values of the global flags.
type app struct {
	stdin   io.Reader
	out     *terminal.Output
	errs    *terminal.Output
	env     func(string) string
	options store.Options // options of every database that the command opens

	extractive compaction.Summarizer

	db   string
	json bool
}

// Options let tests fix what varies from run to run, such as the clock. Users run the command with the zero
// value.
type Options struct {
	// Store contains the options of all databases that the command opens, for example the clock and the
	// function that makes ids.
	Store store.Options

	// Extractive is the summarizer that is used without a model. nil means [compaction.Extractive].
	Extractive compaction.Summarizer
}

// Main runs the process's command line and returns the exit code.
func Main() int {
	// A write to a closed pipe must return an error. If SIGPIPE ended the process instead, temporary files would
	// stay.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, Options{})
}

// Run runs a command line and returns the exit code. The function env returns the value of an environment variable.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string, opts Options) int {
	return newApp(stdin, stdout, stderr, env, opts).run(ctx, args)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) string, opts Options) *app {
	a := &app{
		stdin: stdin, out: terminal.New(stdout, env), errs: terminal.New(stderr, env), env: env,
		options: opts.Store, extractive: opts.Extractive,
	}
	if a.extractive == nil {
		a.extractive = compaction.Extractive{}
	}
	return a
}

func (a *app) run(ctx context.Context, args []string) int {
	a.json = slices.Contains(args, "--json") // set before parsing, because parsing may fail before it reaches --json
	err := a.execute(ctx, args)
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	code, text := exitOf(err)
	if text != "" {
		a.problem(a.errs, text)
	}
	if a.errs.Flush() != nil {
		return max(code, exitFailed)
	}
	return code
}

func (a *app) execute(ctx context.Context, args []string) error {
	if slices.ContainsFunc(args, database.HasPassword) { // checked first, because another error could quote the password
		return usagef("other users of this machine can see a password on the command line; use the environment variable PGPASSWORD or PATCHLOG_DB, or a password file (~/.pgpass)")
	}
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // not nil, because cobra replaces nil by the arguments of the process
	cmd, err := root.ExecuteContextC(ctx)
	if wrong := (*sources.ArgumentError)(nil); errors.As(err, &wrong) {
		err = usagef("%v", wrong)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		usage.command = strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), root.Name()), " ")
	}
	return err
}

type usageError struct {
	command string // the command with the error; "" for patchlog itself
	problem string
}

func (e *usageError) Error() string {
	if e.command == "" {
		return e.problem + "; see 'patchlog help'"
	}
	return fmt.Sprintf("%s: %s; see 'patchlog %s --help'", e.command, e.problem, e.command)
}

func usagef(format string, args ...any) error {
	return &usageError{problem: fmt.Sprintf(format, args...)}
}

// exitOf returns the exit code and the message for an error.
func exitOf(err error) (code int, text string) {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return exitDone, "" // the reader of the pipe has closed it, which is not an error
	case errors.As(err, &usage):
		return exitUsage, usage.Error()
	case errors.Is(err, context.Canceled):
		return exitFailed, "interrupted"
	default:
		return exitFailed, err.Error()
	}
}

// problem writes an error, as a JSON document with --json and otherwise as a line.
func (a *app) problem(o *terminal.Output, text string) {
	if a.json {
		o.Document(struct {
			Error string `json:"error"`
		}{text})
		return
	}
	o.Line(o.Paint(terminal.Red, "patchlog:"), " ", present.Printable(text))
}

// receipt writes the result of a command, as a JSON document with --json and otherwise as a line.
func (a *app) receipt(document any, format string, args ...any) error {
	if a.json {
		return a.out.Document(document)
	}
	return a.out.Linef(format, args...)
}

// paged calls do. On a terminal, it shows the output of do in a pager, unless the output is JSON.
func (a *app) paged(ctx context.Context, do func() error) error {
	if a.json {
		return do()
	}
	return a.out.Page(ctx, do)
}

func (a *app) progress(label string) *terminal.Progress { return terminal.NewProgress(a.errs, label) }

// quietProgress returns a progress bar for a command that writes to standard output while the bar is shown. If standard
// output is a terminal, there is no bar.
func (a *app) quietProgress(label string) *terminal.Progress {
	if a.out.IsTerminal() {
		return &terminal.Progress{}
	}
	return a.progress(label)
}

// inTemporary calls do with an app whose database is a file in a temporary directory.
func (a *app) inTemporary(name string, do func(sub *app) error) (err error) {
	dir, err := os.MkdirTemp("", "patchlog-"+name+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sub := *a
	sub.db = filepath.Join(dir, name+".db")
	return do(&sub)
}

// withStore opens the database and calls do. If only is not empty, the store may lack all sessions that are not
// in only.
func (a *app) withStore(ctx context.Context, use database.Use, do func(s *store.Store) error, only ...store.Key) error {
	s, err := a.openDatabase(ctx, a.db, use, a.options, only...)
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("%w. Stop that program, or read through an inspector in it: --db http://HOST:PORT/ (docs/INSPECTOR.md)", err)
	}
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

func (a *app) openDatabase(ctx context.Context, name string, use database.Use, opts store.Options, only ...store.Key) (*store.Store, error) {
	bar := a.progress("read")
	defer bar.End()
	return database.Open(ctx, name, use, database.Options{
		Store: opts, Token: a.env("PATCHLOG_TOKEN"), Only: only,
		Progress: func(done, total int) { bar.Count(done, total, "session") },
	})
}

// withFile is like withStore, for commands that need the whole database. Such commands cannot use the database
// of an inspector.
func (a *app) withFile(ctx context.Context, use database.Use, do func(s *store.Store) error) error {
	if database.IsInspector(a.db) {
		return errors.New("an inspector shows sessions, not the database as a whole; run this where the database is")
	}
	return a.withStore(ctx, use, do)
}

// bulk returns the store options for a command that uses each session only once, so that a cache would be
// useless.
func (a *app) bulk() store.Options {
	opts := a.options
	opts.CacheBytes, opts.MaxRecordBytes = -1, patch.MaxRecordBytes
	return opts
}

// writingUnless returns Reading if dryRun is set, and otherwise Writing.
func writingUnless(dryRun bool) database.Use {
	if dryRun {
		return database.Reading
	}
	return database.Writing
}

// parseKey parses a key operand. Errors contain the operand's name.
func parseKey(name, text string) (store.Key, error) {
	key, err := store.ParseKey(text)
	if wrong := (*patch.FieldError)(nil); errors.As(err, &wrong) && wrong.Field == "key" {
		return key, usagef("%s: %s", name, wrong.Problem)
	} else if err != nil {
		return key, usagef("%v", err)
	}
	return key, nil
}
