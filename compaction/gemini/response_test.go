package gemini_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
)

func TestResponse(t *testing.T) {
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 5, CandidatesTokenCount: 3, ThoughtsTokenCount: 2}
	of := func(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: "model", Parts: parts} }
	thought := &genai.Part{Text: "hm", Thought: true}
	call := &genai.Part{FunctionCall: &genai.FunctionCall{Name: "delete_all"}}
	for name, c := range map[string]struct {
		content *genai.Content
		reason  genai.FinishReason
		text    string
		finish  compaction.FinishReason
		err     string
	}{
		"nothing":                     {nil, "", "", "", ""},
		"a text":                      {of(&genai.Part{Text: " told\n"}), genai.FinishReasonStop, "told", compaction.FinishStop, ""},
		"no reason":                   {of(&genai.Part{Text: "told"}), genai.FinishReasonUnspecified, "told", "", ""},
		"texts between other parts":   {of(nil, thought, &genai.Part{Text: "a\nb "}, &genai.Part{Text: " \n"}, &genai.Part{InlineData: &genai.Blob{}}, &genai.Part{Text: "c"}), "", "a\nb\nc", "", ""},
		"a text that was cut off":     {of(&genai.Part{Text: "to"}), genai.FinishReasonMaxTokens, "to", "MAX_TOKENS", ""},
		"thoughts that were cut off":  {of(thought), genai.FinishReasonMaxTokens, "", "MAX_TOKENS", "MAX_TOKENS"},
		"only thoughts":               {of(thought), genai.FinishReasonStop, "", compaction.FinishStop, "thoughts"},
		"a call beside a text":        {of(&genai.Part{Text: "told"}, call), "", "", "", `"delete_all"`},
		"a call that is a thought":    {of(&genai.Part{Thought: true, FunctionCall: call.FunctionCall}), "", "", "", `"delete_all"`},
		"nil parts":                   {of(nil, nil), "", "", "", "empty"},
		"a function response alone":   {of(genai.NewPartFromFunctionResponse("tool", map[string]any{"a": 1})), "", "", "", "empty"},
		"no part":                     {of(), "", "", "", "empty"},
		"data, and text that is none": {of(&genai.Part{InlineData: &genai.Blob{}}, &genai.Part{Text: " \t"}), "", "", "", "empty"},
	} {
		got, err := gemini.Response("m", c.content, c.reason, usage)
		want := compaction.Response{Text: c.text, Model: "m", FinishReason: c.finish, Usage: compaction.Tokens{Prompt: 5, Answer: 5}}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if c.err == "" && err != nil || c.err != "" && (!errors.Is(err, compaction.ErrRefusedAnswer) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
	if got, err := gemini.Response("m", of(&genai.Part{Text: "told"}), "", nil); err != nil || got.Usage != (compaction.Tokens{}) {
		t.Errorf("without usage: %+v, %v", got, err)
	}
}
