package adk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/adk/v2/workflow"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
)

func newRunner(t *testing.T, a agent.Agent, sessions session.Service, plugins ...*plugin.Plugin) *runner.Runner {
	t.Helper()
	r, err := runner.New(runner.Config{
		AppName: "app", Agent: a, SessionService: sessions, AutoCreateSession: true,
		PluginConfig: runner.PluginConfig{Plugins: plugins},
	})
	noError(t, err)
	return r
}

// runTurn runs an agent with a message in the session "s" and returns the events of the run.
func runTurn(t *testing.T, r *runner.Runner, msg *genai.Content) (events []*session.Event) {
	t.Helper()
	for e, err := range r.Run(t.Context(), "user", "s", msg, agent.RunConfig{}) {
		noError(t, err)
		events = append(events, e)
	}
	return events
}

// ask runs an agent with a message and waits until background compaction has finished. It returns the events of
// the run.
func ask(t *testing.T, a agent.Agent, sessions *adk.Service, msg *genai.Content) []*session.Event {
	t.Helper()
	events := runTurn(t, newRunner(t, a, sessions, sessions.Plugin()), msg)
	sessions.WaitForCompaction(t)
	return events
}

func lastWords(events []*session.Event) string {
	return events[len(events)-1].Content.Parts[0].Text
}

const padding = " and more, so that there is something to leave out, again and again, for it is long enough to be summarised"

func question(turn int) string { return fmt.Sprintf("turn %d", turn) }

func call(id, name string, args map[string]any) *genai.Part {
	return &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: name, Args: args}}
}

// response returns a message of the user that answers a call.
func response(id, name string, of map[string]any) *genai.Content {
	msg := genai.NewContentFromFunctionResponse(name, of, "user")
	msg.Parts[0].FunctionResponse.ID = id
	return msg
}

// replyModel returns a model that answers each prompt with one part.
func replyModel(reply func(prompt []*genai.Content) *genai.Part) modelFunc {
	return func(ctx context.Context, req *model.LLMRequest) responses {
		content := &genai.Content{Role: "model", Parts: []*genai.Part{reply(req.Contents)}}
		return responseModel(&model.LLMResponse{Content: content})(ctx, req)
	}
}

func llmAgent(t *testing.T, m model.LLM, tools ...tool.Tool) agent.Agent {
	t.Helper()
	a, err := llmagent.New(llmagent.Config{Name: "app", Model: m, Tools: tools})
	noError(t, err)
	return a
}

func endsWithResponse(prompt []*genai.Content) bool {
	return prompt[len(prompt)-1].Parts[0].FunctionResponse != nil
}

// isSummary reports whether [shortener] wrote the content.
func isSummary(c *genai.Content) bool { return strings.HasPrefix(c.Parts[0].Text, "In short:") }

// hasPart reports whether a part of the prompt has exactly this text.
func hasPart(prompt []*genai.Content, text string) bool {
	for _, c := range prompt {
		for _, p := range c.Parts {
			if p.Text == text {
				return true
			}
		}
	}
	return false
}

// checkPrompt fails the test if a model's API would reject the prompt.
func checkPrompt(t *testing.T, prompt []*genai.Content) {
	t.Helper()
	if faults := promptFaults(prompt); len(faults) > 0 {
		t.Fatalf("the prompt %s", faults)
	}
}

// A workflow that waits for the user continues correctly after other messages arrived and the session was
// compacted. If the request is visible, the node that runs again gets its input. If the request is hidden, the
// user's answer restores it.
func TestWorkflowContinuesAfterCompaction(t *testing.T) {
	rerun, firstRuns := true, 0
	first := workflow.NewFunctionNode[any, string]("first", func(_ agent.Context, in any) (string, error) {
		firstRuns++
		return fmt.Sprint("first of ", in, padding), nil
	}, workflow.NodeConfig{})
	resume := func(ctx agent.Context, emit func(*session.Event) error) (any, error) {
		return workflow.ResumeOrRequestInput(ctx, emit, session.RequestInput{InterruptID: "ask-" + ctx.InvocationID(), Message: "Your name?"})
	}
	greets := workflow.NewEmittingFunctionNode[any, any]("greets", func(ctx agent.Context, in any, emit func(*session.Event) error) (any, error) {
		name, err := resume(ctx, emit)
		if err != nil {
			return nil, err
		}
		return fmt.Sprintf("%v; Hello, %v!", in, name), nil
	}, workflow.NodeConfig{RerunOnResume: &rerun})
	asks := workflow.NewEmittingFunctionNode[any, any]("asks", func(ctx agent.Context, _ any, emit func(*session.Event) error) (any, error) {
		return resume(ctx, emit)
	}, workflow.NodeConfig{})
	says := workflow.NewFunctionNode[any, string]("says", func(_ agent.Context, name any) (string, error) {
		return fmt.Sprintf("Hello, %v!", name), nil
	}, workflow.NodeConfig{})
	for _, c := range []struct {
		messages int
		hidden   bool
		nodes    []workflow.Node
		want     string
	}{
		{4, false, []workflow.Node{workflow.Start, first, greets}, "first of begin 0" + padding + padding + "; Hello, Ada!"},
		{16, true, []workflow.Node{workflow.Start, first, asks, says}, "Hello, Ada!"},
	} {
		sessions := newQuietService(t, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(shortener{})}})
		a, err := workflowagent.New(workflowagent.Config{Name: "wf", Edges: workflow.Chain(c.nodes...)})
		noError(t, err)
		pending := ""
		for i := range c.messages {
			for _, e := range ask(t, a, sessions, genai.NewContentFromText(fmt.Sprint("begin ", i, padding), "user")) {
				if len(e.LongRunningToolIDs) > 0 && i == 0 {
					pending = e.LongRunningToolIDs[0]
				}
			}
		}
		hidden := true
		for e := range get(t, sessions, "s").Events().All() {
			hidden = hidden && (len(e.LongRunningToolIDs) == 0 || e.LongRunningToolIDs[0] != pending)
		}
		equal(t, "the first request is hidden", hidden, c.hidden)
		answer := response(pending, "adk_request_input", map[string]any{"response": "Ada"})
		runs, output := firstRuns, ""
		noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), answer))
		for _, e := range ask(t, a, sessions, answer) {
			if e.Output != nil {
				output = fmt.Sprint(e.Output)
			}
		}
		equal(t, "output", output, c.want)
		equal(t, "runs of the first node on resuming", firstRuns-runs, 0)
	}
}

