package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

const twoEvents = `{"id":"e1","author":"user","timestamp":"2025-01-01T00:00:00Z","content":{"role":"user","parts":[{"text":"hello"}]}}
{"id":"e2","author":"agent","timestamp":"2025-01-01T00:00:00Z","content":{"role":"model","parts":[{"text":"hi"}]}}
`

// must runs a command that succeeds and returns its output.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := newShell().app(stdin, &stdout, &stderr).run(t.Context(), args); code != 0 || stderr.Len() > 0 {
		t.Fatalf("%q: exit code %d, stderr %q", args, code, stderr.String())
	}
	return stdout.String()
}

func TestLocked(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	s := testlog.Must(store.Open(defaultDatabase, store.Options{}))(t)
	defer s.Close()
	var stdout, stderr bytes.Buffer
	code := newShell().app("", &stdout, &stderr).run(t.Context(), []string{"sessions"})
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	if text := stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "locked") || !strings.Contains(text, defaultDatabase) {
		t.Errorf("stderr %q", text)
	}
}

func TestSharedState(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open(defaultDatabase, store.Options{}))(t)
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, map[string]any{"own": 1, "user:lang": "en", "app:motd": "hi"}))(t)
	testlog.NoError(t, s.Close())
	if got, want := must(t, "", "stats", "a/u/s", "--json"), `"state":{"app:motd":"hi","own":1,"user:lang":"en"}}`+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s want %s", got, want)
	}
	if got, want := must(t, "", "stats", "a/u/s", "--at", "0", "--json"), `"state":{"own":1}}`+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s want %s", got, want)
	}
}

// fullPipe is a pipe that nobody reads any more.
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
		for _, args := range [][]string{{"log", "a/u/s"}, {"export", "a/u/s"}, {"audit", "a/u/s", "--json"}, {"help"}} {
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

// stuck is a reader that gives some text and then blocks.
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
		in := &stuck{strings.NewReader(`{"id":"more"}` + "\n"), make(chan struct{})}
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
		if code != 1 || stderr.String() != "patchlog: interrupted\n" {
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
	var stdout, stderr bytes.Buffer
	code := newShell().app(twoEvents, &stdout, &stderr).run(t.Context(), []string{"import", "a/u/s", "-", "--db", filepath.Join(dir, "none", "x.db")})
	if code != 1 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "no such file") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}
