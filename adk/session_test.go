package adk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestSessionSeesItsOwnAppends(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		sess := create(t, s, "s", map[string]any{"tenant": "t1", "app:a": 1, "temp:gone": true})
		equal(t, "initial state", stateOf(sess), map[string]any{"tenant": "t1", "app:a": 1})
		equal(t, "events", ids(sess), []string{})
		before := sess.Events()
		e := delta("e1", map[string]any{"k": "v", "app:a": 2, "user:u": []any{"x"}, "temp:t": 3, "nothing": nil})
		no(t, s.AppendEvent(t.Context(), sess, e))
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
		no(t, sess.State().Set(key, value))
		got, err := sess.State().Get(key)
		no(t, err)
		equal(t, key, got, value)
	}
	fails(t, errOf(sess.State().Get("absent")), session.ErrStateKeyNotExist)
	equal(t, "state of another", stateOf(get(t, svc, "s")), map[string]any{"k": 1})

	// A temp: key may hold anything.
	no(t, svc.AppendEvent(t.Context(), sess, delta("e1", map[string]any{"temp:conn": make(chan int)})))
	// What an event says comes after what was set.
	no(t, svc.AppendEvent(t.Context(), sess, delta("e2", map[string]any{"k": 3})))
	got, err := sess.State().Get("k")
	no(t, err)
	equal(t, "k", got, any(3))
	// A value of a type that does not come back is there as it is while the run lasts.
	no(t, svc.AppendEvent(t.Context(), sess, delta("e3", map[string]any{"k": mood("glad")})))
	got, err = sess.State().Get("k")
	no(t, err)
	equal(t, "k in the run", got, any(mood("glad")))
	equal(t, "state of another", stateOf(get(t, svc, "s")), map[string]any{"k": "glad"})
}

func TestStateIterationIsASnapshot(t *testing.T) {
	sess := create(t, inMemory(t), "s", map[string]any{"a": 1, "b": 2})
	seen := 0
	for key := range sess.State().All() {
		no(t, sess.State().Set(key+"+", 0))
		seen++
	}
	equal(t, "keys seen", seen, 2)
	for range sess.State().All() {
		break
	}
}

func TestEventsOutOfRange(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	no(t, svc.AppendEvent(t.Context(), sess, text("e1", "user", "hi")))
	filtered, err := svc.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", NumRecentEvents: 5})
	no(t, err)
	for _, events := range []session.Events{sess.Events(), filtered.Session.Events()} {
		equal(t, "len", events.Len(), 1)
		if events.At(-1) != nil || events.At(1) != nil || events.At(0) == nil {
			t.Error("At is not nil out of range alone")
		}
		for range events.All() {
			break
		}
	}
}

// A session that was got with a filter goes on from what that chose.
func TestFilteredSessions(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	at := func(id string, second int) *session.Event {
		e := text(id, "user", id)
		e.Timestamp = time.Unix(int64(second), 0)
		e.Actions.StateDelta = map[string]any{id: second}
		return e
	}
	for i, id := range []string{"a", "b", "c", "d"} {
		no(t, svc.AppendEvent(t.Context(), sess, at(id, []int{5, 1, 3, 3}[i])))
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
			no(t, err)
			n := len(c.want) - 1
			equal(t, "events", ids(r.Session), c.want[:n])
			equal(t, "state", stateOf(r.Session), map[string]any{"a": 5, "b": 1, "c": 3, "d": 3})
			id := "new " + c.name
			no(t, svc.AppendEvent(t.Context(), r.Session, text(id, "user", "x")))
			equal(t, "events after an append", ids(r.Session), append(c.want[:n:n], id))
			// What is patched away goes, what comes in its place is new.
			from := r.Session.(*adk.Session).View().Len() - 1
			no(t, errOf(svc.ApplyPatch(t.Context(), r.Session, patch.NewSplice(from, 1))))
			equal(t, "events after a patch", ids(r.Session), c.want[:n])
		})
	}
}

