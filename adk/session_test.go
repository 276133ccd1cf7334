package adk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestSessionSeesItsOwnAppends(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		sess := create(t, s, "s", map[string]any{"tenant": "t1", "app:a": 1, "temp:gone": true})
		equal(t, "initial state", stateOf(sess), map[string]any{"tenant": "t1", "app:a": 1})
		equal(t, "events", ids(sess), []string{})
		before := sess.Events()
		e := deltaEvent("e1", map[string]any{"k": "v", "app:a": 2, "user:u": []any{"x"}, "temp:t": 3, "nothing": nil})
		noError(t, s.AppendEvent(t.Context(), sess, e))
		equal(t, "events", ids(sess), []string{"e1"})
		equal(t, "events of before", before.Len(), 0)
		lasting := map[string]any{"tenant": "t1", "k": "v", "app:a": 2, "user:u": []any{"x"}, "nothing": nil}
		withTemp := map[string]any{"temp:t": 3}
		for k, v := range lasting {
			withTemp[k] = v
		}
		equal(t, "state", stateOf(sess), withTemp)
		equal(t, "state of another", stateOf(get(t, s, "s")), lasting)
		if len(e.Actions.StateDelta) != 5 {
			t.Error("the appended event was changed")
		}
		if _, ok := get(t, s, "s").Events().At(0).Actions.StateDelta["temp:t"]; ok {
			t.Error("a temp: key was logged")
		}
		equal(t, "shared state of another session", stateOf(create(t, s, "s2", nil)),
			map[string]any{"app:a": 2, "user:u": []any{"x"}})
	})
}

func TestStateSetIsNeverStored(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", map[string]any{"k": 1})
	type conn struct{ open bool }
	for key, value := range map[string]any{"k": 2, "temp:conn": &conn{true}, "user:u": "set", "new": mood("odd")} {
		noError(t, sess.State().Set(key, value))
		got, err := sess.State().Get(key)
		noError(t, err)
		equal(t, key, got, value)
	}
	wantError(t, errOf(sess.State().Get("absent")), session.ErrStateKeyNotExist)
	equal(t, "state of another", stateOf(get(t, svc, "s")), map[string]any{"k": 1})

	// A "temp:" key accepts a value of any type.
	noError(t, svc.AppendEvent(t.Context(), sess, deltaEvent("e1", map[string]any{"temp:conn": make(chan int)})))
	// The value of a later event overrides a value from Set.
	noError(t, svc.AppendEvent(t.Context(), sess, deltaEvent("e2", map[string]any{"k": 3})))
	got, err := sess.State().Get("k")
	noError(t, err)
	equal(t, "k", got, any(3))
	// The session that appended a value shows it with its Go type, even if the log cannot keep this type.
	noError(t, svc.AppendEvent(t.Context(), sess, deltaEvent("e3", map[string]any{"k": mood("glad")})))
	got, err = sess.State().Get("k")
	noError(t, err)
	equal(t, "k in the run", got, any(mood("glad")))
	equal(t, "state of another", stateOf(get(t, svc, "s")), map[string]any{"k": "glad"})

	// State().All yields the state as of the start of the iteration.
	before := stateOf(sess)
	for key := range sess.State().All() {
		noError(t, sess.State().Set(key+"+", 0))
	}
	equal(t, "keys", len(stateOf(sess)), 2*len(before))
}

// A session from a Get with a filter shows the selected events, and continues with events logged later.
func TestFilteredSessions(t *testing.T) {
	onStoreAndBases(t, bases[:1], adk.Options{}, testFilteredSessions)
}

