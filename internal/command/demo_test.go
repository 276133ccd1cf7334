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

// runDemo runs the demo with the real clock and ids, in an empty temporary directory.
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

func TestDemo(t *testing.T) {
	text := runDemo(t)
	for i, step := range demoSteps() {
		if !strings.Contains(text, step.text) || !strings.Contains(text, "$ "+step.line+"\n") {
			t.Errorf("step %d, %s, is not shown", i+1, step.name)
		}
	}
	for _, want := range []string{
		"created, 61 records added",
		"the smallest span around it that passes is start 25, count 2",
		"24 events hidden, 1 added; 38 visible events now",
		"get_user_details_calls  was 1",
		"8 events hidden, 0 added; 30 visible events now",
		"16 events hidden, 1 added; 15 visible events now",
		"last 3 of 61 visible events after record 61",
		"hid 16 visible events: index 1 to 16",
		"4 invocations have events that are not summarised, the interval is 4",
		"22 → 9 visible events,",
		"extended, 23 records added; the log ends at record 46",
		"3 visible events after record 47",
		"1,975 of 8,035 visible",
		"no patch has changed the state.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.ContainsAny(text, "\x1b\r") {
		t.Error("colours or a bar where there is no terminal")
	}
	again := someID.ReplaceAllString(runDemo(t), "ID")
	if first := someID.ReplaceAllString(text, "ID"); first != again {
		t.Error("two demos differ in more than ids")
	}
}

// No patch of the demo changes the state, and its figures are those of the README.
func TestDemoJSON(t *testing.T) {
	var stats struct {
		Tokens struct{ Raw, Visible int }
		State  map[string]any
	}
	for line := range strings.Lines(runDemo(t, "--json")) {
		if strings.Contains(line, `"stateKeys"`) {
			testlog.NoError(t, json.Unmarshal([]byte(line), &stats))
		}
	}
	if stats.Tokens.Raw != 8035 || stats.Tokens.Visible != 1975 || stats.State["get_user_details_calls"] == nil {
		t.Errorf("figures %+v", stats)
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
