package present_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

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
		`{"content":{"parts":[{"text":"` + strings.Repeat("ab", 300) + `"}]}}`: strings.Repeat("ab", 200),
	} {
		if got := present.Describe(testlog.Event(line)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestValueText(t *testing.T) {
	for line, want := range map[string]string{
		`{"a": [1, "x\u202e"]}`:              `{"a":[1,"x\u202e"]}`,
		`"` + strings.Repeat("é", 500) + `"`: `"` + strings.Repeat("é", 399),
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