func testFilteredSessions(t *testing.T, svc *adk.Service) {
	sess := create(t, svc, "s", nil)
	at := func(id string, second int) *session.Event {
		e := textEvent(id, "user", id)
		e.Timestamp = time.Unix(int64(second), 0)
		e.Actions.StateDelta = map[string]any{id: second}
		return e
	}
	for i, id := range []string{"a", "b", "c", "d"} {
		noError(t, svc.AppendEvent(t.Context(), sess, at(id, []int{5, 1, 3, 3}[i])))
	}
	for _, c := range []struct {
		name string
		req  session.GetRequest
		want []string
	}{
		{"all", session.GetRequest{}, []string{"a", "b", "c", "d", "new"}},
		{"last two", session.GetRequest{NumRecentEvents: 2}, []string{"c", "d", "new"}},
		{"more than there are", session.GetRequest{NumRecentEvents: 9}, []string{"a", "b", "c", "d", "new"}},
		{"below zero is no filter", session.GetRequest{NumRecentEvents: -1}, []string{"a", "b", "c", "d", "new"}},
		{"after", session.GetRequest{After: time.Unix(3, 0)}, []string{"a", "c", "d", "new"}},
		{"after all", session.GetRequest{After: time.Unix(9, 0)}, []string{"new"}},
		{"last three, after", session.GetRequest{NumRecentEvents: 3, After: time.Unix(2, 0)}, []string{"c", "d", "new"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.AppName, c.req.UserID, c.req.SessionID = "app", "user", "s"
			r, err := svc.Get(t.Context(), &c.req)
			noError(t, err)
			n := len(c.want) - 1
			equal(t, "events", ids(r.Session), c.want[:n])
			equal(t, "state", stateOf(r.Session), map[string]any{"a": 5, "b": 1, "c": 3, "d": 3})
			id := "new " + c.name
			noError(t, svc.AppendEvent(t.Context(), r.Session, textEvent(id, "user", "x")))
			equal(t, "events after an append", ids(r.Session), append(c.want[:n:n], id))
			// If a patch hides a selected event, the session no longer shows it. An event that a patch inserts
			// counts as logged after the Get.
			from := r.Session.(*adk.Session).View().Len() - 1
			noError(t, errOf(svc.ApplyPatch(t.Context(), r.Session, []*patch.PatchEvent{patch.NewSplice(from, 1)}, store.PatchOptions{})))
			equal(t, "events after a patch", ids(r.Session), c.want[:n])
		})
	}
}

func TestListedSessions(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		sess := create(t, s, "s", map[string]any{"k": 1, "user:u": 2})
		noError(t, s.AppendEvent(t.Context(), sess, textEvent("e1", "user", "hi")))
		list, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		noError(t, err)
		equal(t, "sessions", len(list.Sessions), 1)
		got := list.Sessions[0]
		equal(t, "name", []string{got.AppName(), got.UserID(), got.ID()}, []string{"app", "user", "s"})
		equal(t, "events", ids(got), []string{})
		equal(t, "state", stateOf(got), map[string]any{"k": 1, "user:u": 2})
		equal(t, "time", got.LastUpdateTime(), sess.LastUpdateTime())
		noError(t, s.AppendEvent(t.Context(), got, textEvent("e2", "user", "x")))
		equal(t, "events", ids(got), []string{"e2"})
		none, err := s.List(t.Context(), &session.ListRequest{AppName: "another"})
		noError(t, err)
		if none.Sessions == nil || len(none.Sessions) > 0 {
			t.Errorf("an app without sessions has %v", none.Sessions)
		}
	})
}

func summaryEvent(t *testing.T, words string) *patch.Event {
	t.Helper()
	p, err := adk.NewEvent(textEvent("", "user", words))
	noError(t, err)
	return p
}

