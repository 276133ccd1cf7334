package main

import (
	"flag"
	"io"
	"math"
	"regexp"
	"strconv"
)

func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// parseFlags parses flags that stand before, between and after the operands, which it
// returns. What follows "--" is operands alone.
func parseFlags(fs *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		rest := fs.Args()
		if len(rest) == 0 {
			return operands, nil
		}
		if taken := len(args) - len(rest); taken > 0 && args[taken-1] == "--" {
			return append(operands, rest...), nil
		}
		operands = append(operands, rest[0])
		args = rest[1:]
	}
}

var oneDash = regexp.MustCompile(`(for flag|not defined:|an argument:) -(\w)`)

// flagProblem is what a flag set says is wrong, with flags spelled as in the help.
func flagProblem(err error) string {
	return oneDash.ReplaceAllString(err.Error(), "$1 --$2")
}

const defaultDatabase = "patchlog.db"

func (a *app) databaseFlag(fs *flag.FlagSet) {
	path := a.db
	if path == "" {
		path = a.env("PATCHLOG_DB")
	}
	if path == "" {
		path = defaultDatabase
	}
	fs.StringVar(&a.db, "db", path, "the database `FILE`; also from the environment variable PATCHLOG_DB")
}

func (a *app) jsonFlag(fs *flag.FlagSet) {
	fs.BoolVar(&a.json, "json", a.json, "write JSON, for programs")
}

// number is a flag that takes an integer and knows whether it was given.
type number struct {
	n     int
	given bool
}

func (f *number) String() string { return "" }

func (f *number) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return errNotNumber
	}
	f.n, f.given = n, true
	return nil
}

// seq is a flag that takes a seq, 0 included, and knows whether it was given.
type seq struct {
	n     uint64
	given bool
}

func (f *seq) String() string { return "" }

func (f *seq) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return errNotSeq
	}
	f.n, f.given = n, true
	return nil
}

// limit returns the seq, or the highest there is if the flag was not given.
func (f *seq) limit() uint64 {
	if f.given {
		return f.n
	}
	return math.MaxUint64
}

type flagError string

func (e flagError) Error() string { return string(e) }

const (
	errNotNumber = flagError("want an integer")
	errNotSeq    = flagError("want an integer from 0 on")
)
