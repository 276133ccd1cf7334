package adk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// inTime gives events ascending times, because a base may order events by time.
func inTime(from int, events ...*session.Event) []*session.Event {
	for i, e := range events {
		e.Timestamp = timed(from+i, "", "").Timestamp
	}
	return events
}

// dangling creates a session whose run ended between a call and its result.
func dangling(t *testing.T, s *adk.Service) session.Session {
	t.Helper()
	sess := create(t, s, "s", nil)
	say(t, s, sess, said("u1", "i1", "user"), said("c1", "i1", "app", calling("dead", "order")))
	return sess
}

// After a run was interrupted between a call and its result, a strict API accepts every later prompt.
func TestInterruptedCalls(t *testing.T) {
	compacting := compaction.Config{Enabled: true, CompactionInterval: 3, TokenThreshold: 400, Summarizer: adk.Summarizer(shortener{})}
	for name, opts := range map[string]adk.Options{
		"by default": {}, "compacted": {Compaction: compacting}, "switched off": {KeepInterruptedCalls: true}, "one at a time": {Runs: adk.WaitForRun},
	} {
		t.Run(name, func(t *testing.T) {
			onStoreAnd(t, bases, opts, func(t *testing.T, s *adk.Service) {
				sess := create(t, s, "s", nil)
				say(t, s, sess, inTime(0, said("u1", "i1", "user"), said("c1", "i1", "app", calling("dead", "order")))...)
				s = s.Over(t, opts) // as after a restart
				refused, prompts, words := 0, 0, strings.Repeat("words ", 40)
				r := newRunner(t, llmAgent(t, replying(func(prompt []*genai.Content) *genai.Part {
					if prompts++; len(faultsOf(prompt)) > 0 {
						refused++
					}
					return genai.NewPartFromText(fmt.Sprint(words, prompts))
				})), s)
				for range 30 {
					runTurn(t, r, genai.NewContentFromText("hello? "+words, "user"))
					s.Settle(t)
				}
				equal(t, "prompts", prompts, 30)
				if opts.KeepInterruptedCalls {
					equal(t, "refused prompts", refused, 30)
				} else {
					equal(t, "refused prompts", refused, 0)
				}
				patches := 0
				for r, err := range s.RawEvents(t.Context(), sess, 1) {
					if no(t, err); r.Patch != nil && r.Patch.Type() == patch.Splice {
						patches++
					}
				}
				if !opts.Compaction.Enabled && !opts.KeepInterruptedCalls {
					equal(t, "splices", patches, 1)
				}
			})
		})
	}
}

// The recorded answer follows its call and is marked. A late response replaces the answer, and Revert undoes it.
func TestAnswerOfAnInterruptedCall(t *testing.T) {
	onStoreAnd(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		sess := create(t, s, "s", nil)
		two := said("c1", "i1", "app", calling("dead", "order"))
		two.Content.Parts = append(two.Content.Parts, call("lost", "look", nil))
		say(t, s, sess, inTime(0, said("u1", "i1", "user"), two, said("c2", "i2", "app", calling("", "look")), said("u3", "i3", "user"))...)
		equal(t, "events", sess.Events().Len(), 6)
		answer := sess.Events().At(2)
		equal(t, "metadata", answer.CustomMetadata, map[string]any{compaction.InterruptedKey: true})
		equal(t, "invocation", answer.InvocationID+answer.Author, "i1app")
		equal(t, "parts", len(answer.Content.Parts), 2)
		for i, id := range []string{"dead", "lost"} {
			f := answer.Content.Parts[i].FunctionResponse
			equal(t, "id", f.ID, id)
			equal(t, "response", f.Response, map[string]any{"error": "interrupted: no result was recorded"})
		}
		equal(t, "name", sess.Events().At(4).Content.Parts[0].FunctionResponse.Name, "look")

		say(t, s, sess, inTime(8, said("late", "i1", "app", returning("lost", "look", map[string]any{"ok": true})))...)
		got := get(t, s, "s").Events()
		equal(t, "events", got.Len(), 7)
		equal(t, "answers", len(got.At(2).Content.Parts), 1)
		equal(t, "still interrupted", got.At(2).Content.Parts[0].FunctionResponse.ID, "dead")
		say(t, s, sess, inTime(9, said("late2", "i1", "app", returning("dead", "order", map[string]any{"ok": true})))...)
		equal(t, "interrupted", len(ids(get(t, s, "s"))), 7)
	})
	// A long-running tool answers through an older handle, which does not show the recorded answer.
	onStoreAnd(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		slow := create(t, s, "s", nil)
		say(t, s, slow, inTime(0, said("u1", "i1", "user"), said("c1", "i1", "app", calling("c", "order")))...)
		say(t, s, get(t, s, "s"), inTime(3, said("u2", "i2", "user"), said("a2", "i2", "app"))...)
		equal(t, "events", get(t, s, "s").Events().Len(), 5)
		say(t, s, slow, inTime(6, said("late", "i1", "app", returning("c", "order", map[string]any{"ok": true})))...)
		for _, sess := range []session.Session{slow, get(t, s, "s")} {
			equal(t, "events", ids(sess), []string{"u1", "c1", "u2", "a2", "late"})
		}
	})
	// A message that waited arrives through an older handle, which does not show the call.
	onStoreAnd(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		waiting := create(t, s, "s", nil)
		say(t, s, get(t, s, "s"), inTime(0, said("u1", "i1", "user"), said("c1", "i1", "app", calling("c", "order")))...)
		say(t, s, waiting, inTime(3, said("u2", "i2", "user"))...)
		if shown := ids(waiting); len(shown) != 4 || shown[3] != "u2" {
			t.Errorf("shown is %v", shown)
		}
	})
	s := inMemory(t)
	sess := dangling(t, s)
	say(t, s, sess, said("u2", "i2", "user"))
	equal(t, "events", sess.Events().Len(), 4)
	for r, err := range s.RawEvents(t.Context(), sess, 1) {
		if no(t, err); r.Patch != nil {
			no(t, errOf(s.Revert(t.Context(), sess, r.ID())))
		}
	}
	equal(t, "after the revert", ids(sess), []string{"u1", "c1", "u2"})
}

