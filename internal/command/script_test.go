package command

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true})) }

// Names of scripts that run on only one backend
var (
	onFiles    = []string{"usage.txt", "backup.txt", "salvage.txt"}
	onPostgres = []string{"postgres.txt"}
)

// scripts returns the scripts in testdata, except those in without.
func scripts(t *testing.T, without []string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scripts (%v)", err)
	}
	return slices.DeleteFunc(files, func(name string) bool { return slices.Contains(without, filepath.Base(name)) })
}

// The scripts in testdata produce the expected output with database files.
func TestScripts(t *testing.T) {
	runScripts(t, testscript.Params{Files: scripts(t, onPostgres), UpdateScripts: *update})
}

// The scripts produce the same output on PostgreSQL, where each script has its own database. The flag -update does not
// rewrite this output.
func TestScriptsOnPostgres(t *testing.T) {
	setup := func(e *testscript.Env) error {
		e.Setenv("PATCHLOG_DB", pgtest.URL(t, pgtest.New(t)))
		e.Setenv("DB", e.Getenv("PATCHLOG_DB"))
		return nil
	}
	runScripts(t, testscript.Params{Files: scripts(t, append(onPostgres, onFiles...)), Setup: setup})
	runScripts(t, testscript.Params{Files: []string{"testdata/postgres.txt"}, Setup: setup, UpdateScripts: *update})
}

// runScripts runs scripts with two additional commands. The command patchlog takes < FILE and > FILE as in a shell.
// The command code checks the last exit code. In the output, ids that vary are replaced as [shell.show] describes.
// Commands also accept the replacements as ids.
func runScripts(t *testing.T, p testscript.Params) {
	t.Helper()
	for i, name := range p.Files {
		var err error
		if p.Files[i], err = filepath.Abs(name); err != nil {
			t.Fatal(err)
		}
	}
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Values["shell"] = newShell()
		e.Setenv("DB", defaultDatabase)
		if setup != nil {
			return setup(e)
		}
		return nil
	}
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){"patchlog": runPatchlog, "code": checkCode}
	testscript.RunT(inTurn{t}, p)
}

// inTurn runs scripts one after another, because a process has only one working directory.
type inTurn struct{ *testing.T }

func (t inTurn) Parallel()     {}
func (t inTurn) Verbose() bool { return testing.Verbose() }
func (t inTurn) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) {
		t.Chdir(".") // makes the test restore the working directory at its end
		f(inTurn{t})
	})
}

func runPatchlog(ts *testscript.TestScript, fails bool, args []string) {
	sh := ts.Value("shell").(*shell)
	sh.env = ts.Getenv
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
	for id, shown := range sh.shown {
		if i := slices.Index(args, shown); i >= 0 {
			args[i] = id
		}
	}
	var stdout, stderr bytes.Buffer
	sh.code = sh.app(stdin, &stdout, &stderr).run(context.Background(), args)
	if to != "" {
		ts.Check(os.WriteFile(ts.MkAbs(to), stdout.Bytes(), 0o644))
		stdout.Reset()
	}
	fmt.Fprint(ts.Stdout(), sh.show(stdout.String()))
	fmt.Fprint(ts.Stderr(), sh.show(stderr.String()))
	if fails != (sh.code != 0) {
		ts.Fatalf("exit code %d", sh.code)
	}
}

func checkCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := fmt.Sprint(ts.Value("shell").(*shell).code); !slices.Equal(args, []string{got}) {
		ts.Fatalf("the exit code was %s", got)
	}
}

// shell runs commands with a fixed clock, with short summaries, and with ids that do not vary.
type shell struct {
	env   func(string) string
	made  atomic.Int64
	shown map[string]string // maps each id to its replacement in the output
	code  int               // exit code of the last command in a script
}

func newShell() *shell { return &shell{env: noEnv, shown: map[string]string{}} }

func noEnv(string) string { return "" }

func (sh *shell) app(stdin string, stdout, stderr *bytes.Buffer) *app {
	return newApp(strings.NewReader(stdin), stdout, stderr, sh.env, Options{
		Store: store.Options{
			Logger: slog.New(slog.DiscardHandler),
			Now:    func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 600, time.UTC) },
			NewID:  func() string { return fmt.Sprintf("made-%d", sh.made.Add(1)) },
		},
		Extractive: compaction.SummarizerFunc(summariseInShort),
	})
}

// madeID matches the ids that a shell generates, and random UUIDs.
var madeID = regexp.MustCompile(`made-\d+|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

// shortMadeID matches a shortened UUID in a table column or in a note of the audit log.
var shortMadeID = regexp.MustCompile(`(?m)(\b(?:id|patch) |^[-+ ] +\d+  )([0-9a-f]{8})([ :,\n])`)

var duration = regexp.MustCompile(`("durationMs":)\d+`)

// show replaces the parts of an output that vary. Ids become new-1, new-2 and so on, in the order of their first
// appearance. Durations become 0.
func (sh *shell) show(text string) string {
	show := func(id string) string {
		for known, shown := range sh.shown {
			if known == id || len(known)+len(id) == 36+8 && (strings.HasPrefix(known, id) || strings.HasPrefix(id, known)) {
				return shown
			}
		}
		sh.shown[id] = fmt.Sprintf("new-%d", len(sh.shown)+1)
		return sh.shown[id]
	}
	text = madeID.ReplaceAllStringFunc(text, show)
	text = shortMadeID.ReplaceAllStringFunc(text, func(match string) string {
		m := shortMadeID.FindStringSubmatch(match)
		return m[1] + show(m[2]) + m[3]
	})
	return duration.ReplaceAllString(text, "${1}0")
}

// summariseInShort is a summarizer for tests. Changes of the real summarizers do not affect its texts.
func summariseInShort(_ context.Context, r compaction.Request) (compaction.Response, error) {
	text := fmt.Sprintf("%s to %s in short", r.Events[0].ID(), r.Events[len(r.Events)-1].ID())
	return compaction.Response{Text: text, Model: "extractive"}, nil
}

// run calls Run with the options that users have.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	return Run(ctx, args, stdin, stdout, stderr, env, Options{})
}
