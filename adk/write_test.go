package adk_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

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

		_, err = s.now().ApplyPatch(ctx, run, patch.NewTruncateBefore("e4"))
		no(t, err)
		equal(t, "events after a cut", ids(run), []string{"e4"})
		equal(t, "state after a cut", stateOf(run), map[string]any{"temp:t": 1})

		// The other session has not seen that.
		before := ids(other)
		_, err = s.now().ApplyPatch(ctx, other, patch.NewSplice(0, 1))
		fails(t, err, store.ErrConflict)
		_, err = s.now().Preview(ctx, other, patch.NewSplice(0, 1))
		fails(t, err, store.ErrConflict)
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
		_, err = s.now().ViewAt(ctx, run, 99)
		fails(t, err, store.ErrNotFound)

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
		"patch":   second(svc.ApplyPatch(ctx, other, patch.NewSplice(0, 1))),
		"preview": second(svc.Preview(ctx, other, patch.NewSplice(0, 1))),
		"view at": second(svc.ViewAt(ctx, other, 1)),
	} {
		fails(t, err, store.ErrInvalid)
		if !strings.Contains(err.Error(), "*session.session") || !strings.HasSuffix(err.Error(), " session ID s") {
			t.Errorf("%s: the error %q does not name the session's type and id", name, err)
		}
	}
	// A session of another store of ours is not found.
	fails(t, svc.AppendEvent(ctx, create(t, inMemory(t), "s", nil), text("e", "user", "x")), store.ErrNotFound)
}

func second[T any](_ T, err error) error { return err }

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
			_, err := s.now().ApplyPatch(ctx, sess, patch.NewSplice(0, 0, summary(t, "x")))
			fails(t, err, want)
		}
		equal(t, "events", ids(get(t, s, "s")), []string{})
	})
}
