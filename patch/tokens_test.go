package patch_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestEstimatedTokens(t *testing.T) {
	for _, c := range []struct {
		content string
		want    int
	}{
		{`null`, 0},
		{`{}`, 0},
		{`{"parts":null}`, 0},
		{`{"parts":[]}`, 0},
		{`{"parts":[{"text":""}]}`, 0},
		{`{"parts":[{"text":"a"}]}`, 1},
		{`{"parts":[{"text":"four"}]}`, 1},
		{`{"parts":[{"text":"fives"}]}`, 2},
		{`{"parts":[{"text":"éé\n\u0000"}]}`, 2},
		{`{"parts":[{"text":"ab"},{"text":"cd"}]}`, 1},
		{`{"parts":[{"text":"abcd","thought":true}]}`, 1},
		{`{"parts":[{"functionCall":{"id":"a long id that does not count","name":"find","args":{"q":"x"}}}]}`, 5},
		{`{"parts":[{"functionResponse":{"id":"x","name":"find","response":{"r":[1,2]}}}]}`, 6},
		{`{"parts":[{"executableCode":{"code":"print(1)","language":"PYTHON"}}]}`, 5},
		{`{"parts":[{"inlineData":{"data":"AAAA","mimeType":"image/png"}}]}`, patch.DataTokens},
		{`{"parts":[{"fileData":{"fileUri":"gs://x"}},{"text":"what is it"}]}`, patch.DataTokens + 3},
		{`{"parts":[{"inlineData":null}]}`, 0},
		{`{"parts":[{"text":"abcd","thoughtSignature":"AAAAAAAAAAAAAAAA"}]}`, 1},
		{`{"parts":[{"toolCall":{"id":"t","args":{}}}]}`, 8},
		{`{"parts":[{"text":"` + strings.Repeat("x", 400_000) + `"}]}`, 100_000},
	} {
		e := parseEvent(t, `{"author":"a","content":`+c.content+`}`)
		if got := e.EstimatedTokens(); got != c.want {
			t.Errorf("%.80s: %d tokens, want %d", c.content, got, c.want)
		}
		// The estimate does not change when the event is encoded and decoded.
		form := encode(t, patch.Record{Seq: 1, Event: e})
		back := testlog.Must(patch.DecodeRecord(form))(t)
		if got := back.Event.EstimatedTokens(); got != c.want {
			t.Errorf("%.80s: %d tokens after storing, want %d", c.content, got, c.want)
		}
	}
	if got := patch.EstimateTextTokens("fives"); got != 2 {
		t.Errorf("a text of five runes: %d tokens", got)
	}
}

func TestPromptTokens(t *testing.T) {
	for usage, want := range map[string]int{
		`{"promptTokenCount":60000}`: 60000, `{}`: 0, `null`: 0, `{"promptTokenCount":-1}`: 0,
		`{"promptTokenCount":null,"totalTokenCount":7}`: 0,
	} {
		e := parseEvent(t, `{"author":"a","usageMetadata":`+usage+`}`)
		if got := records.PromptTokens(e); got != want {
			t.Errorf("%s: %d, want %d", usage, got, want)
		}
	}
}