// If a patch is logged during a run, the next append succeeds, and the session shows the effect of the patch.
func TestPatchDuringRun(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		ctx := t.Context()
		run := create(t, s, "s", nil)
		for _, id := range []string{"e1", "e2", "e3"} {
			e := textEvent(id, "user", id)
			e.Actions.StateDelta = map[string]any{id: true}
			noError(t, s.AppendEvent(ctx, run, e))
		}
		noError(t, run.State().Set("temp:t", 1))
		other := get(t, s, "s")
		done, err := s.reopened().ApplyPatch(ctx, other, []*patch.PatchEvent{patch.NewSummarise(0, 2, summaryEvent(t, "so far"))}, store.PatchOptions{})
		noError(t, err)
		equal(t, "seq", done.Records[0].Seq, uint64(4))
		s1 := done.Records[0].Patch.NewEvents()[0].ID()
		equal(t, "events of the patch's session", ids(other), []string{s1, "e3"})
		equal(t, "events of the run before it appends", ids(run), []string{"e1", "e2", "e3"})
		noError(t, s.AppendEvent(ctx, run, textEvent("e4", "agent", "x")))
		equal(t, "events of the run", ids(run), []string{s1, "e3", "e4"})
		equal(t, "state of the run", stateOf(run), map[string]any{"e1": true, "e2": true, "e3": true, "temp:t": 1})

		noError(t, errOf(s.reopened().ApplyPatch(ctx, run, []*patch.PatchEvent{patch.NewTruncateBefore("e4")}, store.PatchOptions{})))
		equal(t, "events after a cut", ids(run), []string{"e4"})
		equal(t, "state after a cut", stateOf(run), map[string]any{"temp:t": 1})

		// Another Session value does not show the patch yet.
		before := ids(other)
		wantError(t, errOf(s.reopened().ApplyPatch(ctx, other, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})), store.ErrConflict)
		wantError(t, errOf(s.reopened().Preview(ctx, other, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})), store.ErrConflict)
		equal(t, "events after a conflict", ids(other), before)
		noError(t, s.AppendEvent(ctx, other, textEvent("e5", "user", "x")))
		equal(t, "events of the other", ids(other), []string{"e4", "e5"})

		preview, err := s.reopened().Preview(ctx, other, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})
		noError(t, err)
		equal(t, "events of a preview", preview.After.Len(), 1)
		equal(t, "events after a preview", ids(other), []string{"e4", "e5"})

		view, err := s.reopened().ViewAt(ctx, run, 3)
		noError(t, err)
		equal(t, "events at 3", view.Len(), 3)
		equal(t, "state at 3", view.State(), map[string]any{"e1": true, "e2": true, "e3": true})
		wantError(t, errOf(s.reopened().ViewAt(ctx, run, 99)), store.ErrNotFound)

		var audit []string
		for r, err := range s.reopened().RawEvents(ctx, run, 2) {
			noError(t, err)
			if r.Patch != nil {
				audit = append(audit, string(r.Patch.Type()))
				continue
			}
			e, err := adk.SessionEvent(r.Event)
			noError(t, err)
			audit = append(audit, e.ID)
		}
		equal(t, "audit log", audit, []string{"e2", "e3", "summarise", "e4", "truncate_before", "e5"})
	})
}

// A Session value of a deleted session fails with ErrNotFound, even if a new session has the same id.
func TestDeletedAndCreatedAgain(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		ctx := t.Context()
		old := create(t, s, "s", nil)
		noError(t, s.AppendEvent(ctx, old, textEvent("e1", "user", "x")))
		refused := func(when string) {
			for name, call := range handleCalls(s.reopened) {
				t.Run(name+when, func(t *testing.T) { wantError(t, call(ctx, old), store.ErrNotFound) })
			}
		}
		noError(t, s.Delete(ctx, &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		refused(" when deleted")
		recreated := create(t, s, "s", nil)
		noError(t, s.AppendEvent(ctx, recreated, textEvent("f1", "user", "x")))
		refused(" when created again")
		equal(t, "events of the new session", ids(get(t, s, "s")), []string{"f1"})
	})
}

// Several goroutines can use one Session while other Sessions append to the same log.
func TestConcurrentUse(t *testing.T) {
	t.Run("store", func(t *testing.T) { testConcurrentUse(t, inMemory(t), nil) })
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		testConcurrentUse(t, wrap(t, base, adk.Options{Logger: discardLogger()}), base)
	})
}