func TestListedSessions(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		sess := create(t, s, "s", map[string]any{"k": 1, "user:u": 2})
		no(t, s.AppendEvent(t.Context(), sess, text("e1", "user", "hi")))
		list, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		no(t, err)
		equal(t, "sessions", len(list.Sessions), 1)
		got := list.Sessions[0]
		equal(t, "name", []string{got.AppName(), got.UserID(), got.ID()}, []string{"app", "user", "s"})
		equal(t, "events", ids(got), []string{})
		equal(t, "state", stateOf(got), map[string]any{"k": 1, "user:u": 2})
		equal(t, "time", got.LastUpdateTime(), sess.LastUpdateTime())
		no(t, s.AppendEvent(t.Context(), got, text("e2", "user", "x")))
		equal(t, "events", ids(got), []string{"e2"})
		none, err := s.List(t.Context(), &session.ListRequest{AppName: "another"})
		no(t, err)
		if none.Sessions == nil || len(none.Sessions) > 0 {
			t.Errorf("sessions of an app that has none: %v", none.Sessions)
		}
	})
}

func TestRequestsThatAreRefused(t *testing.T) {
	svc := inMemory(t)
	ctx := t.Context()
	sess := create(t, svc, "s", nil)
	long := string(make([]byte, store.MaxKeyPartBytes+1))
	for _, c := range []struct {
		name string
		call func() error
		want error
	}{
		{"create again", func() error { return createErr(t, svc, "app", "user", "s", nil) }, store.ErrExists},
		{"create without app", func() error { return createErr(t, svc, "", "user", "s", nil) }, store.ErrInvalid},
		{"create without user", func() error { return createErr(t, svc, "app", "", "s", nil) }, store.ErrInvalid},
		{"create with a long id", func() error { return createErr(t, svc, "app", "user", long, nil) }, store.ErrInvalid},
		{"create with a channel", func() error {
			return createErr(t, svc, "app", "user", "c", map[string]any{"k": make(chan int)})
		}, store.ErrInvalid},
		{"create nil", func() error { _, err := svc.Create(ctx, nil); return err }, store.ErrInvalid},
		{"get nil", func() error { _, err := svc.Get(ctx, nil); return err }, store.ErrInvalid},
		{"get without id", func() error {
			_, err := svc.Get(ctx, &session.GetRequest{AppName: "app", UserID: "user"})
			return err
		}, store.ErrInvalid},
		{"get what is not there", func() error {
			_, err := svc.Get(ctx, &session.GetRequest{AppName: "app", UserID: "user", SessionID: "x"})
			return err
		}, store.ErrNotFound},
		{"list nil", func() error { _, err := svc.List(ctx, nil); return err }, store.ErrInvalid},
		{"list without app", func() error { _, err := svc.List(ctx, &session.ListRequest{}); return err }, store.ErrInvalid},
		{"delete nil", func() error { return svc.Delete(ctx, nil) }, store.ErrInvalid},
		{"delete without id", func() error {
			return svc.Delete(ctx, &session.DeleteRequest{AppName: "app", UserID: "user"})
		}, store.ErrInvalid},
		{"append nothing", func() error { return svc.AppendEvent(ctx, sess, nil) }, store.ErrInvalid},
		{"append to nothing", func() error { return svc.AppendEvent(ctx, nil, text("e", "user", "x")) }, store.ErrInvalid},
		{"append to a nil session", func() error { return svc.AppendEvent(ctx, (*adk.Session)(nil), text("e", "user", "x")) }, store.ErrInvalid},
		{"service without a store", func() error { _, err := adk.NewService(nil, adk.Options{}); return err }, store.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) { fails(t, c.call(), c.want) })
	}
}

func createErr(t *testing.T, s session.Service, app, user, id string, state map[string]any) error {
	_, err := s.Create(t.Context(), &session.CreateRequest{AppName: app, UserID: user, SessionID: id, State: state})
	if err == nil {
		return errors.New("created")
	}
	return err
}

func summary(t *testing.T, words string) *patch.Event {
	t.Helper()
	p, err := adk.NewEvent(text("", "user", words))
	no(t, err)
	return p
}