// recorder stores copies of prompts.
type recorder struct {
	mu      sync.Mutex
	prompts [][]*genai.Content
}

func (r *recorder) record(contents []*genai.Content) {
	var own []*genai.Content
	raw, err := json.Marshal(contents)
	if err == nil {
		err = json.Unmarshal(raw, &own)
	}
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prompts = append(r.prompts, own)
}

// drain returns the prompts that were recorded since the previous call.
func (r *recorder) drain() [][]*genai.Content {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.prompts
	r.prompts = nil
	return out
}

// scriptedModel is a model that answers "turn 7" with two parallel calls, and other messages with text.
type scriptedModel struct{ recorder }

func (*scriptedModel) Name() string { return "scripted" }

func (m *scriptedModel) GenerateContent(_ context.Context, req *model.LLMRequest, stream bool) responses {
	return func(yield func(*model.LLMResponse, error) bool) {
		m.record(req.Contents)
		parts := []*genai.Part{{Text: "an answer in words"}}
		if req.Contents[len(req.Contents)-1].Parts[0].Text == "turn 7" {
			parts = []*genai.Part{call("a", "lookup", map[string]any{"key": "k7"}), call("b", "count", nil)}
		}
		for half := range strings.SplitAfterSeq(parts[0].Text, " ") {
			if stream && half != "" && !yield(&model.LLMResponse{Partial: true, Content: genai.NewContentFromText(half, "model")}, nil) {
				return
			}
		}
		yield(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: parts}, TurnComplete: true}, nil)
	}
}

type payment struct {
	Sum float64 `json:"sum"`
	To  string  `json:"to"`
}

type lookupArgs struct {
	Key string `json:"key"`
}

func functionTool[A, R any](t *testing.T, cfg functiontool.Config, f func(agent.Context, A) (R, error)) tool.Tool {
	t.Helper()
	cfg.Description = "does " + cfg.Name
	made, err := functiontool.New(cfg, f)
	noError(t, err)
	return made
}

// tools returns three tools: one that returns a result, one that counts in the state, and one that is
// long-running.
func tools(t *testing.T) []tool.Tool {
	t.Helper()
	return []tool.Tool{
		functionTool(t, functiontool.Config{Name: "lookup"}, func(ctx agent.Context, args lookupArgs) (map[string]any, error) {
			if err := ctx.State().Set("temp:key", args.Key); err != nil {
				return nil, err
			}
			return map[string]any{"value": "value of " + args.Key, "seen": nil}, ctx.State().Set("last", args.Key)
		}),
		functionTool(t, functiontool.Config{Name: "count"}, func(ctx agent.Context, _ struct{}) (map[string]int, error) {
			v, err := ctx.State().Get("count")
			if err != nil {
				v = 0
			}
			n := v.(int) + 1
			return map[string]int{"count": n}, ctx.State().Set("count", n)
		}),
		functionTool(t, functiontool.Config{Name: "approve", IsLongRunning: true}, func(agent.Context, struct{}) (map[string]string, error) {
			return map[string]string{"status": "pending"}, nil
		}),
	}
}

// shortener is a model that writes summaries. Each summary is the end of its prompt.
type shortener struct{}

func (shortener) Name() string { return "shortener" }

func (shortener) GenerateContent(_ context.Context, req *model.LLMRequest, stream bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		if stream || len(req.Contents) != 1 || len(req.Tools) > 0 || req.Config.MaxOutputTokens != 0 || req.Config.SystemInstruction == nil || req.Config.SystemInstruction.Parts[0].Text != compaction.DefaultInstructions {
			yield(nil, errors.New("this is the agent's request"))
			return
		}
		conversation, _, _ := strings.Cut(req.Contents[0].Parts[0].Text, "\n</conversation>")
		words := strings.Fields(conversation)
		yield(&model.LLMResponse{Content: genai.NewContentFromText("In short: "+words[len(words)-1], "model")}, nil)
	}
}

type responses = iter.Seq2[*model.LLMResponse, error]

type modelFunc func(ctx context.Context, req *model.LLMRequest) responses

func (modelFunc) Name() string { return "func" }

func (f modelFunc) GenerateContent(ctx context.Context, req *model.LLMRequest, _ bool) responses {
	return f(ctx, req)
}

func responseModel(all ...*model.LLMResponse) modelFunc {
	return func(context.Context, *model.LLMRequest) responses {
		return func(yield func(*model.LLMResponse, error) bool) {
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}
