package adk_test

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// A wrapped service's sessions are migrated with their patches: the store shows what the wrapper shows,
// and what was taken out can be taken back. A patch that cannot be translated is reported, each time.
func TestMigrateWrapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.sqlite")
	s := wrap(t, onSQLite(t, path), adk.Options{Logger: quiet()})
	sess := create(t, s, "s", map[string]any{"k": "initial", "user:u": "x"})
	say := func(n int) {
		e := timed(n, fmt.Sprint("e", n), "agent")
		e.Actions.StateDelta = map[string]any{"k": fmt.Sprint("v", n)}
		no(t, s.AppendEvent(t.Context(), sess, e))
	}
	target := opened(t)(store.OpenMemory(store.Options{}))
	run := func() (result migrate.Result) {
		db, err := sql.Open("sqlite", path)
		no(t, err)
		defer db.Close()
		source, err := migrate.OpenSQL(t.Context(), db, migrate.SQLite, migrate.SQLOptions{})
		no(t, err)
		_, err = migrate.Run(t.Context(), target, source, migrate.Options{Session: func(r migrate.Result) error { result = r; return nil }})
		no(t, err)
		return result
	}
	same := func(status migrate.Status) fold.View {
		t.Helper()
		r := run()
		no(t, r.Err)
		equal(t, "status", r.Status, status)
		migrated, err := target.View(t.Context(), store.Key{App: "app", User: "user", Session: "s"})
		no(t, err)
		want := get(t, s, "s").(*adk.Session).View()
		equal(t, "visible", idsOf(migrated.Events()), idsOf(want.Events()))
		equal(t, "pinned", migrated.IsPinned(0), want.IsPinned(0))
		if !maps.EqualFunc(maps.Collect(migrated.Values()), maps.Collect(want.Values()), patch.Value.Equal) {
			t.Errorf("the state is %v, want %v", migrated.State(), want.State())
		}
		return migrated
	}
	for n := range 5 {
		say(n)
	}
	cut, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(3, 2))
	no(t, err)
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewPin("e0"))
	no(t, err)
	same(migrate.Created)
	same(migrate.Unchanged)
	say(5)
	_, err = s.Rewind(t.Context(), sess, "inv-e2")
	no(t, err)
	say(6)
	same(migrate.Extended)
	_, err = s.Revert(t.Context(), sess, cut.Records[0].ID())
	if err != nil {
		fails(t, err, store.ErrBlocked)
	}
	same(map[bool]migrate.Status{true: migrate.Extended, false: migrate.Unchanged}[err == nil])

	// One whose events are elsewhere.
	late := timed(9, "late", "user")
	late.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[{"patch":{"id":"p","patchType":"splice","start":0,"count":1},"place":{"events":["gone"]}}]}`}
	late.Content = nil
	no(t, onSQLite(t, path).AppendEvent(t.Context(), get(t, onSQLite(t, path), "s"), late))
	for range 3 {
		var left *migrate.UntranslatedError
		if r := run(); !errors.As(r.Err, &left) || len(left.Events) != 1 || left.Events[0].Event != "late" {
			t.Errorf("reported is %v", r.Err)
		}
		sess = get(t, s, "s")
		say(10)
	}
}
