package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/term"
)

// terminal reports whether w is a terminal, and how many columns it has; 0 means that
// it does not say.
func terminal(w io.Writer) (columns int, ok bool) {
	switch w := w.(type) {
	case interface{ terminalColumns() int }:
		return w.terminalColumns(), true
	case *os.File:
		columns, _, _ = term.GetSize(int(w.Fd()))
		return columns, term.IsTerminal(int(w.Fd()))
	}
	return 0, false
}

// paged runs a command whose output is shown by the pager, less or that of the environment variable PAGER, if the
// output is a terminal and there is a pager. What fits on the screen less shows at once.
func (a *app) paged(ctx context.Context, do func() error) error {
	pager := strings.Fields(cmp.Or(a.env("PAGER"), "less -FRX"))
	if a.out.tty == nil || a.json || len(pager) == 0 {
		return do()
	}
	cmd := exec.CommandContext(ctx, pager[0], pager[1:]...)
	cmd.Stdout, cmd.Stderr = a.out.tty, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return do()
	}
	a.out.w.Reset(in)
	err = errors.Join(do(), a.out.flush(), in.Close(), cmd.Wait())
	a.out.w.Reset(a.out.tty)
	return err
}
