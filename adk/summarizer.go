package adk

import (
	"context"
	"fmt"

	"google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/patch"
)

// Summarizer returns a summarizer that calls an ADK model. The request contains the prompt as its only message. It
// contains no tools, schemas, limits or instructions of the agent. The agent's callbacks are not called. The answer
// is not streamed.
//
// The error matches [compaction.ErrRefusedAnswer] if the answer reports an interruption or an error, is incomplete,
// or has no text. If the model itself returns an error, Summarize returns this error unchanged. If llm is nil,
// [NewService] rejects the summarizer, and Summarize returns an error that matches [patch.ErrInvalid].
func Summarizer(llm model.LLM) compaction.Summarizer { return summarizer{llm} }

type summarizer struct{ llm model.LLM }

var errNoModel = fmt.Errorf("%w: the model of the summarizer is nil; pass a model to adk.Summarizer", patch.ErrInvalid)

func (s summarizer) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	if s.llm == nil {
		return compaction.Response{}, errNoModel
	}
	name := s.llm.Name()
	var content *genai.Content
	var reason genai.FinishReason
	var usage *genai.GenerateContentResponseUsageMetadata
	failed := func(err error) (compaction.Response, error) {
		resp, _ := gemini.Response(name, nil, reason, usage)
		return resp, err
	}
	refuse := func(format string, args ...any) (compaction.Response, error) {
		return failed(fmt.Errorf("%w: %s", compaction.ErrRefusedAnswer, fmt.Sprintf(format, args...)))
	}
	request := &model.LLMRequest{
		Model:    s.llm.Name(),
		Contents: []*genai.Content{genai.NewContentFromText(req.Prompt, genai.RoleUser)},
		Config:   &genai.GenerateContentConfig{},
	}
	if req.Instructions != "" {
		request.Config.SystemInstruction = genai.NewContentFromText(req.Instructions, genai.RoleUser)
	}
	for r, err := range s.llm.GenerateContent(ctx, request, false) {
		if err != nil {
			return failed(err)
		}
		if r == nil || r.Partial {
			continue
		}
		if r.UsageMetadata != nil {
			usage = r.UsageMetadata
		}
		if r.ModelVersion != "" {
			name = r.ModelVersion
		}
		if r.FinishReason != "" {
			reason = r.FinishReason
		}
		switch {
		case r.ErrorCode != "" || r.ErrorMessage != "":
			return refuse("the model reports %s: %s", r.ErrorCode, r.ErrorMessage)
		case r.Interrupted:
			return refuse("the answer was interrupted")
		case r.Content != nil:
			content = r.Content
		}
	}
	if content == nil {
		// Return an error, because a response without content would mean that the summarizer declines.
		if err := ctx.Err(); err != nil {
			return failed(err)
		}
		return refuse("the model returned no content")
	}
	return gemini.Response(name, content, reason, usage)
}
