package main

import (
	"flag"
	"strings"
)

const introduction = `patchlog keeps the sessions of LLM agents as logs that only grow. Patches say which of
the events a model sees; nothing that was logged is ever lost.`

const conventions = `KEY is app/user/session, each part percent-escaped (a slash inside a part is %2F).
Every command takes --json for output that programs read, and those that use a
database --db FILE. Flags may stand before or after the other arguments. Exit codes:
0 done, 1 refused or failed, 2 wrong usage.`

// help prints the help of a command or a group of commands, or the list of all.
func (a *app) help(words []string) error {
	name := strings.Join(words, " ")
	var some []command
	for _, cmd := range commands() {
		if cmd.name == name {
			return a.commandHelp(&cmd)
		}
		if name == "" || strings.HasPrefix(cmd.name, name+" ") {
			some = append(some, cmd)
		}
	}
	if len(some) == 0 {
		return usagef("unknown command %q", name)
	}
	if name == "" {
		a.out.line(introduction, "\n")
		a.out.line(a.out.paint(bold, "Usage:"), " patchlog COMMAND [arguments]\n")
	}
	a.out.line(a.out.paint(bold, "Commands:"))
	t := newTable("", "", "")
	for _, cmd := range some {
		t.add(cell{}, cell{strings.Join(append([]string{cmd.name}, cmd.operands...), " "), plain}, cell{cmd.short, plain})
	}
	if err := a.out.table(t); err != nil {
		return err
	}
	if name == "" {
		a.out.line("\n", conventions)
	}
	return a.out.line("\n", "'patchlog COMMAND --help' says more about a command, with examples.")
}

func (a *app) commandHelp(cmd *command) error {
	usage := append([]string{"patchlog", cmd.name}, cmd.operands...)
	if cmd.flags != "" {
		usage = append(usage, cmd.flags)
	}
	a.out.line(a.out.paint(bold, "Usage:"), " ", strings.Join(usage, " "), "\n")
	a.out.line(cmd.short, ".")
	if cmd.long != "" {
		a.out.line("\n", cmd.long)
	}
	fs, _ := cmd.flagSet(a)
	t := newTable("", "", "")
	fs.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		t.add(cell{}, cell{strings.TrimSpace("--" + f.Name + " " + value), plain}, cell{text, plain})
	})
	if len(t.rows) > 0 {
		a.out.line("\n", a.out.paint(bold, "Flags:"))
		if err := a.out.table(t); err != nil {
			return err
		}
	}
	a.out.line("\n", a.out.paint(bold, "Examples:"))
	for _, e := range cmd.examples {
		a.out.line("  ", e)
	}
	return nil
}
