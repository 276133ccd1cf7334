package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
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
	if out := shown(80, nil, "log", "a/u/s"); !strings.Contains(out, "\x1b[32muser\x1b[0m") {
		t.Errorf("no colours in %q", out)
	}
	for _, env := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		out := shown(80, env, "log", "a/u/s")
		if strings.Contains(out, "\x1b") {
			t.Errorf("colours in %q", out)
		}
		for line := range strings.Lines(out) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("%d runes in %q", n, line)
			}
		}
	}
	if out := shown(0, map[string]string{"COLUMNS": "50", "NO_COLOR": "1"}, "audit", "a/u/s", "--from", "1"); !strings.Contains(out, "…") {
		t.Errorf("not cut: %q", out)
	}
	if out := shown(80, nil, "log", "a/u/s", "--json"); strings.Contains(out, "\x1b") {
		t.Errorf("colours in JSON: %q", out)
	}
}

// What a pager is given is the output; a pager that is left, or not there, is no error.
func TestPaged(t *testing.T) {
	for pager, want := range map[string]string{"cat": "hello\n", "true": "", "no-such-pager": "hello\n"} {
		tty := testlog.Must(os.Create(filepath.Join(t.TempDir(), "tty")))(t)
		defer tty.Close()
		a := newApp(nil, tty, io.Discard, func(name string) string { return map[string]string{"PAGER": pager}[name] }, Options{})
		a.out.tty = tty
		err := a.paged(t.Context(), func() error { return errors.Join(a.out.line("hello"), a.out.flush()) })
		if code, text := exitOf(err); code != exitDone || a.out.flush() != nil {
			t.Errorf("%s: %d, %s", pager, code, text)
		}
		if got, err := os.ReadFile(tty.Name()); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", pager, got, err)
		}
	}
}

func TestProgress(t *testing.T) {
	errs := &screen{columns: 40}
	a := newApp(strings.NewReader(""), io.Discard, errs, noEnv, Options{})
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

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{{"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöüß", 3, "äö…"}, {"a bcd", 3, "a…"}, {"", 3, ""}} {
		if got := cut(c.in, c.most); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

// Marks stay on what they mark, whatever escapes come before them and within them, and what is
// cut off is not marked.
func TestHighlight(t *testing.T) {
	const raw = "\x1b[2J é\xff lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp"
	var marks [][2]int
	for _, word := range []string{"é\xff", "lamp,", "brass\u200blamp", "日本"} {
		at := strings.Index(raw, word)
		marks = append(marks, [2]int{at, at + len(word)})
	}
	pieces := present.Pieces(raw, marks)
	o := newOutput(&screen{}, noEnv)
	for most, want := range map[int]string{
		99: `\u001b[2J <é\xff> <lamp,> \u202e<brass\u200blamp>\U000e0001 <日本> lamp`,
		57: `\u001b[2J <é\xff> <lamp,> \u202e<brass\u200blamp>\U000e0001 <日>…`,
		54: `\u001b[2J <é\xff> <lamp,> \u202e<brass\u200blamp>\U000e0001…`,
		34: `\u001b[2J <é\xff> <lamp,> \u202e<brass>…`,
		30: `\u001b[2J <é\xff> <lamp,> \u202e<b>…`,
		29: `\u001b[2J <é\xff> <lamp,> \u202e…`,
	} {
		got := strings.NewReplacer("\x1b[1m", "<", "\x1b[0m", ">").Replace(string(o.highlight(pieces, most)))
		if got != want {
			t.Errorf("in %d columns: got %q want %q", most, got, want)
		}
	}
	plain := newOutput(&bytes.Buffer{}, noEnv)
	if got := string(plain.highlight(pieces, 99)); got != `\u001b[2J é\xff lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp` {
		t.Errorf("got %q", got)
	}
}

// Columns stand below one another, whatever width their characters have.
func TestColumns(t *testing.T) {
	s := &screen{columns: 40}
	o := newOutput(s, func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] })
	tab := newTable("", "", "")
	for _, text := range []string{"ab", "日本", "e\u0301", "🙂"} {
		tab.add(cell{text, plain}, cell{text, plain}, cell{strings.Repeat("語", 40), plain})
	}
	testlog.NoError(t, errors.Join(o.table(tab), o.flush()))
	for line := range strings.Lines(s.String()) {
		at := columnsOf(line[:strings.Index(line, "語")])
		if all := columnsOf(strings.TrimSuffix(line, "\n")); at != 12 || all > 40 || all < 38 {
			t.Errorf("the last column begins at %d and ends at %d: %q", at, all, line)
		}
	}
}

// What can be typed back, a seq, an index or a count, is printed as it is typed.
func TestNumbersAsTyped(t *testing.T) {
	t.Chdir(t.TempDir())
	var text strings.Builder
	for i := range 1234 {
		fmt.Fprintf(&text, `{"id":"e%d","author":"user","content":{"role":"user","parts":[{"text":"%d words"}]}}`+"\n", i, i)
	}
	out := must(t, text.String(), "import", "a/u/s", "-") + must(t, "", "log", "a/u/s", "--last", "1001") +
		must(t, "", "patch", "a/u/s", "10", "1100", "--dry-run") +
		must(t, "", "patch", "a/u/s", "10", "1100") + must(t, "", "audit", "a/u/s", "--from", "1234")
	thousands := regexp.MustCompile(`\d,\d\d\d`)
	for line := range strings.Lines(out) {
		if thousands.MatchString(line) && !strings.HasPrefix(line, "tokens, about") {
			t.Errorf("a number that cannot be typed back: %s", line)
		}
	}
	for _, want := range []string{"1234 records added", "last 1001 of 1234 visible events", "\n 1233  1234  ", "1100 events hidden", "index 10 to 1109", "\n   1235  splice"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if sessions := must(t, "", "sessions"); !strings.Contains(sessions, "  1235      134   4,836  ") { // tokens are grouped
		t.Errorf("sessions lists\n%s", sessions)
	}
	if stats := must(t, "", "stats", "a/u/s"); !thousands.MatchString(stats) {
		t.Errorf("bytes are hard to read:\n%s", stats)
	}
}
