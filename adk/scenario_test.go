package adk_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagents/loopagent"
	"google.golang.org/adk/v2/agent/workflowagents/parallelagent"
	"google.golang.org/adk/v2/agent/workflowagents/sequentialagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// turnResult contains the results of one turn of a scenario.
type turnResult struct {
	events  map[string][]string // events and errors of the runner, by author
	prompts map[string][][]*genai.Content
	state   map[string]any
	history map[string][]string // events of the history, by author
}

// testedService is a service with which a scenario is played.
type testedService interface {
	session.Service
	plugins() []*plugin.Plugin
	restoreCalls(msg *genai.Content)
	betweenTurns()
	afterEvent()
	history() session.Session
}

// reference is an ADK service with which results are compared.
type reference struct {
	session.Service
	t *testing.T
}

func (reference) plugins() []*plugin.Plugin   { return nil }
func (reference) restoreCalls(*genai.Content) {}
func (reference) betweenTurns()               {}
func (reference) afterEvent()                 {}

func (r reference) history() session.Session { return get(r.t, r, "s") }

// openFunc opens a store. All calls open the same content.
type openFunc func() (*store.Store, error)

func newFile(t *testing.T) openFunc {
	dir, err := os.MkdirTemp("", "patchlog")
	noError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return func() (*store.Store, error) {
		return store.Open(filepath.Join(dir, "sessions.db"), store.Options{NoSync: true})
	}
}

// patchlogService is an adk.Service over a store or over a base. At a restart, it opens the store again or wraps the
// base again.
type patchlogService struct {
	*adk.Service
	t         *testing.T
	openStore openFunc // nil: the store is in memory
	db        *store.Store
	base      session.Service // nil: the service is over a store
	mode      *compactionMode
	restart   restart
	appends   int
	observe   func(compaction.Attempt[store.Key])
}

// newPatchlogService returns a service over the base, or over a store if base is nil.
func newPatchlogService(t *testing.T, base session.Service, open openFunc, r restart, mode *compactionMode, observe func(compaction.Attempt[store.Key])) *patchlogService {
	o := &patchlogService{t: t, base: base, openStore: open, restart: r, mode: mode, observe: observe}
	o.open()
	return o
}

func (o *patchlogService) open() {
	var err error
	switch {
	case o.base != nil:
	case o.openStore != nil:
		o.db, err = o.openStore()
	case o.db == nil:
		o.db, err = store.OpenMemory(store.Options{})
	}
	noError(o.t, err)
	opts := adk.Options{Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { o.observe(a) }, KeepInterruptedCalls: true} // KeepInterruptedCalls leaves calls open, as ADK's own service does
	if o.mode != nil {
		opts.Compaction = o.mode.config()
		opts.Compaction.Summarizer = adk.Summarizer(shortener{})
		opts.MaxResultTokens = recall.MinResultTokens
	}
	if o.base != nil {
		o.Service, err = adk.Wrap(o.base, opts)
	} else {
		o.Service, err = adk.NewService(o.db, opts)
	}
	noError(o.t, err)
}

func (o *patchlogService) close() {
	noError(o.t, o.Service.Close(context.Background()))
	if o.openStore != nil {
		noError(o.t, o.db.Close())
	}
}

func (o *patchlogService) AppendEvent(ctx context.Context, s session.Session, e *session.Event) error {
	if o.appends++; o.restart == within && o.appends%3 == 0 {
		o.close()
		o.open()
	}
	return o.Service.AppendEvent(ctx, s, e)
}

func (o *patchlogService) plugins() []*plugin.Plugin {
	if o.mode != nil && o.mode.Plugin {
		return []*plugin.Plugin{o.Plugin()}
	}
	return nil
}

func (o *patchlogService) restoreCalls(msg *genai.Content) {
	if msg.Parts[0].FunctionResponse != nil {
		noError(o.t, o.RestoreCalls(o.t.Context(), get(o.t, o, "s"), msg))
	}
}

func (o *patchlogService) betweenTurns() {
	o.waitForCompaction()
	if o.restart == turns {
		o.close()
		o.open()
	}
}

func (o *patchlogService) afterEvent() {
	if o.mode != nil && o.mode.WaitAfterEvent {
		o.waitForCompaction()
	}
}

