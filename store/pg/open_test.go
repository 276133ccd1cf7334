package pg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func number(t *testing.T, dsn, query string) (n int) {
	t.Helper()
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	if err := c.QueryRow(ctx, query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func TestCreateSchema(t *testing.T) {
	dsn := pgtest.New(t)
	var none *pg.VersionError
	if _, err := pg.OpenBackend(ctx, dsn, pg.Options{NoCreate: true}); !errors.As(err, &none) || none.Has != 0 {
		t.Errorf("NoCreate without a schema: %v", err)
	}
	each(8, func(int) {
		testlog.WantNil(t, pg.CreateSchema(ctx, dsn, pg.Options{}))
	})
	if v := number(t, dsn, "SELECT version FROM patchlog.schema_version"); v != pg.SchemaVersion {
		t.Errorf("version %d, want %d", v, pg.SchemaVersion)
	}
	b := open(t, dsn, pg.Options{NoCreate: true})
	create(t, b, "s", 2)
	testlog.WantNil(t, pg.CreateSchema(ctx, dsn, pg.Options{}))
	if h := head(t, b, "s"); h.Last != 2 {
		t.Errorf("the head is at %d", h.Last)
	}

	pgtest.Exec(t, dsn, "UPDATE patchlog.schema_version SET version = version + 1")
	for _, opts := range []pg.Options{{}, {NoCreate: true}} {
		var newer *pg.VersionError
		if _, err := pg.OpenBackend(ctx, dsn, opts); !errors.As(err, &newer) || newer.Has != pg.SchemaVersion+1 || newer.Wants != pg.SchemaVersion {
			t.Errorf("a newer schema: %v", err)
		}
	}
	if v := number(t, dsn, "SELECT version FROM patchlog.schema_version"); v != pg.SchemaVersion+1 {
		t.Errorf("a newer schema was changed to version %d", v)
	}
}

// If CreateSchema fails, it leaves no tables, and a later call succeeds.
func TestCreateSchemaAfterFailure(t *testing.T) {
	dsn := pgtest.New(t)
	pgtest.Exec(t, dsn, "CREATE SCHEMA patchlog; CREATE TABLE patchlog.leases (x int)")
	if err := pg.CreateSchema(ctx, dsn, pg.Options{}); err == nil {
		t.Error("a table of another kind was taken for ours")
	}
	if n := number(t, dsn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'patchlog'"); n != 1 {
		t.Errorf("a creation that failed left %d tables", n)
	}
	pgtest.Exec(t, dsn, "DROP TABLE patchlog.leases")
	testlog.WantNil(t, pg.CreateSchema(ctx, dsn, pg.Options{}))
}

// role creates a role without rights and returns a connection string for it.
func role(t *testing.T, dsn, name string) string {
	t.Helper()
	pgtest.Exec(t, dsn, "CREATE ROLE "+name+" LOGIN")
	return strings.Replace(dsn, "user=postgres", "user="+name, 1)
}

// A role with only the rights that the package documentation lists can make all calls except CreateSchema.
func TestRights(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite again")
	}
	dsn := pgtest.New(t)
	app := role(t, dsn, "app")
	if _, err := pg.OpenBackend(ctx, app, pg.Options{}); err == nil || errors.Is(err, backend.ErrUnknown) {
		t.Errorf("a role without rights makes the schema: %v", err)
	}
	suite(t, app, func(opts pg.Options) {
		testlog.NoError(t, pg.CreateSchema(ctx, dsn, opts))
		pgtest.Exec(t, dsn, fmt.Sprintf("GRANT USAGE ON SCHEMA %[1]q TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]q TO app", opts.Schema))
	})
}

// Errors and logs never contain a password.
func TestPasswords(t *testing.T) {
	const secret = "s3cr%t"
	var log bytes.Buffer
	opts := pg.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, dsn := range []string{
		"postgres://u:" + secret + "@127.0.0.1:1/db",
		"postgres://u:" + secret + "@127.0.0.1:port/db",
		"postgres://u:" + secret + "/x@127.0.0.1:1/db",
		"postgres://u:x@" + secret + ":y@127.0.0.1/db",
		"postgres://u@127.0.0.1/db?password=" + secret,
		"postgres://u@127.0.0.1/db?password=s3cr%25t&sslmode=nonsense",
		"postgres://u@127.0.0.1:1/db?password=s3cr%25t",
		"host=127.0.0.1 port=1 user=u password=" + secret,
		"host=127.0.0.1 port=1 user=u password='" + secret,
		"host=127.0.0.1 port=1 user=u password = '" + secret + "' sslmode=nonsense",
		"host=127.0.0.1 port=x user=u password = 'a b " + secret + "'",
		"host=127.0.0.1 user=u password=" + secret + " sslmode=verify-full sslrootcert=/nowhere",
		"host=127.0.0.1 user=u password=" + secret + " pool_max_conns=many",
		"host=127.0.0.1 user=u password=" + secret + " default_query_exec_mode=none",
		"password " + secret, secret,
	} {
		b, err := pg.OpenBackend(ctx, dsn, opts)
		if err == nil {
			closed(t, b)
			t.Errorf("opened %q", dsn)
			continue
		}
		if said := fmt.Sprintf("%v %+v", err, err) + log.String(); strings.Contains(said, "s3cr") {
			t.Errorf("the error of %q has the password: %s", dsn, said)
		}
	}

	// If the server refuses a password, the error does not contain it.
	dsn := pgtest.New(t)
	pgtest.Exec(t, dsn, "CREATE ROLE u LOGIN PASSWORD 'other'")
	_, err := pg.OpenBackend(ctx, strings.Replace(dsn, "user=postgres", "user=u password=s3cr", 1)+" dbname=none", opts)
	if err == nil || strings.Contains(err.Error()+log.String(), "s3cr") {
		t.Errorf("a database that is not there: %v", err)
	}
}

// The error reports a failed connection once, although the driver tries to connect with TLS and without.
func TestConnectionFailureOnce(t *testing.T) {
	_, err := pg.OpenBackend(ctx, "postgres://u@127.0.0.1:1/db?sslmode=prefer", pg.Options{})
	if refused := new(pgconn.ConnectError); !errors.As(err, &refused) || strings.Count(err.Error(), "dial error") != 1 {
		t.Errorf("%v", err)
	}
}

// Open uses the service file and the settings in the connection string.
func TestPasswordFile(t *testing.T) {
	dsn := pgtest.New(t)
	file := filepath.Join(t.TempDir(), "service")
	text := "[here]\n" + strings.ReplaceAll(dsn, " ", "\n") + "\n"
	testlog.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	t.Setenv("PGSERVICEFILE", file)
	t.Setenv("PGSERVICE", "here")
	create(t, open(t, "", pg.Options{}), "s", 1)
	create(t, open(t, "service=here pool_max_conns=1", pg.Options{}), "s2", 1)
}

func TestValidate(t *testing.T) {
	for _, opts := range []pg.Options{
		{Schema: strings.Repeat("x", 64)}, {Schema: "a\x00b"}, {Schema: "\xff"}, {Schema: "pg_x"},
		{MaxConns: -1}, {StatementTimeout: -1}, {ConnectTimeout: -1},
	} {
		testlog.ErrorIs(t, opts.Validate(), patch.ErrInvalid, "%+v", opts)
		testlog.ErrorIs(t, testlog.ErrorOf(pg.OpenBackend(ctx, "", opts)), patch.ErrInvalid, "OpenBackend %+v", opts)
	}
	testlog.WantNil(t, (pg.Options{}).Validate())
	testlog.WantNil(t, (pg.Options{Schema: `Odd "name"; with. dots`}).Validate())
}

// A backend uses only the schema in its options, even if the name needs quoting.
func TestSchemaNames(t *testing.T) {
	dsn := pgtest.New(t)
	for _, name := range []string{"patchlog", `Odd "name"; with. dots`, "patchlog.patchlog."} {
		b := open(t, dsn, pg.Options{Schema: name})
		create(t, b, "s", 3)
		if err := b.Check(ctx); err != nil {
			t.Errorf("schema %q: %v", name, err)
		}
		testlog.WantNil(t, b.Delete(ctx, "s", "creation of s", nil))
		create(t, b, "another", 1)
	}
}

func TestOpen(t *testing.T) {
	dsn := pgtest.New(t)
	testlog.ErrorIs(t, testlog.ErrorOf(pg.Open(ctx, dsn, store.Options{MaxRecordBytes: -1}, pg.Options{})), store.ErrInvalid, "options that cannot be")
	s := testlog.Must(pg.Open(ctx, dsn, store.Options{}, pg.Options{}))(t)
	testlog.WantNil(t, s.Close())
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	testlog.ErrorIs(t, testlog.ErrorOf(pg.OpenBackend(cancelled, dsn, pg.Options{})), context.Canceled, "a context that has ended")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{
		"DELETE FROM patchlog.records WHERE seq = 2",
		"DELETE FROM patchlog.records WHERE seq = 3",
		"DELETE FROM patchlog.records",
		"UPDATE patchlog.records SET seq = 0 WHERE seq = 1",
		"INSERT INTO patchlog.records SELECT num, 4, '' FROM patchlog.sessions",
		"INSERT INTO patchlog.records VALUES (99, 1, '')",
		"UPDATE patchlog.ids SET seq = 9 WHERE seq = 1",
		"INSERT INTO patchlog.ids VALUES (99, '', 1)",
		"UPDATE patchlog.snapshots SET seq = 4",
		"INSERT INTO patchlog.snapshots VALUES (99, 1, 0, '')",
		"DELETE FROM patchlog.metas",
		"INSERT INTO patchlog.metas VALUES (99, '')",
		"UPDATE patchlog.sessions SET name = 'other'",
		"UPDATE patchlog.sessions SET creation = 'other'",
		"UPDATE patchlog.sessions SET state = 2",
		"UPDATE patchlog.shared SET name = 'other'",
		"DELETE FROM patchlog.sessions",
	} {
		t.Run(damage, func(t *testing.T) {
			dsn := pgtest.New(t)
			b := open(t, dsn, pg.Options{})
			h := create(t, b, "s\x00\xff", 2)
			batch := next(h, 1)
			batch.Shared = []backend.Value{{Name: "x"}}
			testlog.NoError(t, b.Append(ctx, "s\x00\xff", batch))
			testlog.NoError(t, b.PutSnapshot(ctx, "s\x00\xff", h.Creation, backend.Snapshot{Seq: 3, Data: nil}))
			testlog.NoError(t, b.Check(ctx))
			pgtest.Exec(t, dsn, damage)
			testlog.ErrorIs(t, b.Check(ctx), backend.ErrDamaged, "Check")
		})
	}
}

// If the meta record of a session is missing, calls fail with ErrDamaged, not with ErrNotFound.
func TestMetaMissing(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	create(t, b, "s", 1)
	pgtest.Exec(t, dsn, "DELETE FROM patchlog.metas")
	testlog.ErrorIs(t, testlog.ErrorOf(backend.FetchHead(ctx, b, "s")), backend.ErrDamaged, "Head")
	testlog.ErrorIs(t, testlog.ErrorOf(b.Fetch(ctx, backend.Query{Session: "s"})), backend.ErrDamaged, "Fetch")
	if l, err := b.List(ctx, "", "", 9); err != nil || len(l) != 1 || !errors.Is(l[0].Err, backend.ErrDamaged) {
		t.Errorf("List: %v, %v", l, err)
	}
}

// Opening a backend removes old rows that a crashed process left, and keeps recent ones.
func TestSweep(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	create(t, b, "s", 1)
	create(t, b, "dropped", 3)
	for _, creation := range []string{"fence", "old fence"} {
		testlog.NoError(t, testlog.ErrorOf(b.Fence(ctx, "x", creation, 0, 7)))
	}
	for _, lease := range []string{"old", "new"} {
		testlog.NoError(t, testlog.ErrorOf(b.Lease(ctx, lease, "owner", time.Minute)))
	}
	pgtest.Exec(t, dsn, `
		UPDATE patchlog.leases SET until = now() - interval '25 hours' WHERE name = 'old';
		UPDATE patchlog.sessions SET created = now() - interval '25 hours', touched = created;
		UPDATE patchlog.sessions SET touched = now() - interval '29 days' WHERE creation = 'fence';
		UPDATE patchlog.sessions SET touched = now() - interval '31 days' WHERE creation = 'old fence';
		UPDATE patchlog.sessions SET touched = now() - interval '2 hours', state = 3, hash = NULL, name = NULL WHERE name = 'dropped'`)
	other := open(t, dsn, pg.Options{})
	if n := number(t, dsn, "SELECT count(*) FROM patchlog.sessions"); n != 2 { // the session s and the row of a fence
		t.Errorf("%d rows of sessions, want 2", n)
	}
	if n := number(t, dsn, "SELECT count(*) FROM patchlog.records"); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
	if n := number(t, dsn, "SELECT count(*) FROM patchlog.leases"); n != 1 {
		t.Errorf("%d leases, want 1", n)
	}
	testlog.WantNil(t, other.Check(ctx))
}

// If the clock is set back after a lease was acquired, another owner can acquire the lease.
func TestLeaseAfterClockSetBack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	b := testlog.Must(pg.OpenBackend(ctx, dsn, pg.Options{}))(t)
	defer b.Close()
	take := func(owner string, ttl time.Duration, want bool) {
		t.Helper()
		if held, err := b.Lease(ctx, "lease", owner, ttl); err != nil || held != want {
			t.Errorf("%s: held %t, %v, want %t", owner, held, err, want)
		}
	}
	take("first", time.Minute, true)
	pgtest.Exec(t, dsn, "UPDATE patchlog.leases SET taken = taken + interval '20 seconds', until = until + interval '20 seconds'")
	take("second", time.Minute, false)
	pgtest.Exec(t, dsn, "UPDATE patchlog.leases SET taken = taken + interval '1 day', until = until + interval '1 day'")
	take("second", -1, true)
	take("second", time.Minute, true)
	take("first", time.Minute, false)
}
