package pg_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

const recordBytes = 700

// durable returns the connection string of an empty database whose commits are synced.
func durable(b *testing.B) string { return pgtest.Start(b, pgtest.Options{}).Database(b) }

// BenchmarkInsert is what one row costs: the baseline of BenchmarkAppend.
func BenchmarkInsert(b *testing.B) {
	dsn := durable(b)
	pgtest.Exec(b, dsn, "CREATE TABLE bare (num bigint, seq bigint, data bytea, PRIMARY KEY (num, seq))")
	c := testlog.Must(pgx.Connect(ctx, dsn))(b)
	defer c.Close(ctx)
	data := make([]byte, recordBytes)
	for i := 0; b.Loop(); i++ {
		testlog.NoError(b, testlog.ErrorOf(c.Exec(ctx, "INSERT INTO bare VALUES (1, $1, $2)", i, data)))
	}
}

// modes are the ways to send statements: by default, as behind a pooler that keeps no
// prepared statements, and all of them prepared.
var modes = []struct{ name, dsn string }{
	{"default", ""}, {"described", " default_query_exec_mode=cache_describe"}, {"prepared", " default_query_exec_mode=cache_statement"},
}

func BenchmarkAppend(b *testing.B) {
	for _, mode := range modes {
		for _, writers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/writers=%d", mode.name, writers), func(b *testing.B) {
				store := open(b, durable(b)+mode.dsn, pg.Options{})
				data := make([]byte, recordBytes)
				var wg sync.WaitGroup
				heads := make([]backend.Head, writers)
				each(writers, func(i int) {
					name := fmt.Sprint("s", i)
					testlog.WantNil(b, store.Append(ctx, name, backend.Batch{Creation: name, Create: true, Next: 1}))
					heads[i].Token = 1
				})
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				for i := range writers {
					wg.Go(func() {
						name, h := fmt.Sprint("s", i), &heads[i]
						for left.Add(-1) >= 0 {
							r := backend.Record{Seq: h.Last + 1, IDs: []string{fmt.Sprint(h.Last)}, Sum: 7, Data: data}
							err := store.Append(ctx, name, backend.Batch{Creation: name, ExpectedLast: h.Last, ExpectedToken: h.Token, Next: h.Token + 1, Chain: h.Chain, Records: []backend.Record{r}})
							if err != nil {
								b.Error(err)
								return
							}
							h.Last++
							h.Token++
							h.Chain = h.Chain.Add(7)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkFetch measures a Fetch by a caller whose view is up to date.
func BenchmarkFetch(b *testing.B) {
	for _, mode := range modes {
		for _, readers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/readers=%d", mode.name, readers), func(b *testing.B) {
				store := open(b, durable(b)+mode.dsn, pg.Options{})
				batch := backend.Batch{Creation: "c", Create: true, Next: 1}
				for seq := range uint64(100) {
					batch.Records = append(batch.Records, backend.Record{Seq: seq + 1, Data: make([]byte, recordBytes)})
				}
				testlog.NoError(b, store.Append(ctx, "s", batch))
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				each(readers, func(int) {
					for left.Add(-1) >= 0 {
						if _, err := store.Fetch(ctx, backend.Query{Session: "s", Creation: "c", After: 100, Shared: []string{"app/", "user/"}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// each runs f in n goroutines.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
