package adk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/workflow"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
)

// replying is a model that answers a prompt with a part.
func replying(reply func(prompt []*genai.Content) *genai.Part) modelFunc {
	return func(ctx context.Context, req *model.LLMRequest) responses {
		content := &genai.Content{Role: "model", Parts: []*genai.Part{reply(req.Contents)}}
		return answers(&model.LLMResponse{Content: content})(ctx, req)
	}
}

func endsWithResponse(prompt []*genai.Content) bool {
	return prompt[len(prompt)-1].Parts[0].FunctionResponse != nil
}

// ask gives an agent a message and returns what it said.
func ask(t *testing.T, a agent.Agent, sessions *adk.Service, msg *genai.Content) (events []*session.Event) {
	t.Helper()
	r, err := runner.New(runner.Config{
		AppName: "app", Agent: a, SessionService: sessions, AutoCreateSession: true,
		PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{sessions.Plugin()}},
	})
	no(t, err)
	for e, err := range r.Run(t.Context(), "user", "s", msg, agent.RunConfig{}) {
		no(t, err)
		events = append(events, e)
	}
	sessions.Settle(t)
	return events
}

const padding = " and more, so that there is something to leave out, again and again, for it is long enough to be summarised"

// The agent of a node for a single turn sees its own calls, whatever is patched while it
// runs.
func TestSingleTurnNodeIsNotDisturbed(t *testing.T) {
	sessions := inMemory(t)
	turn := 0
	m := replying(func(prompt []*genai.Content) *genai.Part {
		if endsWithResponse(prompt) {
			equal(t, "contents of the second prompt", len(prompt), 3)
			equal(t, "first content", prompt[0].Parts[0].Text, "hello")
			return &genai.Part{Text: "helped"}
		}
		if turn > 1 {
			cut(t, sessions, 4) // the turn before
		}
		return call(fmt.Sprint("h", turn), "lookup", map[string]any{"key": "a"})
	})
	helper, err := llmagent.New(llmagent.Config{Name: "helper", Model: m, Tools: tools(t)})
	no(t, err)
	node, err := workflow.NewAgentNode(helper, workflow.NodeConfig{})
	no(t, err)
	a, err := workflowagent.New(workflowagent.Config{Name: "wf", Edges: workflow.Chain(workflow.Start, node)})
	no(t, err)
	r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: sessions, AutoCreateSession: true})
	no(t, err)
	for turn = 1; turn <= 3; turn++ {
		last := ""
		for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText("hello", "user"), agent.RunConfig{}) {
			no(t, err)
			last = e.Content.Parts[0].Text
		}
		equal(t, "last words", last, "helped")
	}
}

// A workflow that waits for the user goes on where it was, though the session was compacted
// meanwhile.
func TestWorkflowGoesOnAfterCompaction(t *testing.T) {
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(shortener{})}
	sessions := compacted(t, adk.Options{Compaction: cfg})
	rerun, firstRuns := true, 0
	first := workflow.NewFunctionNode[any, string]("first", func(_ agent.Context, in any) (string, error) {
		firstRuns++
		return fmt.Sprint("first of ", in, padding), nil
	}, workflow.NodeConfig{})
	greet := workflow.NewEmittingFunctionNode[any, any]("greet", func(ctx agent.Context, in any, emit func(*session.Event) error) (any, error) {
		reply, err := workflow.ResumeOrRequestInput(ctx, emit, session.RequestInput{InterruptID: "ask-" + ctx.InvocationID(), Message: "Your name?"})
		if err != nil {
			return nil, err
		}
		return fmt.Sprintf("%v; Hello, %v!", in, reply), nil
	}, workflow.NodeConfig{RerunOnResume: &rerun})
	a, err := workflowagent.New(workflowagent.Config{Name: "wf", Edges: workflow.Chain(workflow.Start, first, greet)})
	no(t, err)
	msg := func(i int) *genai.Content { return genai.NewContentFromText(fmt.Sprint("begin ", i, padding), "user") }
	pending := ""
	for i := range 4 { // the first waits while three others come
		events := ask(t, a, sessions, msg(i))
		for _, e := range events {
			if len(e.LongRunningToolIDs) > 0 && i == 0 {
				pending = e.LongRunningToolIDs[0]
			}
		}
	}
	if pending == "" {
		t.Fatal("nobody was asked")
	}
	answer := genai.NewContentFromFunctionResponse("adk_request_input", map[string]any{"response": "Ada"}, "user")
	answer.Parts[0].FunctionResponse.ID = pending
	runs := firstRuns
	said := ""
	for _, e := range ask(t, a, sessions, answer) {
		if e.Output != nil {
			said = fmt.Sprint(e.Output)
		}
	}
	equal(t, "output", said, "first of begin 0"+padding+padding+"; Hello, Ada!")
	equal(t, "runs of the first node on resuming", firstRuns-runs, 0)
}

