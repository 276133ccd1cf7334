package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// screen is a fake terminal with a given width.
type screen struct {
	bytes.Buffer
	columns int
}

func (s *screen) Columns() int { return s.columns }

func noEnv(string) string { return "" }

// Page sends only the output of the function to the pager, and writes buffered text before the pager starts. A pager
// that exits early or does not exist causes no error.
func TestPaged(t *testing.T) {
	for pager, want := range map[string]string{"cat": "before\nhello\n", "true": "before\n", "no-such-pager": "before\nhello\n"} {
		tty := testlog.Must(os.Create(filepath.Join(t.TempDir(), "tty")))(t)
		defer tty.Close()
		o := New(tty, func(name string) string { return map[string]string{"PAGER": pager}[name] })
		o.tty = tty
		o.Line("before")
		err := o.Page(t.Context(), func() error { return errors.Join(o.Line("hello"), o.Flush()) })
		if err != nil && !errors.Is(err, syscall.EPIPE) || o.Flush() != nil {
			t.Errorf("%s: %v", pager, err)
		}
		if got, err := os.ReadFile(tty.Name()); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", pager, got, err)
		}
	}
}

func TestProgress(t *testing.T) { synctest.Test(t, testProgress) }

func testProgress(t *testing.T) {
	errs := &screen{columns: 40}
	bar := NewProgress(New(errs, noEnv), "import")
	time.Sleep(progressAfter - 1)
	bar.Update(1, 2, "1 line")
	if errs.Len() > 0 {
		t.Errorf("drawn at once: %q", errs.String())
	}
	time.Sleep(time.Nanosecond)
	bar.Update(1, 2, "1 line")
	time.Sleep(progressEvery - 1)
	bar.Update(2, 2, "2 lines") // too soon after the previous update to be drawn
	if want := "\rimport  [############............]  50…\x1b[K"; errs.String() != want {
		t.Errorf("got %q want %q", errs.String(), want)
	}
	time.Sleep(time.Nanosecond)
	bar.Update(7, 0, "7 lines")
	bar.End()
	bar.End()
	if want := "\rimport  7 lines\x1b[K\r\x1b[K"; !strings.HasSuffix(errs.String(), want) || strings.Count(errs.String(), "\x1b[K") != 3 {
		t.Errorf("got %q want %q", errs.String(), want)
	}
	errs.Reset()
	bar.Count(1, 0, "line")
	time.Sleep(progressEvery)
	bar.Count(1, 0, "line")
	time.Sleep(progressEvery)
	bar.Count(1, 2, "line")
	if want := "\rimport  1 line\x1b[K\rimport  [############............]  50…\x1b[K"; errs.String() != want {
		t.Errorf("got %q want %q", errs.String(), want)
	}
	var none Progress
	none.Update(1, 2, "")
	none.End()
	if file := NewProgress(New(io.Discard, noEnv), ""); file.out != nil {
		t.Error("a bar is drawn into a file")
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{{"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöüß", 3, "äö…"}, {"a bcd", 3, "a…"}, {"", 3, ""}} {
		if got := Cut(c.in, c.most); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

// Highlight marks the same characters if some of them must be escaped. It does not mark text that is cut off.
func TestHighlight(t *testing.T) {
	const raw = "\x1b[2J é\xff lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp"
	var marks [][2]int
	for _, word := range []string{"é\xff", "lamp,", "brass\u200blamp", "日本"} {
		at := strings.Index(raw, word)
		marks = append(marks, [2]int{at, at + len(word)})
	}
	pieces := present.Pieces(raw, marks)
	o := New(&screen{}, noEnv)
	for most, want := range map[int]string{
		99: `\u001b[2J <é\xff> <lamp,> \u202e<brass\u200blamp>\U000e0001 <日本> lamp`,
		57: `\u001b[2J <é\xff> <lamp,> \u202e<brass\u200blamp>\U000e0001 <日>…`,
		54: `\u001b[2J <é\xff> <lamp,> \u202e<brass\u200blamp>\U000e0001…`,
		34: `\u001b[2J <é\xff> <lamp,> \u202e<brass>…`,
		30: `\u001b[2J <é\xff> <lamp,> \u202e<b>…`,
		29: `\u001b[2J <é\xff> <lamp,> \u202e…`,
	} {
		got := strings.NewReplacer("\x1b[1m", "<", "\x1b[0m", ">").Replace(string(o.Highlight(pieces, most)))
		if got != want {
			t.Errorf("in %d columns: got %q want %q", most, got, want)
		}
	}
	plain := New(&bytes.Buffer{}, noEnv)
	if got := string(plain.Highlight(pieces, 99)); got != `\u001b[2J é\xff lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp` {
		t.Errorf("got %q", got)
	}
}

// Columns are aligned, even if characters are wider than one column.
func TestColumns(t *testing.T) {
	s := &screen{columns: 40}
	o := New(s, func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] })
	tab := NewTable(nil, "", "", "")
	for _, text := range []string{"ab", "日本", "e\u0301", "🙂"} {
		tab.Add(Plain.Of(text), Plain.Of(text), Plain.Of(strings.Repeat("語", 40)))
	}
	testlog.NoError(t, errors.Join(o.Table(tab), o.Flush()))
	for line := range strings.Lines(s.String()) {
		at := Width(line[:strings.Index(line, "語")])
		if all := Width(strings.TrimSuffix(line, "\n")); at != 12 || all > 40 || all < 38 {
			t.Errorf("the last column begins at %d and ends at %d: %q", at, all, line)
		}
	}
}

// A table with Whole drops columns in the given order until it fits. It then shows again the dropped columns for which
// there is room.
func TestWholeColumn(t *testing.T) {
	for columns, want := range map[int]string{
		40: "the whole key  1  22  333  a long time", 37: "the whole key  22  333  a long time", 30: "the whole key  22  a long time", 28: "the whole key  a long time",
		24: "the whole key  22  333", 10: "the whole key",
	} {
		s := &screen{columns: columns}
		o := New(s, func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] })
		tab := NewTable(nil, "", "", "", "", "")
		tab.Wide, tab.Whole, tab.Drops = 0, true, []int{1, 2, 3, 4}
		tab.Add(Plain.Of("the whole key"), Plain.Of(1), Plain.Of(22), Plain.Of(333), Plain.Of("a long time"))
		testlog.NoError(t, errors.Join(o.Table(tab), o.Flush()))
		if got := strings.TrimSuffix(s.String(), "\n"); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// The writer gives the same result no matter how the text is split into writes.
func TestJSONWriter(t *testing.T) {
	const text, want = "{\"a\":\"é😀\u007f\u009b\u202e\u2029\\u001b\"}\n", `{"a":"é😀\u007f\u009b\u202e\u2029\u001b"}` + "\n"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var b bytes.Buffer
			w := &jsonWriter{w: &b}
			for _, piece := range []string{text[:i], text[i:j], text[j:]} {
				if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			if b.String() != want {
				t.Fatalf("split at %d and %d: %q", i, j, b.String())
			}
		}
	}
}

