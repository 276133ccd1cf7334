package transcript_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestOf(t *testing.T) {
	for _, row := range []struct {
		name   string
		events string // JSON, one event per line
		limit  int
		want   string
	}{
		{"nothing", ``, 0, ``},
		{"texts", `{"author":"user","content":{"role":"user","parts":[{"text":"hello"},{"text":" again\n"}]}}`, 0,
			"user: hello\nuser: again\n"},
		{"no thoughts, no blanks", `{"author":"a","content":{"parts":[{"text":"hm","thought":true},{"text":" \n "},{"text":"so"}]}}`, 0,
			"a: so\n"},
		{"state alone", `{"author":"a","actions":{"stateDelta":{"k":1}}}`, 0, ""},
		{"a call and its response", `{"author":"a","content":{"parts":[{"functionCall":{"id":"c1","name":"find","args":{"q":"x"}}}]}}
{"author":"a","content":{"parts":[{"functionResponse":{"id":"c1","name":"find","response":{"n":3}}}]}}`, 0,
			"a calls find (c1) {\"q\":\"x\"}\nfind returns (c1) to a: {\"n\":3}\n"},
		{"a call without arguments", `{"author":"a","content":{"parts":[{"functionCall":{"name":"ping"}}]}}`, 0, "a calls ping\n"},
		{"nobody answered", `{"author":"a","content":{"parts":[{"functionCall":{"id":"c1","name":"find","args":{}}}]}}`, 0,
			"a calls find (c1) {} (never answered)\n"},
		{"cut by runes", `{"author":"a","content":{"parts":[{"functionResponse":{"name":"find","response":{"n":"éééééééééé"}}},{"text":"a text that is not cut"}]}}`, 8,
			"find returns to a: {\"n\":\"éé [… 10 more characters]\na: a text that is not cut\n"},
		{"a summary", `{"author":"user","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}},"content":{"parts":[{"text":"told"}]}}`, 0,
			"summary of earlier events: told\n"},
		{"code, data, files", `{"author":"a","content":{"parts":[{"executableCode":{"code":"print(1)\n"}},{"codeExecutionResult":{"output":"1\n"}},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"mimeType":"text/plain","fileUri":"gs://x/y"}}]}}`, 0,
			"a runs code: print(1)\\n\ncode returns to a: 1\\n\na sends data: image/png\na sends a file: text/plain gs://x/y\n"},
		{"a part of another kind", `{"author":"a","content":{"parts":[{"toolCall":{"id":"t","args":{"q":1}}},{"thoughtSignature":"AAAA"},{}]}}`, 0,
			"a sends: {\"toolCall\":{\"id\":\"t\",\"args\":{\"q\":1}}}\n"},
		{"no author", `{"content":{"parts":[{"text":"so"}]}}`, 0, "unknown: so\n"},
		{"control characters", `{"author":"a","content":{"parts":[{"text":"\u001b[2Jx\u0000"}]}}`, 0, "a: \\u001b[2Jx\\u0000\n"},
	} {
		var events []*patch.Event
		for _, line := range strings.Split(row.events, "\n") {
			if line == "" {
				continue
			}
			e := testlog.Must(patch.ParseEvent([]byte(line)))(t)
			events = append(events, e)
		}
		if got := transcript.Of(events, row.limit); got != row.want {
			t.Errorf("%s:\n got %q\nwant %q", row.name, got, row.want)
		}
	}
}
