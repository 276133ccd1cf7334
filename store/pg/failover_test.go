package pg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// pair starts a primary and its synchronous standby. The returned connection string names both servers, and
// connects to the one that accepts writes.
func pair(t testing.TB) (primary, standby *pgtest.Server, dsn string) {
	t.Helper()
	primary = pgtest.Start(t, pgtest.Options{NoSync: true})
	standby = primary.Standby(t)
	primary.Exec(t, "CREATE DATABASE chaos")
	host := func(s *pgtest.Server) string { return strings.TrimPrefix(strings.Fields(s.DSN("chaos"))[0], "host=") }
	dsn = fmt.Sprintf("host=%s,%s port=5432,5432 user=postgres dbname=chaos sslmode=disable target_session_attrs=read-write", host(primary), host(standby)) + chaosApp
	return primary, standby, dsn
}

// No call reports success for a commit that a failover loses. The standby is stopped, and the wait of each
// commit for the standby is cancelled in one of three ways. The primary then shows commits that the promoted
// standby lacks. Even a repeated call that finds its records on the primary must not succeed.
func TestFailoverKeepsWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name     string
		timeout  time.Duration
		function string // the server function that cancels the wait
	}{{"client timeout", time.Second, ""}, {"terminated", 10 * time.Second, "pg_terminate_backend"}, {"cancelled", 10 * time.Second, "pg_cancel_backend"}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			primary, standby, dsn := pair(t)
			sopts := store.Options{Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: -1}}
			first := testlog.Must(pg.Open(ctx, dsn, sopts, patient(pg.Options{})))(t)
			writes := acknowledgedWrites(t, first)
			testlog.NoError(t, first.Close())
			opts := pg.Options{MaxConns: 40, StatementTimeout: way.timeout, Logger: slog.New(slog.DiscardHandler)}
			s := testlog.Must(store.New(openImpatient(t, dsn, opts), sopts))(t)
			defer s.Close()
			standby.Stop()
			cut := func() error { return nil }
			if way.function != "" {
				c := testlog.Must(pgx.Connect(ctx, primary.DSN("postgres")))(t)
				defer c.Close(ctx)
				cut = func() error {
					return testlog.ErrorOf(c.Exec(ctx, `SELECT `+way.function+`(pid) FROM pg_stat_activity WHERE application_name = 'chaos' AND wait_event = 'SyncRep'`))
				}
			}
			done := make([]error, len(writes))
			// The primary may lack one write, because an erasure needs several commits. On a busy machine, several
			// rounds may be needed.
			shown := 0 // the number of writes that the primary shows
			testlog.WantNil(t, during(5*time.Millisecond, cut, func() {
				for round := 0; round < 100 && shown < len(writes)-1; round++ {
					var shows atomic.Int64
					each(len(writes), func(i int) {
						for n := 0; n < 2 && (round == 0 && n == 0 || done[i] != nil); n++ { // the second call finds the records that the first call wrote
							done[i] = writes[i].do(ctx, s)
						}
						if writes[i].shows(ctx, s) == nil {
							shows.Add(1)
						}
					})
					shown = int(shows.Load())
				}
			}))
			if shown < len(writes)-1 {
				t.Errorf("the primary shows what %d of %d calls wrote", shown, len(writes))
			}
			primary.Kill()
			testlog.NoError(t, standby.Start())
			testlog.NoError(t, standby.Promote())
			after := testlog.Must(pg.Open(ctx, standby.DSN("chaos"), sopts, patient(pg.Options{})))(t)
			defer after.Close()
			for i, w := range writes {
				if done[i] != nil {
					if err := w.do(ctx, after); err != nil && !w.refuses(err) {
						t.Errorf("%s, once the standby has taken over: %v", w.name, err)
					}
					continue
				}
				if err := w.shows(ctx, after); err != nil {
					t.Errorf("%s was acknowledged, and is lost: %v", w.name, err)
				}
			}
		})
	}
}

// acknowledgedWrite makes one write to its own session.
type acknowledgedWrite struct {
	name    string
	do      func(context.Context, *store.Store) error
	shows   func(context.Context, *store.Store) error // returns nil if the store shows the written records
	refuses func(error) bool                          // reports whether a repeated call may fail with this error
}

