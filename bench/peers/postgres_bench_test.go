package peers

import (
	"fmt"
	"slices"
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

// target is the database that a benchmark uses, with or without a network in between.
type target struct {
	dsn  string // without the network
	at   string
	link *link
	used *meter
}

func newTarget(b *testing.B, delay time.Duration) target {
	b.Helper()
	t := target{dsn: pgtest.New(b)}
	t.at, t.used = t.dsn, newMeter(b, t.dsn)
	if delay > 0 {
		t.link, t.at = newLink(b, t.dsn, delay)
	}
	return t
}

// warm is how often each goroutine repeats the operation before it is measured, so that all connections
// know the statements and the server has planned them.
const warm = 12

// inParallel makes b.N calls of do from several goroutines and reports their times. do gets the number of the
// goroutine, and of its call from 1 on.
func inParallel(b *testing.B, t target, goroutines int, do func(g, i int) error) {
	b.Helper()
	var next atomic.Int64
	counts := make([]int, goroutines)
	times := make([][]time.Duration, goroutines)
	each := func(f func(g int) error) {
		var group sync.WaitGroup
		for g := range goroutines {
			group.Go(func() {
				if err := f(g); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
	}
	one := func(g int) error {
		counts[g]++
		return do(g, counts[g])
	}
	each(func(g int) error {
		for range warm {
			if err := one(g); err != nil {
				return err
			}
		}
		return nil
	})
	if b.Failed() {
		return
	}
	before := t.used.begin(t.link)
	b.ResetTimer()
	each(func(g int) error {
		for int(next.Add(1)) <= b.N {
			start := time.Now()
			if err := one(g); err != nil {
				return err
			}
			times[g] = append(times[g], time.Since(start))
		}
		return nil
	})
	b.StopTimer()
	before.end(b, b.N)
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	}
}

// BenchmarkPostgresAppend appends an event, to one session or to 64 from a goroutine each, beside the insert
// of one row of the same bytes; also over a network with a round trip of 2 ms.
func BenchmarkPostgresAppend(b *testing.B) {
	for _, c := range []struct {
		sessions int
		delay    time.Duration
	}{{1, 0}, {1, 2 * time.Millisecond}, {64, 0}} {
		name := fmt.Sprintf("sessions=%d/net=%v/service=", c.sessions, c.delay)
		b.Run(name+"insert", func(b *testing.B) {
			t := newTarget(b, c.delay)
			r, done := openRows(b, t.at)
			defer done()
			inParallel(b, t, c.sessions, r.insert)
		})
		for _, p := range onServers {
			b.Run(name+p.name, func(b *testing.B) {
				t := newTarget(b, c.delay)
				s, done := p.open(b, t.at)
				defer done()
				handles := make([]session.Session, c.sessions)
				for i := range handles {
					handles[i] = create(b, s, fmt.Sprint(i))
				}
				inParallel(b, t, c.sessions, func(g, i int) error {
					return s.AppendEvent(ctx, handles[g], event(i))
				})
			})
		}
	}
}

// BenchmarkPostgresWriters appends through the store from 256 goroutines: an event a call, each durable
// before its goroutine goes on.
func BenchmarkPostgresWriters(b *testing.B) {
	const writers = 256
	for _, sessions := range []int{64, 1000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			t := newTarget(b, 0)
			s, err := pg.Open(ctx, t.at, store.Options{}, pg.Options{})
			no(b, err)
			defer s.Close()
			for i := range sessions {
				_, err := s.Create(ctx, key(fmt.Sprint(i)), nil)
				no(b, err)
			}
			inParallel(b, t, writers, func(g, i int) error {
				e, err := adk.NewEvent(event(g*1_000_000 + i))
				if err == nil {
					_, err = s.AppendEvents(ctx, key(fmt.Sprint((g+i*writers)%sessions)), store.AppendOptions{}, e)
				}
				return err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkPostgresGet gets a cached session from a database that has other rows; read=all also reads each of
// its events.
func BenchmarkPostgresGet(b *testing.B) {
	for _, p := range onServers {
		t := newTarget(b, 0)
		s, done := p.open(b, t.at)
		for _, n := range lengths {
			fillMany(b, s, t.dsn, n, fmt.Sprint(n))
		}
		had := 0
		for _, more := range []int{20_000, 200_000} {
			others(b, s, t.dsn, had, more)
			had = more
			for _, n := range lengths {
				readAll(b, get(b, s, fmt.Sprint(n)), n)
				for _, read := range []string{"none", "all"} {
					b.Run(fmt.Sprintf("events=%d/rows=%d/read=%s/service=%s", n, more, read, p.name), func(b *testing.B) {
						inParallel(b, t, 1, func(int, int) error {
							sess := get(b, s, fmt.Sprint(n))
							if read == "all" {
								readAll(b, sess, n)
							}
							return nil
						})
					})
				}
			}
		}
		done()
	}
}

// BenchmarkPostgresGetCold gets a session of 10,000 events that the store has not cached. Of patchlog's,
// 200 are visible, and it has a snapshot.
func BenchmarkPostgresGetCold(b *testing.B) {
	const events, visible = 10_000, 200
	b.Run("service=adk", func(b *testing.B) {
		t := newTarget(b, 0)
		s, done := openADK(b, t.at)
		defer done()
		fillMany(b, s, t.dsn, events, "s")
		pgtest.Exec(b, t.dsn, "ANALYZE")
		getRepeatedly(b, t, s, events)
	})
	b.Run("service=patchlog", func(b *testing.B) {
		t := newTarget(b, 0)
		eager := store.Options{Snapshots: snapshot.Policy{Every: 1}} // writes one after the summary
		s, err := pg.Open(ctx, t.dsn, eager, pg.Options{})
		no(b, err)
		_, err = s.Create(ctx, key("s"), nil)
		no(b, err)
		fillStore(b, s, 0, events-visible+1, "s")
		summary, err := patch.NewEvent(patch.Fields{ID: "summary", Author: "user", Content: patch.Text("model", "told")})
		no(b, err)
		_, err = s.ApplyPatch(ctx, key("s"), store.PatchOptions{AsOfNow: true}, patch.NewSummarise(0, events-visible+1, summary))
		no(b, err)
		fillStore(b, s, events-visible+1, events, "s")
		no(b, s.Close()) // writes the snapshot
		pgtest.Exec(b, t.dsn, "ANALYZE")
		svc, done := openPG(b, t.dsn, store.Options{CacheBytes: -1}, adk.Options{})
		defer done()
		getRepeatedly(b, t, svc, visible)
	})
}

// getRepeatedly measures a Get of session "s" with n events, each of which is read.
func getRepeatedly(b *testing.B, t target, s session.Service, n int) {
	b.Helper()
	inParallel(b, t, 1, func(int, int) error {
		readAll(b, get(b, s, "s"), n)
		return nil
	})
}