func testConcurrentUse(t *testing.T, svc *adk.Service, base session.Service) {
	const writers, each = 6, 10
	ctx := t.Context()
	shared := create(t, svc, "s", nil)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			sess := shared
			if w%2 == 1 {
				sess = get(t, svc, "s")
			}
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				e := timedEvent(w*each+i, id, "agent")
				e.Actions.StateDelta = map[string]any{fmt.Sprint("k", w): i, "app:last": id, "temp:t": i}
				if err := svc.AppendEvent(ctx, sess, e); err != nil {
					t.Error(err)
					return
				}
				own := false
				for e := range sess.Events().All() {
					own = own || e.ID == id
					if sess != shared {
						e.Content.Parts[0].Text = "scribbled" // e is the reader's own copy
					}
				}
				if v, err := sess.State().Get(fmt.Sprint("k", w)); !own || err != nil || v != i {
					t.Errorf("after %s the session shows it: %v, and k is %v, %v", id, own, v, err)
				}
				_ = sess.State().Set("temp:x", w)
				for range sess.State().All() {
				}
			}
		})
	}
	group.Go(func() {
		for range each {
			sess := get(t, svc, "s")
			p := patch.NewSplice(0, min(1, sess.Events().Len()), summaryEvent(t, "note")).WithState(patch.Keep)
			if _, err := svc.ApplyPatch(ctx, sess, []*patch.PatchEvent{p}, store.PatchOptions{}); err != nil && !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		}
	})
	group.Wait()
	equal(t, "events in the audit log", loggedEvents(t, svc, shared), writers*each)
	if base != nil {
		other := wrap(t, base, adk.Options{Logger: discardLogger()})
		equal(t, "events that another service sees", len(ids(get(t, other, "s"))), len(ids(get(t, svc, "s"))))
	}
	for _, sess := range []session.Session{shared, get(t, svc, "s")} {
		for e := range sess.Events().All() {
			if e.Content.Parts[0].Text == "scribbled" {
				t.Error("a change to another session's copy of an event is visible")
			}
		}
	}
}

// A failed append leaves the session unchanged. Failed and successful appends can be retried. Another event with
// the same id is refused.
func TestAppendFailure(t *testing.T) {
	for _, c := range []struct {
		name string
		plan storetest.Plan
		want error
	}{
		{"refused", storetest.Plan{Write: 1, Failure: storetest.Refused}, storetest.ErrInjected},
		{"unknown", storetest.Plan{Write: 1, Failure: storetest.Applied, FailNext: 10}, store.ErrOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			faulty := &storetest.Faulty{Backend: new(memory.Backend)}
			svc := newService(t, mustOpen(t)(store.New(faulty, store.Options{})))
			sess := create(t, svc, "s", nil)
			faulty.Plan(c.plan)
			e := deltaEvent("", map[string]any{"k": 1, "temp:t": 1})
			wantError(t, svc.AppendEvent(t.Context(), sess, e), c.want)
			equal(t, "events", ids(sess), []string{})
			equal(t, "state", stateOf(sess), map[string]any{})
			if errors.Is(c.want, store.ErrOutcomeUnknown) && e.ID == "" {
				t.Error("the event lacks the id under which it may be logged")
			}
			faulty.Plan(storetest.Plan{})
			noError(t, svc.AppendEvent(t.Context(), sess, e))
			equal(t, "events after a retry", ids(get(t, svc, "s")), []string{e.ID})
			equal(t, "state after a retry", stateOf(sess), map[string]any{"k": 1, "temp:t": 1})
			noError(t, svc.AppendEvent(t.Context(), sess, e)) // retry
			equal(t, "events after another one", ids(sess), []string{e.ID})
			e.Author = "another"
			err := svc.AppendEvent(t.Context(), sess, e)
			wantError(t, err, store.ErrDuplicateID)
			if !strings.Contains(err.Error(), e.ID) {
				t.Errorf("the error %q does not name the id", err)
			}
		})
	}
}

// If ADK's types cannot hold some fields of an imported event, the session shows the other fields, and one warning is
// logged.
func TestUnreadableFieldsAreReported(t *testing.T) {
	var log bytes.Buffer
	s := inMemoryStore(t)
	svc, err := adk.NewService(s, adk.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	noError(t, err)
	noError(t, errOf(s.Import(t.Context(), testKey, strings.NewReader(`{"id":"e","author":"user","errorCode":7,"modelVersion":"m","new":{"x":1}}`+"\n"), store.ImportOptions{})))
	for range 2 {
		equal(t, "event", get(t, svc, "s").Events().At(0).Author, "user")
	}
	if n := strings.Count(log.String(), "errorCode"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, &log)
	}
	for r, err := range svc.RawEvents(t.Context(), get(t, svc, "s"), 1) {
		noError(t, err)
		_, ok := r.Event.Field("errorCode")
		equal(t, "the audit log has the field", ok, true)
		e, err := adk.SessionEvent(r.Event)
		wantError(t, err, patch.ErrInvalid)
		if !strings.Contains(err.Error(), "errorCode") {
			t.Errorf("the error %q does not name the field", err)
		}
		e.Timestamp = time.Time{} // the import sets the time
		equal(t, "event", e, &session.Event{ID: "e", Author: "user", LLMResponse: model.LLMResponse{ModelVersion: "m"}})
	}
	wantError(t, errOf(svc.ApplyPatch(t.Context(), get(t, svc, "s"), []*patch.PatchEvent{patch.NewSplice(0, 2)}, store.PatchOptions{})), fold.ErrOutOfRange)
}

