package pg_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

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