// A patch that lands during a run neither makes the next append fail nor stays unseen.
func TestPatchMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		ctx := t.Context()
		run := create(t, s, "s", nil)
		for _, id := range []string{"e1", "e2", "e3"} {
			e := text(id, "user", id)
			e.Actions.StateDelta = map[string]any{id: true}
			no(t, s.AppendEvent(ctx, run, e))
		}
		no(t, run.State().Set("temp:t", 1))
		other := get(t, s, "s")
		done, err := s.now().ApplyPatch(ctx, other, patch.NewSummarise(0, 2, summary(t, "so far")))
		no(t, err)
		equal(t, "seq", done.Records[0].Seq, uint64(4))
		s1 := done.Records[0].Patch.NewEvents()[0].ID()
		equal(t, "events of the patch's session", ids(other), []string{s1, "e3"})
		equal(t, "events of the run before it appends", ids(run), []string{"e1", "e2", "e3"})
		no(t, s.AppendEvent(ctx, run, text("e4", "agent", "x")))
		equal(t, "events of the run", ids(run), []string{s1, "e3", "e4"})
		equal(t, "state of the run", stateOf(run), map[string]any{"e1": true, "e2": true, "e3": true, "temp:t": 1})

		no(t, errOf(s.now().ApplyPatch(ctx, run, patch.NewTruncateBefore("e4"))))
		equal(t, "events after a cut", ids(run), []string{"e4"})
		equal(t, "state after a cut", stateOf(run), map[string]any{"temp:t": 1})

		// The other session has not seen that.
		before := ids(other)
		fails(t, errOf(s.now().ApplyPatch(ctx, other, patch.NewSplice(0, 1))), store.ErrConflict)
		fails(t, errOf(s.now().Preview(ctx, other, patch.NewSplice(0, 1))), store.ErrConflict)
		equal(t, "events after a conflict", ids(other), before)
		no(t, s.AppendEvent(ctx, other, text("e5", "user", "x")))
		equal(t, "events of the other", ids(other), []string{"e4", "e5"})

		preview, err := s.now().Preview(ctx, other, patch.NewSplice(0, 1))
		no(t, err)
		equal(t, "events of a preview", preview.After.Len(), 1)
		equal(t, "events after a preview", ids(other), []string{"e4", "e5"})

		view, err := s.now().ViewAt(ctx, run, 3)
		no(t, err)
		equal(t, "events at 3", view.Len(), 3)
		equal(t, "state at 3", view.State(), map[string]any{"e1": true, "e2": true, "e3": true})
		fails(t, errOf(s.now().ViewAt(ctx, run, 99)), store.ErrNotFound)

		var audit []string
		for r, err := range s.now().RawEvents(ctx, run, 2) {
			no(t, err)
			if r.Patch != nil {
				audit = append(audit, string(r.Patch.Type()))
				continue
			}
			e, err := adk.SessionEvent(r.Event)
			no(t, err)
			audit = append(audit, e.ID)
		}
		equal(t, "audit log", audit, []string{"e2", "e3", "summarise", "e4", "truncate_before", "e5"})
	})
}

// A session that was deleted is gone for those who hold it, also if there is a new one
// of its name.
func TestDeletedAndCreatedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		ctx := t.Context()
		old := create(t, s, "s", nil)
		no(t, s.AppendEvent(ctx, old, text("e1", "user", "x")))
		operations := map[string]func() error{
			"append":  func() error { return s.AppendEvent(ctx, old, text("e2", "user", "x")) },
			"patch":   func() error { _, err := s.now().ApplyPatch(ctx, old, patch.NewSplice(0, 1)); return err },
			"preview": func() error { _, err := s.now().Preview(ctx, old, patch.NewSplice(0, 1)); return err },
			"view at": func() error { _, err := s.now().ViewAt(ctx, old, 0); return err },
			"raw":     func() error { return firstError(s.now().RawEvents(ctx, old, 1)) },
		}
		no(t, s.Delete(ctx, &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		for name, call := range operations {
			t.Run(name+" when deleted", func(t *testing.T) { fails(t, call(), store.ErrNotFound) })
		}
		young := create(t, s, "s", nil)
		no(t, s.AppendEvent(ctx, young, text("f1", "user", "x")))
		for name, call := range operations {
			t.Run(name+" when created again", func(t *testing.T) { fails(t, call(), store.ErrNotFound) })
		}
		equal(t, "events of the new session", ids(get(t, s, "s")), []string{"f1"})
	})
}

