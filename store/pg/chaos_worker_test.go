package pg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
)

// A worker is a process that runs this test binary. It opens its own store and reads calls from its standard input,
// one per line. It executes the calls concurrently.
const (
	envWorker = "PATCHLOG_PG_WORKER" // the connection string
	envFlawed = "PATCHLOG_PG_FLAWED" // the name of a deliberate flaw; "" for none
)

func init() {
	if dsn := os.Getenv(envWorker); dsn != "" {
		if err := work(dsn, os.Getenv(envFlawed)); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func work(dsn, flawed string) error {
	b, err := pg.OpenBackend(context.Background(), dsn, pg.Options{MaxConns: 6, StatementTimeout: 5 * time.Second, ConnectTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	s, err := store.New(flaw(b, flawed), store.Options{Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: 16}})
	if err != nil {
		return err
	}
	return errors.Join((&ops.Local{Store: s}).Serve(os.Stdin, os.Stdout), s.Close())
}

// flaw wraps the backend so that it has the named flaw. The tests must detect the flaw.
func flaw(b backend.Backend, what string) backend.Backend {
	switch what {
	case "":
		return b
	case "unfenced":
		return unfenced{b}
	}
	return ops.Flaws[what](b)
}

type unfenced struct{ backend.Backend }

func (unfenced) Fence(context.Context, string, string, backend.Token, backend.Token) (bool, error) {
	return false, nil
}

const chaosName = "chaos" // the name of the app

func keyOf(session string) store.Key { return ops.Key(chaosName, session) }

func chaosEvent(id, app string) *patch.Event {
	if app != "" {
		return testlog.Event(`{"id":%q,"author":"chaos","timestamp":"2026-01-02T03:04:05Z","actions":{"stateDelta":{"app:hot":%q}}}`, id, app)
	}
	return testlog.Event(`{"id":%q,"author":"chaos","timestamp":"2026-01-02T03:04:05Z"}`, id)
}

// startWorker starts a worker and waits until the worker's store is open. A fault during the opening would fail
// the test.
func startWorker(t testing.TB, dsn, flawed string) *ops.Process {
	t.Helper()
	w := testlog.Must(ops.Start(envWorker+"="+dsn, envFlawed+"="+flawed))(t)
	t.Cleanup(func() { testlog.WantNil(t, w.Stop()) })
	if r := w.Call(ops.Op{Kind: "none"}); r.Outcome != ops.Failed {
		t.Fatalf("a worker does not open its store: %s %s", r.Outcome, r.Err)
	}
	return w
}
