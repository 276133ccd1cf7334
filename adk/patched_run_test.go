package adk_test

import (
	"context"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
)

// summarising is a service that, when a tool has answered, summarises what came before the
// question.
type summarising struct {
	*adk.Service
	t *testing.T
}

func (s summarising) AppendEvent(ctx context.Context, sess session.Session, e *session.Event) error {
	if err := s.Service.AppendEvent(ctx, sess, e); err != nil {
		return err
	}
	view := sess.(*adk.Session).View()
	before := view.Len() - 3 // the question, the call, the answer
	if e.Content.Parts[0].FunctionResponse == nil || before < 1 {
		return nil
	}
	_, err := s.ApplyPatch(ctx, sess, patch.NewSummarise(0, before, summary(s.t, "what was said")))
	return err
}

// A patch that lands between a run's steps shows in the next prompt of the same run.
func TestPatchShowsInTheNextPrompt(t *testing.T) {
	m := &scriptedModel{agent: "app", script: script}
	sessions := summarising{inMemory(t), t}
	r, err := runner.New(runner.Config{
		AppName: "app", Agent: newAgent(t, m), SessionService: sessions, AutoCreateSession: true,
	})
	no(t, err)
	for _, question := range []string{"turn 3", "turn 4", "turn 6"} { // the last calls a tool
		for _, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText(question, "user"), agent.RunConfig{}) {
			no(t, err)
		}
	}
	prompts := m.taken()
	before, after := prompts[len(prompts)-2], prompts[len(prompts)-1]
	equal(t, "contents before", len(before), 5)
	equal(t, "contents after: summary, question, call, answer", len(after), 4)
	checkPrompt(t, after)
	if !says(after, "what was said") || !says(after, "turn 6") || says(after, "turn 4") {
		t.Error("the prompt is not that of the patched view")
	}
}
