package adk_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

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
	_, err := svc.List(t.Context(), &session.ListRequest{AppName: "app"})
	fails(t, err, store.ErrClosed)
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
	_, err = s.Import(t.Context(), key, strings.NewReader(`{"id":"e","author":"user","errorCode":7}`+"\n"), store.ImportOptions{})
	no(t, err)
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
	_, err = svc.ApplyPatch(t.Context(), get(t, svc, "s"), patch.NewSplice(0, 2))
	fails(t, err, store.ErrOutOfRange)
}
