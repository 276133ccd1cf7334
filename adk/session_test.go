package adk_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
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
	_, err := sess.State().Get("absent")
	fails(t, err, session.ErrStateKeyNotExist)
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
			_, err = svc.ApplyPatch(t.Context(), r.Session, patch.NewSplice(from, 1))
			no(t, err)
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
