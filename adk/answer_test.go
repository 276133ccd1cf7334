package adk_test

import (
	"fmt"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/workflowagent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/workflow"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
)

// A call that comes back says where its answer is to go: an agent on another server reads
// in its metadata which task it belongs to, a workflow which node asked, and what for.
func TestCallThatComesBackSaysWhereItsAnswerGoes(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		sess := create(t, s, "s", nil)
		asked := said("ask", "1", "remote", calling("c", "lookup"), func(e *session.Event) {
			e.CustomMetadata = map[string]any{"a2a:task_id": "task", "a2a:context_id": "context", "n": 1.5}
			e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1"}
			e.RequestedInput = &session.RequestInput{InterruptID: "c", Message: "which?"}
		})
		no(t, s.AppendEvent(t.Context(), sess, said("q", "1", "user")))
		no(t, s.AppendEvent(t.Context(), sess, asked))
		no(t, s.AppendEvent(t.Context(), sess, said("u", "2", "user")))
		sess = get(t, s, "s")
		e, err := patch.NewEvent(patch.Fields{ID: "S", Author: "user", Content: genai.NewContentFromText("in short", "user")})
		no(t, err)
		_, err = s.now().ApplyPatch(t.Context(), sess, patch.NewSummarise(0, 2, e))
		no(t, err)
		no(t, s.AppendEvent(t.Context(), sess, said("late", "1", "user", returning("c", "lookup", map[string]any{"a": 1}))))
		events := get(t, s, "s").Events()
		equal(t, "events", events.Len(), 4)
		back := events.At(1)
		delete(back.CustomMetadata, "patchlog")
		equal(t, "metadata", back.CustomMetadata, asked.CustomMetadata)
		equal(t, "node", back.NodeInfo, asked.NodeInfo)
		equal(t, "request", back.RequestedInput, asked.RequestedInput)
	})
}

// A workflow that has waited for so long that a summary hides its request goes on with what
// comes after it when the request is answered.
func TestWorkflowGoesOnWhenItsRequestComesBack(t *testing.T) {
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(shortener{})}
	sessions := compacted(t, adk.Options{Compaction: cfg})
	firstRuns := 0
	first := workflow.NewFunctionNode[any, string]("first", func(_ agent.Context, in any) (string, error) {
		firstRuns++
		return fmt.Sprint("first of ", in, padding), nil
	}, workflow.NodeConfig{})
	asks := workflow.NewEmittingFunctionNode[any, any]("asks", func(ctx agent.Context, _ any, emit func(*session.Event) error) (any, error) {
		return workflow.ResumeOrRequestInput(ctx, emit, session.RequestInput{InterruptID: "ask-" + ctx.InvocationID(), Message: "Your name?"})
	}, workflow.NodeConfig{})
	greets := workflow.NewFunctionNode[any, string]("greets", func(_ agent.Context, name any) (string, error) {
		return fmt.Sprintf("Hello, %v!", name), nil
	}, workflow.NodeConfig{})
	a, err := workflowagent.New(workflowagent.Config{Name: "wf", Edges: workflow.Chain(workflow.Start, first, asks, greets)})
	no(t, err)
	pending := ""
	for i := range 16 {
		for _, e := range ask(t, a, sessions, genai.NewContentFromText(fmt.Sprint("begin ", i, padding), "user")) {
			if len(e.LongRunningToolIDs) > 0 && i == 0 {
				pending = e.LongRunningToolIDs[0]
			}
		}
	}
	for e := range get(t, sessions, "s").Events().All() {
		if len(e.LongRunningToolIDs) > 0 && e.LongRunningToolIDs[0] == pending {
			t.Fatal("the first request is still in sight")
		}
	}
	answer := genai.NewContentFromFunctionResponse("adk_request_input", map[string]any{"response": "Ada"}, "user")
	answer.Parts[0].FunctionResponse.ID = pending
	runs, words := firstRuns, ""
	no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), answer))
	for _, e := range ask(t, a, sessions, answer) {
		if e.Output != nil {
			words = fmt.Sprint(e.Output)
		}
	}
	equal(t, "output", words, "Hello, Ada!")
	equal(t, "runs of the first node on resuming", firstRuns-runs, 0)
}
