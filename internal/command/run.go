// Package command is the command patchlog, without its main function.
//
// root.go has the tree of commands. Each command is in the file of its name, except patch, pin, repair, revert and
// rewind, which are in change.go, and delete, which is in sessions.go.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // refused or failed
	exitUsage  = 2
)

// app is one run of the command: its streams, and the flags that all commands share.
type app struct {
	stdin   io.Reader
	out     *output
	errs    *output
	env     func(string) string
	options store.Options // of every database that is opened

	extractive compaction.Summarizer

	db   string
	json bool
}

// Options let tests fix what varies from run to run. The zero value is for users.
type Options struct {
	// Store are the options of every database that is opened: its clock, its ids, its logger.
	Store store.Options

	// Extractive makes summaries without a model. nil means [compaction.Extractive].
	Extractive compaction.Summarizer
}

// Main runs the process's command line and returns the exit code.
func Main() int {
	// Make writing to a closed pipe an error like others, so that files are closed and temporary ones removed.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, Options{})
}

// Run runs a command line and returns the exit code. env gives the value of an environment
// variable.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string, opts Options) int {
	return newApp(stdin, stdout, stderr, env, opts).run(ctx, args)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) string, opts Options) *app {
	a := &app{
		stdin: stdin, out: newOutput(stdout, env), errs: newOutput(stderr, env), env: env,
		options: opts.Store, extractive: opts.Extractive,
	}
	a.errs.json = &a.json
	if a.extractive == nil {
		a.extractive = compaction.Extractive{}
	}
	return a
}

func (a *app) run(ctx context.Context, args []string) int {
	a.json = slices.Contains(args, "--json") // for errors in the other arguments
	err := a.execute(ctx, args)
	if flushErr := a.out.flush(); err == nil {
		err = flushErr
	}
	code, text := exitOf(err)
	if text != "" {
		a.errs.problem(text)
	}
	if a.errs.flush() != nil {
		return max(code, exitFailed)
	}
	return code
}

// execute runs a command line on a new tree of commands.
func (a *app) execute(ctx context.Context, args []string) error {
	if err := refusePasswords(args); err != nil {
		return err
	}
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would take the process's
	cmd, err := root.ExecuteContextC(ctx)
	var usage *usageError
	if errors.As(err, &usage) {
		usage.command = strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), root.Name()), " ")
	}
	return err
}

// usageError says that the command line is wrong.
type usageError struct {
	command string // empty if it is patchlog itself
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

// exitOf returns the exit code for an error, and what to say of it.
func exitOf(err error) (code int, text string) {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return exitDone, "" // the reader of the output closed it
	case errors.As(err, &usage):
		return exitUsage, usage.Error()
	case errors.Is(err, context.Canceled):
		return exitFailed, "interrupted"
	default:
		return exitFailed, err.Error()
	}
}