func (o *patchlogService) history() session.Session { return getHistory(o.t, o, session.GetRequest{}) }

func (o *patchlogService) waitForCompaction() {
	if o.mode != nil {
		o.WaitForCompaction(o.t)
	}
}

// request is a request to the user that is still open.
type request struct {
	id, name string
	author   string
}

func (s scenario) play(t *testing.T, on testedService) (all []turnResult) {
	c := newAgents(t, s.Root)
	ctx := deterministic(t.Context())
	var open []request
	for n, u := range s.Turns {
		r := newRunner(t, c.root, on, on.plugins()...)
		var msg *genai.Content
		msg, open = u.message(n+1, open)
		on.restoreCalls(msg)
		p := turnResult{events: map[string][]string{}, prompts: map[string][][]*genai.Content{}}
		open = append(open, p.recordRun(r.Run(ctx, "user", "s", msg, agent.RunConfig{}), u.Stop, on)...)
		on.betweenTurns()
		for name, m := range c.players {
			if prompts := m.newTurn(); len(prompts) > 0 {
				p.prompts[name] = prompts
			}
		}
		p.state = stateOf(get(t, on, "s"))
		p.history = map[string][]string{}
		for e := range on.history().Events().All() {
			p.history[e.Author] = append(p.history[e.Author], eventText(e))
		}
		all = append(all, p)
	}
	return all
}

// recordRun records the events of a run, and a panic if one occurs. It returns the open requests to the user. ADK
// panics in some cases, for example if a loop agent cannot build a prompt.
func (p *turnResult) recordRun(events iter.Seq2[*session.Event, error], stop int, on testedService) (open []request) {
	fails := func(what string) { p.events["error"] = append(p.events["error"], withoutIDs(what)) }
	defer func() {
		if r := recover(); r != nil {
			fails(fmt.Sprint("panic: ", r))
		}
	}()
	n := 0
	for e, err := range events {
		if err != nil {
			fails(err.Error())
			continue
		}
		p.events[e.Author] = append(p.events[e.Author], eventText(e))
		if e.Content != nil {
			for _, part := range e.Content.Parts {
				if f := part.FunctionCall; f != nil && slices.Contains(e.LongRunningToolIDs, f.ID) {
					open = append(open, request{f.ID, f.Name, e.Author})
				}
			}
		}
		on.afterEvent()
		if n++; n == stop {
			break
		}
	}
	return open
}

// message returns the user's message of turn n, and the requests that stay open after the message.
func (u userTurn) message(n int, open []request) (*genai.Content, []request) {
	if !u.Answer || len(open) == 0 {
		words := question(n)
		if u.Long {
			words += padding
		}
		return genai.NewContentFromText(words, "user"), open
	}
	// Sort the requests, because parallel agents make them in any order.
	slices.SortStableFunc(open, func(a, b request) int { return strings.Compare(a.author, b.author) })
	i := u.Pick % len(open)
	r := open[i]
	of := map[string]any{"status": fmt.Sprint("answer of turn ", n)}
	if strings.HasPrefix(r.name, "adk_request") {
		of = map[string]any{"confirmed": u.Confirm}
	}
	return response(r.id, r.name, of), append(append([]request{}, open[:i]...), open[i+1:]...)
}

// deterministic returns a context for which ADK's clock and generated ids are deterministic.
func deterministic(ctx context.Context) context.Context {
	var mu sync.Mutex
	n, now := 0, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ctx = platform.WithUUIDProvider(ctx, func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("uuid-%d-", n)
	})
	return platform.WithTimeProvider(ctx, func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	})
}

var generated = regexp.MustCompile(`uuid-\d+-`)

// withoutIDs replaces generated ids, because it is not deterministic which of several parallel agents gets which
// id.
func withoutIDs(s string) string { return generated.ReplaceAllString(s, "uuid") }

func eventText(e *session.Event) string {
	content, err := json.Marshal(e.Content)
	var plain any // an argument may be a struct until it is stored
	if err == nil {
		err = json.Unmarshal(content, &plain)
	}
	if err == nil {
		content, err = json.Marshal(plain)
	}
	if err != nil {
		return err.Error()
	}
	long := slices.Sorted(slices.Values(e.LongRunningToolIDs))
	return withoutIDs(fmt.Sprintf("branch %q scope %q: %s %v to %q, long %v, output %v, error %q %q", e.Branch, e.IsolationScope, content,
		e.Actions.StateDelta, e.Actions.TransferToAgent, long, e.Output, e.ErrorCode, e.ErrorMessage))
}

