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

// withTimes gives events ascending times, because some bases order events by time.
func withTimes(from int, events ...*session.Event) []*session.Event {
	for i, e := range events {
		e.Timestamp = timedEvent(from+i, "", "").Timestamp
	}
	return events
}

// createInterrupted creates a session whose run ended between a call and its result.
func createInterrupted(t *testing.T, s *adk.Service) session.Session {
	t.Helper()
	sess := create(t, s, "s", nil)
	appendAll(t, s, sess, newEvent("u1", "i1", "user"), newEvent("c1", "i1", "app", withCall("dead", "order")))
	return sess
}

// A strict model API accepts every prompt after a run was interrupted between a call and its result.
func TestInterruptedCalls(t *testing.T) {
	compacting := compaction.Config{Enabled: true, CompactionInterval: 3, TokenThreshold: 400, Summarizer: adk.Summarizer(shortener{})}
	for name, opts := range map[string]adk.Options{
		"by default": {}, "compacted": {Compaction: compacting}, "switched off": {KeepInterruptedCalls: true}, "one at a time": {Runs: adk.WaitForRun},
	} {
		t.Run(name, func(t *testing.T) {
			onStoreAndBases(t, bases, opts, func(t *testing.T, s *adk.Service) {
				sess := create(t, s, "s", nil)
				appendAll(t, s, sess, withTimes(0, newEvent("u1", "i1", "user"), newEvent("c1", "i1", "app", withCall("dead", "order")))...)
				s = s.OverSameStorage(t, opts) // a new service, as after a restart
				refused, prompts, words := 0, 0, strings.Repeat("words ", 40)
				r := newRunner(t, llmAgent(t, replyModel(func(prompt []*genai.Content) *genai.Part {
					if prompts++; len(promptFaults(prompt)) > 0 {
						refused++
					}
					return genai.NewPartFromText(fmt.Sprint(words, prompts))
				})), s)
				for range 30 {
					runTurn(t, r, genai.NewContentFromText("hello? "+words, "user"))
					s.WaitForCompaction(t)
				}
				equal(t, "prompts", prompts, 30)
				if opts.KeepInterruptedCalls {
					equal(t, "refused prompts", refused, 30)
				} else {
					equal(t, "refused prompts", refused, 0)
				}
				patches := 0
				for r, err := range s.RawEvents(t.Context(), sess, 1) {
					if noError(t, err); r.Patch != nil && r.Patch.Type() == patch.Splice {
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

// The recorded answer of an interrupted call follows the call and is marked. A late response replaces the
// answer, and Revert undoes it.
func TestAnswerOfInterruptedCall(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		sess := create(t, s, "s", nil)
		two := newEvent("c1", "i1", "app", withCall("dead", "order"))
		two.Content.Parts = append(two.Content.Parts, call("lost", "look", nil))
		appendAll(t, s, sess, withTimes(0, newEvent("u1", "i1", "user"), two, newEvent("c2", "i2", "app", withCall("", "look")), newEvent("u3", "i3", "user"))...)
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

		appendAll(t, s, sess, withTimes(8, newEvent("late", "i1", "app", withResponse("lost", "look", map[string]any{"ok": true})))...)
		got := get(t, s, "s").Events()
		equal(t, "events", got.Len(), 7)
		equal(t, "answers", len(got.At(2).Content.Parts), 1)
		equal(t, "still interrupted", got.At(2).Content.Parts[0].FunctionResponse.ID, "dead")
		appendAll(t, s, sess, withTimes(9, newEvent("late2", "i1", "app", withResponse("dead", "order", map[string]any{"ok": true})))...)
		equal(t, "interrupted", len(ids(get(t, s, "s"))), 7)
	})
	// A long-running tool can answer through an older handle, which does not show the recorded answer.
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		slow := create(t, s, "s", nil)
		appendAll(t, s, slow, withTimes(0, newEvent("u1", "i1", "user"), newEvent("c1", "i1", "app", withCall("c", "order")))...)
		appendAll(t, s, get(t, s, "s"), withTimes(3, newEvent("u2", "i2", "user"), newEvent("a2", "i2", "app"))...)
		equal(t, "events", get(t, s, "s").Events().Len(), 5)
		appendAll(t, s, slow, withTimes(6, newEvent("late", "i1", "app", withResponse("c", "order", map[string]any{"ok": true})))...)
		for _, sess := range []session.Session{slow, get(t, s, "s")} {
			equal(t, "events", ids(sess), []string{"u1", "c1", "u2", "a2", "late"})
		}
	})
	// A message that waited for a run can arrive through an older handle, which does not show the call.
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		waiting := create(t, s, "s", nil)
		appendAll(t, s, get(t, s, "s"), withTimes(0, newEvent("u1", "i1", "user"), newEvent("c1", "i1", "app", withCall("c", "order")))...)
		appendAll(t, s, waiting, withTimes(3, newEvent("u2", "i2", "user"))...)
		if shown := ids(waiting); len(shown) != 4 || shown[3] != "u2" {
			t.Errorf("shown is %v", shown)
		}
	})
	s := inMemory(t)
	sess := createInterrupted(t, s)
	appendAll(t, s, sess, newEvent("u2", "i2", "user"))
	equal(t, "events", sess.Events().Len(), 4)
	for r, err := range s.RawEvents(t.Context(), sess, 1) {
		if noError(t, err); r.Patch != nil {
			noError(t, errOf(s.Revert(t.Context(), sess, r.ID())))
		}
	}
	equal(t, "after the revert", ids(sess), []string{"u1", "c1", "u2"})
}

// The service leaves a call open if it can still be answered.
func TestCallsThatStayOpen(t *testing.T) {
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
		"long-running":        {newEvent("c1", "i1", "app", withCall("c", "order", "c"))},
		"confirmation":        {newEvent("c1", "i1", "app", withCall("c", "order")), newEvent("c2", "i1", "app", confirms)},
		"credential":          {newEvent("c1", "i1", "app", withCall("c", "order")), newEvent("c2", "i1", "app", credential)},
		"task":                {newEvent("c1", "i1", "app", withCall("c", "clerk")), newEvent("t1", "i1", "clerk", inTask)},
		"requested input":     {newEvent("c1", "i1", "app", withCall("c", "order"), asks)},
		"same invocation":     {newEvent("c1", "i2", "app", withCall("c", "order"))},
		"answered":            {newEvent("c1", "i1", "app", withCall("c", "order")), newEvent("r1", "i1", "app", withResponse("c", "order", nil))},
		"answered by message": {newEvent("c1", "i1", "app", withCall("u2", "order"))},
	} {
		t.Run(name, func(t *testing.T) {
			onStoreAndBases(t, bases[:1], adk.Options{}, func(t *testing.T, s *adk.Service) {
				sess := create(t, s, "s", nil)
				appendAll(t, s, sess, newEvent("u1", "i1", "user"))
				appendAll(t, s, sess, events...)
				message := newEvent("u2", "i2", "user")
				if name == "answered by message" {
					withResponse("u2", "order", map[string]any{"ok": true})(message)
				}
				appendAll(t, s, sess, message, newEvent("a2", "i2", "app"))
				equal(t, "events", sess.Events().Len(), len(events)+3)
			})
		})
	}
}

// The service does not answer the calls of an active run. A run is active if the plugin watches it, or if another
// process holds its lease.
func TestCallsOfActiveRun(t *testing.T) {
	s := newQuietService(t, adk.Options{})
	create(t, s, "s", nil)
	asked := false
	r := newRunner(t, llmAgent(t, replyModel(func([]*genai.Content) *genai.Part {
		if asked {
			return genai.NewPartFromText("done")
		}
		asked = true
		return call("c", "nothing", nil)
	})), s, s.Plugin())
	for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText("x", "user"), agent.RunConfig{}) {
		noError(t, err)
		if e.Content.Parts[0].FunctionCall != nil {
			other := get(t, s, "s")
			appendAll(t, s, other, newEvent("u2", "other", "user"))
			equal(t, "events", other.Events().Len(), 3)
		}
	}

	b := &memory.Backend{}
	peer := func(b *memory.Backend) *adk.Service {
		s, err := adk.NewService(mustOpen(t)(store.New(b, store.Options{})), adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1000}})
		noError(t, err)
		t.Cleanup(func() { noError(t, s.Close(context.Background())) })
		return s
	}
	createInterrupted(t, peer(b))
	other := peer(b.Peer())
	sess := get(t, other, "s")
	appendAll(t, other, sess, newEvent("u2", "i2", "user"))
	equal(t, "events", ids(sess), []string{"u1", "c1", "u2"})
}