// After a task is over and compacted, messages go to the coordinator again. While it is
// open, they go to the task, which is told what it is for.
func TestTaskScopesAfterCompaction(t *testing.T) {
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(shortener{})}
	sessions := compacted(t, adk.Options{Compaction: cfg})
	taskPrompts := 0
	tasker, err := llmagent.New(llmagent.Config{Name: "tasker", Mode: llmagent.ModeTask, Model: replying(func(prompt []*genai.Content) *genai.Part {
		taskPrompts++
		if !strings.Contains(prompt[0].Parts[0].Text, "the task") {
			t.Errorf("the task is told %q first", prompt[0].Parts[0].Text)
		}
		if last := prompt[len(prompt)-1].Parts[0]; strings.HasPrefix(last.Text, "finish") {
			return call(fmt.Sprint("f", taskPrompts), "finish_task", map[string]any{"result": "done" + padding})
		}
		return &genai.Part{Text: "what else?" + padding}
	})})
	no(t, err)
	rootPrompts, words := 0, ""
	root, err := llmagent.New(llmagent.Config{Name: "root", SubAgents: []agent.Agent{tasker}, Model: replying(func(prompt []*genai.Content) *genai.Part {
		rootPrompts++
		if !says(prompt, words+padding) && !strings.HasPrefix(words, "finish") {
			t.Errorf("root does not see %q", words)
		}
		if last := prompt[len(prompt)-1].Parts[0]; strings.HasPrefix(last.Text, "go") {
			return call(fmt.Sprint("t", rootPrompts), "tasker", map[string]any{"request": "the task" + padding})
		}
		return &genai.Part{Text: "root says" + padding}
	})})
	no(t, err)
	for i, c := range []struct {
		words      string
		root, task bool
	}{
		{"hello", true, false},
		{"go", true, true},        // begins the task, which asks
		{"more", false, true},     // goes to the task
		{"and more", false, true}, // and again, after its first words were compacted
		{"finish", true, true},
		{"hello again", true, false},
		{"and again", true, false},
		{"go", true, true},
		{"finish", true, true},
		{"hello", true, false},
		{"hello again", true, false},
		{"and again", true, false},
	} {
		rootPrompts, taskPrompts, words = 100*i, 100*i, c.words
		ask(t, root, sessions, genai.NewContentFromText(c.words+padding, "user"))
		if toRoot, toTask := rootPrompts > 100*i, taskPrompts > 100*i; toRoot != c.root || toTask != c.task {
			t.Fatalf("message %d (%s) went to root: %v, to the task: %v", i, c.words, toRoot, toTask)
		}
	}
	visible := get(t, sessions, "s").Events().Len()
	summaries := 0
	for e := range get(t, sessions, "s").Events().All() {
		if e.Content != nil && isSummary(e.Content) {
			summaries++
		}
	}
	if summaries < 2 {
		t.Errorf("%d summaries among %d events", summaries, visible)
	}
}