type agents struct {
	t       *testing.T
	root    agent.Agent
	players map[string]*player
}

// player is a model that plays the moves of an agent and records its prompts. The moves do not depend on the prompt,
// so a conversation has the same moves on each service.
type player struct {
	role    role
	targets []string // agents to which it can transfer
	tasks   []string // task agents to which it can delegate

	mu      sync.Mutex
	moves   int // number of moves made
	inTurn  int // number of moves in this turn that are not plain text
	prompts recorder
}

// maxMoves limits the moves other than plain text that an agent makes in a turn, so that every turn ends.
const maxMoves = 4

func (*player) Name() string { return "player" }

// GenerateContent makes the next move. It makes no move if the run's context has ended. ADK then selects between
// two channels that are both ready, so it is not deterministic whether ADK calls the model.
func (p *player) GenerateContent(ctx context.Context, req *model.LLMRequest, _ bool) responses {
	if err := ctx.Err(); err != nil {
		return func(yield func(*model.LLMResponse, error) bool) { yield(nil, err) }
	}
	p.prompts.record(req.Contents)
	p.mu.Lock()
	defer p.mu.Unlock()
	parts := p.nextParts()
	if parts == nil {
		return func(yield func(*model.LLMResponse, error) bool) { yield(nil, errBroken) }
	}
	return responseModel(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: parts}, TurnComplete: true})(ctx, req)
}

var errBroken = errors.New("the model is out of order")

// newTurn begins a turn and returns the prompts that were recorded in the previous turn.
func (p *player) newTurn() [][]*genai.Content {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inTurn = 0
	return p.prompts.drain()
}

func (p *player) nextParts() []*genai.Part {
	p.moves++
	m := p.role.Moves[p.moves%len(p.role.Moves)]
	if m != tells && m != tiny {
		p.inTurn++
	}
	if p.inTurn > maxMoves {
		m = tells
		if p.role.Kind == taskAgent {
			m = finishes
		}
	}
	id := func(n string) string { return fmt.Sprintf("%s-%d%s", p.role.Name, p.moves, n) }
	pick := func(names []string) string { return names[p.moves%len(names)] }
	args := map[string]map[string]any{"lookup": {"key": id("") + padding}, "pay": {"sum": float64(p.moves), "to": "x"}}
	switch called := calls[m]; {
	case m == tiny:
		return []*genai.Part{{Text: "Done."}}
	case len(called) == 1:
		return []*genai.Part{call(id(""), called[0], args[called[0]])}
	case len(called) == 2:
		return []*genai.Part{call(id("a"), called[0], args[called[0]]), call(id("b"), called[1], args[called[1]])}
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

func newAgents(t *testing.T, root role) *agents {
	c := &agents{t: t, players: map[string]*player{}}
	c.root = c.newTree(root, nil, scenarioTools(t))
	return c
}

func (c *agents) newTree(r role, above *role, tools []tool.Tool) agent.Agent {
	var subs []agent.Agent
	for _, s := range r.Subs {
		subs = append(subs, c.newTree(s, &r, tools))
	}
	a, err := c.newAgent(r, above, subs, tools)
	noError(c.t, err)
	return a
}

func (c *agents) newAgent(r role, above *role, subs []agent.Agent, tools []tool.Tool) (agent.Agent, error) {
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
	if r.CurrentTurnOnly {
		cfg.IncludeContents = llmagent.IncludeContentsNone
	}
	return llmagent.New(cfg)
}

// scenarioTools returns three tools: one that answers, one that asks for confirmation, and one that is
// long-running. The first tool returns a long answer for certain keys.
func scenarioTools(t *testing.T) []tool.Tool {
	t.Helper()
	lookup := functionTool(t, functiontool.Config{Name: "lookup"}, func(ctx agent.Context, args lookupArgs) (map[string]string, error) {
		name, _, _ := strings.Cut(args.Key, "-")
		value := "value of " + args.Key
		if strings.ContainsAny(args.Key, "147") {
			value += strings.Repeat(" and so on", 100)
		}
		return map[string]string{"value": value}, ctx.State().Set("last "+name, args.Key)
	})
	pay := functionTool(t, functiontool.Config{Name: "pay", RequireConfirmation: true}, func(ctx agent.Context, p payment) (map[string]any, error) {
		paid := 0.0
		if v, err := ctx.State().Get("paid " + ctx.AgentName()); err == nil {
			paid = v.(float64)
		}
		return map[string]any{"paid": p.Sum}, ctx.State().Set("paid "+ctx.AgentName(), paid+p.Sum)
	})
	return []tool.Tool{lookup, pay, tools(t)[2]}
}

// A conversation has the same events on ADK's in-memory service and on a store, for all kinds of agents and restarts.
// Compaction does not change the agents' answers, the state or the history. Every prompt contains the user's
// question. Compaction does not turn a valid prompt into a prompt that a model's API would reject.
//
// The long run: go test -run TestScenarios -rapid.checks=500
func TestScenarios(t *testing.T) {
	playScenarios(t, "40", func(s scenario, total *counts) string {
		return s.compare(t, func(r restart) openFunc {
			if r == never {
				return nil
			}
			return newFile(t)
		}, total)
	})
}

// TestScenariosOnPostgres is TestScenarios on PostgreSQL.
//
// The long run: go test -run TestScenariosOnPostgres -rapid.checks=500
func TestScenariosOnPostgres(t *testing.T) {
	playScenarios(t, "3", func(s scenario, total *counts) string {
		return s.compare(t, func(restart) openFunc { return newSchema(t) }, total)
	})
}

// A conversation has the same events on a service of ADK and on the same service with Wrap.
//
// The long run: go test -run TestScenariosWrapped -rapid.checks=500
func TestScenariosWrapped(t *testing.T) {
	playScenarios(t, "30", func(s scenario, total *counts) string { return s.compareWrapped(t, total) })
}

func playScenarios(t *testing.T, checks string, compare func(scenario, *counts) string) {
	setRapidChecks(t, checks)
	log.SetOutput(io.Discard) // discards the runner's messages about unknown agents
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	var total counts
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		if problem := compare(s, &total); problem != "" {
			rt.Fatalf("%s\n%s", problem, s)
		}
	})
	t.Logf("%+v", total)
}

