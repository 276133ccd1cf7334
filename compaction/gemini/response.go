package gemini

import (
	"strings"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
)

// Response converts a model's answer to a [compaction.Response]. The response's text consists of the content's texts
// without thoughts, joined by newlines. If the argument content is nil, the text is empty. The argument usage may be
// nil.
//
// If the content calls a function or has no text, the error matches [compaction.ErrRefusedAnswer], and the response has
// only the usage.
func Response(model string, content *genai.Content, reason genai.FinishReason, usage *genai.GenerateContentResponseUsageMetadata) (compaction.Response, error) {
	resp := compaction.Response{Model: model, FinishReason: compaction.FinishReason(reason)}
	if reason == genai.FinishReasonUnspecified {
		resp.FinishReason = ""
	}
	if usage != nil {
		resp.Usage.Prompt = int(usage.PromptTokenCount)
		resp.Usage.Answer = int(usage.CandidatesTokenCount + usage.ThoughtsTokenCount)
	}
	if content == nil {
		return resp, nil
	}
	var err error
	resp.Text, err = textOf(content)
	if err != nil && resp.FinishReason != "" && resp.FinishReason != compaction.FinishStop {
		err = refusedAnswer("it is incomplete: the model stopped with %s", resp.FinishReason)
	}
	return resp, err
}

func textOf(content *genai.Content) (string, error) {
	var texts []string
	thoughts := false
	for _, p := range content.Parts {
		switch {
		case p == nil:
		case p.FunctionCall != nil:
			return "", refusedAnswer("it calls the function %q", p.FunctionCall.Name)
		case p.Thought:
			thoughts = true
		case strings.TrimSpace(p.Text) != "":
			texts = append(texts, strings.TrimSpace(p.Text))
		}
	}
	switch {
	case len(texts) > 0:
		return strings.Join(texts, "\n"), nil
	case thoughts:
		return "", refusedAnswer("it contains only thoughts")
	}
	return "", refusedAnswer("it is empty")
}
