package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

const twoEvents = `{"id":"e1","author":"user","timestamp":"2025-01-01T00:00:00Z","content":{"role":"user","parts":[{"text":"hello"}]}}
{"id":"e2","author":"agent","timestamp":"2025-01-01T00:00:00Z","content":{"role":"model","parts":[{"text":"hi"}]}}
`

// try runs a command and returns its exit code and its output.
func (sh *shell) try(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = sh.app(stdin, &out, &errs).run(t.Context(), args)
	return code, out.String(), errs.String()
}

// must runs a command, fails the test unless the command succeeds, and returns the output.
func (sh *shell) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, stdout, stderr := sh.try(t, stdin, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("%q: exit code %d, stderr %q", args, code, stderr)
	}
	return stdout
}

func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return newShell().must(t, stdin, args...)
}

func TestLocked(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	s := testlog.Must(store.Open(defaultDatabase, store.Options{}))(t)
	defer s.Close()
	code, _, text := newShell().try(t, "", "sessions")
	if code != 1 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "locked") || !strings.Contains(text, defaultDatabase) {
		t.Errorf("exit code %d, stderr %q", code, text)
	}
}

func TestSharedState(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open(defaultDatabase, store.Options{}))(t)
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, map[string]any{"own": 1, "user:lang": "en", "app:motd": "hi"}, store.CreateOptions{}))(t)
	testlog.NoError(t, s.Close())
	if got, want := must(t, "", "stats", "a/u/s", "--json"), `"state":{"app:motd":"hi","own":1,"user:lang":"en"}}`+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s want %s", got, want)
	}
	if got, want := must(t, "", "stats", "a/u/s", "--at", "0", "--json"), `"state":{"own":1}}`+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s want %s", got, want)
	}
}

type fullPipe struct{ err error }

func (p fullPipe) Write([]byte) (int, error) { return 0, p.err }

func TestClosedPipe(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, 0, ""},
		{errors.New("disk full"), 1, "patchlog: disk full\n"},
	} {
		for _, args := range [][]string{{"log", "a/u/s"}, {"export", "a/u/s"}, {"audit", "a/u/s"}, {"help"}} {
			var stderr bytes.Buffer
			code := run(t.Context(), args, strings.NewReader(""), fullPipe{c.err}, &stderr, func(string) string { return "" })
			if code != c.code || !strings.HasSuffix(stderr.String(), c.text) || c.text == "" && stderr.Len() > 0 {
				t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
			}
		}
	}
	if code := run(t.Context(), []string{"nonsense"}, strings.NewReader(""), io.Discard, fullPipe{syscall.EPIPE}, os.Getenv); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

// stuck is a reader that returns some text and then blocks forever.
type stuck struct {
	text    io.Reader
	blocked chan struct{}
}

func (s *stuck) Read(p []byte) (int, error) {
	n, err := s.text.Read(p)
	if err == io.EOF {
		close(s.blocked)
		select {}
	}
	return n, err
}

func TestInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	before := must(t, "", "export", "a/u/s")
	for _, args := range [][]string{
		{"import", "a/u/s", "-"}, {"import", "a/u/new", "-"}, {"import", "a/u/new", "-", "--dry-run"},
		{"patch", "a/u/s", "0", "1", "--replacement", "-"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		in := &stuck{strings.NewReader(`{"id":"more","author":"user"}` + "\n"), make(chan struct{})}
		go func() {
			<-in.blocked
			cancel()
		}()
		var stdout, stderr bytes.Buffer
		code := run(ctx, args, in, &stdout, &stderr, func(string) string { return "" })
		if code != 1 || stderr.String() != "patchlog: interrupted\n" || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout.String(), stderr.String())
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"log", "a/u/s"}, {"log", "a/u/s", "--json"}, {"audit", "a/u/s"}, {"search", "a/u/s", "hello"}, {"search", "a/u/s", "hello", "--all"}, {"stats", "a/u/s"}, {"stats", "a/u/s", "--at", "1"}, {"sessions"}, {"stats", "a/u/s"}, {"compact", "a/u/s"}, {"compact", "a/u/s", "--dry-run"},
		{"export", "a/u/s"}, {"delete", "a/u/s", "--yes"}, {"patch", "a/u/s", "0", "1"}, {"import", defaultDatabase, "--db", "other.db"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(ctx, args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
		want := "patchlog: interrupted\n"
		if slices.Contains(args, "--json") {
			want = `{"error":"interrupted"}` + "\n"
		}
		if code != 1 || stderr.String() != want {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
	if after := must(t, "", "export", "a/u/s"); after != before {
		t.Errorf("the session has changed:\n%s", after)
	}
	if got := must(t, "", "sessions", "--json"); strings.Count(got, "\n") != 1 {
		t.Errorf("sessions:\n%s", got)
	}
}

func TestNoPlaceForDatabase(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := newShell().try(t, twoEvents, "import", "a/u/s", "-", "--db", filepath.Join(dir, "none", "x.db"))
	if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// While another process reads the database, commands that read and dry runs succeed, and do not change the file.
// Commands that write fail.
func TestCommandsThatRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	invoke := func(args ...string) (code int, text string) {
		var out bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &out, noEnv, Options{})
		a.options.LockTimeout = time.Millisecond
		code = a.run(context.Background(), append([]string{"--db", path}, args...))
		return code, out.String()
	}
	if code, text := invoke("import", "shop/ada/4711", "demo/session.jsonl"); code != exitDone {
		t.Fatal(text)
	}
	s := testlog.Must(store.Open(path, store.Options{ReadOnly: true}))(t)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := "shop/ada/4711"
	v := testlog.Must(s.View(t.Context(), store.Key{App: "shop", User: "ada", Session: "4711"}))(t)
	pinned := v.At(0).ID()
	before := testlog.Must(os.ReadFile(path))(t)
	for _, args := range [][]string{
		{"sessions"}, {"stats", key}, {"log", key}, {"audit", key}, {"search", key, "order"}, {"search", key, "order", "--all"}, {"loss", key}, {"log", key, "--type", "splice"}, {"export", key}, {"verify"}, {"stats"}, {"backup", path + ".saved"}, {"diff", key, "1"},
		{"compact", key, "--dry-run"}, {"import", path, "--db", path + ".copy"}, {"import", path, "--db", path + ".copy"}, {"fork", key, "a/b/c", "--dry-run"}, {"patch", key, "0", "1", "--dry-run", "--allow-orphans"}, {"pin", key, pinned, "--dry-run"},
	} {
		if code, text := invoke(args...); code != exitDone {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
	}
	for _, args := range [][]string{{"delete", key, "--yes"}, {"vacuum"}, {"import", path + ".copy"}, {"fork", key, "a/b/c"}, {"pin", key, pinned}, {"pin", key, pinned, "--remove"}, {"patch", key, "0", "1", "--allow-orphans"}} {
		if code, text := invoke(args...); code != exitFailed || !strings.Contains(text, "locked") {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// everyCommand returns all commands that have no subcommands.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var all []*cobra.Command
	for _, c := range cmd.Commands() {
		all = append(all, everyCommand(c)...)
	}
	return all
}

func testRoot() *cobra.Command {
	var out bytes.Buffer
	return newShell().app("", &out, &out).rootCommand()
}

// The command completes arguments as the completion scripts request. If a shell is installed, the test also checks the
// syntax of the shell's script.
func TestCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	for shell, flag := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute", "powershell": ""} {
		script := must(t, "", "completion", shell)
		if !strings.Contains(script, "patchlog") {
			t.Errorf("%s: no script: %q", shell, script)
		}
		path, err := exec.LookPath(shell)
		if err != nil || flag == "" {
			t.Logf("%s is not installed, or cannot check: its script's syntax is not checked", shell)
			continue
		}
		testlog.NoError(t, os.WriteFile(shell+".script", []byte(script), 0o644))
		if out, err := exec.Command(path, flag, shell+".script").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
	must(t, twoEvents, "import", "a/u/s", "-")
	const noFiles, files = ":4", ":0"
	for typed, want := range map[string]string{
		"":                         "audit backup compact completion delete demo diff erase export fork help import log loss open patch pin repair retain revert rewind salvage search serve sessions stats vacuum verify :4",
		"s":                        "salvage search serve sessions stats " + noFiles,
		"patch a/u/s 0 1 --state ": "keep drop " + noFiles,
		"log a/u/s --":             "--db --json --at --help --history --last --turn --type " + noFiles,
		"pin a/u/s 1 --re":         "--remove " + noFiles,
		"completion z":             "zsh " + noFiles,
		"import k bas":             files,
		"import ":                  files,
		"log a":                    "a/u/s " + noFiles,
		"pin a/u/s ":               noFiles,
		"compact k --summarizer g": "gemini extractive " + noFiles,
		"export k --redact=i":      "key card iban email phone ip " + noFiles,
		"log --db bas":             files,
	} {
		code, got, _ := newShell().try(t, "", append([]string{cobra.ShellCompRequestCmd}, strings.Split(typed, " ")...)...)
		if code != 0 {
			t.Errorf("%q: exit code %d", typed, code)
		}
		var choices []string
		for line := range strings.Lines(got) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			choices = append(choices, word)
		}
		if got := strings.Join(choices, " "); got != want {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
	}
}

// The help of every command has examples and is at most 80 columns wide.
func TestHelp(t *testing.T) {
	sh := newShell()
	sh.env = func(name string) string { return map[string]string{"COLUMNS": "80"}[name] }
	for _, cmd := range append(everyCommand(testRoot()), testRoot()) {
		if cmd.Name() == "help" || cmd.HasParent() && cmd.Parent().Name() == "completion" {
			continue // cobra generates this command's help
		}
		if cmd.Short == "" || !strings.Contains(cmd.Example, "patchlog") || cmd.Args == nil {
			t.Errorf("%s: no text, example or arguments", cmd.CommandPath())
		}
		for line := range strings.Lines(sh.must(t, "", append(strings.Fields(cmd.CommandPath())[1:], "--help")...)) {
			if n := terminal.Width(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns in %q", cmd.CommandPath(), n, line)
			}
		}
	}
}

// reading is a reader that calls first before its first read.
type reading struct {
	io.Reader
	first func()
}

func (r *reading) Read(p []byte) (int, error) {
	if r.first != nil {
		r.first()
		r.first = nil
	}
	return r.Reader.Read(p)
}

// Other processes can use the database while an import waits for its input.
func TestImportWaitsWithoutLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	must(t, `{"id":"a","author":"user"}`, "import", "a/u/first", "-", "--db", path)
	var out, errs strings.Builder
	used := false
	in := &reading{strings.NewReader("{\"id\":\"e\",\"author\":\"user\"}\n"), func() {
		s, err := store.Open(path, store.Options{})
		if err != nil {
			t.Errorf("while an import waits: %v", err)
			return
		}
		used = true
		if _, err := s.Create(context.Background(), store.Key{App: "a", User: "u", Session: "other"}, nil, store.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}}
	code := run(t.Context(), []string{"import", "a/u/s", "-", "--db", path}, in, &out, &errs, func(string) string { return "" })
	if code != 0 || errs.Len() > 0 || !used {
		t.Errorf("exit code %d, used %t: %s", code, used, errs.String())
	}
	if list := must(t, "", "sessions", "--db", path); !strings.Contains(list, "a/u/s") || !strings.Contains(list, "a/u/other") {
		t.Errorf("sessions:\n%s", list)
	}
}

// The import command refuses endless input at the size limit, and imports nothing.
func TestImportOfEndlessInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	must(t, `{"id":"a","author":"user"}`, "import", "a/u/first", "-", "--db", path)
	var out, errs strings.Builder
	code := run(t.Context(), []string{"import", "a/u/s", "-", "--db", path, "--max-bytes", "100000"}, endless{}, &out, &errs, func(string) string { return "" })
	if code != exitFailed || !strings.Contains(errs.String(), "100000 bytes") || !strings.Contains(errs.String(), "stdin:") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if list := must(t, "", "sessions", "--db", path); strings.Contains(list, "a/u/s ") {
		t.Errorf("sessions:\n%s", list)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	const line = "{\"actions\":{}}\n"
	return copy(p, line[:min(len(line), len(p))]), nil
}
