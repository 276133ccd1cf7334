package adk

import (
	"context"
	"fmt"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/patch"
)

// EventsSummarizer is a summarizer that takes ADK's events, as those of ADK's own compaction
// do. It is a [compaction.Summarizer], so that one written for that serves this one:
//
//	theirs, err := adkcompaction.NewLLMSummarizer(…)
//	cfg.Summarizer = adk.EventsSummarizer(func(ctx context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
//		r, err := theirs.SummarizeEvents(ctx, events)
//		return r.Content, r.Usage, err
//	})
//
// No content and no error mean that it declines. It gets copies: the events that the summary
// will stand for, without those that would only be shown for context. [SummarizeEvents]
// is the way back.
type EventsSummarizer func(ctx context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error)

// Summarize calls f. An answer with a function call, or with thoughts alone, is refused.
func (f EventsSummarizer) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	var events []*session.Event
	for _, e := range req.Events {
		events = append(events, shownEvent(e))
	}
	content, usage, err := f(ctx, events)
	if err != nil {
		resp, _ := gemini.Response("", nil, "", usage)
		return resp, err
	}
	return gemini.Response("", content, "", usage)
}

// SummarizeEvents has a summarizer summarise events of ADK's, as a compactor with the
// configuration would: by its prompt, and with its limits. So a summarizer of this module
// serves ADK's own compaction, where ADK has it:
//
//	func (s ours) SummarizeEvents(ctx context.Context, events []*session.Event) (adkcompaction.SummarizeResult, error) {
//		content, usage, err := adk.SummarizeEvents(ctx, s.Summarizer, s.Config, events)
//		return adkcompaction.SummarizeResult{Content: content, Usage: usage}, err
//	}
//
// The content has the role model. No content and no error mean that the summarizer declines.
// nil among the events is passed over. An answer that is not whole, not text, or too long
// is an error that matches [compaction.ErrRefusedAnswer]; other errors are the summarizer's and
// those of [compaction.NewRequest] and [NewEvent].
func SummarizeEvents(ctx context.Context, s compaction.Summarizer, cfg compaction.Config, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
	if s == nil {
		return nil, nil, fmt.Errorf("%w: the summarizer is nil", patch.ErrInvalid)
	}
	var logged []*patch.Event
	for _, e := range events {
		if e == nil {
			continue
		}
		p, err := NewEvent(e)
		if err != nil {
			return nil, nil, err
		}
		logged = append(logged, p)
	}
	req, err := compaction.NewRequest(cfg, logged...)
	if err != nil {
		return nil, nil, err
	}
	resp, err := s.Summarize(ctx, req)
	usage := usageOf(resp.Usage)
	if err != nil {
		return nil, usage, err
	}
	text, err := resp.Summary(req.MaxTokens)
	if err != nil || text == "" {
		return nil, usage, err
	}
	return genai.NewContentFromText(text, genai.RoleModel), usage, nil
}

// usageOf says what was measured as genai does; nil if nothing was.
func usageOf(t compaction.Tokens) *genai.GenerateContentResponseUsageMetadata {
	if t == (compaction.Tokens{}) {
		return nil
	}
	return &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount: int32(t.Prompt), CandidatesTokenCount: int32(t.Answer), TotalTokenCount: int32(t.Prompt + t.Answer),
	}
}
