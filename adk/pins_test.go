package adk_test

import (
	"slices"
	"testing"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
)

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
