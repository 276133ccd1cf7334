package pg_test

import (
	"log/slog"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/kill"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

var killing = kill.Harness{Open: openToKill, AfterKill: noneLeft}

func init() { killing.Child() }

func openToKill(dsn, flaw string) (*store.Store, error) {
	b, err := pg.OpenBackend(ctx, dsn, patient(pg.Options{MaxConns: 8}))
	if err != nil {
		return nil, err
	}
	return store.New(ops.Flaws[flaw](b), store.Options{
		Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: 8, MinPercent: 1}, CacheBytes: 1 << 18,
	})
}

// noneLeft waits until the server has ended the connections of the killed process.
func noneLeft(t testing.TB, dsn string) {
	t.Helper()
	waitFor(t, dsn, "SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE application_name = '"+kill.AppName+"'")
}

// No acknowledged write is lost when a process with 32 clients is killed. A repeated call takes effect only once,
// even if the server is still executing the first attempt.
//
//	go test -run TestKilled$ -timeout 0 -rounds 2000 -v .
func TestKilled(t *testing.T) {
	t.Parallel()
	few := 3
	if testing.Short() {
		few = 2
	}
	server := pgtest.Start(t, pgtest.Options{NoSync: true})
	killing.Check(t, few, 25, func() string { return server.Database(t) })
}

// TestKilled's checks detect a backend that acknowledges a write before the write is durable.
func TestKilledControl(t *testing.T) {
	killing.Finds(t, "early", pgtest.New(t))
}
