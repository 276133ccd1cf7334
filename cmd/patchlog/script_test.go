package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/patchlog-dev/patchlog/compaction"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScripts runs the scripts in testdata, which are testscript's, with two commands of
// their own: patchlog, which takes < FILE and > FILE as in a shell, and code, which says
// what the last exit code was where that is not 1. With -update, the files that output is
// compared with are written anew.
//
// The clock stands still, summaries are inShort's, and new ids show as new-1, new-2 and so
// on, in the order in which the script shows them first, and can be typed so.
func TestScripts(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.RunT(inTurn{t}, testscript.Params{
		Dir:           dir,
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Values["shell"] = newShell()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"patchlog": scriptPatchlog, "code": scriptCode},
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

func scriptPatchlog(ts *testscript.TestScript, fails bool, args []string) {
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
	var stdout, stderr bytes.Buffer
	for id, shown := range sh.shown {
		if i := slices.Index(args, shown); i >= 0 {
			args[i] = id
		}
	}
	sh.env = ts.Getenv
	sh.code = sh.app(stdin, &stdout, &stderr).run(context.Background(), args)
	if to != "" {
		ts.Check(os.WriteFile(ts.MkAbs(to), stdout.Bytes(), 0o644))
		stdout.Reset()
	}
	fmt.Fprint(ts.Stdout(), sh.show(stdout.String()))
	fmt.Fprint(ts.Stderr(), sh.show(stderr.String()))
	if fails != (sh.code != exitDone) {
		ts.Fatalf("exit code %d", sh.code)
	}
}

func scriptCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := fmt.Sprint(ts.Value("shell").(*shell).code); !slices.Equal(args, []string{got}) {
		ts.Fatalf("the exit code was %s", got)
	}
}

// shell runs commands with a clock and ids that a test can expect.
type shell struct {
	made  int               // ids
	shown map[string]string // by id made
	code  int               // the last command's
	env   func(string) string
}

func newShell() *shell {
	return &shell{shown: map[string]string{}, env: func(string) string { return "" }}
}

// madeID matches the ids that the shell makes, and random UUIDs.
var madeID = regexp.MustCompile(`made-\d+|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

var duration = regexp.MustCompile(`("durationMs":)\d+`)

// show returns output as a script expects it.
func (sh *shell) show(text string) string {
	text = madeID.ReplaceAllStringFunc(text, func(id string) string {
		if sh.shown[id] == "" {
			sh.shown[id] = fmt.Sprintf("new-%d", len(sh.shown)+1)
		}
		return sh.shown[id]
	})
	return duration.ReplaceAllString(text, "${1}0")
}

// app returns an app that reads and writes what the test wants.
func (sh *shell) app(stdin string, stdout, stderr *bytes.Buffer) *app {
	a := newApp(strings.NewReader(stdin), stdout, stderr, sh.env)
	a.options.Logger = slog.New(slog.DiscardHandler)
	a.options.Now = func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 600, time.UTC) }
	a.options.NewID = func() string {
		sh.made++
		return fmt.Sprintf("made-%d", sh.made)
	}
	a.extractive = compaction.SummarizerFunc(inShort)
	return a
}

// inShort is a summarizer whose words do not change when the real one becomes better.
func inShort(_ context.Context, r compaction.Request) (compaction.Response, error) {
	text := fmt.Sprintf("%s to %s in short", r.Events[0].ID(), r.Events[len(r.Events)-1].ID())
	return compaction.Response{Text: text, Model: extractive}, nil
}
