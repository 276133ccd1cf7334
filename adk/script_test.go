package adk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

// scriptedModel answers "turn N" by what script says of N, and tool results with text.
// It keeps the prompts that it got.
type scriptedModel struct {
	agent   string
	script  func(turn int) []*genai.Part
	details string // that each answer in words has

	mu      sync.Mutex
	prompts [][]*genai.Content
}

func (m *scriptedModel) Name() string { return "scripted" }

func (m *scriptedModel) GenerateContent(_ context.Context, req *model.LLMRequest, stream bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		m.keep(req.Contents)
		parts := m.answer(req.Contents)
		usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: int32(100 * len(req.Contents))}
		if m.details != "" && parts[0].FunctionCall == nil {
			parts = append(parts, genai.NewPartFromText(m.details))
		}
		if words := parts[0].Text; stream && words != "" {
			for half := range strings.SplitAfterSeq(words, " ") {
				if !yield(&model.LLMResponse{Partial: true, Content: genai.NewContentFromText(half, "model")}, nil) {
					return
				}
			}
		}
		yield(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: parts}, UsageMetadata: usage, TurnComplete: true}, nil)
	}
}

func (m *scriptedModel) keep(contents []*genai.Content) {
	var own []*genai.Content
	raw, err := json.Marshal(contents)
	if err == nil {
		err = json.Unmarshal(raw, &own)
	}
	if err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompts = append(m.prompts, own)
}

// taken returns the prompts that came since it was last called.
func (m *scriptedModel) taken() [][]*genai.Content {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.prompts
	m.prompts = nil
	return out
}

func (m *scriptedModel) answer(prompt []*genai.Content) []*genai.Part {
	last := prompt[len(prompt)-1].Parts
	if len(last) > 0 && last[0].FunctionResponse != nil {
		return []*genai.Part{{Text: m.agent + " has the results"}}
	}
	turn := 0
	for _, c := range prompt {
		for _, p := range c.Parts {
			_, _ = fmt.Sscanf(p.Text, "turn %d", &turn)
		}
	}
	return m.script(turn)
}

func call(id, name string, args map[string]any) *genai.Part {
	return &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: name, Args: args}}
}

type lookupArgs struct {
	Key string `json:"key"`
}

type lookupResult struct {
	Value string   `json:"value"`
	Seen  []string `json:"seen"`
}

// tools are one that answers, one that counts in the state, and one whose answer takes its
// time.
func tools(t *testing.T) []tool.Tool {
	t.Helper()
	lookup, err := functiontool.New(functiontool.Config{Name: "lookup", Description: "looks a key up"},
		func(ctx agent.Context, args lookupArgs) (lookupResult, error) {
			if err := ctx.State().Set("temp:key", args.Key); err != nil {
				return lookupResult{}, err
			}
			return lookupResult{Value: "value of " + args.Key}, ctx.State().Set("last", args.Key)
		})
	no(t, err)
	count, err := functiontool.New(functiontool.Config{Name: "count", Description: "counts"},
		func(ctx agent.Context, _ struct{}) (map[string]int, error) {
			v, err := ctx.State().Get("count")
			if err != nil {
				v = 0
			}
			n := v.(int) + 1
			return map[string]int{"count": n}, ctx.State().Set("count", n)
		})
	no(t, err)
	approve, err := functiontool.New(functiontool.Config{Name: "approve", Description: "asks for approval", IsLongRunning: true},
		func(agent.Context, struct{}) (map[string]string, error) {
			return map[string]string{"status": "pending"}, nil
		})
	no(t, err)
	return []tool.Tool{lookup, count, approve}
}

func newAgent(t *testing.T, m *scriptedModel, subAgents ...agent.Agent) agent.Agent {
	t.Helper()
	a, err := llmagent.New(llmagent.Config{
		Name: m.agent, Description: "the agent " + m.agent, Instruction: "You are " + m.agent,
		Model: m, Tools: tools(t), SubAgents: subAgents,
	})
	no(t, err)
	return a
}

// checkPrompt holds a prompt against what Gemini's API accepts. It returns how often a
// model's turn follows another.
func checkPrompt(t *testing.T, prompt []*genai.Content) (inARow int) {
	t.Helper()
	keys := func(c *genai.Content) (calls, responses []string) {
		for _, p := range c.Parts {
			if f := p.FunctionCall; f != nil {
				calls = append(calls, f.ID+" "+f.Name)
			}
			if f := p.FunctionResponse; f != nil {
				responses = append(responses, f.ID+" "+f.Name)
			}
		}
		return calls, responses
	}
	var open []string // calls of the content before
	role := ""
	for i, c := range prompt {
		calls, responses := keys(c)
		switch {
		case len(c.Parts) == 0:
			t.Fatalf("content %d of the prompt is empty", i)
		case c.Role != "user" && c.Role != "model", i == 0 && c.Role != "user", len(calls) > 0 && role != "user":
			t.Fatalf("content %d of the prompt has role %q after %q", i, c.Role, role)
		case fmt.Sprint(responses) != fmt.Sprint(open):
			t.Fatalf("content %d of the prompt has responses %v to calls %v", i, responses, open)
		case len(calls) > 0 && c.Role != "model":
			t.Fatalf("content %d of the prompt has calls %v and role %q", i, calls, c.Role)
		}
		if c.Role == "model" && role == "model" {
			inARow++
		}
		open, role = calls, c.Role
	}
	if role != "user" || len(open) > 0 {
		t.Fatalf("the prompt ends with role %q and open calls %v", role, open)
	}
	return inARow
}

// isSummary reports whether the content is what a [shortener] said.
func isSummary(c *genai.Content) bool { return strings.HasPrefix(c.Parts[0].Text, "In short:") }

// says reports whether a part of a prompt has the text.
func says(prompt []*genai.Content, text string) bool {
	for _, c := range prompt {
		for _, p := range c.Parts {
			if p.Text == text {
				return true
			}
		}
	}
	return false
}