func firstError(records iter.Seq2[patch.Record, error]) error {
	for _, err := range records {
		return err
	}
	return errors.New("no records")
}

func TestSessionOfAnotherService(t *testing.T) {
	other := create(t, session.InMemoryService(), "s", nil)
	svc := inMemory(t)
	ctx := t.Context()
	for name, err := range map[string]error{
		"append":  svc.AppendEvent(ctx, other, text("e", "user", "x")),
		"raw":     firstError(svc.RawEvents(ctx, other, 1)),
		"patch":   errOf(svc.ApplyPatch(ctx, other, patch.NewSplice(0, 1))),
		"preview": errOf(svc.Preview(ctx, other, patch.NewSplice(0, 1))),
		"view at": errOf(svc.ViewAt(ctx, other, 1)),
	} {
		fails(t, err, store.ErrInvalid)
		if !strings.Contains(err.Error(), "*session.session") || !strings.HasSuffix(err.Error(), " session ID s") {
			t.Errorf("%s: the error %q does not name the session's type and id", name, err)
		}
	}
	// A session of another store of ours is not found.
	fails(t, svc.AppendEvent(ctx, create(t, inMemory(t), "s", nil), text("e", "user", "x")), store.ErrNotFound)
}

func TestAppendAgain(t *testing.T) {
	svc := inMemory(t)
	ctx := t.Context()
	sess := create(t, svc, "s", nil)
	e := text("", "user", "x")
	no(t, svc.AppendEvent(ctx, sess, e))
	if e.ID == "" || !e.Timestamp.Equal(sess.Events().At(0).Timestamp) {
		t.Errorf("the event was given the id %q", e.ID)
	}
	equal(t, "events", ids(sess), []string{e.ID})
	no(t, svc.AppendEvent(ctx, sess, e))
	equal(t, "events after a retry", ids(sess), []string{e.ID})
	e.Author = "agent"
	err := svc.AppendEvent(ctx, sess, e)
	fails(t, err, store.ErrDuplicateID)
	if !strings.Contains(err.Error(), e.ID) {
		t.Errorf("the error %q does not name the id", err)
	}
}

func TestPartialEventsDoNothing(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	e := delta("e", map[string]any{"k": 1, "temp:k": 1})
	e.Partial = true
	no(t, svc.AppendEvent(t.Context(), sess, e))
	equal(t, "events", ids(sess), []string{})
	equal(t, "state", stateOf(sess), map[string]any{})
}

func TestContextIsHonoured(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		sess := create(t, s, "s", nil)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
		defer cancel()
		for ctx, want := range map[context.Context]error{canceled: context.Canceled, late: context.DeadlineExceeded} {
			fails(t, s.AppendEvent(ctx, sess, text("e", "user", "x")), want)
			fails(t, errOf(s.now().ApplyPatch(ctx, sess, patch.NewSplice(0, 0, summary(t, "x")))), want)
		}
		equal(t, "events", ids(get(t, s, "s")), []string{})
	})
}

// Several goroutines use one session while others use the same log through their own.
func TestConcurrentUse(t *testing.T) {
	const writers, each = 6, 30
	svc, err := adk.NewService(opened(t)(store.OpenMemory(store.Options{})), adk.Options{}.WithCache(2000))
	no(t, err)
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
				e := text(id, "agent", id)
				e.Actions.StateDelta = map[string]any{fmt.Sprint("k", w): i, "app:last": id, "temp:t": i}
				if err := svc.AppendEvent(ctx, sess, e); err != nil {
					t.Error(err)
					return
				}
				own := false
				for e := range sess.Events().All() {
					own = own || e.ID == id
					e.Content.Parts[0].Text = "scribbled" // its own
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
			p := patch.NewSplice(0, min(1, sess.Events().Len()), summary(t, "note")).WithState(patch.Keep)
			if _, err := svc.ApplyPatch(ctx, sess, p); err != nil && !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		}
	})
	group.Wait()
	events := 0
	for r, err := range svc.RawEvents(ctx, shared, 1) {
		no(t, err)
		if r.Event != nil {
			events++
		}
	}
	equal(t, "events in the audit log", events, writers*each)
	if adk.SameEvents {
		shared = get(t, svc, "s")
	}
	for e := range shared.Events().All() {
		if e.Content.Parts[0].Text == "scribbled" {
			t.Error("a change to a returned event shows")
		}
	}
}

