package command

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/patchlog-dev/patchlog/cmd/patchlog/command/internal/fixed"
	"github.com/patchlog-dev/patchlog/compaction"
)

// shell runs commands with a clock and ids that a test can expect.
type shell struct {
	ids *fixed.IDs
	env func(string) string
}

func newShell() *shell { return &shell{fixed.NewIDs(), noEnv} }

func noEnv(string) string { return "" }

// app returns an app that reads and writes what the test wants.
func (sh *shell) app(stdin string, stdout, stderr *bytes.Buffer) *app {
	return newApp(strings.NewReader(stdin), stdout, stderr, sh.env, Options{
		Store: sh.ids.Store(), Extractive: compaction.SummarizerFunc(fixed.InShort),
	})
}

// run is Run of the command that everyone has.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	return Run(ctx, args, stdin, stdout, stderr, env, Options{})
}