// Calls that can still be answered stay open.
func TestCallsThatAreNotInterrupted(t *testing.T) {
	confirms := func(e *session.Event) {
		args := map[string]any{"originalFunctionCall": map[string]any{"id": "c", "name": "order"}}
		e.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call("ask", toolconfirmation.FunctionCallName, args)}}
		e.LongRunningToolIDs = []string{"ask"}
	}
	credential := func(e *session.Event) {
		e.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call("ask", "adk_request_credential", map[string]any{"functionCallId": "c"})}}
	}
	inTask := func(e *session.Event) { e.IsolationScope = "c" }
	asks := func(e *session.Event) { e.RequestedInput = &session.RequestInput{InterruptID: "c"} }
	for name, events := range map[string][]*session.Event{
		"long-running":        {said("c1", "i1", "app", calling("c", "order", "c"))},
		"confirmation":        {said("c1", "i1", "app", calling("c", "order")), said("c2", "i1", "app", confirms)},
		"credential":          {said("c1", "i1", "app", calling("c", "order")), said("c2", "i1", "app", credential)},
		"task":                {said("c1", "i1", "app", calling("c", "clerk")), said("t1", "i1", "clerk", inTask)},
		"requested input":     {said("c1", "i1", "app", calling("c", "order"), asks)},
		"same invocation":     {said("c1", "i2", "app", calling("c", "order"))},
		"answered":            {said("c1", "i1", "app", calling("c", "order")), said("r1", "i1", "app", returning("c", "order", nil))},
		"answered by message": {said("c1", "i1", "app", calling("u2", "order"))},
	} {
		t.Run(name, func(t *testing.T) {
			onStoreAnd(t, bases[:1], adk.Options{}, func(t *testing.T, s *adk.Service) {
				sess := create(t, s, "s", nil)
				say(t, s, sess, said("u1", "i1", "user"))
				say(t, s, sess, events...)
				message := said("u2", "i2", "user")
				if name == "answered by message" {
					returning("u2", "order", map[string]any{"ok": true})(message)
				}
				say(t, s, sess, message, said("a2", "i2", "app"))
				equal(t, "events", sess.Events().Len(), len(events)+3)
			})
		})
	}
}

// Calls of a run that is known to be active stay open, whether the plugin watches the run or another process holds
// its lease.
func TestCallsOfARunThatGoesOn(t *testing.T) {
	s := compacted(t, adk.Options{})
	create(t, s, "s", nil)
	asked := false
	r := newRunner(t, llmAgent(t, replying(func([]*genai.Content) *genai.Part {
		if asked {
			return genai.NewPartFromText("done")
		}
		asked = true
		return call("c", "nothing", nil)
	})), s, s.Plugin())
	for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText("x", "user"), agent.RunConfig{}) {
		no(t, err)
		if e.Content.Parts[0].FunctionCall != nil {
			other := get(t, s, "s")
			say(t, s, other, said("u2", "other", "user"))
			equal(t, "events", other.Events().Len(), 3)
		}
	}

	b := &memory.Backend{}
	peer := func(b *memory.Backend) *adk.Service {
		s, err := adk.NewService(opened(t)(store.New(b, store.Options{})), adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1000}})
		no(t, err)
		t.Cleanup(func() { no(t, s.Close(context.Background())) })
		return s
	}
	dangling(t, peer(b))
	other := peer(b.Peer())
	sess := get(t, other, "s")
	say(t, other, sess, said("u2", "i2", "user"))
	equal(t, "events", ids(sess), []string{"u1", "c1", "u2"})
}