// LastUpdateTime always equals that of ADK's in-memory service, for an old and for a new Session.
func TestLastUpdateTimeEqualsADK(t *testing.T) {
	early := time.Date(2020, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	ctx := platform.WithTimeProvider(context.Background(), func() time.Time { return early })
	at := func(id string, when time.Time) *session.Event {
		e := textEvent(id, "user", "words of "+id)
		e.Timestamp = when
		return e
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			theirs, own := session.InMemoryService(), reopeningService{t, b.make(t)}
			var handles [2]session.Session
			for i, s := range []session.Service{theirs, own} {
				r, err := s.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
				noError(t, err)
				handles[i] = r.Session
			}
			same := func(step string) {
				t.Helper()
				want := handles[0].LastUpdateTime()
				listed, err := own.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
				noError(t, err)
				for by, sess := range map[string]session.Session{"the handle": handles[1], "got": get(t, own, "s"), "listed": listed.Sessions[0]} {
					if got := sess.LastUpdateTime(); !got.Equal(want) {
						t.Errorf("%s: %s says %v, want %v", step, by, got, want)
					}
				}
			}
			same("created")
			for _, e := range []*session.Event{
				at("e1", early.Add(time.Hour)), at("e2", early.Add(-time.Hour)), at("e3", time.Time{}), at("e4", early.Add(time.Nanosecond)),
			} {
				noError(t, theirs.AppendEvent(ctx, handles[0], e))
				noError(t, own.AppendEvent(ctx, handles[1], e))
				same("after " + e.ID)
			}
			// Patches do not change LastUpdateTime.
			r, err := patch.NewEvent(patch.Fields{ID: "r", Author: "user", Timestamp: early.Add(time.Minute)})
			noError(t, err)
			for _, p := range []*patch.PatchEvent{patch.NewSplice(3, 1, r), patch.NewSplice(0, 2)} {
				fresh := get(t, own, "s")
				noError(t, errOf(own.reopened().ApplyPatch(t.Context(), fresh, []*patch.PatchEvent{p}, store.PatchOptions{})))
				same("after a patch")
			}
		})
	}
}

