package main

import (
	"context"
	"flag"
)

// command is an entry of the command table.
type command struct {
	name     string   // the words after patchlog
	operands []string // what stands there besides flags; in brackets what need not
	flags    string   // as the usage line shows them
	short    string   // one line
	long     string   // what a user has to know
	examples []string

	noDatabase bool // it has no --db
	noJSON     bool // it has no --json

	// setup declares the command's flags and returns what it does with them.
	setup func(fs *flag.FlagSet) action
}

// action is what a command does, once its flags are parsed.
type action func(ctx context.Context, a *app, operands []string) error

// required returns how many operands must be there: those not in brackets.
func (c *command) required() int {
	n := 0
	for n < len(c.operands) && c.operands[n][0] != '[' {
		n++
	}
	return n
}

func (c *command) flagSet(a *app) (*flag.FlagSet, action) {
	fs := newFlagSet(c.name)
	if !c.noDatabase {
		a.databaseFlag(fs)
	}
	if !c.noJSON {
		a.jsonFlag(fs)
	}
	return fs, c.setup(fs)
}

// commands is the command table, in the order of the help.
func commands() []command {
	var all []command
	for _, some := range [][]command{demoCommands(), transferCommands(), viewCommands(), sessionCommands(), patchCommands(), takeBackCommands(), compactCommands(), foldCommands(), verifyCommands(), completionCommands()} {
		all = append(all, some...)
	}
	return all
}
