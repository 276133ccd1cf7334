package adk_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Long-running calls that nobody answers are compacted when they are old. One that is
// answered after all is in sight again, for its agent and in its invocation where Recall
// was called before the run, and in any case for the prompt.
func TestAnswerToACompactedCall(t *testing.T) {
	for _, recalls := range []bool{false, true} {
		t.Run(fmt.Sprint("recalls ", recalls), func(t *testing.T) {
			cfg := compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}
			sessions := compacted(t, adk.Options{Compaction: cfg})
			var prompt []*genai.Content
			turn := 0
			m := replying(func(p []*genai.Content) *genai.Part {
				prompt = p
				checkPrompt(t, p)
				if endsWithResponse(p) || turn%2 == 0 {
					return &genai.Part{Text: "said" + padding}
				}
				return call(fmt.Sprint("ask", turn), "approve", nil)
			})
			a := llmAgent(t, m, tools(t)...)
			asked := "" // the invocation of the first call
			most := 0
			for turn = 1; turn <= 60; turn++ {
				for _, e := range ask(t, a, sessions, genai.NewContentFromText(question(turn)+padding, "user")) {
					if turn == 1 {
						asked = e.InvocationID
					}
				}
				most = max(most, get(t, sessions, "s").Events().Len())
			}
			if most > 64 {
				t.Errorf("%d events were visible", most)
			}
			msg := response("ask1", "approve", map[string]any{"status": "approved"})
			if recalls {
				no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			}
			events := ask(t, a, sessions, msg)
			equal(t, "what the answer led to", lastWords(events), "said"+padding)
			found := 0
			for _, c := range prompt {
				for _, p := range c.Parts {
					if f := p.FunctionResponse; f != nil && f.ID == "ask1" {
						equal(t, "the answer in the prompt", f.Response["status"], any("approved"))
						found++
					}
				}
			}
			equal(t, "answers in the prompt", found, 1)
			if in := events[0].InvocationID == asked; in != recalls {
				t.Errorf("in the call's invocation: %v", in)
			}
			// Nothing is brought back twice, nor what there never was.
			no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			before := get(t, sessions, "s").(*adk.Session).View().Seq()
			no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			msg.Parts[0].FunctionResponse.ID = "never"
			no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), nil))
			no(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), genai.NewContentFromText("x", "user")))
			equal(t, "records", get(t, sessions, "s").(*adk.Session).View().Seq(), before)
		})
	}
}

