package adk_test

import (
	"context"
	"testing"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
)

// cleared counts the results in a prompt that were cleared, and those that were not.
func cleared(prompt []*genai.Content) (gone, whole int) {
	for _, c := range prompt {
		for _, p := range c.Parts {
			if p.FunctionResponse == nil {
				continue
			}
			if p.FunctionResponse.Response["result"] == compaction.Cleared {
				gone++
			} else {
				whole++
			}
		}
	}
	return gone, whole
}

// Old results are cleared while one long invocation runs, with no summarizer; calls stay, and
// people see what the tools returned.
func TestClearingInsideARun(t *testing.T) {
	cfg := compaction.Config{Enabled: true, ClearAfter: 20, Summarizer: compaction.SummarizerFunc(
		func(context.Context, compaction.Request) (compaction.Response, error) { panic("asked") })}
	sessions := compacted(t, adk.Options{Compaction: cfg})
	most, breaks, before := 0, 0, 0
	for i, prompt := range toolLoop(t, sessions, 30, "the question") {
		checkPrompt(t, prompt)
		equal(t, "contents of a prompt", len(prompt), 1+2*i)
		gone, whole := cleared(prompt)
		most = max(most, whole)
		if gone > before {
			breaks++
		}
		before = gone
	}
	if before < 20 || most >= 20 || breaks < 2 || breaks > 25 {
		t.Errorf("%d results were cleared in the end, at most %d were whole, in %d batches", before, most, breaks)
	}
	got, err := sessions.Get(adk.WithHistory(t.Context()), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	no(t, err)
	for e := range got.Session.Events().All() {
		for _, p := range e.Content.Parts {
			if r := p.FunctionResponse; r != nil && r.Response["value"] == nil {
				t.Fatalf("the history has %v", r.Response)
			}
		}
	}
}

// By default one endless turn is bounded.
func TestDefaultBoundsOneTurn(t *testing.T) {
	cfg := compaction.DefaultConfig()
	cfg.InvocationTokens = 1_000
	sessions := compacted(t, adk.Options{Compaction: cfg})
	longest := 0
	for _, prompt := range toolLoop(t, sessions, 80, "the question") {
		checkPrompt(t, prompt)
		if !says(prompt, "the question") {
			t.Fatal("a prompt lacks the question")
		}
		longest = max(longest, len(prompt))
	}
	if longest > 90 { // of 161
		t.Errorf("the longest prompt has %d contents", longest)
	}
}
