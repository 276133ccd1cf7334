package present_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		present.Counted(1, "event"):           "1 event",
		present.Counted(0, "event"):           "0 events",
		present.Counted(uint64(1234), "word"): "1234 words",
		present.Counted(1, "summary"):         "1 summary",
		present.Counted(2, "summary"):         "2 summaries",
		present.Counted(2, "key"):             "2 keys",
		present.Counted(2, "patch"):           "2 patches",
		present.IndexRange(7, 1):              "7",
		present.IndexRange(7, 3):              "7 to 9",
		present.Percent(0):                    "0 %",
		present.Percent(0.0001):               "under 1 %",
		present.Percent(0.01):                 "1 %",
		present.Percent(1.5):                  "150 %",
	} {
		if got != want {
			t.Errorf("got %q want %q", got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", -1234567: "-1,234,567", 123456: "123,456"} {
		if got := present.Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
	if got, want := present.Grouped(uint64(1<<64-1)), "18,446,744,073,709,551,615"; got != want {
		t.Errorf("got %q want %q", got, want)
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
		if got := present.Printable(c.in); got != c.want {
			t.Errorf("Printable(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	for most, want := range map[int]string{0: "", 1: "", 2: "é", 3: "é", 4: `é \u001b`, 99: `é \u001b日`} {
		if got := present.PrintableUpTo(" é\n\x1b日", most); got != want {
			t.Errorf("up to %d: got %q want %q", most, got, want)
		}
	}
}

// Marks stay on the same text, whatever is escaped before or inside it.
func TestPieces(t *testing.T) {
	const raw = "\x1b[2J é\xff  lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp"
	var marks [][2]int
	for _, word := range []string{"é\xff", "lamp,", "brass\u200blamp", "日本"} {
		at := strings.Index(raw, word)
		marks = append(marks, [2]int{at, at + len(word)})
	}
	var all string
	var marked []string
	for _, p := range present.Pieces(raw, marks) {
		if all += p.Text; p.Mark {
			marked = append(marked, p.Text)
		}
	}
	if want := `\u001b[2J é\xff  lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp`; all != want {
		t.Errorf("got %q want %q", all, want)
	}
	if want := []string{`é\xff`, "lamp,", `brass\u200blamp`, "日本"}; !slices.Equal(marked, want) {
		t.Errorf("got %q want %q", marked, want)
	}
}

func TestDescribe(t *testing.T) {
	for line, want := range map[string]string{
		`{"content":{"parts":[{"text":"one\n two\u001b"}]}}`:                                                  `one two\u001b`,
		`{"content":{"parts":[{"text":"hm","thought":true},{"functionCall":{"name":"f\t","args":{"x":1}}}]}}`: `(thought) hm; call f {"x":1}`,
		`{"content":{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"r":"ok"}}}]}}`:       `result f {"r":"ok"}`,
		`{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"fileUri":"gs://x"}},{"executableCode":{"code":"1"}},{"codeExecutionResult":{"output":"2"}},{"videoMetadata":{}}]}}`: `(inline data); (file) {"fileUri":"gs://x"}; (code) {"code":"1"}; (code result) {"output":"2"}; (other part)`,
		`{"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2,"compactedContent":{"role":"model","parts":[{"text":"in short"}]}}}}`:                                                                          "(compaction record) in short",
		`{"actions":{"stateDelta":{"b\n":[1],"a":"x","app:k":null}}}`: `sets a = "x"; sets b = [1]; sets app:k = null`,
		`{"content":{"parts":[]}}`:                                    "(no content)",
		`{}`:                                                          "(no content)",
		`{"content":{"parts":[{"text":"` + strings.Repeat("ab", 300) + `"}]}}`: strings.Repeat("ab", 200) + " …",
	} {
		if got := present.Describe(testlog.Event(line)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestValueText(t *testing.T) {
	for line, want := range map[string]string{
		`{"a": [1, "x\u202e"]}`:              `{"a":[1,"x\u202e"]}`,
		`"` + strings.Repeat("é", 500) + `"`: `"` + strings.Repeat("é", 399) + " …",
	} {
		e := testlog.Event(`{"actions":{"stateDelta":{"k":` + line + `}}}`)
		for c := range e.Changes() {
			if got := present.ValueText(c.Value); got != want {
				t.Errorf("got %s want %s", got, want)
			}
		}
	}
}

func TestEntries(t *testing.T) {
	const call, response = `{"functionCall":{"id":"c","name":"f","args":{}}}`, `{"functionResponse":{"id":"c","name":"f","response":{}}}`
	of := func(author string, parts ...string) *patch.Event {
		return testlog.Event(`{"author":"` + author + `","content":{"role":"user","parts":[` + strings.Join(parts, ",") + `]}}`)
	}
	const text = `{"text":"hi"}`
	for _, c := range []struct {
		entry fold.Entry
		kind  present.Kind
		text  string
	}{
		{fold.Entry{Event: of("user", text)}, present.User, "hi"},
		{fold.Entry{Event: of("agent", text), Pinned: true}, present.Model, "pinned: hi"},
		{fold.Entry{Event: of("", text)}, present.Model, "hi"},
		{fold.Entry{Event: of("agent", call, text)}, present.Call, "call f {}; hi"},
		{fold.Entry{Event: of("user", text, response)}, present.Response, "hi; result f {}"},
		{fold.Entry{Event: of("user", text), Summary: true}, present.Summary, "summary: hi"},
		{fold.Entry{Event: of("agent", call), Summary: true, Pinned: true}, present.Summary, "pinned: summary: call f {}"},
	} {
		if kind := present.KindOf(c.entry); kind != c.kind {
			t.Errorf("%s: got %s want %s", c.entry.Event, kind, c.kind)
		}
		if got := present.EntryText(c.entry); got != c.text {
			t.Errorf("%s: got %q want %q", c.entry.Event, got, c.text)
		}
	}
	records, views := viewsOf(t, said("e1", "user", "one"), said("e2", "agent", "two"), `{"id":"p","patchType":"pin","eventId":"e2"}`,
		`{"id":"q","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s","author":"user","content":{"role":"user","parts":[{"text":"sum"}]}}}`,
		`{"id":"f","author":"user","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`)
	var kinds []present.Kind
	for _, r := range records {
		kinds = append(kinds, present.KindOfRecord(r))
	}
	testlog.Equal(t, "kinds of records", kinds, []present.Kind{present.User, present.Model, present.Patch, present.Patch, present.Summary})
	last := views[len(views)-1]
	for i, want := range last.Entries() {
		if got := last.Entry(i); got != want {
			t.Errorf("entry %d: got %+v want %+v", i, got, want)
		}
	}
}

// Joined emoji, and Persian, Hindi and Arabic, are displayed as written. Controls that change the direction of
// other text are escaped.
func TestScriptsShowAsWritten(t *testing.T) {
	for _, text := range []string{"👨\u200d👩\u200d👧\u200d👦 family", "می\u200cخواهم", "क्\u200dष", "\u200fعربی\u200e", "\u061cא"} {
		if got := present.Printable(text); got != text {
			t.Errorf("%q shows as %q", text, got)
		}
		if got := present.Pieces(text, nil); got[0].Text != text {
			t.Errorf("%q is the piece %q", text, got[0].Text)
		}
	}
	if got := present.Printable("a\u202eb\u2066c\u200bd\U000e0041"); got != `a\u202eb\u2066c\u200bd\U000e0041` {
		t.Errorf("got %q", got)
	}
}

func TestShortIDs(t *testing.T) {
	for id, want := range map[string]string{"e1": "e1", "0123456789abcdef": "0123456789abcdef", "0123456789abcdefg": "01234567", "\u001b": `\u001b`} {
		if got := present.ShortID(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
	const text = "id 6f0c7a52-58a1-5a0e-9b8f-0b7f4a2d9c31, and 6f0c7a52-58a1"
	if got := present.ShortIDs(text); got != "id 6f0c7a52, and 6f0c7a52-58a1" {
		t.Errorf("%q", got)
	}
}