// counts contains totals of all scenarios in a test.
type counts struct {
	Prompts, Compacted, Summaries, Errors int
}

// setRapidChecks makes rapid generate few scenarios, and the same ones each time, unless -rapid.checks is
// given.
func setRapidChecks(t *testing.T, checks string) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		return
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.seed": "1", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		noError(t, f.Value.Set(value))
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
}

type serviceOpener func(r restart, mode *compactionMode, see func(compaction.Attempt[store.Key])) *patchlogService

// compare plays the scenario on ADK's in-memory service and on a store, and describes the first difference. It
// returns "" if there is no difference.
func (s scenario) compare(t *testing.T, in func(restart) openFunc, total *counts) string {
	return s.compareOn(t, session.InMemoryService(), total, func(r restart, mode *compactionMode, see func(compaction.Attempt[store.Key])) *patchlogService {
		return newPatchlogService(t, nil, in(r), r, mode, see)
	})
}

// compareWrapped plays the scenario on each of ADK's services, without and with Wrap, and describes the first
// difference.
func (s scenario) compareWrapped(t *testing.T, total *counts) string {
	for _, b := range bases {
		if b.name == "sqlite" {
			if len(s.Turns)%4 != 1 { // play few scenarios, because SQLite is slow
				continue
			}
			if s.Root.hasParallel() { // without Wrap, parallel agents race for the session of the SQLite service
				continue
			}
			s.Compact = s.Compact[:1]
			s.losesEmpty = true
			// The base does not return all values unchanged, so a restart within a turn may change the run.
			s.Restart = slices.Clone(s.Restart)
			for i, r := range s.Restart {
				if r == within {
					s.Restart[i] = turns
				}
			}
		}
		problem := s.compareOn(t, b.make(t), total, func(r restart, mode *compactionMode, see func(compaction.Attempt[store.Key])) *patchlogService {
			return newPatchlogService(t, b.make(t), nil, r, mode, see)
		})
		if problem != "" {
			return "wrapped " + b.name + ", " + problem
		}
	}
	return ""
}

