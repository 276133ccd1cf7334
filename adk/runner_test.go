package adk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
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
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/adk/v2/workflow"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const (
	runTurns      = 60
	approvalTurn  = 10 // asks for what is answered ten turns later
	transferTurn  = 30 // hands over to the sub-agent
	answerTurn    = approvalTurn + 10
	restartEvery  = 20
	streamedEvery = 3
)

func isParallelTurn(turn int) bool { return turn%5 == 2 }

func script(turn int) []*genai.Part {
	id := func(k string) string { return fmt.Sprintf("call-%d-%s", turn, k) }
	key := map[string]any{"key": fmt.Sprint("k", turn)}
	switch {
	case turn == approvalTurn:
		return []*genai.Part{call(id("ask"), "approve", nil)}
	case turn == transferTurn:
		return []*genai.Part{call(id("go"), "transfer_to_agent", map[string]any{"agent_name": "billing"})}
	case turn%5 == 1:
		return []*genai.Part{call(id("a"), "lookup", key)}
	case isParallelTurn(turn):
		return []*genai.Part{call(id("a"), "lookup", key), call(id("b"), "count", nil)}
	}
	return []*genai.Part{{Text: fmt.Sprintf("answer to %d", turn)}}
}

// process is a program that runs the agent on a session service.
type process struct {
	runner  *runner.Runner
	models  map[string]*scriptedModel
	details string // that each question has
}

func start(t *testing.T, sessions session.Service) *process {
	t.Helper()
	p := &process{models: map[string]*scriptedModel{}}
	for _, name := range []string{"root", "billing"} {
		p.models[name] = &scriptedModel{agent: name, script: script}
	}
	// Who has just been handed the conversation answers in words.
	p.models["billing"].script = func(turn int) []*genai.Part {
		if turn == transferTurn {
			return []*genai.Part{{Text: "billing speaking"}}
		}
		return script(turn)
	}
	var err error
	p.runner, err = runner.New(runner.Config{
		AppName:        "app",
		Agent:          newAgent(t, p.models["root"], newAgent(t, p.models["billing"])),
		SessionService: sessions, AutoCreateSession: true,
	})
	no(t, err)
	return p
}

// taken returns the prompts that the models got since it was last called, by their names.
func (p *process) taken() map[string][][]*genai.Content {
	out := map[string][][]*genai.Content{}
	for name, m := range p.models {
		if prompts := m.taken(); len(prompts) > 0 {
			out[name] = prompts
		}
	}
	return out
}

func message(turn int) *genai.Content {
	if turn != answerTurn {
		return genai.NewContentFromText(question(turn), "user")
	}
	msg := genai.NewContentFromFunctionResponse("approve", map[string]any{"status": "approved"}, "user")
	msg.Parts[0].FunctionResponse.ID = fmt.Sprintf("call-%d-ask", approvalTurn)
	return msg
}

func question(turn int) string { return fmt.Sprintf("turn %d", turn) }

// turn runs one, and returns its events that are not partial, and how many were.
func (p *process) turn(t *testing.T, turn int) (events []*session.Event, partial int) {
	t.Helper()
	var cfg agent.RunConfig
	if turn%streamedEvery == 0 {
		cfg.StreamingMode = agent.StreamingModeSSE
	}
	msg := message(turn)
	if p.details != "" {
		msg.Parts = append(msg.Parts, genai.NewPartFromText(p.details))
	}
	for e, err := range p.runner.Run(t.Context(), "user", "s", msg, cfg) {
		if err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		if e.Partial {
			partial++
			continue
		}
		events = append(events, e)
	}
	return events, partial
}

// A runner's conversation: tools, parallel calls, a long-running tool, streaming, a
// transfer, and the process started again in between. The models get the prompts that they
// get with ADK's own service in memory.
func TestRunner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	reopen := func() (*store.Store, *adk.Service) {
		s := opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
		return s, newService(t, s)
	}
	db, sessions := reopen()
	p, peer := start(t, sessions), start(t, session.InMemoryService())
	var events []*session.Event
	partials, counts := 0, 0
	for turn := 1; turn <= runTurns; turn++ {
		got, partial := p.turn(t, turn)
		peer.turn(t, turn)
		events = append(events, got...)
		partials += partial
		if isParallelTurn(turn) {
			counts++
		}
		prompts := p.taken()
		equal(t, "prompts", prompts, peer.taken())
		checkTurn(t, turn, prompts)
		if turn%restartEvery == restartEvery-5 {
			no(t, db.Close())
			db, sessions = reopen()
			p = start(t, sessions)
		}
	}
	if partials == 0 {
		t.Error("nothing was streamed")
	}
	sess := get(t, sessions, "s")
	equal(t, "state", stateOf(sess), map[string]any{"count": counts, "last": "k57"})
	equal(t, "visible events", sess.Events().Len(), len(events)+runTurns)
	checkAudit(t, sessions, sess, events)
}

