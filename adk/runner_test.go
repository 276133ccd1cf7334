package adk_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
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
