package peers

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// warm is the number of calls that each goroutine makes before the measurement. In these calls, every connection
// prepares its statements and the server plans them.
const warm = 12

// inParallel calls do b.N times in total from several goroutines. Before the measurement, each goroutine makes warm
// calls. The argument g is the number of the goroutine, from 0, and i is the number of the call, from 1.
func inParallel(b *testing.B, goroutines, warm int, do func(g, i int) error) {
	b.Helper()
	run := func(from, to int) {
		var last atomic.Int64
		last.Store(int64(from))
		var group sync.WaitGroup
		for g := range goroutines {
			group.Go(func() {
				for i := int(last.Add(1)); i <= to; i = int(last.Add(1)) {
					if err := do(g, i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	run(0, warm*goroutines)
	b.ResetTimer()
	run(warm*goroutines, warm*goroutines+b.N)
	b.StopTimer()
}

// appendInParallel measures appends to several sessions, with one goroutine per session.
func appendInParallel(b *testing.B, s session.Service, sessions, warm int) {
	b.Helper()
	handles := make([]session.Session, sessions)
	for i := range handles {
		handles[i] = create(b, s, fmt.Sprint(i))
	}
	inParallel(b, sessions, warm, func(g, i int) error { return s.AppendEvent(ctx, handles[g], event(i)) })
}

// BenchmarkPostgresAppend appends events to one session, or to 64 sessions with one goroutine each. The benchmark
// with one session also runs over a simulated network with 2 ms per round trip. The baseline inserts rows of the same
// size.
func BenchmarkPostgresAppend(b *testing.B) {
	for _, c := range []struct {
		sessions int
		delay    time.Duration
	}{{1, 0}, {1, 2 * time.Millisecond}, {64, 0}} {
		database := func(b *testing.B) string {
			dsn := pgtest.New(b)
			if c.delay > 0 {
				_, dsn = newLink(b, dsn, c.delay)
			}
			return dsn
		}
		name := fmt.Sprintf("sessions=%d/net=%v/service=", c.sessions, c.delay)
		b.Run(name+"insert", func(b *testing.B) {
			r, done := openRows(b, database(b))
			defer done()
			inParallel(b, c.sessions, warm, r.insert)
		})
		for _, p := range onServers {
			b.Run(name+p.name, func(b *testing.B) {
				s, done := p.open(b, database(b))
				defer done()
				appendInParallel(b, s, c.sessions, warm)
			})
		}
	}
}

// BenchmarkPostgresGet gets a cached session of 10,000 events. The database has 200,000 other rows. With read=all,
// the benchmark also reads each event.
func BenchmarkPostgresGet(b *testing.B) {
	const events, rows = 10_000, 200_000
	for _, p := range onServers {
		dsn := pgtest.New(b)
		s, done := p.open(b, dsn)
		fillMany(b, s, dsn, events, "s")
		var others []string
		for i := range rows / 200 {
			others = append(others, fmt.Sprint("other", i))
		}
		fillMany(b, s, dsn, 200, others...)
		readAll(b, get(b, s, "s"), events)
		for _, read := range []string{"none", "all"} {
			b.Run(fmt.Sprintf("events=%d/rows=%d/read=%s/service=%s", events, rows, read, p.name), func(b *testing.B) {
				inParallel(b, 1, warm, func(int, int) error {
					if sess := get(b, s, "s"); read == "all" {
						readAll(b, sess, events)
					}
					return nil
				})
			})
		}
		done()
	}
}

// BenchmarkPostgresGetCold gets a session of 10,000 events that is not cached. In patchlog, only 200 of the events
// are visible, and the session has a snapshot.
func BenchmarkPostgresGetCold(b *testing.B) {
	const events, visible = 10_000, 200
	b.Run("service=adk", func(b *testing.B) {
		dsn := pgtest.New(b)
		s, done := openADK(b, dsn)
		defer done()
		fillMany(b, s, dsn, events, "s")
		getRepeatedly(b, s, "s", events)
	})
	b.Run("service=patchlog", func(b *testing.B) {
		dsn := pgtest.New(b)
		eager := store.Options{Snapshots: snapshot.Policy{Every: 1}} // a snapshot follows the summary
		s, err := pg.Open(ctx, dsn, eager, pg.Options{})
		no(b, err)
		_, err = s.Create(ctx, key("s"), nil, store.CreateOptions{})
		no(b, err)
		fillStore(b, s, 0, events-visible+1, "s")
		summary, err := patch.NewEvent(patch.Fields{ID: "summary", Author: "user", Content: patch.Text("model", "told")})
		no(b, err)
		_, err = s.ApplyPatch(ctx, key("s"), []*patch.PatchEvent{patch.NewSummarise(0, events-visible+1, summary)}, store.PatchOptions{AsOfNow: true})
		no(b, err)
		fillStore(b, s, events-visible+1, events, "s")
		no(b, s.Close()) // Close writes the snapshot
		pgtest.Exec(b, dsn, "ANALYZE")
		svc, done := openPG(b, dsn, store.Options{CacheBytes: -1}, adk.Options{})
		defer done()
		getRepeatedly(b, svc, "s", visible)
	})
}

// getRepeatedly measures how long it takes to get a session of n events and to read each event.
func getRepeatedly(b *testing.B, s session.Service, id string, n int) {
	b.Helper()
	inParallel(b, 1, warm, func(int, int) error {
		readAll(b, get(b, s, id), n)
		return nil
	})
}