// checkTurn checks who was asked in a turn, and by which prompts.
func checkTurn(t *testing.T, turn int, prompts map[string][][]*genai.Content) {
	t.Helper()
	active := "root"
	if turn > transferTurn {
		active = "billing"
	}
	if len(prompts[active]) == 0 || len(prompts) > 1 && turn != transferTurn {
		t.Fatalf("turn %d went to %v", turn, slices.Collect(maps.Keys(prompts)))
	}
	for name, prompts := range prompts {
		for _, prompt := range prompts {
			inARow := checkPrompt(t, prompt)
			// ADK puts the late answer where its call is, in place of the first response;
			// so what the model said before and after it stand together.
			if inARow > 1 || inARow > 0 && (turn <= answerTurn || active != "root") {
				t.Fatalf("turn %d: model's turns in a row: %d", turn, inARow)
			}
			if turn == answerTurn {
				if got := statuses(prompt); !slices.Equal(got, []any{"approved"}) {
					t.Fatalf("the answers to the long-running call in the prompt are %v", got)
				}
				continue
			}
			if !says(prompt, question(turn)) {
				t.Fatalf("turn %d: the prompt of %s lacks the question", turn, name)
			}
		}
	}
}

// checkAudit holds the audit log against the events that a runner gave: it has all of
// them, in their order, and the user's messages between them.
func checkAudit(t *testing.T, sessions *adk.Service, sess session.Session, events []*session.Event) {
	t.Helper()
	questions := 0
	for r, err := range sessions.RawEvents(t.Context(), sess, 1) {
		no(t, err)
		if r.Event == nil {
			continue
		}
		if r.Event.Author() == "user" {
			questions++
			continue
		}
		i := slices.IndexFunc(events, func(e *session.Event) bool { return e.ID == r.Event.ID() })
		if i != 0 {
			t.Fatalf("event %q of the audit log is not the next that the runner gave", r.Event.ID())
		}
		got, err := adk.SessionEvent(r.Event)
		no(t, err)
		delete(events[0].Actions.StateDelta, "temp:key")
		want, err := adk.NewEvent(events[0])
		no(t, err)
		given, err := adk.SessionEvent(want)
		no(t, err)
		equal(t, "event", got, given)
		events = events[1:]
	}
	equal(t, "questions in the audit log", questions, runTurns)
	equal(t, "events missing in the audit log", len(events), 0)
}

// statuses returns what the prompt says became of long-running calls.
func statuses(prompt []*genai.Content) (out []any) {
	for _, c := range prompt {
		for _, p := range c.Parts {
			if f := p.FunctionResponse; f != nil && f.Name == "approve" {
				out = append(out, f.Response["status"])
			}
		}
	}
	return out
}

type payment struct {
	Sum float64 `json:"sum"`
	To  string  `json:"to"`
}

// A tool that asks for confirmation runs when it comes, with the arguments that it was
// called with, though the program was started again meanwhile.
func TestConfirmationAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	var paid []payment
	turn := func(msg *genai.Content) (events []*session.Event) {
		db := opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
		defer func() { no(t, db.Close()) }()
		pay, err := functiontool.New(functiontool.Config{Name: "pay", RequireConfirmation: true},
			func(_ agent.Context, p payment) (map[string]any, error) {
				paid = append(paid, p)
				return map[string]any{"paid": p}, nil // a Go value that JSON can carry
			})
		no(t, err)
		m := &scriptedModel{agent: "app", script: func(int) []*genai.Part {
			return []*genai.Part{call("call-1", "pay", map[string]any{"sum": 12.0, "to": "x"})}
		}}
		a, err := llmagent.New(llmagent.Config{Name: "app", Model: m, Tools: []tool.Tool{pay}})
		no(t, err)
		r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: newService(t, db), AutoCreateSession: true})
		no(t, err)
		for e, err := range r.Run(t.Context(), "user", "s", msg, agent.RunConfig{}) {
			no(t, err)
			events = append(events, e)
		}
		return events
	}
	events := turn(genai.NewContentFromText("turn 1", "user"))
	ask := events[len(events)-1].Content.Parts[0].FunctionCall
	if ask == nil || ask.Name != toolconfirmation.FunctionCallName || len(paid) > 0 {
		t.Fatalf("the run ended with %v, and paid %v", ask, paid)
	}
	answer := genai.NewContentFromFunctionResponse(ask.Name, map[string]any{"confirmed": true}, "user")
	answer.Parts[0].FunctionResponse.ID = ask.ID
	events = turn(answer)
	equal(t, "paid", paid, []payment{{12, "x"}})
	equal(t, "the last words", events[len(events)-1].Content.Parts[0].Text, "app has the results")
}

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
