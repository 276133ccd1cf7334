package adk_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestWrapDeletedSessions(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		for name, deleter := range map[string]session.Service{"through it": s, "in the base": base} {
			sess := create(t, s, "s", nil)
			no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
			del := &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}
			no(t, deleter.Delete(t.Context(), del))
			fails(t, s.AppendEvent(t.Context(), sess, timed(2, "e2", "user")), store.ErrNotFound)
			_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
			fails(t, err, store.ErrNotFound)
			for _, err := range s.RawEvents(t.Context(), sess, 1) {
				fails(t, err, store.ErrNotFound)
			}
			create(t, deleter, "s", nil)
			get(t, s, "s")
			fails(t, s.AppendEvent(t.Context(), sess, timed(2, "e2", "user")), store.ErrNotFound)
			_, err = s.ViewAt(t.Context(), sess, 0)
			fails(t, err, store.ErrNotFound)
			equal(t, name, ids(get(t, s, "s")), []string{})
			_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
			fails(t, err, store.ErrExists)
			no(t, s.Delete(t.Context(), del))
			no(t, s.Delete(t.Context(), del))
		}
	})
}

// That a session was created again is seen by what it lacks.
func TestWrapRecreatedUnseen(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "old"})
		no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
		get(t, s, "s")
		no(t, base.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		raw := create(t, base, "s", map[string]any{"k": "new"})
		no(t, base.AppendEvent(t.Context(), raw, timed(2, "other", "user")))
		now := get(t, s, "s")
		equal(t, "events", ids(now), []string{"other"})
		equal(t, "state", stateOf(now), map[string]any{"k": "new"})
		fails(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")), store.ErrNotFound)
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		fails(t, err, store.ErrNotFound)
		_, err = s.Preview(t.Context(), sess, patch.NewSplice(0, 1))
		fails(t, err, store.ErrNotFound)
		no(t, s.AppendEvent(t.Context(), now, timed(3, "e3", "user")))
		equal(t, "events", ids(now), []string{"other", "e3"})
	})
}

// A base that fails: what it says reaches the caller, who can try again.
func TestWrapFailingBase(t *testing.T) {
	base := &shaky{strict: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	base.down = true
	e := timed(1, "e1", "user")
	err := s.AppendEvent(t.Context(), sess, e)
	fails(t, err, errShaky)
	_, err = s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	fails(t, err, errShaky)
	_, err = s.List(t.Context(), &session.ListRequest{AppName: "app"})
	fails(t, err, errShaky)
	fails(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}), errShaky)
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
	fails(t, err, errShaky)
	_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s2"})
	fails(t, err, errShaky)
	base.down = false
	no(t, s.AppendEvent(t.Context(), sess, e))
	base.fails = []failing{before}
	err = s.AppendEvent(t.Context(), sess, timed(2, "e2", "user"))
	fails(t, err, errShaky)
	base.fails = []failing{afterward}
	no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")))
	equal(t, "events", ids(sess), []string{"e1", "e3"})
	no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user"))) // a retry
	fails(t, s.AppendEvent(t.Context(), sess, timed(4, "e3", "agent")), store.ErrDuplicateID)
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e3"})
	// An append that fails for a reason of its own is not tried again.
	base.appends = 0
	base.fails = []failing{before, before}
	fails(t, s.AppendEvent(t.Context(), sess, timed(5, "e5", "user")), errShaky)
	equal(t, "tries", base.appends, 1)
	// One whose caller has gone may still be on its way.
	ctx, cancel := context.WithCancel(t.Context())
	base.meanwhile = cancel
	base.fails = []failing{before}
	fails(t, s.AppendEvent(ctx, sess, timed(6, "e6", "user")), store.ErrOutcomeUnknown)
	fails(t, s.AppendEvent(ctx, sess, timed(6, "e6", "user")), context.Canceled)
	ctx, base.meanwhile = context.WithCancel(t.Context())
	base.fails = []failing{afterward} // that one has landed can be seen
	no(t, s.AppendEvent(ctx, sess, timed(7, "e7", "user")))
	// A base that panics leaves nothing locked.
	func() {
		defer func() { _ = recover() }()
		base.fails = []failing{panics}
		_ = s.AppendEvent(t.Context(), sess, timed(8, "e8", "user"))
		t.Error("it did not panic")
	}()
	no(t, s.AppendEvent(t.Context(), sess, timed(9, "e9", "user")))
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e3", "e7", "e9"})
}