// The service rejects every request that ADK's in-memory service rejects, with the same text. For other rejected
// requests, the error names the reason.
func TestRefusedRequests(t *testing.T) {
	ctx := t.Context()
	long := string(make([]byte, store.MaxKeyPartBytes+1))
	foreign := map[bool]session.Session{true: create(t, session.InMemoryService(), "s", nil), false: create(t, inMemory(t), "s", nil)} // sessions of the other service, by whether the service under test is patchlog's
	e, partial := textEvent("e", "user", "x"), textEvent("p", "user", "x")
	partial.Partial = true
	request := func(r any) func(session.Service, session.Session) error {
		return func(s session.Service, _ session.Session) error {
			switch r := r.(type) {
			case *session.CreateRequest:
				return errOf(s.Create(ctx, r))
			case *session.GetRequest:
				return errOf(s.Get(ctx, r))
			case *session.ListRequest:
				return errOf(s.List(ctx, r))
			}
			return s.Delete(ctx, r.(*session.DeleteRequest))
		}
	}
	appended := func(to func(its session.Session, ours bool) session.Session, e *session.Event) func(session.Service, session.Session) error {
		return func(s session.Service, its session.Session) error {
			_, ours := s.(*adk.Service)
			return s.AppendEvent(ctx, to(its, ours), e)
		}
	}
	none := func(session.Session, bool) session.Session { return nil }
	sameSession := func(its session.Session, _ bool) session.Session { return its }
	foreignSession := func(_ session.Session, ours bool) session.Session { return foreign[ours] }
	for name, c := range map[string]struct {
		call func(s session.Service, its session.Session) error
		want error
		says string // text that the error must contain; "" means that the error must have the text of ADK's error
	}{
		"create without app":                {request(&session.CreateRequest{UserID: "user", SessionID: "s"}), store.ErrInvalid, ""},
		"create without user":               {request(&session.CreateRequest{AppName: "app", SessionID: "s"}), store.ErrInvalid, ""},
		"create again":                      {request(&session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"}), store.ErrExists, ""},
		"create with a long id":             {request(&session.CreateRequest{AppName: "app", UserID: "user", SessionID: long}), store.ErrInvalid, "session"},
		"create with a channel":             {request(&session.CreateRequest{AppName: "app", UserID: "user", SessionID: "c", State: map[string]any{"k": make(chan int)}}), store.ErrInvalid, "k"},
		"create nil":                        {request((*session.CreateRequest)(nil)), store.ErrInvalid, "request"},
		"get without app":                   {request(&session.GetRequest{UserID: "user", SessionID: "s"}), store.ErrInvalid, ""},
		"get without user":                  {request(&session.GetRequest{AppName: "app", SessionID: "s"}), store.ErrInvalid, ""},
		"get without id":                    {request(&session.GetRequest{AppName: "app", UserID: "user"}), store.ErrInvalid, ""},
		"get what is not there":             {request(&session.GetRequest{AppName: "app", UserID: "user", SessionID: "x"}), store.ErrNotFound, ""},
		"get nil":                           {request((*session.GetRequest)(nil)), store.ErrInvalid, "request"},
		"list without app":                  {request(&session.ListRequest{UserID: "user"}), store.ErrInvalid, ""},
		"list nil":                          {request((*session.ListRequest)(nil)), store.ErrInvalid, "request"},
		"delete without app":                {request(&session.DeleteRequest{UserID: "user", SessionID: "s"}), store.ErrInvalid, ""},
		"delete without user":               {request(&session.DeleteRequest{AppName: "app", SessionID: "s"}), store.ErrInvalid, ""},
		"delete without id":                 {request(&session.DeleteRequest{AppName: "app", UserID: "user"}), store.ErrInvalid, ""},
		"delete what is not there":          {request(&session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "x"}), nil, ""},
		"delete nil":                        {request((*session.DeleteRequest)(nil)), store.ErrInvalid, "request"},
		"append to nothing":                 {appended(none, e), store.ErrInvalid, ""},
		"append nothing":                    {appended(sameSession, nil), store.ErrInvalid, ""},
		"append nothing to nothing":         {appended(none, nil), store.ErrInvalid, ""},
		"append to another's":               {appended(foreignSession, e), store.ErrInvalid, ""},
		"append what is partial to another": {appended(foreignSession, partial), nil, ""},
		"append to a nil handle":            {appended(func(session.Session, bool) session.Session { return (*adk.Session)(nil) }, e), store.ErrInvalid, "session"},
		"append to another store's": {appended(func(session.Session, bool) session.Session {
			return create(t, inMemory(t), "another", nil)
		}, e), store.ErrNotFound, "not found"},
		"append to what was deleted": {func(s session.Service, its session.Session) error {
			noError(t, s.Delete(ctx, &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
			return s.AppendEvent(ctx, its, e)
		}, store.ErrNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			own := inMemory(t)
			err := c.call(own, create(t, own, "s", nil))
			if c.want != nil || err != nil {
				wantError(t, err, c.want)
			}
			if c.says != "" {
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error %q does not name %q", err, c.says)
				}
				return
			}
			theirs := session.InMemoryService()
			words := func(err error, ours bool) string {
				return strings.Replace(fmt.Sprint(err), fmt.Sprintf("%T", foreign[ours]), "its type", 1)
			}
			equal(t, "words", words(err, true), words(c.call(theirs, create(t, theirs, "s", nil)), false))
		})
	}
}

// Every method returns an explanatory error for a nil argument, a session of another service, an ended context and
// a closed store. With an ended context, it writes nothing.
func TestMethodsRefuse(t *testing.T) {
	ctx, db := t.Context(), inMemoryStore(t)
	svc := newService(t, db)
	sess := create(t, svc, "s", nil)
	methods := handleCalls(func() *adk.Service { return svc })
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	late, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for name, do := range methods {
		for _, c := range []struct {
			sess session.Session
			says string
		}{{nil, "session is nil"}, {(*adk.Session)(nil), "session is nil"}, {create(t, session.InMemoryService(), "s", nil), "type *session.session for session ID s"}} {
			err := do(ctx, c.sess)
			wantError(t, err, patch.ErrInvalid)
			if !strings.HasSuffix(err.Error(), c.says) {
				t.Errorf("%s: the error %q does not say %q", name, err, c.says)
			}
		}
	}
	for _, name := range []string{"append", "patch"} {
		wantError(t, methods[name](canceled, sess), context.Canceled)
		wantError(t, methods[name](late, sess), context.DeadlineExceeded)
	}
	equal(t, "events", ids(get(t, svc, "s")), []string{})
	for says, err := range map[string]error{
		"event":      errOf(adk.NewEvent(nil)),
		"the event":  errOf(adk.SessionEvent(nil)),
		"nil":        errOf(svc.ApplyPatch(ctx, sess, []*patch.PatchEvent{nil}, store.PatchOptions{})),
		"patch 0":    errOf(svc.Preview(ctx, sess, []*patch.PatchEvent{nil}, store.PatchOptions{})),
		"store":      errOf(adk.NewService(nil, adk.Options{})),
		"Summarizer": errOf(adk.NewService(db, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: compaction.SummarizerFunc(nil)}})),
	} {
		wantError(t, err, patch.ErrInvalid)
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the error %q does not say %q", err, says)
		}
	}
	noError(t, svc.AppendEvent(ctx, sess, textEvent("e0", "user", "x")))
	noError(t, db.Close())
	wantError(t, methods["append"](ctx, sess), store.ErrClosed)
	wantError(t, errOf(svc.List(ctx, &session.ListRequest{AppName: "app"})), store.ErrClosed)
	equal(t, "events", ids(sess), []string{"e0"})
}