// hostile contains every kind of character that could control a terminal.
const hostile = "\x1b[2J\x07\x7f\u0085\u009b31m\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\x00\r\t"

// own matches the control codes that the package itself writes.
var own = regexp.MustCompile("\x1b\\[(0|1|2|31|32|33|35|36)m|\r|\x1b\\[K")

// All methods of Output escape characters that could control a terminal.
func TestOutputIsSafe(t *testing.T) {
	s := &screen{columns: 400}
	o := New(s, func(string) string { return "" })
	o.Line(hostile, o.Paint(Red, hostile))
	o.Linef("%s\n", hostile+"\xff")
	tab := NewTable(nil, "", "head")
	tab.Add(Plain.Of(hostile), Cyan.Of(hostile))
	tab.Note(Plain.Of(hostile), false)
	tab.Note(Plain.Of(hostile), true)
	o.Table(tab)
	o.Flush()
	bar := NewProgress(o, hostile)
	bar.next = time.Time{}
	bar.Update(1, 2, hostile)
	if !bar.drawn {
		t.Error("no bar")
	}
	for _, r := range own.ReplaceAllString(s.String(), "") {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029') {
			t.Errorf("%U in %q", r, s.String())
		}
	}
	if n := strings.Count(s.String(), `\u001b[2J\u0007\u007f\u0085\u009b31m\u061c`); n != 9 {
		t.Errorf("%d of 9 texts in %q", n, s.String())
	}
	if !strings.Contains(s.String(), `\xff`+"\n\n") {
		t.Errorf("no line breaks, or a byte that is not UTF-8, in %q", s.String())
	}
}

// Document writes one line of JSON with the names in the struct tags. Nil slices become empty arrays, errors and
// keys become strings, and literals do not change.
func TestDocument(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{struct {
			Key   store.Key `json:"key"`
			Names []string  `json:"names"`
			Err   error     `json:"err,omitzero"`
		}{Err: errors.New("<a>\u0085"), Key: store.Key{App: "a", User: "u/v", Session: "s"}}, `{"key":"a/u%2Fv/s","names":[],"err":"<a>\u0085"}`},
		{struct {
			At     time.Time    `json:"at,omitzero"`
			Never  time.Time    `json:"never,omitzero"`
			Record patch.Record `json:"record,omitzero"`
			Next   *int         `json:"next,omitzero"`
		}{At: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)}, `{"at":"2025-01-02T03:04:05Z"}`},
		{[]patch.Record{{Seq: 1, Event: testlog.Event(`{"id":"e","x":1.0,"y":"\u0041"}`)}}, `[{"seq":1,"id":"e","x":1.0,"y":"\u0041"}]`},
		{map[string]int{"b": 1, "a": 2}, `{"a":2,"b":1}`},
	} {
		var out bytes.Buffer
		o := New(&out, func(string) string { return "" })
		testlog.NoError(t, o.Document(c.v))
		testlog.NoError(t, o.Flush())
		testlog.Equal(t, "document", out.String(), c.want+"\n")
	}
}

// Flush returns the first error of a document or of the stream.
func TestFlushReturnsTheFirstError(t *testing.T) {
	o := New(io.Discard, noEnv)
	if o.Document(func() {}) == nil || o.Line("more") != nil || o.Flush() == nil {
		t.Error("a document that cannot be encoded is no error")
	}
	full := errors.New("full")
	o = New(writerFunc(func([]byte) (int, error) { return 0, full }), noEnv)
	o.Line("text")
	testlog.ErrorIs(t, o.Flush(), full)
	testlog.ErrorIs(t, o.Document(1), full)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
