package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// number is a flag that takes an integer from a least one on.
type number struct {
	n     *int
	least int
}

func (f number) Type() string   { return "int" }
func (f number) String() string { return fmt.Sprint(*f.n) }

func (f number) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want an integer")
	}
	if n < f.least {
		return fmt.Errorf("want an integer from %d on", f.least)
	}
	*f.n = n
	return nil
}

// seq is a flag that takes a seq, 0 included, and knows whether it was given.
type seq struct {
	n     uint64
	given bool
}

func (f *seq) Type() string   { return "seq" }
func (f *seq) String() string { return "" }

func (f *seq) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return errors.New("want an integer from 0 on")
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

// pointer returns the seq, or nil if the flag was not given.
func (f *seq) pointer() *uint64 {
	if !f.given {
		return nil
	}
	return &f.n
}

// confirmation is the flags of a command whose effect cannot be undone: one of them has to be given.
type confirmation struct{ yes, dryRun bool }

func declareConfirmation(fs *pflag.FlagSet) *confirmation {
	c := &confirmation{}
	fs.BoolVar(&c.yes, "yes", false, "do it, though it cannot be undone")
	fs.BoolVar(&c.dryRun, "dry-run", false, dryRunUsage)
	return c
}

func (c *confirmation) check() error {
	if !c.yes && !c.dryRun {
		return usagef("this cannot be undone: --dry-run shows what would be done, and --yes does it")
	}
	return nil
}

// textFlag is a flag that takes a text, and not an empty one.
type textFlag string

func (f *textFlag) Type() string   { return "text" }
func (f *textFlag) String() string { return "" }

func (f *textFlag) Set(text string) error {
	if text == "" {
		return errors.New("want a text")
	}
	*f = textFlag(text)
	return nil
}

// timeFlag is a flag that takes a time, or a date, which is the time when it begins in UTC.
type timeFlag time.Time

func (f *timeFlag) Type() string   { return "time" }
func (f *timeFlag) String() string { return "" }

func (f *timeFlag) Set(text string) error {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			*f = timeFlag(t)
			return nil
		}
	}
	return errors.New("want a time such as 2025-01-02T15:04:05Z, or a date")
}
