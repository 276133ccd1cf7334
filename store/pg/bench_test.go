package pg_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

const recordBytes = 700

// durable returns the connection string of an empty database whose commits are synced.
func durable(b *testing.B) string { return pgtest.Start(b, pgtest.Options{}).Database(b) }

// BenchmarkAppendToInsert makes appends of one event by a store and inserts of one row of that size in turn, and reports
// the ratio of their medians: what else the machine does falls on both.
func BenchmarkAppendToInsert(b *testing.B) {
	dsn := durable(b)
	pgtest.Exec(b, dsn, "CREATE TABLE bare (num bigint, seq bigint, data bytea, PRIMARY KEY (num, seq))")
	c := testlog.Must(pgx.Connect(ctx, dsn))(b)
	defer c.Close(ctx)
	s := testlog.Must(pg.Open(ctx, dsn, store.Options{}, pg.Options{}))(b)
	defer s.Close()
	key := store.Key{App: "app", User: "user", Session: "session"}
	testlog.Must(s.Create(ctx, key, nil, store.CreateOptions{}))(b)
	data, text := make([]byte, recordBytes), rand.Text()+strings.Repeat(rand.Text(), recordBytes/26-5)
	took := [2][]time.Duration{}
	for i := 0; b.Loop(); i++ {
		e := testlog.New(patch.Fields{ID: rand.Text(), InvocationID: fmt.Sprint("inv", i/4), Author: "agent", Content: patch.Text("model", text)})
		for which, do := range []func() error{
			func() error { return testlog.ErrorOf(c.Exec(ctx, "INSERT INTO bare VALUES (1, $1, $2)", i, data)) },
			func() error {
				return testlog.ErrorOf(s.AppendEvents(ctx, key, []*patch.Event{e}, store.AppendOptions{}))
			},
		} {
			start := time.Now()
			testlog.NoError(b, do())
			took[which] = append(took[which], time.Since(start))
		}
	}
	for which := range took {
		slices.Sort(took[which])
	}
	for name, at := range map[string]int{"p10": 10, "median": 50} {
		at := len(took[0]) * at / 100
		b.ReportMetric(float64(took[0][at].Microseconds()), name+"-insert-us")
		b.ReportMetric(float64(took[1][at])/float64(took[0][at]), name+"-ratio")
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
				s := open(b, durable(b)+mode.dsn, pg.Options{})
				data := make([]byte, recordBytes)
				var wg sync.WaitGroup
				heads := make([]backend.Head, writers)
				each(writers, func(i int) {
					name := fmt.Sprint("s", i)
					testlog.WantNil(b, s.Append(ctx, name, backend.Batch{Creation: name, Create: true, Next: 1}))
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
							err := s.Append(ctx, name, backend.Batch{Creation: name, ExpectedLast: h.Last, ExpectedToken: h.Token, Next: h.Token + 1, Chain: h.Chain, Records: []backend.Record{r}})
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
				s := open(b, durable(b)+mode.dsn, pg.Options{})
				batch := backend.Batch{Creation: "c", Create: true, Next: 1}
				for seq := range uint64(100) {
					batch.Records = append(batch.Records, backend.Record{Seq: seq + 1, Data: make([]byte, recordBytes)})
				}
				testlog.NoError(b, s.Append(ctx, "s", batch))
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				each(readers, func(int) {
					for left.Add(-1) >= 0 {
						if _, err := s.Fetch(ctx, backend.Query{Session: "s", Creation: "c", After: 100, Shared: []string{"app/", "user/"}}); err != nil {
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