// acknowledgedWrites returns one call for each kind of write, and prepares their sessions.
func acknowledgedWrites(t *testing.T, s *store.Store) []acknowledgedWrite {
	never := func(error) bool { return false }
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	visible := func(key store.Key, want string) func(context.Context, *store.Store) error {
		return func(ctx context.Context, s *store.Store) error {
			session, err := s.Get(ctx, key)
			if got := ""; err == nil {
				if got = visibleIDs(session); got != want {
					err = fmt.Errorf("%s shows %q, want %q", key, got, want)
				}
			}
			return err
		}
	}
	there := func(ids ...string) func(key store.Key) {
		return func(key store.Key) {
			testlog.NoError(t, testlog.ErrorOf(s.Create(ctx, key, nil, store.CreateOptions{})))
			for _, id := range ids {
				testlog.NoError(t, testlog.ErrorOf(s.AppendEvents(ctx, key, []*patch.Event{chaosEvent(id, "")}, store.AppendOptions{})))
			}
		}
	}
	key := func(name string, prepare func(store.Key)) store.Key {
		k := keyOf(name)
		if prepare != nil {
			prepare(k)
		}
		return k
	}
	append_, patched, reverted, rewound := key("append", there("a")), key("patch", there("a", "b")), key("revert", there("a", "b")), key("rewind", there("a"))
	created, deleted, forked, imported, importedMore, erased := key("create", nil), key("delete", there("a")), key("fork", nil), key("import", nil), key("import more", there("a")), key("erase", there("a"))
	testlog.NoError(t, testlog.ErrorOf(s.ApplyPatch(ctx, reverted, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p")}, store.PatchOptions{AsOfNow: true})))
	testlog.NoError(t, testlog.ErrorOf(s.AppendEvents(ctx, rewound, []*patch.Event{testlog.Text("x", "i", "chaos", "x")}, store.AppendOptions{})))
	line := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"author":"chaos","timestamp":"2026-01-02T03:04:05Z"}`+"\n", id)
	}
	imports := func(key store.Key) func(context.Context, *store.Store) error {
		return func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.Import(ctx, key, strings.NewReader(line("i1")+line("i2")), store.ImportOptions{}))
		}
	}
	return []acknowledgedWrite{
		{"an append", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.AppendEvents(ctx, append_, []*patch.Event{chaosEvent("b", "x")}, store.AppendOptions{}))
		}, visible(append_, "a b"), never},
		{"a patch", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.ApplyPatch(ctx, patched, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p").WithTimestamp(time.Unix(1, 0))}, store.PatchOptions{AsOfNow: true}))
		}, visible(patched, "b"), never},
		{"a revert", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.Revert(ctx, reverted, "p", store.UndoOptions{}))
		}, visible(reverted, "a b"), is(fold.ErrBlocked)},
		{"a rewind", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.Rewind(ctx, rewound, "i", store.UndoOptions{}))
		}, visible(rewound, "a"), never},
		{"a create", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.Create(ctx, created, nil, store.CreateOptions{}))
		}, visible(created, ""), is(store.ErrExists)},
		{"a fork", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.Fork(ctx, append_, forked, store.ForkOptions{At: new(uint64(1))}))
		}, visible(forked, "a"), is(store.ErrExists)},
		{"an import", imports(imported), visible(imported, "i1 i2"), never},
		{"an import into a session", imports(importedMore), visible(importedMore, "a i1 i2"), never},
		{"an erasure", func(ctx context.Context, s *store.Store) error {
			return testlog.ErrorOf(s.Erase(ctx, erased, store.EraseSelection{All: true}, store.EraseOptions{ID: "receipt"}))
		}, func(ctx context.Context, s *store.Store) error {
			session, err := s.Get(ctx, erased)
			if err == nil {
				for _, e := range session.View.Events() {
					if _, blank := e.ErasedBy(); !blank {
						err = fmt.Errorf("%s is not erased", e.ID())
					}
				}
			}
			return err
		}, never},
		{"a delete", func(ctx context.Context, s *store.Store) error { return s.Delete(ctx, deleted) },
			func(ctx context.Context, s *store.Store) error {
				if _, err := s.Get(ctx, deleted); !errors.Is(err, store.ErrNotFound) {
					return fmt.Errorf("the session is there (%v)", err)
				}
				return nil
			}, is(store.ErrNotFound)},
	}
}

// The backend detects the warning about an unreplicated commit in every language of the server.
func TestUnreplicatedNotices(t *testing.T) {
	for _, c := range []struct {
		n    pgconn.Notice
		want bool
	}{
		{pgconn.Notice{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Message: "canceling wait for synchronous replication due to user request", Routine: "SyncRepWaitForLSN"}, true},
		{pgconn.Notice{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: "01000", Message: "storniere Warten auf synchrone Replikation wegen Benutzeraufforderung", Routine: "SyncRepWaitForLSN"}, true},
		{pgconn.Notice{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: "57P01", Routine: "SyncRepWaitForLSN"}, true},
		{pgconn.Notice{Severity: "WARNUNG", Code: "01000"}, true}, // from a server that does not report the routine
		{pgconn.Notice{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Routine: "exec_stmt_raise"}, false},
		{pgconn.Notice{Severity: "NOTICE", SeverityUnlocalized: "NOTICE", Code: "00000", Routine: "SyncRepWaitForLSN"}, false},
		{pgconn.Notice{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "25P01"}, false},
	} {
		if got := pg.IsUnreplicated(&c.n); got != c.want {
			t.Errorf("%+v: %v, want %v", c.n, got, c.want)
		}
	}
}

// OpenBackend fails if the server suppresses warnings. Otherwise the backend could not detect unreplicated
// commits.
func TestRefuseHiddenWarnings(t *testing.T) {
	dsn := pgtest.New(t)
	config := testlog.Must(pgx.ParseConfig(dsn))(t)
	pgtest.Exec(t, dsn, "ALTER DATABASE "+config.Database+" SET client_min_messages = error")
	if _, err := pg.OpenBackend(ctx, dsn, pg.Options{}); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), "client_min_messages") {
		t.Errorf("warnings are hidden: %v", err)
	}
	pgtest.Exec(t, dsn, "ALTER DATABASE "+config.Database+" SET client_min_messages = warning")
	open(t, dsn, pg.Options{})
}