// Inside a workflow's node a call that comes back is shown once, whether the node has seen
// it before or not.
func TestRecallInsideANode(t *testing.T) {
	node := func(e *session.Event) { e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1"} }
	for _, seen := range []bool{false, true} {
		t.Run(fmt.Sprint("seen ", seen), func(t *testing.T) {
			svc := inMemory(t)
			sess := create(t, svc, "s", nil)
			no(t, svc.AppendEvent(t.Context(), sess, said("q", "1", "user")))
			no(t, svc.AppendEvent(t.Context(), sess, said("ask", "1", "n", calling("c", "lookup"))))
			no(t, svc.AppendEvent(t.Context(), sess, said("u", "2", "user")))
			summarise := func() {
				e, err := patch.NewEvent(patch.Fields{ID: "S", Author: "user", Content: genai.NewContentFromText("in short", "user")})
				no(t, err)
				no(t, errOf(svc.ApplyPatch(t.Context(), get(t, svc, "s"), patch.NewSummarise(0, 2, e))))
			}
			if !seen {
				summarise()
			}
			run := get(t, svc, "s")
			no(t, svc.AppendEvent(t.Context(), run, said("n0", "2", "n", node)))
			if seen {
				summarise()
			} else {
				_, err := svc.ApplyPatch(t.Context(), get(t, svc, "s"), patch.NewSplice(1, 1)) // what the node goes on seeing
				no(t, err)
			}
			no(t, svc.AppendEvent(t.Context(), run, said("n1", "2", "n", node)))
			no(t, svc.AppendEvent(t.Context(), run, said("late", "1", "n", node, returning("c", "lookup", map[string]any{"a": 1}))))
			calls := map[string]int{}
			for name, s := range map[string]session.Session{"the run": run, "got": get(t, svc, "s")} {
				for e := range s.Events().All() {
					if f := e.Content.Parts[0].FunctionCall; f != nil {
						calls[name]++
					}
				}
			}
			equal(t, "calls in sight", calls, map[string]int{"the run": 1, "got": 1})
		})
	}
}

// A call that the user has confirmed is made once, though the run that makes it is
// compacted while it goes on.
func TestConfirmedCallIsMadeOnce(t *testing.T) {
	cfg := inRun
	cfg.TokenThreshold, cfg.Summarizer = 200, adk.Summarizer(shortener{})
	written := 0
	sessions := compacted(t, adk.Options{Compaction: cfg, Hooks: adk.Hooks{OnCompaction: func(a compaction.Attempt[store.Key]) {
		if a.Outcome == compaction.Wrote {
			written++
		}
	}}})
	made := 0
	pay := functionTool(t, functiontool.Config{Name: "pay", RequireConfirmation: true}, func(agent.Context, payment) (map[string]any, error) {
		made++
		return map[string]any{"paid": true}, nil
	})
	step := 0
	m := replying(func([]*genai.Content) *genai.Part {
		switch step++; {
		case step == 1:
			return call("pay1", "pay", map[string]any{"sum": 1.0, "to": "x"})
		case step < 20:
			return call(fmt.Sprint("c", step), "lookup", map[string]any{"key": fmt.Sprint(step) + padding})
		}
		return &genai.Part{Text: "done"}
	})
	a := llmAgent(t, m, append(tools(t), pay)...)
	r := newRunner(t, a, sessions)
	events := runTurn(t, r, genai.NewContentFromText("pay", "user"))
	request := events[len(events)-1].Content.Parts[0].FunctionCall
	equal(t, "the request", request.Name, toolconfirmation.FunctionCallName)
	equal(t, "the last words", lastWords(runTurn(t, r, response(request.ID, request.Name, map[string]any{"confirmed": true}))), "done")
	equal(t, "payments", made, 1)
	if written == 0 {
		t.Error("nothing was compacted")
	}
}

// A summary that somebody has written by hand, as a turn of the model, leaves no room behind it
// for the call that it hides. The answer is logged all the same, and Recall says what is wrong.
func TestAnswerWithoutRoomForItsCall(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	s := newService(t, db)
	sess := create(t, s, "s", nil)
	asks := &session.Event{ID: "asks", Author: "app", InvocationID: "i", LongRunningToolIDs: []string{"c"}}
	asks.Content = genai.NewContentFromFunctionCall("approve", nil, "model")
	asks.Content.Parts[0].FunctionCall.ID = "c"
	for _, e := range []*session.Event{text("e0", "user", "hello"), asks, text("e1", "user", "what else?"), text("e2", "app", "nothing")} {
		no(t, s.AppendEvent(t.Context(), sess, e))
	}
	e, err := adk.NewEvent(text("summary", "app", "They asked for an approval."))
	no(t, err)
	_, err = db.ApplyPatch(t.Context(), store.Key{App: "app", User: "user", Session: "s"},
		store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patch.NewSummarise(0, 2, e))
	no(t, err)
	answer := &session.Event{ID: "answer", Author: "user", InvocationID: "j"}
	answer.Content = response("c", "approve", map[string]any{"ok": true})
	sess = get(t, s, "s")
	fails(t, s.RestoreCalls(t.Context(), sess, answer.Content), fold.ErrOrphanedCall)
	no(t, s.AppendEvent(t.Context(), sess, answer))
	no(t, s.AppendEvent(t.Context(), sess, answer)) // as a retry does
	equal(t, "visible", ids(get(t, s, "s")), []string{"summary", "e1", "e2", "answer"})
}

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
		no(t, errOf(s.now().ApplyPatch(t.Context(), sess, patch.NewSummarise(0, 2, e))))
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

// said is an event of an invocation, by default with a text.
func said(id, invocation, author string, change ...func(*session.Event)) *session.Event {
	e := text(id, author, "words of "+id)
	e.InvocationID = invocation
	for _, c := range change {
		c(e)
	}
	return e
}

func calling(id, name string, long ...string) func(*session.Event) {
	return func(e *session.Event) {
		e.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call(id, name, map[string]any{"a": 1})}}
		e.LongRunningToolIDs = long
	}
}

func returning(id, name string, of map[string]any) func(*session.Event) {
	return func(e *session.Event) { e.Content = response(id, name, of) }
}

func scoped(scope string) func(*session.Event) {
	return func(e *session.Event) { e.IsolationScope = scope }
}

func outputs(e *session.Event) { e.Output = "v" }

func messageAsOutput(e *session.Event) {
	e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1", MessageAsOutput: true}
}

