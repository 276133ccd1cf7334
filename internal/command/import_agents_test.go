package command

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// An agent may be writing the last line of a file while it is imported.
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
	if got, want := must(t, "", "import", "s.jsonl"), "pi/user/s: created, 2 records added; the log ends at record 2\n  the last line is not written to its end, and was left out\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	write(whole + last)
	if got, want := must(t, "", "import", "s.jsonl"), "pi/user/s: extended, 1 record added; the log ends at record 3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := must(t, "", "export", "pi/user/s", "--lines"), whole+last+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	write(last)
	var stdout, stderr bytes.Buffer
	code := newShell().app("", &stdout, &stderr).run(t.Context(), []string{"import", "."})
	if code != 1 || !strings.Contains(stderr.String(), "is a directory") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func TestExportLinesOfAnotherSession(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	var stdout, stderr bytes.Buffer
	code := newShell().app("", &stdout, &stderr).run(t.Context(), []string{"export", "a/u/s", "--lines"})
	if code != 1 || stdout.Len() > 0 || stderr.String() != "patchlog: session a/u/s was not read from a session file\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

// A file that does not tell its session's id goes by its name.
func TestSessionFileWithoutID(t *testing.T) {
	t.Chdir(t.TempDir())
	const line = `{"type":"summary","summary":"Talk","leafUuid":"u"}` + "\n"
	testlog.NoError(t, os.WriteFile("7e2f0c44.jsonl", []byte(line), 0o600))
	if got := must(t, "", "import", "7e2f0c44.jsonl"); !strings.HasPrefix(got, "claude-code/user/7e2f0c44: created") {
		t.Errorf("%q", got)
	}
	var stdout, stderr bytes.Buffer
	if code := newShell().app(line, &stdout, &stderr).run(t.Context(), []string{"import", "-"}); code != 1 || !strings.Contains(stderr.String(), "give the file by its name") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}