// compareOn plays the scenario on the service like, and then on a service of patchlog, without and with
// compaction. It describes the first difference.
func (s scenario) compareOn(t *testing.T, like session.Service, total *counts, open serviceOpener) string {
	want := s.play(t, reference{like, t})
	// Compare only the turns before the failure of a parallel agent, because it is not deterministic how far
	// the other agents get.
	if failed := slices.IndexFunc(want, func(p turnResult) bool { return len(p.events["error"]) > 0 }); failed >= 0 && s.Root.hasParallel() {
		want, s.Turns = want[:failed], s.Turns[:failed]
	}
	// ADK omits from a prompt the events between a call and its last response. So collect the parts of all prompts.
	said := map[string]bool{}
	for _, p := range want {
		total.Errors += len(p.events["error"])
		for _, prompts := range p.prompts {
			for _, prompt := range prompts {
				maps.Copy(said, partTexts(prompt))
			}
		}
	}
	plain := open(s.Restart[0], nil, nil)
	got := s.play(t, plain)
	plain.close()
	for i := range want {
		if problem := want[i].difference(got[i], s.Root.hasParallel(), s.losesEmpty); problem != "" {
			return fmt.Sprintf("turn %d, without compaction: %s", i+1, problem)
		}
	}
	for m, mode := range s.Compact {
		var mu sync.Mutex
		failed, wrote := "", 0
		o := open(s.Restart[m+1], &mode, func(a compaction.Attempt[store.Key]) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.Outcome == compaction.Wrote:
				wrote++
			case a.Outcome == compaction.Failed && !errors.Is(a.Err, compaction.ErrRefusedAnswer):
				failed = a.Err.Error()
			}
		})
		got := s.play(t, o)
		o.close()
		total.Summaries += wrote
		if failed != "" {
			return fmt.Sprintf("compaction %d: %s", m+1, failed)
		}
		for i := range want {
			if problem := want[i].compactionDifference(got[i], i+1, said, total); problem != "" {
				return fmt.Sprintf("turn %d, compaction %d: %s", i+1, m+1, problem)
			}
		}
	}
	return ""
}

// difference describes the first difference from q, the result on another service without compaction.
func (p turnResult) difference(q turnResult, parallel, losesEmpty bool) string {
	if problem := p.findDifference(q); problem != "" {
		return problem
	}
	for name, prompts := range p.prompts {
		for i, prompt := range prompts {
			if a, b := promptText(prompt, parallel, losesEmpty), promptText(q.prompts[name][i], parallel, losesEmpty); !slices.Equal(a, b) {
				return fmt.Sprintf("prompt %d of %s:\n%s\nwant\n%s", i, name, strings.Join(b, "\n"), strings.Join(a, "\n"))
			}
		}
	}
	return ""
}

// findDifference describes the first difference in the agents' events, in the history, in the state or in the number
// of prompts. It returns "" if there is no difference.
func (p turnResult) findDifference(q turnResult) string {
	for what, pair := range map[string][2]map[string][]string{"said": {p.events, q.events}, "history": {p.history, q.history}} {
		names := slices.Concat(slices.Collect(maps.Keys(pair[0])), slices.Collect(maps.Keys(pair[1])))
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			if a, b := pair[0][name], pair[1][name]; !slices.Equal(a, b) {
				return fmt.Sprintf("%s by %s:\n%s\nwant\n%s", what, name, strings.Join(b, "\n"), strings.Join(a, "\n"))
			}
		}
	}
	if !reflect.DeepEqual(p.state, q.state) {
		return fmt.Sprintf("state %v, want %v", q.state, p.state)
	}
	for name, prompts := range p.prompts {
		if len(prompts) != len(q.prompts[name]) {
			return fmt.Sprintf("%s was asked %d times, want %d", name, len(q.prompts[name]), len(prompts))
		}
	}
	return ""
}

// compactionDifference describes the first difference from q that compaction must not cause. q is the result
// with compaction.
func (p turnResult) compactionDifference(q turnResult, turn int, said map[string]bool, total *counts) string {
	if problem := p.findDifference(q); problem != "" {
		return problem
	}
	for name, prompts := range p.prompts {
		for i, want := range prompts {
			got := q.prompts[name][i]
			total.Prompts++
			if len(got) < len(want) {
				total.Compacted++
			}
			if problem := newFault(want, got, turn, said); problem != "" {
				return fmt.Sprintf("prompt %d of %s %s:\n%s\nwithout compaction\n%s", i, name, problem,
					strings.Join(promptText(got, false, false), "\n"), strings.Join(promptText(want, false, false), "\n"))
			}
		}
	}
	return ""
}

