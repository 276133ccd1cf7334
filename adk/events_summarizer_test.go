package adk_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
)

// A summarizer that was written for ADK's own compaction serves this one.
func TestEventsSummarizer(t *testing.T) {
	broken := errors.New("broken")
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 7, CandidatesTokenCount: 3, ThoughtsTokenCount: 2}
	var content *genai.Content
	var err error
	var got []*session.Event
	s := adk.EventsSummarizer(func(_ context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
		got = events
		for _, e := range events {
			e.Content.Parts[0].Text = "forged"
		}
		return content, usage, err
	})
	svc := compacted(t, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: s}})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	last, _ := svc.LastCompaction(sess)
	equal(t, "outcome", last.Outcome, compaction.Declined)
	for want, c := range map[error]*genai.Content{
		broken:                      nil,
		compaction.ErrRefusedAnswer: {Parts: []*genai.Part{call("x", "y", nil)}},
	} {
		if content, err = c, nil; c == nil {
			err = want
		}
		_, failure := svc.Compact(t.Context(), sess, adk.CompactOptions{})
		fails(t, failure, want)
	}
	content, err = genai.NewContentFromText("as told", "model"), nil
	written, failure := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	no(t, failure)
	equal(t, "usage", written[0].Usage, compaction.Usage{Calls: 1, PromptTokens: 7, AnswerTokens: 5})
	equal(t, "told", told(sess), []string{"as told"})
	if len(got) == 0 || got[0].ID != "ui0" {
		t.Errorf("%d events were to be summarised", len(got))
	}
	for e := range sess.Events().All() {
		if e.Content.Parts[0].Text == "forged" {
			t.Error("a summarizer has changed an event")
		}
	}
}

// A summarizer of this module serves ADK's own compaction.
func TestSummarizeEvents(t *testing.T) {
	broken := errors.New("broken")
	var asked compaction.Request
	resp, err := compaction.Response{Text: " as told\x07", Usage: compaction.Tokens{Prompt: 7, Answer: 5}}, error(nil)
	s := compaction.SummarizerFunc(func(_ context.Context, req compaction.Request) (compaction.Response, error) {
		asked = req
		return resp, err
	})
	events := []*session.Event{said("u", "1", "user", long), nil, said("a", "1", "app", long)}
	content, usage, failure := adk.SummarizeEvents(t.Context(), s, compaction.Config{PromptTemplate: "Sum up: " + compaction.History}, events)
	no(t, failure)
	equal(t, "content", content, genai.NewContentFromText("as told", "model"))
	equal(t, "usage", usage, &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 7, CandidatesTokenCount: 5, TotalTokenCount: 12})
	if !strings.HasPrefix(asked.Prompt, "Sum up: user: words of u") || len(asked.Events) != 2 {
		t.Errorf("asked was %q", asked.Prompt)
	}
	for _, c := range []struct {
		resp compaction.Response
		err  error
		want error
	}{
		{compaction.Response{}, nil, nil},
		{compaction.Response{Text: "told"}, broken, broken},
		{compaction.Response{Text: "--"}, nil, compaction.ErrRefusedAnswer},
		{compaction.Response{Text: "told", FinishReason: "MAX_TOKENS"}, nil, compaction.ErrRefusedAnswer},
		{compaction.Response{Text: strings.Repeat("word ", 400)}, nil, compaction.ErrRefusedAnswer},
	} {
		resp, err = c.resp, c.err
		content, usage, failure := adk.SummarizeEvents(t.Context(), s, compaction.Config{}, events)
		if content != nil || usage != nil || !errors.Is(failure, c.want) {
			t.Errorf("%+v: %v, %v, %v", c, content, usage, failure)
		}
	}
	_, _, failure = adk.SummarizeEvents(t.Context(), nil, compaction.Config{}, events)
	fails(t, failure, patch.ErrInvalid)
	_, _, failure = adk.SummarizeEvents(t.Context(), s, compaction.Config{}, nil)
	fails(t, failure, patch.ErrInvalid)
	_, _, failure = adk.SummarizeEvents(t.Context(), s, compaction.Config{}, []*session.Event{delta("d", map[string]any{"k": make(chan int)})})
	fails(t, failure, patch.ErrInvalid)
}
