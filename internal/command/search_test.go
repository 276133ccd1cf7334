package command

import (
	"bytes"
	"strings"
	"testing"
)

// What was asked for stands out for those who look at a terminal and want colours, and the rest of
// the terminal's width is for what stands around it.
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
	for columns, least := range map[int]int{70: 60, 100: 90, 5: leastLast - 8} {
		out := shown(columns, map[string]string{"NO_COLOR": "1"}, "search", "a/u/s", "lamps")
		var snippet string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "lamp") {
				snippet = strings.TrimSuffix(line, "\n")
			}
		}
		if n := columnsOf(snippet); n < least || n > max(columns, leastLast+snippetIndent) {
			t.Errorf("%d of %d columns: %q", n, columns, snippet)
		}
	}
}

// A damaged session is named, the others are searched, and the exit code is 1.
func TestSearchBesideADamagedOne(t *testing.T) {
	out := besideADamagedOne(t, "search", "a/u/s", "hello", "--all")
	if !strings.Contains(out, "a/u/t, record 1") || strings.Contains(out, "a/u/s, record") {
		t.Errorf("it finds\n%s", out)
	}
}

// A summary that is found says that it is one.
func TestSearchFindsSummaries(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	must(t, "", "patch", "a/u/s", "0", "1", "--summary", "a greeting")
	if out := must(t, "", "search", "a/u/s", "greeting", "--summaries"); !strings.Contains(out, "(summary)") {
		t.Errorf("%s", out)
	}
	if out := must(t, "", "search", "a/u/s", "greeting", "--summaries", "--json"); !strings.Contains(out, `"summary":true`) {
		t.Errorf("%s", out)
	}
}
