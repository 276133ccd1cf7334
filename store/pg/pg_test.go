package pg_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // the tests mostly wait, so more tests can run in parallel
		panic(err)
	}
	os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true}))
}

var ctx = context.Background()

// patient replaces timeouts of zero by a duration that no call exceeds, even on a busy machine.
func patient(opts pg.Options) pg.Options {
	const patience = 5 * time.Minute
	opts.StatementTimeout = cmp.Or(opts.StatementTimeout, patience)
	opts.ConnectTimeout = cmp.Or(opts.ConnectTimeout, patience)
	return opts
}

func open(t testing.TB, dsn string, opts pg.Options) *pg.Backend {
	t.Helper()
	b := testlog.Must(pg.OpenBackend(ctx, dsn, patient(opts)))(t)
	t.Cleanup(func() { closed(t, b) })
	return b
}

// openImpatient opens a backend with a short timeout. If the opening exceeds the timeout, openImpatient tries
// again.
func openImpatient(t testing.TB, dsn string, opts pg.Options) *pg.Backend {
	t.Helper()
	for {
		b, err := pg.OpenBackend(ctx, dsn, patient(opts))
		if err != nil && errors.Is(err, pg.ErrNoAnswer) {
			continue
		}
		testlog.NoError(t, err)
		t.Cleanup(func() { closed(t, b) })
		return b
	}
}

func closed(t testing.TB, b *pg.Backend) {
	t.Helper()
	if err := b.Close(); err != nil && !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

// suite runs the tests that every backend must pass. Each test has its own schema, which the functions in prepare
// may create.
func suite(t *testing.T, dsn string, prepare ...func(pg.Options)) {
	n := 0
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		n++
		opts := pg.Options{Schema: fmt.Sprint("test ", n)}
		for _, f := range prepare {
			f(opts)
		}
		b := open(t, dsn, opts)
		t.Cleanup(func() {
			closed(t, b)
			testlog.WantNil(t, open(t, dsn, opts).Check(ctx))
		})
		return b, func() backend.Backend {
			closed(t, b)
			b = open(t, dsn, opts)
			return b
		}
	})
}

func TestBackend(t *testing.T) {
	t.Parallel()
	suite(t, pgtest.New(t))
}

func TestPooled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the suite again; TestPooledFromTheStart runs")
	}
	suite(t, pgtest.PgBouncer(t, pgtest.New(t)))
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the suite three times")
	}
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			suite(t, isolated(t, level))
		})
	}
}

// isolated returns the connection string of an empty database with the given default isolation level.
func isolated(t *testing.T, level string) string {
	dsn := pgtest.New(t)
	config := testlog.Must(pgx.ParseConfig(dsn))(t)
	pgtest.Exec(t, dsn, "ALTER DATABASE "+config.Database+" SET default_transaction_isolation = '"+level+"'")
	return dsn
}

// TestPrepared runs the suite with the driver's cache of prepared statements.
func TestPrepared(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the suite again")
	}
	suite(t, pgtest.New(t)+" default_query_exec_mode=cache_statement")
}