// What a session began with is not what one of its name began with before.
func TestWrapCreatedAnew(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		del := &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}
		old := create(t, s, "s", map[string]any{"k": "1"})
		no(t, base.Delete(t.Context(), del))
		now := create(t, s, "s", map[string]any{"k": "2"})
		equal(t, "state", stateOf(now), map[string]any{"k": "2"})
		fails(t, s.AppendEvent(t.Context(), old, timed(1, "e1", "user")), store.ErrNotFound)
		no(t, s.Delete(t.Context(), del))
		create(t, base, "s", map[string]any{"k": "3"})
		equal(t, "state", stateOf(get(t, s, "s")), map[string]any{"k": "3"})
		fails(t, s.AppendEvent(t.Context(), now, timed(1, "e1", "user")), store.ErrNotFound)
		// What another service has seen of that is not known.
		others := get(t, wrap(t, base, adk.Options{}), "s")
		no(t, s.AppendEvent(t.Context(), others, timed(1, "e1", "user")))
		equal(t, "events", ids(get(t, s, "s")), []string{"e1"})
	})
}

// listing lists a session that is gone.
type listing struct{ session.Service }

func (l listing) List(ctx context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	out, err := l.Service.List(ctx, r)
	if err == nil && len(out.Sessions) == 2 {
		s := out.Sessions[0]
		err = l.Delete(ctx, &session.DeleteRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()})
	}
	return out, err
}

// A session that is deleted while others are listed is none of those.
func TestWrapListsWhatIsThere(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		create(t, base, "a", nil)
		create(t, base, "b", nil)
		r, err := wrap(t, listing{base}, adk.Options{}).List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		no(t, err)
		equal(t, "sessions", len(r.Sessions), 1)
	})
}

func TestWrapClosedDatabase(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "sessions.sqlite"))
	no(t, err)
	base, err := database.NewSessionService(&sqlite.Dialector{Conn: db}, &gorm.Config{Logger: logger.Discard})
	no(t, err)
	no(t, database.AutoMigrate(base))
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
	no(t, db.Close())
	for name, err := range map[string]error{
		"append": s.AppendEvent(t.Context(), sess, timed(2, "e2", "user")),
		"get": func() error {
			_, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
			return err
		}(),
		"list": func() error {
			_, err := s.List(t.Context(), &session.ListRequest{AppName: "app"})
			return err
		}(),
		"patch": func() error { _, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1)); return err }(),
	} {
		if err == nil {
			t.Errorf("%s succeeded", name)
		}
	}
	equal(t, "events", ids(sess), []string{"e1"})
}

