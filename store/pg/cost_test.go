package pg_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// The number of rows that a call reads does not depend on the length of the log, on the table statistics, or on
// whether the server uses a generic plan.
func TestCost(t *testing.T) {
	dsn := pgtest.New(t)
	const most = 20
	for _, plans := range []string{"force_generic_plan", "force_custom_plan"} {
		b := open(t, dsn+" plan_cache_mode="+plans, pg.Options{MaxConns: 1})
		b.SetPlanTime(0) // each call prepares its statements again
		h := create(t, b, plans, 5000)
		shared := []string{"app/", "user/"}
		for _, call := range []struct {
			name string
			do   func() error
		}{
			{"append", func() error { h = extend(t, b, plans, h, 2); return nil }},
			{"hot fetch", func() error {
				return testlog.ErrorOf(b.Fetch(ctx, backend.Query{Session: plans, Creation: h.Creation, After: h.Last - 1, Shared: shared}))
			}},
			{"lookup", func() error {
				return testlog.ErrorOf(b.Lookup(ctx, plans, h.Creation, []string{"id7", "id8", "absent"}))
			}},
			{"read", func() error { return testlog.ErrorOf(b.Read(ctx, plans, h.Creation, []uint64{1, 2500, 5000}, 1<<20)) }},
		} {
			for _, analyzed := range []bool{false, true} {
				if analyzed {
					pgtest.Exec(t, dsn, "ANALYZE")
				}
				if read := rowsRead(t, dsn, b, call.do); read > most {
					t.Errorf("%s, analyzed %t: %s reads %d rows, want at most %d", plans, analyzed, call.name, read, most)
				}
			}
		}
	}
}

// rowsRead returns the number of rows and index entries that the server reads for a call. The backend must have
// only one connection.
func rowsRead(t *testing.T, dsn string, b *pg.Backend, call func() error) int {
	count := func() int {
		testlog.NoError(t, b.Repeat(ctx, func(ctx context.Context, c *pgx.Conn) error {
			return testlog.ErrorOf(c.Exec(ctx, "SELECT pg_stat_force_next_flush()"))
		}))
		return number(t, dsn, `SELECT ((SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = 'patchlog')
			+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'patchlog'))::int`)
	}
	before := count()
	testlog.NoError(t, call())
	return count() - before
}
