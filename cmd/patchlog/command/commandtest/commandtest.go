// Package commandtest runs test scripts of the command, for every build of it.
package commandtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/patchlog-dev/patchlog/cmd/patchlog/command"
	"github.com/patchlog-dev/patchlog/cmd/patchlog/command/internal/fixed"
	"github.com/patchlog-dev/patchlog/compaction"
)

// Params say how scripts are run.
type Params struct {
	// Files are the scripts.
	Files []string

	// Engines are those of the build.
	Engines []command.Engine

	// Database returns the value of PATCHLOG_DB for a script, that of a database of its own.
	// nil leaves the variable unset.
	Database func(t *testing.T) string

	// Update writes the files anew that output is compared with.
	Update bool
}

// Run runs scripts of testscript, with two commands of their own: patchlog, which takes
// < FILE and > FILE as in a shell, and code, which says what the last exit code was where
// that is not 1.
//
// The clock stands still, summaries are short ones, and new ids show as new-1, new-2 and so
// on, in the order in which the script shows them first, and can be typed so.
func Run(t *testing.T, p Params) {
	t.Helper()
	files := make([]string, len(p.Files))
	for i, name := range p.Files {
		var err error
		if files[i], err = filepath.Abs(name); err != nil {
			t.Fatal(err)
		}
	}
	testscript.RunT(inTurn{t}, testscript.Params{
		Files:         files,
		UpdateScripts: p.Update,
		Setup: func(e *testscript.Env) error {
			e.Values["shell"] = &shell{ids: fixed.NewIDs(), engines: p.Engines}
			if p.Database != nil {
				e.Setenv("PATCHLOG_DB", p.Database(t))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"patchlog": runPatchlog, "code": checkCode},
	})
}

// inTurn runs scripts one after another: the working directory is the process's.
type inTurn struct{ *testing.T }

func (t inTurn) Parallel()     {}
func (t inTurn) Verbose() bool { return testing.Verbose() }
func (t inTurn) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) {
		t.Chdir(".") // back at the end
		f(inTurn{t})
	})
}

// shell is what the commands of a script have in common.
type shell struct {
	ids     *fixed.IDs
	engines []command.Engine
	code    int // the last command's
}

func runPatchlog(ts *testscript.TestScript, fails bool, args []string) {
	sh := ts.Value("shell").(*shell)
	ts.Check(os.Chdir(ts.MkAbs(".")))
	redirect := func(mark string) string {
		i := slices.Index(args, mark)
		if i < 0 {
			return ""
		}
		name := args[i+1]
		args = slices.Delete(args, i, i+2)
		return name
	}
	stdin := ""
	if name := redirect("<"); name != "" {
		stdin = ts.ReadFile(name)
	}
	to := redirect(">")
	for id, shown := range sh.ids.Shown {
		if i := slices.Index(args, shown); i >= 0 {
			args[i] = id
		}
	}
	var stdout, stderr bytes.Buffer
	sh.code = command.Run(context.Background(), args, strings.NewReader(stdin), &stdout, &stderr, ts.Getenv, command.Options{
		Engines: sh.engines, Store: sh.ids.Store(), Extractive: compaction.SummarizerFunc(fixed.InShort),
	})
	if to != "" {
		ts.Check(os.WriteFile(ts.MkAbs(to), stdout.Bytes(), 0o644))
		stdout.Reset()
	}
	fmt.Fprint(ts.Stdout(), sh.ids.Show(stdout.String()))
	fmt.Fprint(ts.Stderr(), sh.ids.Show(stderr.String()))
	if fails != (sh.code != 0) {
		ts.Fatalf("exit code %d", sh.code)
	}
}

func checkCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := fmt.Sprint(ts.Value("shell").(*shell).code); !slices.Equal(args, []string{got}) {
		ts.Fatalf("the exit code was %s", got)
	}
}