// ADK's acceptance suite passes on every backend, and on ADK's own services if they are wrapped.
func TestServiceSuite(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			opts := sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}
			sessiontestsuite.RunServiceTests(t, opts, func(t *testing.T) session.Service {
				return reopeningService{t, b.make(t)}
			})
		})
	}
	for _, b := range bases {
		t.Run("wrapped "+b.name, func(t *testing.T) {
			opts := sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}
			sessiontestsuite.RunServiceTests(t, opts, func(t *testing.T) session.Service {
				return wrap(t, b.make(t), adk.Options{})
			})
		})
	}
}

// A session shows the state of the log. It shows its own appended values with their Go types until the log has
// other values.
func TestStateFollowsLog(t *testing.T) {
	type order struct{ N int }
	for name, svc := range map[string]*adk.Service{"store": inMemory(t), "wrapped": wrap(t, session.InMemoryService(), adk.Options{})} {
		t.Run(name, func(t *testing.T) {
			sess := create(t, svc, "s", map[string]any{"k": 0})
			noError(t, svc.AppendEvent(t.Context(), sess, textEvent("e0", "user", "x")))
			e := textEvent("e1", "user", "x")
			e.Actions.StateDelta = map[string]any{"k": order{1}, "new": []error{errors.New("no")}, "app:x": order{1}, "temp:t": order{1}}
			noError(t, svc.AppendEvent(t.Context(), sess, e))
			want := map[string]any{"k": order{1}, "new": []error{errors.New("no")}, "app:x": order{1}, "temp:t": order{1}}
			equal(t, "state in the run", stateOf(sess), want)
			for key := range want {
				value, err := sess.State().Get(key)
				noError(t, err)
				equal(t, key, value, want[key])
			}
			e2 := textEvent("e2", "user", "x")
			e2.Actions.StateDelta = map[string]any{"app:x": 2, "user:y": 2}
			noError(t, svc.AppendEvent(t.Context(), create(t, svc, "other", nil), e2))
			noError(t, svc.AppendEvent(t.Context(), sess, e))
			equal(t, "app:x after the retry", stateOf(sess)["app:x"], any(2))
			equal(t, "user:y after the retry", stateOf(sess)["user:y"], any(2))
			noError(t, errOf(svc.Rewind(t.Context(), sess, "inv-e1")))
			equal(t, "state after the rewind", stateOf(sess), map[string]any{"k": 0, "app:x": 2, "user:y": 2, "temp:t": order{1}})
			if _, err := sess.State().Get("new"); !errors.Is(err, session.ErrStateKeyNotExist) {
				t.Errorf("after the rewind, Get of the key returned %v", err)
			}
		})
	}
}