// newFault returns a fault of the compacted prompt got that want, the prompt without compaction, does not have.
// There are three kinds of faults: an API would reject the prompt, the user's message of the turn is missing, or
// the prompt contains a call or a response that never occurred.
func newFault(want, got []*genai.Content, turn int, said map[string]bool) string {
	faults := map[string]int{}
	for _, f := range promptFaults(want) {
		faults[f]++
	}
	for _, f := range promptFaults(got) {
		if faults[f]--; faults[f] < 0 {
			return f
		}
	}
	before, after := partTexts(want), partTexts(got)
	for words := range before {
		live := words == fmt.Sprintf("%q", question(turn)) || words == fmt.Sprintf("%q", question(turn)+padding) ||
			strings.Contains(words, fmt.Sprintf("answer of turn %d\"", turn))
		if live && !after[words] {
			return "lacks what the user said"
		}
	}
	for words := range after {
		if strings.Contains(words, " and so on") {
			if len(words) > patch.RunesPerToken*recall.MinResultTokens+200 {
				return "has a long result"
			}
			continue // the text may be a shortened result
		}
		if strings.HasPrefix(words, "{") && !said[words] {
			return fmt.Sprintf("has %s, which nobody said", words)
		}
	}
	return ""
}

func partTexts(prompt []*genai.Content) map[string]bool {
	all := map[string]bool{}
	for _, c := range prompt {
		for _, p := range c.Parts {
			all[partText(p)] = true
		}
	}
	return all
}

func partText(p *genai.Part) string {
	if p.Text != "" {
		return fmt.Sprintf("%q", p.Text)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return withoutIDs(string(raw))
}

// promptText describes the contents of a prompt. If unordered is set, the result is sorted. If losesEmpty is
// set, it omits empty results, which ADK's SQL service does not store.
func promptText(prompt []*genai.Content, unordered, losesEmpty bool) (out []string) {
	for _, c := range prompt {
		var parts []string
		for _, p := range c.Parts {
			text := partText(p)
			if losesEmpty {
				text = strings.ReplaceAll(text, "tool returned result: null", "tool returned result: {}")
			}
			parts = append(parts, text)
		}
		out = append(out, c.Role+": "+strings.Join(parts, " + "))
	}
	if unordered {
		slices.Sort(out)
	}
	return out
}

// promptFaults returns the reasons why a model's API would reject a prompt.
func promptFaults(prompt []*genai.Content) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(prompt) == 0 {
		fault("is empty")
	}
	var open []string // calls in the previous content that have no response yet
	before := "nothing"
	for _, c := range prompt {
		var calls, responses []string
		for _, p := range c.Parts {
			if f := p.FunctionCall; f != nil {
				calls = append(calls, f.ID+" "+f.Name)
			}
			if f := p.FunctionResponse; f != nil {
				responses = append(responses, f.ID+" "+f.Name)
			}
		}
		slices.Sort(calls)
		slices.Sort(responses)
		if len(c.Parts) == 0 {
			fault("has an empty content")
		}
		if c.Role != "user" && c.Role != "model" {
			fault("has the role %q", c.Role)
		}
		if before == "nothing" && c.Role != "user" {
			fault("begins with role %q", c.Role)
		}
		if len(calls) > 0 && c.Role != "model" {
			fault("has a call with role %q", c.Role)
		}
		if len(calls) > 0 && before != "user" {
			fault("has a call after %s", before)
		}
		if len(responses) > 0 && c.Role != "user" {
			fault("has a response with role %q", c.Role)
		}
		if !slices.Equal(responses, open) {
			fault("has responses %q to calls %q", withoutIDs(fmt.Sprint(responses)), withoutIDs(fmt.Sprint(open)))
		}
		open, before = calls, c.Role
	}
	if before != "user" || len(open) > 0 {
		fault("ends with %s and %d open calls", before, len(open))
	}
	return faults
}

