package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

var someID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// runDemo runs the demo with the default options in an empty temporary directory.
func runDemo(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append([]string{"demo"}, args...), strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	if code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr.String())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v behind (%v)", left, err)
	}
	return stdout.String()
}

// The demo shows that loss names a fact that a summary lacks, that search finds the fact's event, and that a revert
// makes the event visible.
func TestDemo(t *testing.T) {
	text := runDemo(t)
	for i, step := range demoSteps() {
		if !strings.Contains(text, step.text) || !strings.Contains(text, "$ "+step.line+"\n") {
			t.Errorf("step %d is not shown", i+1)
		}
	}
	rest := text
	for _, want := range []string{
		"created, 61 records added",
		"prompt about 8,035 → 3,708 tokens",
		"last 4 of 17 visible events",
		"not visible (10): ", "05:00:00",
		"record 27, hidden by patch 63,", "05:00:00",
		"1 event hidden, 38 added; 54 visible events now",
		"the smallest accepted span around it is start 18, count 2",
		"hid 38 visible events: index 2 to 39",
		"and 35 more, to index 39",
		demoEnd,
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Errorf("%q is missing, or not where it should be", want)
			continue
		}
		rest = after
	}
	if strings.ContainsAny(text, "\x1b\r") {
		t.Error("colours or a bar where there is no terminal")
	}
	again := runDemo(t)
	for _, id := range []*regexp.Regexp{someID, regexp.MustCompile(`\b[0-9a-f]{8}\b`)} {
		text, again = id.ReplaceAllString(text, "ID"), id.ReplaceAllString(again, "ID")
	}
	if text != again {
		t.Error("two demos differ in more than ids")
	}
}

// In 80 columns, the demo has at most 70 lines, even if the environment has an API key. The README quotes the
// demo's figures.
func TestDemoFitsAScreen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var stdout, stderr bytes.Buffer
	env := func(name string) string { return map[string]string{"COLUMNS": "80", "GOOGLE_API_KEY": "key"}[name] }
	if code := run(t.Context(), []string{"demo"}, strings.NewReader(""), &stdout, &stderr, env); code != 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr.String())
	}
	if n := strings.Count(stdout.String(), "\n"); n > 70 {
		t.Errorf("%d lines", n)
	}
	readme := string(testlog.Must(os.ReadFile("../../README.md"))(t))
	if !strings.Contains(readme, "from 8,035 to 3,708") {
		t.Error("the README has other figures")
	}
}

// With --json, each step of the demo writes its command's JSON.
func TestDemoJSON(t *testing.T) {
	for line := range strings.Lines(runDemo(t, "--json")) {
		if !json.Valid([]byte(line)) {
			t.Errorf("it is not JSON: %s", line)
		}
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"demo"}, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	if code != 1 || stderr.String() != "patchlog: interrupted\n" {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v behind (%v)", left, err)
	}
}
