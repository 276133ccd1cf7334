package adk_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestSummarizer(t *testing.T) {
	said := func(words string) *genai.Content { return genai.NewContentFromText(words, "model") }
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 7}
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		model modelFunc
		want  string // "": an error
		err   error
		as    string // the model's name
	}{
		{"one answer", answers(&model.LLMResponse{Content: said("short"), UsageMetadata: usage, ModelVersion: "v2"}), "short", nil, "v2"},
		{"partial ones first", answers(&model.LLMResponse{Content: said("sh"), Partial: true}, &model.LLMResponse{Content: said("short")}), "short", nil, "func"},
		{"the numbers after it", answers(&model.LLMResponse{Content: said("short")}, nil, &model.LLMResponse{UsageMetadata: usage}), "short", nil, "func"},
		{"only partial ones", answers(&model.LLMResponse{Content: said("sh"), Partial: true}), "", compaction.ErrRefusedAnswer, "func"},
		{"nothing", answers(), "", compaction.ErrRefusedAnswer, "func"},
		{"no content", answers(&model.LLMResponse{UsageMetadata: usage}), "", compaction.ErrRefusedAnswer, "func"},
		{"blocked", answers(&model.LLMResponse{ErrorCode: "SAFETY", FinishReason: genai.FinishReasonSafety}), "", compaction.ErrRefusedAnswer, "func"},
		{"broken off", answers(&model.LLMResponse{Content: said("sh"), Interrupted: true}), "", compaction.ErrRefusedAnswer, "func"},
		{"an error", func(context.Context, *model.LLMRequest) responses {
			return func(yield func(*model.LLMResponse, error) bool) { yield(nil, broken) }
		}, "", broken, "func"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := adk.Summarizer(c.model).Summarize(t.Context(), compaction.Request{Prompt: "p"})
			equal(t, "model", got.Model, c.as)
			if c.err != nil {
				fails(t, err, c.err)
				if got.Text != "" {
					t.Errorf("with the error came %q", got.Text)
				}
				return
			}
			no(t, err)
			equal(t, "answer", got.Text, c.want)
		})
	}
}

// The model gets the prompt and nothing of an agent.
func TestSummarizerRequest(t *testing.T) {
	var got *model.LLMRequest
	m := modelFunc(func(_ context.Context, req *model.LLMRequest) responses {
		got = req
		return func(yield func(*model.LLMResponse, error) bool) {
			yield(&model.LLMResponse{Content: genai.NewContentFromText("cut", "model"), FinishReason: genai.FinishReasonMaxTokens}, nil)
		}
	})
	resp, err := adk.Summarizer(m).Summarize(t.Context(), compaction.Request{Prompt: "the prompt", MaxTokens: 3})
	no(t, err)
	equal(t, "finish reason", resp.FinishReason, compaction.FinishReason("MAX_TOKENS"))
	equal(t, "request", got, &model.LLMRequest{
		Model:    "func",
		Contents: []*genai.Content{genai.NewContentFromText("the prompt", "user")},
		Config:   &genai.GenerateContentConfig{},
	})
}

func TestOptionsAreRefused(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	none := compaction.DefaultConfig()
	none.Summarizer = adk.Summarizer(nil)
	fallback := compaction.DefaultConfig()
	fallback.Fallback = adk.Summarizer(nil)
	for name, opts := range map[string]adk.Options{
		"no model":          {Compaction: none},
		"no fallback model": {Compaction: fallback},
		"bad config":        {Compaction: compaction.Config{Enabled: true}},
		"model alone":       {Model: shortener{}},
		"nil model":         {Model: (*nilModel)(nil), Compaction: compaction.DefaultConfig()},
		"share of nothing":  {ContextWindow: adk.ContextWindow{Share: 0.5}, Compaction: compaction.DefaultConfig(), Model: shortener{}},
		"share above 1":     {ContextWindow: adk.ContextWindow{Share: 1.5, Tokens: 1}, Compaction: compaction.DefaultConfig()},
		"window alone":      {ContextWindow: adk.ContextWindow{Tokens: 1}, Compaction: compaction.DefaultConfig()},
	} {
		t.Run(name, func(t *testing.T) {
			fails(t, opts.Validate(), patch.ErrInvalid)
			_, err := adk.NewService(db, opts)
			fails(t, err, patch.ErrInvalid)
		})
	}
	_, err := adk.Summarizer(nil).Summarize(t.Context(), compaction.Request{})
	fails(t, err, patch.ErrInvalid)
}
