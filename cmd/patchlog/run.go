package main

import (
	"context"
	"errors"
	"flag"
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
	err := a.dispatch(ctx, args)
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

// usageError says that the command line is wrong. command is empty if the command
// itself is not known.
type usageError struct {
	command string
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

func (a *app) dispatch(ctx context.Context, args []string) error {
	args, err := a.leadingFlags(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return usagef("a command is missing")
	}
	if args[0] == "help" {
		return a.help(args[1:])
	}
	cmd, rest, err := find(args)
	if err != nil {
		return err
	}
	if cmd == nil { // a group's name and a wish for help
		return a.help(args[:1])
	}
	fs, do := cmd.flagSet(a)
	operands, err := parseFlags(fs, rest)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return a.commandHelp(cmd)
	case err != nil:
		return &usageError{cmd.name, flagProblem(err)}
	case len(operands) < cmd.required():
		return &usageError{cmd.name, cmd.operands[len(operands)] + " is missing"}
	case len(operands) > len(cmd.operands):
		return &usageError{cmd.name, fmt.Sprintf("unexpected argument %q", operands[len(cmd.operands)])}
	}
	err = do(ctx, a, operands)
	var usage *usageError
	if errors.As(err, &usage) {
		usage.command = cmd.name
	}
	return err
}

// leadingFlags takes the flags that stand before the command.
func (a *app) leadingFlags(args []string) ([]string, error) {
	fs := newFlagSet("patchlog")
	a.databaseFlag(fs)
	a.jsonFlag(fs)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return []string{"help"}, nil
	case err != nil:
		return nil, usagef("%s", flagProblem(err))
	}
	return fs.Args(), nil
}

// find returns the command that the arguments begin with, and the arguments after its
// name. It returns none where help for a group of commands is asked for.
func find(args []string) (*command, []string, error) {
	group := false
	for _, cmd := range commands() {
		words := strings.Fields(cmd.name)
		switch {
		case len(words) == 1 && words[0] == args[0]:
			return &cmd, args[1:], nil
		case len(words) == 2 && words[0] == args[0]:
			group = true
			if len(args) > 1 && args[1] == words[1] {
				return &cmd, args[2:], nil
			}
		}
	}
	switch {
	case !group:
		return nil, nil, usagef("unknown command %q", args[0])
	case len(args) == 1:
		return nil, nil, usagef("%s: which? one of %s", args[0], strings.Join(subcommands(args[0]), ", "))
	case isHelpFlag(args[1]):
		return nil, nil, nil
	default:
		return nil, nil, usagef("%s: unknown command %q; one of %s", args[0], args[1], strings.Join(subcommands(args[0]), ", "))
	}
}

// subcommands returns the second words of the commands whose name begins with the word.
func subcommands(first string) []string {
	var words []string
	for _, cmd := range commands() {
		if second, ok := strings.CutPrefix(cmd.name, first+" "); ok {
			words = append(words, second)
		}
	}
	return words
}

func isHelpFlag(arg string) bool {
	return arg == "-h" || arg == "-help" || arg == "--help"
}
