package command

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// The command open shows files without a database, lists the files whose format it does not know, and leaves no
// file behind.
func TestOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	testlog.NoError(t, os.MkdirAll("folder", 0o755))
	testlog.NoError(t, os.WriteFile("folder/one.jsonl", []byte(twoEvents), 0o644))
	testlog.NoError(t, os.WriteFile("folder/notes.txt", []byte("not a session"), 0o644))
	testlog.NoError(t, os.MkdirAll("others", 0o755))
	testlog.NoError(t, os.WriteFile("others/notes.txt", []byte("not a session"), 0o644))
	s := startCommand(t, nil, "open", "folder", "--json")
	if !strings.Contains(s.line, `"sessions":1,"files":2}`) {
		t.Errorf("it says %q", s.line)
	}
	if status, page := s.get("/", "127.0.0.1", ""); status != http.StatusOK || !strings.Contains(page, "one") {
		t.Errorf("status %d:\n%s", status, page)
	}
	if code, text := s.end(); code != exitDone || !strings.Contains(text, "folder/notes.txt") || strings.Contains(text, "one.jsonl") {
		t.Errorf("exit code %d: %s", code, text)
	}
	for wrong, args := range map[string][]string{
		"no such file":         {"open", "none"},
		"format is unknown":    {"open", "folder/notes.txt"},
		"no session was found": {"open", "others"},
		"of this machine":      {"open", "folder", "--addr", "0.0.0.0:0"},
		"PATH is missing":      {"open"},
	} {
		if code, _, text := newShell().try(t, "", args...); code == exitDone || !strings.Contains(text, wrong) {
			t.Errorf("%q: exit code %d: %s", args, code, text)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v behind (%v)", left, err)
	}
	if _, err := os.Stat(defaultDatabase); !os.IsNotExist(err) {
		t.Errorf("it makes a database (%v)", err)
	}
}

// If a file grows, the command open adds the new events, even if its copy of the session was patched. A new file
// becomes a new session. Unchanged files are not read again. With --json, problems are reported as JSON.
func TestFollowing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		testlog.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("one.jsonl", twoEvents)
	write("notes.txt", "not a session")
	var stderr screen
	a := newApp(nil, &screen{}, &stderr, noEnv, Options{})
	a.json = true
	s := testlog.Must(store.OpenMemory(store.Options{}))(t)
	f := a.follow(s, []string{dir})
	records := func(session string) uint64 {
		t.Helper()
		testlog.NoError(t, f.read(t.Context(), f.Changed()))
		info, err := s.Info(t.Context(), store.Key{App: "adk", User: "user", Session: session})
		testlog.NoError(t, err)
		return info.Seq
	}
	if n := records("one"); n != 2 {
		t.Fatalf("%d records", n)
	}
	if text := stderr.String(); strings.Count(text, "notes.txt") != 1 {
		t.Errorf("of what is no session it says %q", text)
	}
	key := store.Key{App: "adk", User: "user", Session: "one"}
	testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(t)
	write("one.jsonl", twoEvents+`{"id":"e3","invocationId":"j","author":"user","content":{"role":"user","parts":[{"text":"more"}]}}`+"\n")
	write("two.jsonl", twoEvents)
	if one, two := records("one"), records("two"); one != 4 || two != 2 {
		t.Errorf("%d and %d records", one, two)
	}
	if text := stderr.String(); strings.Count(text, "notes.txt") != 1 {
		t.Errorf("it reads again what has not changed: %q", text)
	}
	write("two.jsonl", strings.Replace(twoEvents, "hello", "goodbye", 1))
	if records("two"); !strings.Contains(stderr.String(), `{"error":"`) || !strings.Contains(stderr.String(), "session adk/user/two: duplicate id") {
		t.Errorf("of a conflict it says %q", stderr.String())
	}
}