func TestPins(t *testing.T) {
	finished := map[string]any{"result": "Task completed."}
	for _, c := range []struct {
		name   string
		events []*session.Event
		want   []string
	}{
		{"nothing", nil, nil},
		{"the user alone", []*session.Event{said("u", "1", "user")}, nil},
		{"the newest of each agent", []*session.Event{
			said("u1", "1", "user"), said("a1", "1", "a"), said("b1", "1", "b"),
			said("u2", "2", "user"), said("b2", "2", "b"), said("none", "2", ""), said("u3", "3", "user"),
		}, []string{"a1", "b2"}},
		{"a request that is open", []*session.Event{
			said("u1", "1", "user"), said("out", "1", "n", outputs), said("out2", "1", "n", messageAsOutput), said("t", "1", "n"),
			said("ask", "1", "n", calling("c", "adk_request_input", "c")), said("later", "1", "n"),
			said("u2", "2", "user"), said("a2", "2", "a"), said("u3", "3", "user"), said("a3", "3", "a"),
		}, []string{"u1", "out", "out2", "ask", "later", "a3"}},
		{"a placeholder is no answer", []*session.Event{
			said("u1", "1", "user"), said("ask", "1", "n", calling("c", "approve", "c")), said("p", "1", "n", returning("c", "approve", nil)),
			said("t", "1", "n"), said("u2", "2", "user"), said("a2", "2", "n"),
		}, []string{"u1", "ask", "a2"}},
		{"a request that is answered, and goes on", []*session.Event{
			said("u0", "0", "user"), said("u1", "1", "user"), said("out", "1", "n", outputs), said("ask", "1", "n", calling("c", "adk_request_input", "c")),
			said("yes", "1", "user", returning("c", "adk_request_input", nil)),
		}, []string{"u1", "out", "ask", "yes"}},
		{"a request that is answered after others came, and goes on", []*session.Event{
			said("u1", "1", "user"), said("ask", "1", "n", calling("c", "adk_request_input", "c")),
			said("u2", "2", "user"), said("n2", "2", "n"),
			said("yes", "1", "user", returning("c", "adk_request_input", nil)), said("n1", "1", "n"),
		}, []string{"u1", "ask", "yes", "n1"}},
		{"a request that is answered, and over", []*session.Event{
			said("u1", "1", "user"), said("out", "1", "n", outputs), said("ask", "1", "n", calling("c", "adk_request_input", "c")),
			said("yes", "1", "user", returning("c", "adk_request_input", nil)), said("u2", "2", "user"), said("n2", "2", "n"),
		}, []string{"n2"}},
		{"what nodes of the newest invocation return", []*session.Event{
			said("u1", "1", "user"), said("out1", "1", "n", outputs), said("n1", "1", "n"),
			said("u2", "2", "user"), said("out2", "2", "n", outputs), said("n2", "2", "n"),
		}, []string{"out2", "n2"}},
		{"a task that is over", []*session.Event{
			said("go", "1", "a", calling("t", "task")), said("t1", "1", "b", scoped("t")),
			said("fin", "1", "b", scoped("t"), calling("f", "finish_task")), said("end", "1", "b", scoped("t"), returning("f", "finish_task", finished)),
			said("back", "1", "user", returning("t", "task", nil)), said("a1", "1", "a"), said("u2", "2", "user"), said("b2", "2", "b"), said("a2", "2", "a"),
		}, []string{"end", "b2", "a2"}},
		{"a task that is open", []*session.Event{
			said("go", "1", "a", calling("t", "task")), said("t1", "1", "b", scoped("t")),
			said("fin", "1", "b", scoped("t"), calling("f", "finish_task")),
			said("bad", "1", "b", scoped("t"), returning("f", "finish_task", map[string]any{"error": "no"})),
			said("a1", "1", "a"), said("u2", "2", "user"), said("b2", "2", "b"),
		}, []string{"go", "a1", "b2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := inMemory(t)
			sess := create(t, svc, "s", nil)
			for _, e := range c.events {
				no(t, svc.AppendEvent(t.Context(), sess, e))
			}
			equal(t, "pinned", adk.Pins(sess.(*adk.Session).View(), compaction.Config{}), c.want)
		})
	}
}

// Summaries are never pinned, and a scope that has only a summary counts.
func TestPinsOfSummaries(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	no(t, svc.AppendEvent(t.Context(), sess, said("go", "1", "a", calling("t", "task"))))
	no(t, svc.AppendEvent(t.Context(), sess, said("t1", "1", "b", scoped("t"))))
	s, err := patch.NewEvent(patch.Fields{ID: "S", Author: "user", IsolationScope: "t", Content: genai.NewContentFromText("s", "user")})
	no(t, err)
	no(t, errOf(svc.ApplyPatch(t.Context(), sess, patch.NewSummarise(1, 1, s))))
	no(t, svc.AppendEvent(t.Context(), sess, said("a2", "2", "a")))
	got := adk.Pins(sess.(*adk.Session).View(), compaction.Config{})
	if !slices.Equal(got, []string{"go", "a2"}) {
		t.Errorf("pinned: %v", got)
	}
}
