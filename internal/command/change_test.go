package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// If compaction logged several patches for one window, a revert of one of them reverts all of them.
func TestRevertOfAWindow(t *testing.T) {
	t.Chdir(t.TempDir())
	shell := newShell() // use one shell for all commands, so that no id is used twice
	must := shell.must
	n := 0
	line := func(invocation, author, role, part, more string) string {
		n++
		return fmt.Sprintf(`{"id":"e%d","invocationId":%q,"author":%q,"content":{"role":%q,"parts":[%s]}%s}`+"\n", n, invocation, author, role, part, more)
	}
	text := func(s string) string { return fmt.Sprintf(`{"text":%q}`, strings.Repeat(s+" ", 20)) }
	first := line("i1", "user", "user", text("please"), "") +
		line("i1", "agent", "model", `{"functionCall":{"id":"c","name":"approve","args":{}}}`, `,"longRunningToolIds":["c"]`) +
		line("i1", "agent", "user", `{"functionResponse":{"id":"c","name":"approve","response":{"status":"pending"}}}`, "") +
		line("i1", "agent", "model", text("waiting"), "") +
		line("i2", "user", "user", text("news?"), "") + line("i2", "agent", "model", text("none"), "")
	second := line("i3", "user", "user", `{"functionResponse":{"id":"c","name":"approve","response":{"status":"yes"}}}`, "") +
		line("i3", "agent", "model", text("approved"), "") +
		line("i4", "user", "user", text("thanks"), "") + line("i4", "agent", "model", text("welcome"), "")
	must(t, first, "import", "a/u/s", "-")
	must(t, "", "compact", "a/u/s", "--interval", "2", "--retain-invocations", "0")
	must(t, second, "import", "a/u/s", "-")
	before := must(t, "", "export", "a/u/s", "--visible")
	must(t, "", "compact", "a/u/s", "--interval", "2", "--retain-invocations", "0")

	id := ""
	for l := range strings.Lines(must(t, "", "export", "a/u/s")) {
		var r struct{ ID, PatchType string }
		testlog.NoError(t, json.Unmarshal([]byte(l), &r))
		if r.PatchType == "summarise" {
			id = r.ID
		}
	}
	if dry := must(t, "", "revert", "a/u/s", id, "--dry-run"); !strings.Contains(dry, "dry run of revert, by 2 records") {
		t.Errorf("the dry run says\n%s", dry)
	}
	if after := must(t, "", "export", "a/u/s", "--visible"); after == before {
		t.Error("nothing was compacted, or the dry run wrote")
	}
	must(t, "", "revert", "a/u/s", id)
	if after := must(t, "", "export", "a/u/s", "--visible"); after != before {
		t.Errorf("after the revert\n%s\nwas\n%s", after, before)
	}
	if code, _, stderr := shell.try(t, "", "revert", "a/u/s", id); code != 1 || !strings.Contains(stderr, "is already reverted") {
		t.Errorf("again: %d, %s", code, stderr)
	}
}

// On a terminal with colours, search shows the words of the query in bold. The snippet is as wide as the
// terminal.
func TestSearchOnTerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Repeat("many words ", 30)
	must(t, strings.Replace(twoEvents, "hello", long+"a lamp "+long, 1), "import", "a/u/s", "-")
	const bolded = "\x1b[1mlamp\x1b[0m"
	shown := func(columns int, env map[string]string, args ...string) string {
		t.Helper()
		out, errs := screen{columns: columns}, bytes.Buffer{}
		if code := run(t.Context(), args, strings.NewReader(""), &out, &errs, func(name string) string { return env[name] }); code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, errs.String())
		}
		return out.String()
	}
	if out := shown(70, nil, "search", "a/u/s", "lamps"); strings.Count(out, bolded) != 1 || !strings.Contains(out, "\x1b[32muser\x1b[0m") {
		t.Errorf("nothing stands out in %q", out)
	}
	for _, env := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		if out := shown(70, env, "search", "a/u/s", "lamps"); strings.Contains(out, "\x1b") {
			t.Errorf("colours in %q", out)
		}
	}
	if out := shown(70, nil, "search", "a/u/s", "lamps", "--json"); strings.Contains(out, "\x1b") {
		t.Errorf("colours in %q", out)
	}
	if out := must(t, "", "search", "a/u/s", "lamps"); strings.Contains(out, "\x1b") {
		t.Errorf("colours in a pipe: %q", out)
	}
	for columns, least := range map[int]int{70: 60, 100: 90, 5: terminal.LeastWide - 8} {
		out := shown(columns, map[string]string{"NO_COLOR": "1"}, "search", "a/u/s", "lamps")
		var snippet string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "lamp") {
				snippet = strings.TrimSuffix(line, "\n")
			}
		}
		if n := terminal.Width(snippet); n < least || n > max(columns, terminal.LeastWide+snippetIndent) {
			t.Errorf("%d of %d columns: %q", n, columns, snippet)
		}
	}
}

// If one session is damaged, search names it, searches the other sessions, and exits with code 1.
func TestSearchBesideADamagedOne(t *testing.T) {
	out := runWithDamagedSession(t, "search", "a/u/s", "hello", "--all")
	if !strings.Contains(out, "a/u/t, record 1") || strings.Contains(out, "a/u/s, record") {
		t.Errorf("it finds\n%s", out)
	}
}

// A session file can be imported while an agent is still writing its last line.
func TestUnfinishedSessionFile(t *testing.T) {
	t.Chdir(t.TempDir())
	const whole = `{"type":"session","version":3,"id":"s","timestamp":"2026-03-02T09:00:00Z"}
{"type":"message","id":"u1","parentId":null,"message":{"role":"user","content":"Hello."}}
`
	const last = `{"type":"message","id":"a1","parentId":"u1","message":{"role":"assistant","content":"Hello, you."}}`
	write := func(text string) {
		testlog.NoError(t, os.WriteFile("s.jsonl", []byte(text), 0o600))
	}
	write(whole + last[:40])
	if got, want := must(t, "", "import", "s.jsonl"), "pi/user/s: created, 2 records added; the log ends at record 2\n  the last line is incomplete and was left out\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	write(whole + last)
	if got, want := must(t, "", "import", "s.jsonl"), "pi/user/s: extended, 1 record added; the log ends at record 3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := must(t, "", "export", "pi/user/s", "--lines"), whole+last+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := must(t, "", "import", "."), "1 session, 1 unchanged: nothing new\n"; got != want { // the folder also contains the database, which is not imported
		t.Errorf("%q, want %q", got, want)
	}
}

func TestExportLinesOfAnotherSession(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	code, stdout, stderr := newShell().try(t, "", "export", "a/u/s", "--lines")
	if code != 1 || stdout != "" || stderr != "patchlog: session a/u/s was not read from a session file\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// If a session file contains no session id, the name of the file is the id.
func TestSessionFileWithoutID(t *testing.T) {
	t.Chdir(t.TempDir())
	const line = `{"type":"user","uuid":"u","message":{"role":"user","content":"Hello."}}` + "\n"
	testlog.NoError(t, os.WriteFile("7e2f0c44.jsonl", []byte(line), 0o600))
	if got := must(t, "", "import", "7e2f0c44.jsonl"); !strings.HasPrefix(got, "claude-code/user/7e2f0c44: created") {
		t.Errorf("%q", got)
	}
	if code, _, stderr := newShell().try(t, line, "import", "-"); code != 1 || !strings.Contains(stderr, "give the name of the file") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