func TestADKErrors(t *testing.T) {
	onStoreAndBases(t, bases[:1], adk.Options{}, func(t *testing.T, s *adk.Service) {
		sess := create(t, s, "s", nil)
		noError(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		noError(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		errADK := errors.New("not found")
		adk.SetMissingError(t, fmt.Errorf("session %q: %w", "s", errADK))
		for _, err := range []error{
			errOf(s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})),
			s.AppendEvent(t.Context(), sess, textEvent("e", "user", "x")),
		} {
			wantError(t, err, store.ErrNotFound)
			wantError(t, err, errADK)
		}
		err := s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"})
		if _, wrapped := s.Base(); !wrapped { // a wrapped service returns the base's error unchanged
			wantError(t, err, store.ErrNotFound)
			wantError(t, err, errADK)
		}
	})
}

func TestOptionsAreValidated(t *testing.T) {
	for _, c := range []struct {
		field string
		opts  adk.Options
	}{
		{"Options.Runs", adk.Options{Runs: 7}},
		{"Options.Compaction.Enabled", adk.Options{Compaction: compaction.Config{TokenThreshold: 5000}}},
		{"Options.Compaction.Enabled", adk.Options{Compaction: compaction.Config{CompactionInterval: 5}, Model: shortener{}}},
		{"Options.Compaction.TokenThreshold", adk.Options{Compaction: compaction.Config{Enabled: true, TokenThreshold: -1}}},
		{"Options.Compaction.Summarizer", adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(nil)}}},
		{"Options.MaxResultTokens", adk.Options{MaxResultTokens: 1}},
		{"Options.Compaction", adk.Options{Compaction: compaction.Config{Enabled: true}}},
		{"Options.Model", adk.Options{Model: shortener{}}},
		{"Options.Model", adk.Options{Model: (*nilModel)(nil), Compaction: compaction.DefaultConfig()}},
	} {
		for _, err := range []error{c.opts.Validate(), errOf(adk.NewService(inMemoryStore(t), c.opts)), errOf(adk.Wrap(session.InMemoryService(), c.opts))} {
			wantError(t, err, patch.ErrInvalid)
			if err != nil && !strings.Contains(err.Error(), c.field) {
				t.Errorf("%q does not name %s", err, c.field)
			}
		}
	}
	wantError(t, errOf(adk.Summarizer(nil).Summarize(t.Context(), compaction.Request{})), patch.ErrInvalid)
}

// ApplyPatch logs all patches of a call or none. With AllowOrphans, the patches may separate calls from responses.
func TestPatchesOfOneCall(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		sess := create(t, s, "s", nil)
		appendAll(t, s, sess, withTimes(0, newEvent("u1", "i1", "user"), newEvent("c1", "i1", "app", withCall("c", "look")), newEvent("r1", "i1", "app", withResponse("c", "look", nil)), newEvent("a1", "i1", "app"))...)
		patches := []*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(2, 1)}
		wantError(t, errOf(s.Preview(t.Context(), sess, patches, store.PatchOptions{})), fold.ErrOrphanedCall)
		wantError(t, errOf(s.ApplyPatch(t.Context(), sess, patches, store.PatchOptions{})), fold.ErrOrphanedCall)
		equal(t, "events", get(t, s, "s").Events().Len(), 4)
		done, err := s.ApplyPatch(t.Context(), sess, patches, store.PatchOptions{AllowOrphans: true})
		noError(t, err)
		equal(t, "records", len(done.Records), 2)
		equal(t, "events", ids(sess), []string{"u1", "c1"})
		equal(t, "events", ids(get(t, s, "s")), []string{"u1", "c1"})
	})
}
