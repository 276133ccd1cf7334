package pg_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/internal/canary"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// Of 10,000 canaries, after they were erased and the tables were vacuumed in full, no file of the server
// has one but its write-ahead log. Without the vacuum some are there: the scan would find them. A vacuum
// that is not in full leaves most of them in the unused room of pages.
func TestEraseCanaries(t *testing.T) {
	t.Parallel()
	const n = 10_000
	server := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: []string{"autovacuum=off"}})
	dsn := server.Database(t)
	b := testlog.Must(pg.OpenBackend(ctx, dsn, pg.Options{}))(t)
	s := testlog.Must(store.New(b, store.Options{Snapshots: snapshot.Policy{Every: 100, Share: 1}}))(t)
	defer s.Close()
	tables := []string{"patchlog.records", "patchlog.metas", "patchlog.snapshots", "patchlog.shared"}
	for _, table := range tables { // what the server compresses itself, the scan does not see
		pgtest.Exec(t, dsn, "ALTER TABLE "+table+" ALTER COLUMN data SET STORAGE EXTERNAL")
	}
	canary.Plant(t, s, n)
	stored := canary.EndsOf(t, b)
	find := func() int {
		pgtest.Exec(t, dsn, "CHECKPOINT")
		return canary.Find(t, server.Data(), stored, "pg_wal")
	}
	if got := find(); got < n {
		t.Fatalf("%d canaries and records that have one are found, of %d", got, n)
	}
	pgtest.Exec(t, dsn, "ANALYZE") // which samples what the tables have
	testlog.NoError(t, testlog.ErrorOf(s.EraseUser(ctx, canary.App, canary.User, store.EraseOptions{})))
	if got := find(); got == 0 {
		t.Error("without a vacuum none is found: the scan does not look where they are")
	} else {
		t.Logf("%d canaries are found before the vacuum", got)
	}
	pgtest.Exec(t, dsn, "VACUUM FULL "+strings.Join(tables, ", "))
	if got := find(); got != 0 {
		t.Errorf("%d canaries are found after the vacuum", got)
	}
}

// The server keeps no statistics of what sessions say.
func TestNoStatisticsOfData(t *testing.T) {
	dsn := pgtest.New(t)
	closed(t, open(t, dsn, pg.Options{}))
	pgtest.Exec(t, dsn, "INSERT INTO patchlog.records SELECT 99, n, 'canary' FROM generate_series(1, 50) AS n")
	kept := func() int {
		pgtest.Exec(t, dsn, "ANALYZE")
		return number(t, dsn, "SELECT count(*) FROM pg_stats WHERE schemaname = 'patchlog' AND attname = 'data'")
	}
	if n := kept(); n != 0 {
		t.Errorf("there are statistics of %d columns", n)
	}
	pgtest.Exec(t, dsn, "ALTER TABLE patchlog.records ALTER COLUMN data SET STATISTICS 100")
	if kept() == 0 {
		t.Error("no statistics are made where the schema does not keep them out")
	}
}
