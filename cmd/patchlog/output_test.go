package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// screen is a terminal.
type screen struct {
	bytes.Buffer
	columns int
}

func (s *screen) terminalColumns() int { return s.columns }

func TestTerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Replace(twoEvents, "hello", strings.Repeat("many words ", 50), 1)
	must(t, long, "import", "a/u/s", "-")
	shown := func(columns int, env map[string]string, args ...string) string {
		t.Helper()
		out := screen{columns: columns}
		var stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &out, &stderr, func(name string) string { return env[name] }); code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, stderr.String())
		}
		return out.String()
	}
	if out := shown(70, nil, "log", "a/u/s"); !strings.Contains(out, "\x1b[32muser\x1b[0m") {
		t.Errorf("no colours in %q", out)
	}
	for _, env := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		out := shown(70, env, "log", "a/u/s")
		if strings.Contains(out, "\x1b") {
			t.Errorf("colours in %q", out)
		}
		for line := range strings.Lines(out) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 70 {
				t.Errorf("%d runes in %q", n, line)
			}
		}
	}
	if out := shown(0, map[string]string{"COLUMNS": "50", "NO_COLOR": "1"}, "audit", "a/u/s", "--from", "1"); !strings.Contains(out, "…") {
		t.Errorf("not cut: %q", out)
	}
	if out := shown(70, nil, "log", "a/u/s", "--json"); strings.Contains(out, "\x1b") {
		t.Errorf("colours in JSON: %q", out)
	}
}

func TestProgress(t *testing.T) {
	errs := &screen{columns: 40}
	a := newApp(strings.NewReader(""), io.Discard, errs, func(string) string { return "" })
	bar := a.progress("import")
	bar.update(1, 2, "1 line")
	if errs.Len() > 0 {
		t.Errorf("drawn at once: %q", errs.String())
	}
	bar.next = time.Time{}
	bar.update(1, 2, "1 line")
	bar.update(2, 2, "2 lines") // too soon
	if want := "\rimport  [############............]  50…\x1b[K"; errs.String() != want {
		t.Errorf("got %q want %q", errs.String(), want)
	}
	bar.next = time.Time{}
	bar.update(7, 0, "7 lines")
	bar.end()
	bar.end()
	if want := "\rimport  7 lines\x1b[K\r\x1b[K"; !strings.HasSuffix(errs.String(), want) || strings.Count(errs.String(), "\x1b[K") != 3 {
		t.Errorf("got %q want %q", errs.String(), want)
	}
	quiet := &app{out: newOutput(&screen{}, a.env), errs: a.errs}
	if quiet.quietProgress("x").out != nil {
		t.Error("a bar is drawn into the output")
	}
}

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{" a\tb\n\n c ", "a b c"},
		{"\x00\x1b\x7f\u0085\u009b", `\u0000\u001b\u007f\u0085\u009b`},
		{"\u2028\u202e\ufeff\U000e0001", `\u2028\u202e\ufeff\U000e0001`},
		{"a\xffb\ufffd", `a\xffb` + "\ufffd"},
		{"日本　語 😀 \u00a0é", "日本 語 😀 é"},
	} {
		if got := printable(c.in); got != c.want {
			t.Errorf("printable(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	for _, c := range []struct {
		in   string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöüß", 3, "äö…"}, {"a bcd", 3, "a…"}, {"", 3, ""}} {
		if got := cut(c.in, c.most); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 123456: "123,456"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestEstimate(t *testing.T) {
	e, err := patch.ParseEvent([]byte(`{"content":{"parts":[{"text":"hello"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := estimateTokens(slices.Values([]*patch.Event{e, e})); got != 2*e.EstimatedTokens() || got == 0 {
		t.Errorf("got %d for two events of %d", got, e.EstimatedTokens())
	}
}