// scenario is a conversation. It consists of the agents, the moves of their models, and the messages of the user.
// It is generated before it is played, so that every service plays the same conversation.
type scenario struct {
	Root    role
	Turns   []userTurn
	Compact []compactionMode
	Restart []restart

	losesEmpty bool // whether the wrapped service drops empty results
}

type role struct {
	Name            string
	Kind            kind
	CurrentTurnOnly bool // whether prompts contain only the current turn (IncludeContents none)
	Moves           []move
	Subs            []role
}

type kind string

const (
	chatAgent       kind = "chat"
	taskAgent       kind = "task"
	sequentialAgent kind = "sequential"
	parallelAgent   kind = "parallel"
	loopAgent       kind = "loop"
)

// move is what a model does in one answer.
type move string

const (
	tells    move = "tells"     // writes a long text
	tiny     move = "tiny"      // writes one word
	looksUp  move = "looks up"  // calls a tool
	twice    move = "twice"     // calls two tools in parallel
	pays     move = "pays"      // calls a tool that requires confirmation
	paysBoth move = "pays both" // calls two tools that require confirmation
	paysAnd  move = "pays and"  // calls a tool that requires confirmation and another tool
	asks     move = "asks"      // calls a long-running tool
	asksBoth move = "asks both" // calls two long-running tools
	asksAnd  move = "asks and"  // calls a long-running tool and another tool
	transfer move = "transfer"  // transfers to the next possible agent
	delegate move = "delegate"  // delegates to a task agent
	finishes move = "finishes"
	bungles  move = "bungles" // calls finish_task with invalid arguments
	breaks   move = "breaks"  // the model returns an error
)

// calls maps each move to the tools that it calls.
var calls = map[move][]string{
	looksUp: {"lookup"}, twice: {"lookup", "lookup"},
	pays: {"pay"}, paysBoth: {"pay", "pay"}, paysAnd: {"pay", "lookup"},
	asks: {"approve"}, asksBoth: {"approve", "approve"}, asksAnd: {"lookup", "approve"},
}

// userTurn is a message of the user. If Answer is set, the message answers the open request that Pick selects.
// If no request is open, the message is ordinary text.
type userTurn struct {
	Answer  bool
	Pick    int
	Confirm bool
	Long    bool
	Stop    int // number of events after which the program ends; 0 means that it does not end
}

type restart string

const (
	never  restart = "never"
	turns  restart = "between turns"
	within restart = "within turns" // a restart at every third append
)

type compactionMode struct {
	Interval, Overlap int
	Threshold, Retain int
	Plugin            bool
	WaitAfterEvent    bool // whether to wait for background compaction after each event, and not only after each turn
}

func (m compactionMode) config() compaction.Config {
	return compaction.Config{
		Enabled: true, CompactionInterval: m.Interval, OverlapSize: m.Overlap,
		TokenThreshold: m.Threshold, EventRetentionSize: m.Retain,
	}
}

func (r role) hasParallel() bool {
	if r.Kind == parallelAgent {
		return true
	}
	for _, s := range r.Subs {
		if s.hasParallel() {
			return true
		}
	}
	return false
}

// makeDeterministic removes everything that makes parallel agents nondeterministic. If an agent fails, it is not
// deterministic how far the others get. Confirmations, and prompts with only the current turn, depend on the order of
// events.
func (r *role) makeDeterministic() {
	r.CurrentTurnOnly = false
	for i, m := range r.Moves {
		switch m {
		case breaks:
			r.Moves[i] = tells
		case pays, paysBoth, paysAnd:
			r.Moves[i] = twice
		}
	}
	for i := range r.Subs {
		r.Subs[i].makeDeterministic()
	}
}

func drawScenario(t *rapid.T) scenario {
	d := scenarioGenerator{t: t}
	s := scenario{Root: d.rootRole()}
	breakable := !s.Root.hasParallel()
	if !breakable {
		s.Root.makeDeterministic()
	}
	s.Turns = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) userTurn {
		u := userTurn{
			Answer:  rapid.IntRange(0, 2).Draw(t, "answers") == 0,
			Pick:    rapid.IntRange(0, 3).Draw(t, "pick"),
			Confirm: rapid.Bool().Draw(t, "confirm"),
			Long:    rapid.Bool().Draw(t, "long"),
		}
		if breakable && rapid.IntRange(0, 9).Draw(t, "stops") == 9 {
			u.Stop = rapid.IntRange(1, 4).Draw(t, "stop")
		}
		return u
	}), 1, 14).Draw(t, "turns")
	s.Compact = rapid.SliceOfN(rapid.Custom(drawMode), 2, 2).Draw(t, "compactions")
	s.Restart = rapid.SliceOfN(rapid.SampledFrom([]restart{never, turns, within}), 3, 3).Draw(t, "restarts")
	return s
}

