package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// app is one run of the command: where it reads and writes, and the flags that all
// commands share.
type app struct {
	stdin   io.Reader
	out     *output
	errs    *output
	env     func(string) string
	options store.Options // clock and ids, which tests set

	extractive compaction.Summarizer // tests set another

	db   string
	json bool
}

// run runs the command line and returns the exit code. env gives the value of an
// environment variable.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	return newApp(stdin, stdout, stderr, env).run(ctx, args)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) string) *app {
	return &app{stdin: stdin, out: newOutput(stdout, env), errs: newOutput(stderr, env), env: env, extractive: compaction.Extractive{}}
}

func (a *app) run(ctx context.Context, args []string) int {
	err := a.execute(ctx, args)
	if flushErr := a.out.flush(); err == nil {
		err = flushErr
	}
	code, text := exitOf(err)
	if text != "" {
		a.errs.line(a.errs.paint(red, "patchlog:"), " ", printable(text))
	}
	if a.errs.flush() != nil {
		return max(code, exitFailed)
	}
	return code
}

// execute runs a command line on a tree of commands of its own.
func (a *app) execute(ctx context.Context, args []string) error {
	root := a.rootCommand()
	root.SetArgs(twoDashes(root, args)) // never nil: cobra would take the process's
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
		return exitDone, "" // whoever read the output has had enough
	case errors.As(err, &usage):
		return exitUsage, usage.Error()
	case errors.Is(err, context.Canceled):
		return exitFailed, "interrupted"
	default:
		return exitFailed, err.Error()
	}
}