// What JSON cannot carry is there as text, and nothing is lost for it.
func TestWrapStrangeValues(t *testing.T) {
	var logged bytes.Buffer
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	type node struct{ Next *node }
	loop := &node{}
	loop.Next = loop
	raw := create(t, base, "s", map[string]any{"chan": make(chan int), "app:f": func() {}, "fine": 1})
	strange := []*session.Event{
		delta("nan", map[string]any{"nan": math.NaN(), "fine": 2}),
		delta("chan", map[string]any{"c": make(chan int), "deep": map[string]any{"f": func() {}}}),
		delta("loop", map[string]any{"loop": loop}),
		delta("key", map[string]any{"bad \xff": "v \xff"}),
		text("utf8", "agent", "caf\xe9"),
		text(strings.Repeat("long", 1000), "agent", "a long id"),
		text("bad id \xff", "agent", "a bad id"),
		text("", "agent", "no id"),
		text("", "agent", "no id"),
		text("twice", "agent", "once"),
		text("twice", "agent", "and again"),
		{},
	}
	for i, e := range strange {
		e.Timestamp = timed(i, "", "").Timestamp
		no(t, base.AppendEvent(t.Context(), raw, e))
	}
	for range 2 {
		got := get(t, s, "s")
		equal(t, "events", got.Events().Len(), len(strange))
		equal(t, "text", got.Events().At(4).Content.Parts[0].Text, "caf\uFFFD")
		equal(t, "fine", stateOf(got)["fine"], any(2))
		equal(t, "nan", stateOf(got)["nan"], any("NaN"))
		equal(t, "words", got.Events().At(5).Content.Parts[0].Text, "a long id")
		equal(t, "words", got.Events().At(10).Content.Parts[0].Text, "and again")
		if _, ok := stateOf(got)["chan"].(string); !ok {
			t.Errorf("a channel is shown as %v", stateOf(got)["chan"])
		}
	}
	warnings := strings.Count(logged.String(), "level=WARN")
	if warnings < 4 || warnings > len(strange) {
		t.Errorf("%d warnings:\n%s", warnings, &logged)
	}
	r, err := s.List(t.Context(), &session.ListRequest{AppName: "app"})
	no(t, err)
	equal(t, "listed", len(r.Sessions), 1)
	sess := get(t, s, "s")
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 9).WithState(patch.Keep))
	no(t, err)
	equal(t, "events", get(t, wrap(t, base, adk.Options{}), "s").Events().Len(), len(strange)-9)
	// Ids that are there twice do not say which is meant.
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 1))
	if err == nil {
		equal(t, "events", get(t, s, "s").Events().At(0).Content.Parts[0].Text, "once")
	}
	fails(t, s.AppendEvent(t.Context(), sess, delta("new", map[string]any{"nan": math.NaN()})), patch.ErrInvalid)
}

// Patches of a newer version are left alone, and others are refused: what is visible may not
// be what their author saw.
func TestWrapNewerVersion(t *testing.T) {
	var logged bytes.Buffer
	base := session.InMemoryService()
	for name, said := range map[string]string{
		"version": `{"version":2,"patches":[]}`,
		"type":    `{"version":1,"patches":[{"patch":{"id":"p","patchType":"fancy"}}]}`,
		"text":    `what is this`,
		"patch":   `{"version":1,"patches":[{"patch":7}]}`,
	} {
		s := wrap(t, base, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		logged.Reset()
		raw := create(t, base, name, nil)
		no(t, base.AppendEvent(t.Context(), raw, timed(1, "e1", "user")))
		e := &session.Event{ID: "c", Timestamp: timed(2, "", "").Timestamp}
		e.CustomMetadata = map[string]any{"_patchlog": said}
		no(t, base.AppendEvent(t.Context(), raw, e))
		sess := get(t, s, name)
		equal(t, "events", ids(sess), []string{"e1"})
		skipped, err := sess.(*adk.Session).View().Skipped()
		no(t, err)
		equal(t, "skipped", skipped, []patch.Skip{{Seq: 2, Reason: patch.UnknownType}})
		_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		fails(t, err, store.ErrUnknownPatch)
		no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")))
		equal(t, "events", ids(get(t, s, name)), []string{"e1", "e3"})
		if n := strings.Count(logged.String(), "skipped"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &logged)
		}
	}
}

// A carrier may have nothing in it.
func TestWrapEmptyCarrier(t *testing.T) {
	base := &shaky{rename: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	e := &session.Event{ID: "c", Timestamp: timed(3, "", "").Timestamp}
	e.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[]}`}
	no(t, base.AppendEvent(t.Context(), get(t, base, "s"), e))
	sess = get(t, s, "s")
	_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
	no(t, err)
	equal(t, "events", len(ids(get(t, s, "s"))), 2)
	equal(t, "skipped", get(t, s, "s").(*adk.Session).View().SkippedCount(), 0)
}
