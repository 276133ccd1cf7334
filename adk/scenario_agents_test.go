package adk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagents/loopagent"
	"google.golang.org/adk/v2/agent/workflowagents/parallelagent"
	"google.golang.org/adk/v2/agent/workflowagents/sequentialagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

// cast is the agents of a scenario.
type cast struct {
	t       *testing.T
	root    agent.Agent
	players map[string]*player
}

// player is a model that makes an agent's moves, whatever it is told: so a conversation
// goes the same way wherever it is played. It keeps what it was told.
type player struct {
	role    role
	targets []string // of a transfer
	tasks   []string // that can be delegated

	mu      sync.Mutex
	made    int // moves
	inTurn  int // moves of this turn that were no mere words
	prompts [][]*genai.Content
}

// Most moves of an agent in a turn that are no mere words, lest a turn goes on for ever.
const mostMoves = 4

func (*player) Name() string { return "player" }

func (p *player) GenerateContent(ctx context.Context, req *model.LLMRequest, _ bool) responses {
	m := &scriptedModel{}
	m.keep(req.Contents)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prompts = append(p.prompts, m.prompts...)
	parts := p.answer()
	if parts == nil {
		return func(yield func(*model.LLMResponse, error) bool) { yield(nil, errBroken) }
	}
	return answers(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: parts}, TurnComplete: true})(ctx, req)
}

var errBroken = errors.New("the model is out of order")

// newTurn returns what the model was told since it was last called.
func (p *player) newTurn() [][]*genai.Content {
	p.mu.Lock()
	defer p.mu.Unlock()
	prompts := p.prompts
	p.inTurn, p.prompts = 0, nil
	return prompts
}

func (p *player) answer() []*genai.Part {
	p.made++
	m := p.role.Moves[p.made%len(p.role.Moves)]
	if m != tells && m != tiny {
		p.inTurn++
	}
	if p.inTurn > mostMoves {
		m = tells
		if p.role.Kind == taskAgent {
			m = finishes
		}
	}
	id := func(n string) string { return fmt.Sprintf("%s-%d%s", p.role.Name, p.made, n) }
	key := map[string]any{"key": id("") + padding}
	sum := map[string]any{"sum": float64(p.made), "to": "x"}
	pick := func(names []string) string { return names[p.made%len(names)] }
	switch {
	case m == tiny:
		return []*genai.Part{{Text: "Done."}}
	case m == looksUp:
		return []*genai.Part{call(id(""), "lookup", key)}
	case m == twice:
		return []*genai.Part{call(id("a"), "lookup", key), call(id("b"), "lookup", key)}
	case m == pays:
		return []*genai.Part{call(id(""), "pay", sum)}
	case m == paysBoth:
		return []*genai.Part{call(id("a"), "pay", sum), call(id("b"), "pay", sum)}
	case m == paysAnd:
		return []*genai.Part{call(id("a"), "pay", sum), call(id("b"), "lookup", key)}
	case m == asks:
		return []*genai.Part{call(id(""), "approve", nil)}
	case m == asksBoth:
		return []*genai.Part{call(id("a"), "approve", nil), call(id("b"), "approve", nil)}
	case m == asksAnd:
		return []*genai.Part{call(id("a"), "lookup", key), call(id("b"), "approve", nil)}
	case m == transfer && len(p.targets) > 0:
		return []*genai.Part{call(id(""), "transfer_to_agent", map[string]any{"agent_name": pick(p.targets)})}
	case m == delegate && len(p.tasks) > 0:
		return []*genai.Part{call(id(""), pick(p.tasks), map[string]any{"request": "the task " + id("") + padding})}
	case m == finishes:
		return []*genai.Part{call(id(""), "finish_task", map[string]any{"result": "done " + id("") + padding})}
	case m == bungles:
		return []*genai.Part{call(id(""), "finish_task", map[string]any{"result": 1})}
	case m == breaks:
		return nil
	}
	return []*genai.Part{{Text: "says " + id("") + padding}}
}

// newCast makes a scenario's agents.
func newCast(t *testing.T, root role) *cast {
	c := &cast{t: t, players: map[string]*player{}}
	c.root = c.agent(root, nil, scenarioTools(t))
	return c
}

func (c *cast) agent(r role, above *role, tools []tool.Tool) agent.Agent {
	var subs []agent.Agent
	for _, s := range r.Subs {
		subs = append(subs, c.agent(s, &r, tools))
	}
	a, err := c.one(r, above, subs, tools)
	no(c.t, err)
	return a
}

func (c *cast) one(r role, above *role, subs []agent.Agent, tools []tool.Tool) (agent.Agent, error) {
	plain := agent.Config{Name: r.Name, SubAgents: subs}
	switch r.Kind {
	case sequentialAgent:
		return sequentialagent.New(sequentialagent.Config{AgentConfig: plain})
	case parallelAgent:
		return parallelagent.New(parallelagent.Config{AgentConfig: plain})
	case loopAgent:
		return loopagent.New(loopagent.Config{AgentConfig: plain, MaxIterations: 2})
	}
	p := &player{role: r}
	c.players[r.Name] = p
	for _, s := range r.Subs {
		if s.Kind == taskAgent {
			p.tasks = append(p.tasks, s.Name)
		} else {
			p.targets = append(p.targets, s.Name)
		}
	}
	cfg := llmagent.Config{
		Name: r.Name, Description: "the agent " + r.Name, Instruction: "You are " + r.Name,
		Model: p, Tools: tools, SubAgents: subs,
	}
	switch {
	case r.Kind == taskAgent:
		cfg.Mode = llmagent.ModeTask
	case above != nil && above.Kind == chatAgent:
		p.targets = append(p.targets, above.Name)
	}
	if r.None {
		cfg.IncludeContents = llmagent.IncludeContentsNone
	}
	return llmagent.New(cfg)
}

// scenarioTools are one that answers, at length if the key has certain digits, one that wants confirmation, and one whose answer
// takes its time.
func scenarioTools(t *testing.T) []tool.Tool {
	t.Helper()
	lookup, err := functiontool.New(functiontool.Config{Name: "lookup", Description: "looks a key up"},
		func(ctx agent.Context, args lookupArgs) (map[string]string, error) {
			name, _, _ := strings.Cut(args.Key, "-")
			value := "value of " + args.Key
			if strings.ContainsAny(args.Key, "147") {
				value += strings.Repeat(" and so on", 100)
			}
			return map[string]string{"value": value}, ctx.State().Set("last "+name, args.Key)
		})
	no(t, err)
	pay, err := functiontool.New(functiontool.Config{Name: "pay", Description: "pays", RequireConfirmation: true},
		func(ctx agent.Context, p payment) (map[string]any, error) {
			paid := 0.0
			if v, err := ctx.State().Get("paid " + ctx.AgentName()); err == nil {
				paid = v.(float64)
			}
			return map[string]any{"paid": p.Sum}, ctx.State().Set("paid "+ctx.AgentName(), paid+p.Sum)
		})
	no(t, err)
	approve, err := functiontool.New(functiontool.Config{Name: "approve", Description: "asks for approval", IsLongRunning: true},
		func(agent.Context, struct{}) (map[string]string, error) {
			return map[string]string{"status": "pending"}, nil
		})
	no(t, err)
	return []tool.Tool{lookup, pay, approve}
}