func drawMode(t *rapid.T) compactionMode {
	m := compactionMode{
		Plugin: rapid.Bool().Draw(t, "plugin"), WaitAfterEvent: rapid.Bool().Draw(t, "at once"),
	}
	by := rapid.IntRange(0, 2).Draw(t, "by")
	if by != 1 {
		m.Interval, m.Overlap = rapid.IntRange(1, 4).Draw(t, "interval"), rapid.IntRange(0, 1).Draw(t, "overlap")
	}
	if by != 0 {
		m.Threshold, m.Retain = rapid.IntRange(50, 600).Draw(t, "threshold"), rapid.IntRange(1, 4).Draw(t, "retain")
	}
	return m
}

type scenarioGenerator struct {
	t     *rapid.T
	named int
}

func (d *scenarioGenerator) name() string {
	d.named++
	return fmt.Sprint("agent", d.named)
}

func (d *scenarioGenerator) rootRole() role {
	switch k := rapid.SampledFrom([]kind{chatAgent, chatAgent, chatAgent, chatAgent, sequentialAgent, parallelAgent, loopAgent}).Draw(d.t, "root"); k {
	case chatAgent:
		return d.chatRole(2)
	default:
		return d.workflowRole(k, 2)
	}
}

var anyMove = []move{tells, tiny, looksUp, twice, pays, paysBoth, paysAnd, asks, asksBoth, asksAnd, breaks}

func (d *scenarioGenerator) chatRole(depth int) role {
	r := role{Name: d.name(), Kind: chatAgent, CurrentTurnOnly: rapid.IntRange(0, 3).Draw(d.t, "none") == 0}
	moves := slices.Clone(anyMove)
	if depth > 0 {
		for range rapid.IntRange(0, 2).Draw(d.t, "subs") {
			switch k := rapid.SampledFrom([]kind{chatAgent, taskAgent, taskAgent, sequentialAgent}).Draw(d.t, "sub"); k {
			case taskAgent:
				r.Subs = append(r.Subs, d.taskRole())
				moves = append(moves, delegate, delegate, delegate)
			case chatAgent:
				r.Subs = append(r.Subs, d.chatRole(depth-1))
				moves = append(moves, transfer, transfer)
			default:
				r.Subs = append(r.Subs, d.workflowRole(k, depth-1))
				moves = append(moves, transfer, transfer)
			}
		}
	}
	if depth < 2 { // only such an agent may have a parent agent to transfer to
		moves = append(moves, transfer)
	}
	r.Moves = rapid.SliceOfN(rapid.SampledFrom(moves), 1, 12).Draw(d.t, "moves")
	return r
}

func (d *scenarioGenerator) taskRole() role {
	r := role{Name: d.name(), Kind: taskAgent}
	r.Moves = rapid.SliceOfN(rapid.SampledFrom([]move{tells, tiny, looksUp, twice, pays, asks, finishes, finishes, finishes, bungles}), 1, 8).Draw(d.t, "moves")
	return r
}

func (d *scenarioGenerator) workflowRole(k kind, depth int) role {
	r := role{Name: d.name(), Kind: k}
	for range rapid.IntRange(1, 3).Draw(d.t, "members") {
		if depth > 1 && rapid.IntRange(0, 3).Draw(d.t, "nested") == 0 {
			r.Subs = append(r.Subs, d.workflowRole(rapid.SampledFrom([]kind{sequentialAgent, parallelAgent}).Draw(d.t, "kind"), depth-1))
			continue
		}
		r.Subs = append(r.Subs, d.chatRole(0))
	}
	return r
}

func (s scenario) String() string {
	type plain scenario
	text, err := json.MarshalIndent(plain(s), "", "  ")
	return fmt.Sprint(string(text), err)
}