// TestNil checks that what is not there is refused at once, by name.
func TestNil(t *testing.T) {
	ctx := t.Context()
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	svc, err := adk.NewService(db, adk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := svc.Create(ctx, &session.CreateRequest{AppName: "a", UserID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	p := patch.NewSplice(0, 1)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"store": {func() error { _, err := adk.NewService(nil, adk.Options{}); return err }, "store"},
		"summarizer": {func() error {
			cfg := compaction.DefaultConfig()
			cfg.Summarizer = compaction.SummarizerFunc(nil)
			_, err := adk.NewService(db, adk.Options{Compaction: cfg})
			return err
		}, "Summarizer"},
		"model": {func() error {
			cfg := compaction.DefaultConfig()
			cfg.Summarizer = adk.Summarizer(nil)
			_, err := adk.NewService(db, adk.Options{Compaction: cfg})
			return err
		}, "model"},
		"event":             {func() error { _, err := adk.NewEvent(nil); return err }, "event"},
		"event of the log":  {func() error { _, err := adk.SessionEvent(nil); return err }, "event"},
		"event to append":   {func() error { return svc.AppendEvent(ctx, made.Session, nil) }, "event"},
		"session to append": {func() error { return svc.AppendEvent(ctx, nil, &session.Event{}) }, "session"},
		"handle to append":  {func() error { return svc.AppendEvent(ctx, (*adk.Session)(nil), &session.Event{}) }, "session"},
		"patch":             {func() error { _, err := svc.ApplyPatch(ctx, made.Session, nil); return err }, "patch"},
		"session to patch":  {func() error { _, err := svc.ApplyPatch(ctx, nil, p); return err }, "session"},
		"preview":           {func() error { _, err := svc.Preview(ctx, made.Session, nil); return err }, "patch"},
		"session to see":    {func() error { _, err := svc.Preview(ctx, nil, p); return err }, "session"},
		"session to revert": {func() error { _, err := svc.Revert(ctx, nil, "p"); return err }, "session"},
		"session to rewind": {func() error { _, err := svc.Rewind(ctx, nil, "i"); return err }, "session"},
		"session to view":   {func() error { _, err := svc.ViewAt(ctx, nil, 0); return err }, "session"},
		"session to read": {func() error {
			for _, err := range svc.RawEvents(ctx, nil, 1) {
				return err
			}
			return nil
		}, "session"},
		"create": {func() error { _, err := svc.Create(ctx, nil); return err }, "request"},
		"get":    {func() error { _, err := svc.Get(ctx, nil); return err }, "request"},
		"list":   {func() error { _, err := svc.List(ctx, nil); return err }, "request"},
		"delete": {func() error { return svc.Delete(ctx, nil) }, "request"},
	} {
		if err := c.do(); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An append that fails leaves the session as it was, and can be repeated.
func TestAppendThatFails(t *testing.T) {
	for _, c := range []struct {
		name string
		plan storetest.Plan
		want error
	}{
		{"refused", storetest.Plan{Write: 1, Failure: storetest.Refused}, storetest.ErrInjected},
		{"unknown", storetest.Plan{Write: 1, Failure: storetest.Landed, Then: 10}, store.ErrOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			faulty := &storetest.Faulty{Backend: new(memory.Backend)}
			svc := newService(t, opened(t)(store.New(faulty, store.Options{})))
			sess := create(t, svc, "s", nil)
			faulty.Plan(c.plan)
			e := delta("", map[string]any{"k": 1, "temp:t": 1})
			fails(t, svc.AppendEvent(t.Context(), sess, e), c.want)
			equal(t, "events", ids(sess), []string{})
			equal(t, "state", stateOf(sess), map[string]any{})
			if errors.Is(c.want, store.ErrOutcomeUnknown) && e.ID == "" {
				t.Error("the event was not given the id that it may be logged under")
			}
			faulty.Plan(storetest.Plan{})
			no(t, svc.AppendEvent(t.Context(), sess, e))
			equal(t, "events after a retry", ids(get(t, svc, "s")), []string{e.ID})
			equal(t, "state after a retry", stateOf(sess), map[string]any{"k": 1, "temp:t": 1})
		})
	}
}

func TestClosedStore(t *testing.T) {
	s := opened(t)(store.OpenMemory(store.Options{}))
	svc := newService(t, s)
	sess := create(t, svc, "s", nil)
	no(t, svc.AppendEvent(t.Context(), sess, text("e", "user", "x")))
	no(t, s.Close())
	fails(t, svc.AppendEvent(t.Context(), sess, text("e2", "user", "x")), store.ErrClosed)
	fails(t, errOf(svc.List(t.Context(), &session.ListRequest{AppName: "app"})), store.ErrClosed)
	equal(t, "events", ids(sess), []string{"e"})
}

// An imported event that ADK cannot read in full is shown as far as it can, and reported
// once.
func TestForeignEventIsReported(t *testing.T) {
	var log bytes.Buffer
	s := opened(t)(store.OpenMemory(store.Options{}))
	svc, err := adk.NewService(s, adk.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	no(t, err)
	key := store.Key{App: "app", User: "user", Session: "s"}
	no(t, errOf(s.Import(t.Context(), key, strings.NewReader(`{"id":"e","author":"user","errorCode":7}`+"\n"), store.ImportOptions{})))
	for range 2 {
		equal(t, "event", get(t, svc, "s").Events().At(0).Author, "user")
	}
	if n := strings.Count(log.String(), "errorCode"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, &log)
	}
	raw := 0
	for r, err := range svc.RawEvents(t.Context(), get(t, svc, "s"), 1) {
		no(t, err)
		if _, ok := r.Event.Field("errorCode"); ok {
			raw++
		}
		break
	}
	equal(t, "fields in the audit log", raw, 1)
	fails(t, errOf(svc.ApplyPatch(t.Context(), get(t, svc, "s"), patch.NewSplice(0, 2))), fold.ErrOutOfRange)
}

// Where ADK's service in memory refuses, ours does in the same words.
func TestErrorsAreWordedAsADKsOwn(t *testing.T) {
	ctx := t.Context()
	made := func(s session.Service, app, user, id string) error {
		_, err := s.Create(ctx, &session.CreateRequest{AppName: app, UserID: user, SessionID: id})
		return err
	}
	got := func(s session.Service, app, user, id string) error {
		_, err := s.Get(ctx, &session.GetRequest{AppName: app, UserID: user, SessionID: id})
		return err
	}
	deleted := func(s session.Service, app, user, id string) error {
		return s.Delete(ctx, &session.DeleteRequest{AppName: app, UserID: user, SessionID: id})
	}
	foreign := create(t, session.InMemoryService(), "s", nil)
	foreignToADK := create(t, inMemory(t), "s", nil)
	e := text("e", "user", "x")
	partial := text("p", "user", "x")
	partial.Partial = true
	for _, c := range []struct {
		name string
		call func(s session.Service, its, others session.Session) error
	}{
		{"create without app", func(s session.Service, _, _ session.Session) error { return made(s, "", "user", "s") }},
		{"create without user", func(s session.Service, _, _ session.Session) error { return made(s, "app", "", "s") }},
		{"create again", func(s session.Service, _, _ session.Session) error { return made(s, "app", "user", "s") }},
		{"get without app", func(s session.Service, _, _ session.Session) error { return got(s, "", "user", "s") }},
		{"get without user", func(s session.Service, _, _ session.Session) error { return got(s, "app", "", "s") }},
		{"get without id", func(s session.Service, _, _ session.Session) error { return got(s, "app", "user", "") }},
		{"get what is not there", func(s session.Service, _, _ session.Session) error { return got(s, "app", "user", "x") }},
		{"list without app", func(s session.Service, _, _ session.Session) error {
			_, err := s.List(ctx, &session.ListRequest{UserID: "user"})
			return err
		}},
		{"delete without app", func(s session.Service, _, _ session.Session) error { return deleted(s, "", "user", "s") }},
		{"delete without user", func(s session.Service, _, _ session.Session) error { return deleted(s, "app", "", "s") }},
		{"delete without id", func(s session.Service, _, _ session.Session) error { return deleted(s, "app", "user", "") }},
		{"delete what is not there", func(s session.Service, _, _ session.Session) error { return deleted(s, "app", "user", "x") }},
		{"append to nothing", func(s session.Service, _, _ session.Session) error { return s.AppendEvent(ctx, nil, e) }},
		{"append nothing", func(s session.Service, its, _ session.Session) error { return s.AppendEvent(ctx, its, nil) }},
		{"append nothing to nothing", func(s session.Service, _, _ session.Session) error { return s.AppendEvent(ctx, nil, nil) }},
		{"append to another's session", func(s session.Service, _, others session.Session) error { return s.AppendEvent(ctx, others, e) }},
		{"append what is partial to another's session", func(s session.Service, _, others session.Session) error {
			return s.AppendEvent(ctx, others, partial)
		}},
		{"append to what was deleted", func(s session.Service, its, _ session.Session) error {
			if err := deleted(s, "app", "user", "s"); err != nil {
				return err
			}
			return s.AppendEvent(ctx, its, e)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			theirs, own := session.InMemoryService(), inMemory(t)
			want := c.call(theirs, create(t, theirs, "s", nil), foreignToADK)
			got := c.call(own, create(t, own, "s", nil), foreign)
			if wanted, is := wordsOf(want, foreignToADK), wordsOf(got, foreign); wanted != is {
				t.Errorf("got  %s\nwant %s", is, wanted)
			}
		})
	}
}

// wordsOf gives an error's words, whatever type the session is of that was offered.
func wordsOf(err error, offered session.Session) string {
	if err == nil {
		return "nothing"
	}
	if err.Error() == fmt.Sprintf("unexpected session type %T for session ID s", offered) {
		return "unexpected session type"
	}
	return err.Error()
}

// A session was updated when its newest event says that it came, or when it was created by
// the platform's clock: as with ADK's service in memory, at every step, through the handle
// and got anew.
func TestLastUpdateTimeIsADKs(t *testing.T) {
	early := time.Date(2020, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	ctx := platform.WithTimeProvider(context.Background(), func() time.Time { return early })
	at := func(id string, when time.Time) *session.Event {
		e := text(id, "user", "words of "+id)
		e.Timestamp = when
		return e
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			theirs, own := session.InMemoryService(), service{t, b.make(t)}
			var handles [2]session.Session
			for i, s := range []session.Service{theirs, own} {
				r, err := s.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
				no(t, err)
				handles[i] = r.Session
			}
			same := func(step string) {
				t.Helper()
				want := handles[0].LastUpdateTime()
				listed, err := own.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
				no(t, err)
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
				no(t, theirs.AppendEvent(ctx, handles[0], e))
				no(t, own.AppendEvent(ctx, handles[1], e))
				same("after " + e.ID)
			}
			// What patches hide or put in changes nothing.
			r, err := patch.NewEvent(patch.Fields{ID: "r", Author: "user", Timestamp: early.Add(time.Minute)})
			no(t, err)
			for _, p := range []*patch.PatchEvent{patch.NewSplice(3, 1, r), patch.NewSplice(0, 2)} {
				fresh := get(t, own, "s")
				no(t, errOf(own.now().ApplyPatch(t.Context(), fresh, p)))
				same("after a patch")
			}
		})
	}
}
