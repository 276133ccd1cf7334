package peers

import (
	"fmt"
	"slices"
	"strconv"
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

// target is what a benchmark runs against: a database of its own, with or without a network
// in between.
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

// warm is how often each goroutine does what is measured before it is measured: statements
// are known on all connections then, and planned for good.
const warm = 12

// inParallel does b.N operations from so many goroutines, and reports what each took. do is
// given the goroutine's number and counts on from one.
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

// BenchmarkPostgresAppend appends an event, to one session or to 64 from a goroutine each,
// beside the insert of one row of the same bytes. The network, where there is one, takes 2
// ms there and back.
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

// BenchmarkPostgresWriters appends from 256 goroutines: an event a call, each durable before
// its goroutine goes on. how=store leaves ADK's types out.
func BenchmarkPostgresWriters(b *testing.B) {
	const writers = 256
	for _, sessions := range []int{64, 256, 1000} {
		for _, mode := range []string{"", prepared} {
			kind := map[string]string{"": "patchlog", prepared: "patchlog-prepared"}[mode]
			name := fmt.Sprintf("sessions=%d/service=%s", sessions, kind)
			b.Run(name+"/how=adk", func(b *testing.B) {
				t := newTarget(b, 0)
				s, done := openPG(b, t.at+mode, store.Options{}, adk.Options{})
				defer done()
				handles := manySessions(b, s, sessions)
				inParallel(b, t, writers, func(g, i int) error {
					return s.AppendEvent(ctx, handles[(g+i*writers)%sessions], event(g*1_000_000+i))
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
			b.Run(name+"/how=store", func(b *testing.B) {
				t := newTarget(b, 0)
				s, err := pg.Open(ctx, t.at+mode, store.Options{}, pg.Options{})
				no(b, err)
				defer s.Close()
				svc, err := adk.NewService(s, adk.Options{})
				no(b, err)
				manySessions(b, svc, sessions)
				inParallel(b, t, writers, func(g, i int) error {
					e, err := adk.NewEvent(event(g*1_000_000 + i))
					if err == nil {
						_, err = s.AppendEvents(ctx, key(strconv.Itoa((g+i*writers)%sessions)), store.AppendOptions{}, e)
					}
					return err
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

func manySessions(b *testing.B, s session.Service, n int) []session.Session {
	handles := make([]session.Session, n)
	for i := range handles {
		handles[i] = create(b, s, fmt.Sprint(i))
	}
	return handles
}

// BenchmarkPostgresGet gets a session in use of a database that has as many rows more.
// read=all also reads each of its events.
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

// BenchmarkPostgresGetCold gets a session of 10,000 events that the store has not seen.
// patchlog's shows 200 of them and has a snapshot. how=open opens the store first, which
// connects; how=get has the store open.
func BenchmarkPostgresGetCold(b *testing.B) {
	const events, visible = 10_000, 200
	b.Run("service=adk", func(b *testing.B) {
		t := newTarget(b, 0)
		s, done := openADK(b, t.at)
		fillMany(b, s, t.dsn, events, "s")
		pgtest.Exec(b, t.dsn, "ANALYZE")
		b.Run("how=get", func(b *testing.B) {
			inParallel(b, t, 1, func(int, int) error {
				readAll(b, get(b, s, "s"), events)
				return nil
			})
		})
		done()
	})
	for _, mode := range []string{"", prepared} {
		kind := map[string]string{"": "patchlog", prepared: "patchlog-prepared"}[mode]
		b.Run("service="+kind, func(b *testing.B) {
			t := newTarget(b, 0)
			eager := store.Options{Snapshots: snapshot.Policy{Every: 1}} // so that there is one behind the summary
			s, err := pg.Open(ctx, t.dsn, eager, pg.Options{})
			no(b, err)
			_, err = s.Create(ctx, key("s"), nil)
			no(b, err)
			fillStore(b, t.dsn, events-visible+1, "s")
			summary, err := patch.NewEvent(patch.Fields{ID: "summary", Author: "user", Content: patch.Text("model", "told")})
			no(b, err)
			_, err = s.ApplyPatch(ctx, key("s"), store.PatchOptions{AsOfNow: true}, patch.NewSummarise(0, events-visible+1, summary))
			no(b, err)
			var last []*patch.Event
			for i := events - visible + 1; i < events; i++ {
				e, err := adk.NewEvent(event(i))
				no(b, err)
				last = append(last, e)
			}
			_, err = s.AppendEvents(ctx, key("s"), store.AppendOptions{}, last...)
			no(b, err)
			no(b, s.Close()) // writes the snapshot
			pgtest.Exec(b, t.dsn, "ANALYZE")
			l, through := newLink(b, t.dsn, time.Nanosecond)
			for _, how := range []string{"open", "get"} {
				b.Run("how="+how, func(b *testing.B) {
					cold := store.Options{}
					if how == "get" {
						cold.CacheBytes = -1 // forgets
						s, done := openPG(b, t.dsn+mode, cold, adk.Options{})
						defer done()
						inParallel(b, t, 1, func(int, int) error {
							readAll(b, get(b, s, "s"), visible)
							return nil
						})
						return
					}
					inParallel(b, t, 1, func(int, int) error {
						s, done := openPG(b, t.dsn+mode, cold, adk.Options{})
						readAll(b, get(b, s, "s"), visible)
						done()
						return nil
					})
				})
			}
			b.Run("how=trips", func(b *testing.B) { // counted, its time is the proxy's
				s, done := openPG(b, through+mode, store.Options{CacheBytes: -1}, adk.Options{})
				defer done()
				t := t
				t.link = l
				inParallel(b, t, 1, func(int, int) error {
					readAll(b, get(b, s, "s"), visible)
					return nil
				})
			})
		})
	}
}
