package main

import (
	"context"
	"flag"
)

// command is an entry of the command table.
type command struct {
	name     string   // the words after patchlog
	operands []string // what must stand there besides flags
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
	for _, some := range [][]command{demoCommands(), transferCommands(), viewCommands(), sessionCommands(), patchCommands(), foldCommands(), completionCommands()} {
		all = append(all, some...)
	}
	return all
}
