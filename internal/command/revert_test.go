package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// A window that compaction logged as several patches, a call that was answered after
// others had been summarised among them, is taken back as one.
func TestRevertOfAWindow(t *testing.T) {
	t.Chdir(t.TempDir())
	shell := newShell() // one for all, so that ids are used once
	must := func(t *testing.T, stdin string, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := shell.app(stdin, &stdout, &stderr).run(t.Context(), args); code != 0 || stderr.Len() > 0 {
			t.Fatalf("%q: exit code %d, stderr %q", args, code, stderr.String())
		}
		return stdout.String()
	}
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
	must(t, "", "compact", "a/u/s", "--interval", "2")
	must(t, second, "import", "a/u/s", "-")
	before := must(t, "", "export", "a/u/s", "--visible")
	must(t, "", "compact", "a/u/s", "--interval", "2")

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
	var stdout, stderr bytes.Buffer
	again := []string{"revert", "a/u/s", id}
	if code := shell.app("", &stdout, &stderr).run(t.Context(), again); code != 1 || !strings.Contains(stderr.String(), "has been taken back already") {
		t.Errorf("again: %d, %s", code, stderr.String())
	}
}
