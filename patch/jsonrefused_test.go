package patch_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

func TestParseErrorsNameTheField(t *testing.T) {
	keys17 := manyKeys(17)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ name, line, field string }{
		{"repeated key", `{"a":1,"b":2,"a":3}`, "a"},
		{"repeated known key", `{"id":"x","id":"x"}`, "id"},
		{"repeated key at depth", `{"content":{"parts":[{},{"functionCall":{"args":{"x":1,"x":1}}}]}}`, "content/parts/1/functionCall/args/x"},
		{"repeated key by an escape", `{"x":{"a":1,"\u0061":2}}`, "x/a"},
		{"repeated key by a surrogate pair", `{"𝄞":1,"\ud834\udd1e":2}`, "𝄞"},
		{"repeated empty key", `{"x":{"":1,"":2}}`, "x/"},
		{"repeated key with a slash", `{"x":{"a/b~":1,"a\/b~":2}}`, "x/a~1b~0"},
		{"repeated key, the 17th", `{"x":{` + keys17 + `,"k":1}}`, "x/k"},
		{"repeated key, far in", `{"x":{` + manyKeys(60) + `,"k` + strings.Repeat("x", 59) + `":1}}`, "x/k" + strings.Repeat("x", 59)},
		{"not UTF-8", "{\"a\":[\"\xff\"]}", "a/0"},
		{"not UTF-8 in a tool result", "{\"content\":{\"parts\":[{\"functionResponse\":{\"response\":{\"out\":\"a\xc3(\"}}}]}}", "content/parts/0/functionResponse/response/out"},
		{"not UTF-8 in a key", "{\"a\":{\"\xff\":1}}", "a"},
		{"overlong UTF-8", "{\"a\":\"\xc0\x80\"}", "a"},
		{"a surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "a"},
		{"lone high surrogate", `{"a":"\ud834"}`, "a"},
		{"lone high surrogate before text", `{"a":"\ud834x\udd1e"}`, "a"},
		{"lone low surrogate", `{"a":{"b":"\udd1e"}}`, "a/b"},
		{"surrogates in the wrong order", `{"a":"\udd1e\ud834"}`, "a"},
		{"high surrogate twice", `{"a":"\ud834\ud834"}`, "a"},
		{"control character", "{\"a\":\"\x00\"}", "a"},
		{"nested too deep", `{"a":` + deep(998) + `}`, ""},
		{"nested far too deep", `{"a":` + strings.Repeat("[", 1<<20), ""},
		{"no JSON", `hello`, ""},
		{"no text", ``, ""},
		{"two values", `{} {}`, ""},
		{"cut off", `{"a":{"b":[1,`, "a/b"},
		{"an array", `[]`, ""},
		{"a string", `"` + strings.Repeat("é", 50) + `"`, ""},
		{"null", `null`, ""},

		{"seq 0", `{"seq":0}`, "seq"},
		{"seq a text", `{"seq":"1"}`, "seq"},
		{"seq a fraction", `{"seq":1.0}`, "seq"},
		{"seq negative", `{"seq":-1}`, "seq"},
		{"seq too large", `{"seq":18446744073709551616}`, "seq"},
		{"id a number", `{"id":5}`, "id"},
		{"id too long", `{"id":"` + strings.Repeat("i", patch.MaxIDBytes+1) + `"}`, "id"},
		{"invocationId a list", `{"invocationId":[]}`, "invocationId"},
		{"author an object", `{"author":{}}`, "author"},
		{"branch a bool", `{"branch":true}`, "branch"},
		{"isolationScope a number", `{"isolationScope":1}`, "isolationScope"},

		{"content a text", `{"content":"hi"}`, "content"},
		{"content a list", `{"content":[]}`, "content"},
		{"role a number", `{"content":{"role":1}}`, "content/role"},
		{"parts an object", `{"content":{"parts":{}}}`, "content/parts"},
		{"text a number", `{"content":{"parts":[{"text":1}]}}`, "content/parts/0/text"},
		{"a typed number beyond float64", `{"content":{"parts":[{"videoMetadata":{"fps":1e400}}]}}`, "content/parts/0/videoMetadata/fps"},
		{"call id a number", `{"content":{"parts":[{"functionCall":{"id":1}}]}}`, "content/parts/0/functionCall/id"},
		{"actions a list", `{"actions":[]}`, "actions"},
		{"stateDelta a list", `{"actions":{"stateDelta":[]}}`, "actions/stateDelta"},
		{"artifactDelta a list", `{"actions":{"artifactDelta":[]}}`, "actions/artifactDelta"},
		{"skipSummarization a text", `{"actions":{"skipSummarization":"true"}}`, "actions/skipSummarization"},
		{"transferToAgent a bool", `{"actions":{"transferToAgent":true}}`, "actions/transferToAgent"},
		{"escalate a number", `{"actions":{"escalate":1}}`, "actions/escalate"},
		{"compaction a bool", `{"actions":{"compaction":true}}`, "actions/compaction"},
		{"partial a text", `{"partial":"true"}`, "partial"},
		{"longRunningToolIds a text", `{"longRunningToolIds":"a"}`, "longRunningToolIds"},
		{"longRunningToolIds of numbers", `{"longRunningToolIds":["a",1]}`, "longRunningToolIds"},
		{"usageMetadata a list", `{"usageMetadata":[]}`, "usageMetadata"},
		{"customMetadata a list", `{"customMetadata":[]}`, "customMetadata"},

		{"patchType a number", `{"patchType":1}`, "patchType"},
		{"patch_type null", `{"patch_type":null}`, "patch_type"},
		{"event_id without a type", `{"event_id":"x"}`, "event_id"},
		{"summary_event without a type", `{"summary_event":{}}`, "summary_event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := patch.ParseRecord([]byte(c.line))
			wantField(t, err, c.field)
		})
	}
}

func TestParseEventRefusesPatches(t *testing.T) {
	_, err := patch.ParseEvent([]byte(`{"patchType":"splice","start":0,"count":1}`))
	wantField(t, err, "patchType")
	_, err = patch.ParseEvent([]byte(`{"seq":1}`))
	wantField(t, err, "seq")
	_, err = patch.ParseEvent([]byte(`{"a":1,"a":1}`))
	wantField(t, err, "a")
}
