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

// durable starts a server with fsync, and returns the connection string of an empty database.
func durable(b *testing.B) string { return pgtest.Start(b, pgtest.Options{}).Database(b) }

// BenchmarkAppendToInsert compares an append of one event with an insert of one row of the same size. It
// alternates between them, so that other load on the machine affects both equally. It reports the ratios of the
// medians and of the 10th percentiles.
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

// BenchmarkAppend measures appends of one record. Each writer has its own session.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("sessions=%d", writers), func(b *testing.B) {
			s := open(b, durable(b), pg.Options{})
			heads := make([]backend.Head, writers)
			each(writers, func(i int) { heads[i] = create(b, s, fmt.Sprint("s", i), 0) })
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			each(writers, func(i int) {
				for left.Add(-1) >= 0 {
					heads[i] = extend(b, s, fmt.Sprint("s", i), heads[i], 1)
				}
			})
		})
	}
}

func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
