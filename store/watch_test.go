package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// onWatched runs a test on each engine with a synthetic clock. The clock stops while any goroutine runs.
// Everything that has happened when [synctest.Wait] returns therefore took no time.
func onWatched(t *testing.T, run func(e *env, l *hooked)) {
	t.Helper()
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		synctest.Test(e.T, func(t *testing.T) {
			within := e.with(t)
			run(within, within.hook())
			if err := within.store.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
				t.Error(err)
			}
			synctest.Wait()
			e.store = within.store
		})
		e.reopen()
	})
}

// onWatchedPeers is onPeers with the clock of onWatched, and with a hooked backend between the first store and
// mine.
func onWatchedPeers(t *testing.T, run func(e, other *env, mine, l *hooked)) {
	t.Helper()
	onPeers(t, func(e, other *env, mine *hooked) {
		synctest.Test(e.T, func(t *testing.T) {
			e, l := e.with(t), &hooked{Backend: unclosed{mine}}
			e.store = newStore(e, l, e.opts)
			run(e, other, mine, l)
			e.no(e.store.Close())
		})
	})
}

// watching watches a session in its own goroutine.
type watching struct {
	e    *env
	key  store.Key
	from uint64
	stop func()
	done chan struct{}

	mu      sync.Mutex
	records []patch.Record
	errs    []error
}

// follow watches a session until the test ends. If the argument each is not nil, follow calls it in the loop's
// body.
func (e *env) follow(key store.Key, from uint64, each func(r patch.Record)) *watching {
	ctx, stop := context.WithCancel(ctx)
	e.Cleanup(stop)
	w := &watching{e: e, key: key, from: max(from, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for r, err := range e.store.Watch(ctx, key, from) {
			w.mu.Lock()
			if err != nil {
				w.errs = append(w.errs, err)
			} else {
				w.records = append(w.records, r)
			}
			w.mu.Unlock()
			if err == nil && each != nil {
				each(r)
			}
		}
	}()
	return w
}

func (w *watching) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.records)
}

// has checks that the watch has yielded the log from the watch's start, and no error.
func (w *watching) has(log []patch.Record) {
	w.e.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) > 0 {
		w.e.Errorf("watching from record %d: errors %v", w.from, w.errs)
	}
	w.e.same(fmt.Sprint("what was yielded from record ", w.from), forms(w.records), forms(log[min(w.from-1, uint64(len(log))):]))
}

// check waits until all goroutines wait, and then calls has with the whole log.
func (w *watching) check() {
	w.e.Helper()
	synctest.Wait()
	w.has(w.e.records(w.key))
}

func (w *watching) end() {
	w.stop()
	<-w.done
}

// ended checks that the watch ended with the given error after the given number of records.
func (w *watching) ended(records int, target error, names ...string) {
	w.e.Helper()
	<-w.done
	if len(w.records) != records || len(w.errs) != 1 {
		w.e.Errorf("watching from record %d: %d records and errors %v, want %d records and one error", w.from, len(w.records), w.errs, records)
		return
	}
	w.e.is(w.errs[0], target, names...)
}

// forms returns the byte forms of records, with their seqs.
func forms(records []patch.Record) string {
	var b strings.Builder
	for _, r := range records {
		data, err := patch.AppendRecord(nil, r)
		fmt.Fprintf(&b, "%d %s %08x %v\n", r.Seq, r.ID(), recordform.Checksum(data), err)
	}
	return b.String()
}

// Each watcher gets each new record at once. Different watchers can start at different seqs.
func TestWatch(t *testing.T) {
	onWatched(t, func(e *env, l *hooked) {
		e.create(nil)
		e.append(says("a", 4)...)
		began := time.Now()
		var watchers []*watching
		for _, from := range []uint64{0, 1, 3, 4, 5, 9, 1000, 1 << 63, ^uint64(0)} {
			watchers = append(watchers, e.follow(key, from, nil))
		}
		check := func() {
			e.Helper()
			for _, w := range watchers {
				w.check()
			}
		}
		for _, write := range []func(){
			func() {},
			func() { e.append(event(`{"id":"b1","invocationId":"inv2"}`), say("b2")) },
			func() { e.apply(patch.NewSplice(0, 1).WithID("p1")) },
			func() { e.must(e.store.Revert(ctx, key, "p1", store.UndoOptions{})) },
			func() { e.must(e.store.Rewind(ctx, key, "inv2", store.UndoOptions{})) },
			func() { e.apply(patch.NewSummarise(0, 2, summary("s1"))) },
			func() { e.importText("f", e.export()+`{"id":"c1","author":"user"}`+"\n") },
			func() { e.append(says("d", 2000)...) },
		} {
			write()
			check()
		}
		testlog.Equal(e, "time that passed", time.Since(began), 0)
		if n := len(e.records(key)); n < 1000 {
			e.Errorf("the log has %d records", n)
		}
		time.Sleep(time.Hour)
		check()
		for _, w := range watchers {
			w.end()
		}
	})
}

// If a commit comes too late for the current read of a watch, the watch reads again without a pause.
func TestWatchMeetsCommit(t *testing.T) {
	onWatched(t, func(e *env, l *hooked) {
		e.create(nil)
		e.append(says("a", 3)...)
		w := e.follow(key, 1, nil)
		synctest.Wait()
		began := time.Now()
		late := sync.OnceFunc(func() { e.append(say("c")) })
		l.fetched = func(backend.Query, *backend.Fetched) { late() }
		e.append(say("b"))
		w.check()
		testlog.Equal(e, "time that passed", time.Since(began), 0)
		w.end()
	})
}

// If a commit with an unknown outcome took effect, a watch yields its records at once, even if the writer does not
// learn the outcome.
func TestWatchUnknownOutcome(t *testing.T) {
	onWatched(t, func(e *env, l *hooked) {
		faulty := &storetest.Faulty{Backend: l.Backend}
		l.Backend = faulty
		e.create(nil)
		w := e.follow(key, 1, nil)
		synctest.Wait()
		began := time.Now()
		for i, plan := range []storetest.Plan{
			{Write: 1, Failure: storetest.Refused}, {Write: 1, Failure: storetest.NotApplied}, {Write: 1, Failure: storetest.Applied},
			{Write: 1, Failure: storetest.Applied, FailNext: 1}, // makes the attempt to resolve the outcome fail too
		} {
			faulty.Plan(plan)
			_, err := e.store.AppendEvents(ctx, key, []*patch.Event{say(fmt.Sprint("a", i))}, store.AppendOptions{})
			if (err == nil) != (i == 2) || errors.Is(err, store.ErrOutcomeUnknown) != (i == 3) {
				e.Errorf("append %d: %v", i, err)
			}
			faulty.Plan(storetest.Plan{})
			w.check()
		}
		testlog.Equal(e, "time that passed and records", fmt.Sprint(time.Since(began), w.seen()), "0s 2")
		faulty.Plan(storetest.Plan{Write: 1, Failure: storetest.Applied})
		e.is(e.store.Delete(ctx, key), store.ErrOutcomeUnknown)
		synctest.Wait()
		w.ended(2, store.ErrNotFound, key.String())
		faulty.Plan(storetest.Plan{})
	})
}

// If the watched session is deleted, the watch ends. It does not yield records of a new session with the same key.
func TestWatchDeleted(t *testing.T) {
	onWatched(t, func(e *env, _ *hooked) {
		e.follow(key, 1, nil).ended(0, store.ErrNotFound, key.String())
		e.follow(store.Key{}, 1, nil).ended(0, store.ErrInvalid)
		e.create(nil)
		e.append(says("a", 3)...)
		w, ahead := e.follow(key, 1, nil), e.follow(key, 9, nil)
		synctest.Wait()
		again := e.follow(key, 1, func(r patch.Record) {
			if r.Seq == 3 {
				e.no(e.store.Delete(ctx, key))
				e.create(nil)
				e.append(says("b", 9)...)
			}
		})
		w.ended(3, store.ErrNotFound, key.String())
		again.ended(3, store.ErrNotFound, key.String(), "created again")
		ahead.ended(0, store.ErrNotFound)
		w = e.follow(key, 1, nil)
		w.check()
		e.no(e.store.Delete(ctx, key))
		synctest.Wait()
		w.ended(9, store.ErrNotFound, key.String())
		e.create(nil)
	})
}

// The body of a watch's loop may write, read, and be slow.
func TestWatchBody(t *testing.T) {
	onWatched(t, func(e *env, l *hooked) {
		e.create(nil)
		e.append(say("a0"))
		w := e.follow(key, 1, func(r patch.Record) {
			if r.Seq < 700 { // covers more records than one read returns
				e.append(say(fmt.Sprint("a", r.Seq)))
			}
			if r.Seq == 350 {
				time.Sleep(time.Minute)
			}
		})
		time.Sleep(2 * time.Minute)
		w.has(e.records(key))
		testlog.Equal(e, "records", w.seen(), 700)
		w.end()

		// While the loop's body runs, Watch reads nothing.
		resume := make(chan struct{})
		w = e.follow(key, 700, func(r patch.Record) {
			if r.Seq == 700 {
				<-resume
			}
		})
		synctest.Wait()
		l.takeCalls()
		for i := range 30 {
			e.append(says(fmt.Sprint("b", i, "."), 100)...)
		}
		synctest.Wait()
		testlog.Equal(e, "looks for a loop that did not ask", strings.Count(l.takeCalls(), "Fetch"), 0)
		close(resume)
		w.check()
		if n := strings.Count(l.takeCalls(), "Fetch"); n > 8 {
			e.Errorf("%d looks at 3000 records", n)
		}
	})
}

// When the loop, the context or the store ends, the watch ends and leaves nothing behind.
func TestWatchEnds(t *testing.T) {
	onWatched(t, func(e *env, l *hooked) {
		e.opts.CacheBytes = -1
		e.open()
		e.create(nil)
		e.append(says("a", 5)...)
		for r, err := range e.store.Watch(ctx, key, 2) {
			e.no(err)
			if r.Seq == 4 {
				break
			}
		}
		left := func(when string, watched int) {
			e.Helper()
			testlog.Equal(e, when+": handles that are left", store.Handles(e.store), 0)
			testlog.Equal(e, when+": sessions that are watched", store.Watched(e.store), watched)
		}
		left("after a break", 0)
		ended, stop := context.WithCancel(ctx)
		stop()
		for _, err := range e.store.Watch(ended, key, 2) {
			e.is(err, context.Canceled)
		}
		var seen []string
		amid, stop := context.WithCancel(ctx)
		for r, err := range e.store.Watch(amid, key, 1) {
			seen = append(seen, fmt.Sprint(r.Seq, err))
			if r.Seq == 2 {
				stop()
			}
		}
		e.same("yielded, where the loop ended the context", fmt.Sprint(seen), "[1 <nil> 2 <nil> 0 context canceled]")
		waiting := e.follow(key, 2, nil)
		waiting.check()
		left("while a session is watched", 1)
		waiting.stop()
		waiting.ended(4, context.Canceled)
		deadline, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		var errs []error
		for _, err := range e.store.Watch(deadline, key, 6) {
			errs = append(errs, err)
		}
		e.same("errors", fmt.Sprint(errs), "[context deadline exceeded]")
		left("at the end", 0)

		// Close ends all watches, whether they wait, pause, read or run the loop's body. Close does not wait for
		// them.
		resume := make(chan struct{})
		body := e.follow(key, 5, func(patch.Record) { <-resume })
		waiting = e.follow(key, 5, nil)
		synctest.Wait()
		l.set(failing("Fetch", errors.New("no connection")))
		pausing := e.follow(key, 5, nil)
		synctest.Wait()
		l.set(func(ctx context.Context, _ string) (backend.Backend, error) { <-ctx.Done(); return nil, ctx.Err() })
		looking := e.follow(key, 5, nil)
		synctest.Wait()
		e.no(e.store.Close())
		waiting.ended(1, store.ErrClosed, key.String())
		looking.ended(0, store.ErrClosed)
		<-pausing.done
		testlog.Equal(e, "errors", len(pausing.errs), 2)
		e.is(pausing.errs[1], store.ErrClosed)
		close(resume)
		body.ended(1, store.ErrClosed)
		e.follow(key, 1, nil).ended(0, store.ErrClosed)
	})
}

// If the loop's body closes the store, the loop gets no further record.
func TestWatchClosedInBody(t *testing.T) {
	onWatched(t, func(e *env, _ *hooked) {
		e.create(nil)
		e.append(says("a", 3)...)
		looped := 0
		for _, err := range e.store.Watch(ctx, key, 1) {
			if looped++; looped == 1 {
				e.no(e.store.Close())
			} else {
				e.is(err, store.ErrClosed)
			}
		}
		testlog.Equal(e, "loops", looped, 2)
	})
}

// A watcher does not keep a session's view in memory.
func TestWatchKeepsNoView(t *testing.T) {
	onCache(t, func(e *env) int { return e.filled(0, 20) + e.filled(1, 20) + 1000 }, func(c cached) {
		c.filled(2, 20)
		w := c.follow(numbered(0), 1, nil)
		if c.read(0); c.read(0) {
			c.Error("a session that is watched is not cached")
		}
		if c.read(1); c.read(2) && !c.read(0) {
			c.Error("the session used longest ago is cached beyond the limit, since it is watched")
		}
		c.more(0, say("late"))
		w.wait(21)
		w.has(c.records(numbered(0)))
		c.read(1)
		c.read(2)
		w.end()
		testlog.Equal(c, "sessions that are cached", store.Handles(c.store), 2)
		w = c.follow(numbered(1), 20, nil)
		w.wait(1)
		w.end()
		if c.read(1) || c.read(2) {
			c.Error("a session is no longer cached, since it was watched")
		}
		for range 3 {
			for i := range 3 {
				c.read(i)
			}
		}
		testlog.Equal(c, "sessions that are cached", store.Handles(c.store), 2)
	})
}

// wait waits until the watch has yielded the given number of records.
func (w *watching) wait(records int) {
	w.e.Helper()
	for ; w.seen() < records; time.Sleep(time.Millisecond) {
		select {
		case <-w.done:
			w.e.Fatalf("watching from record %d ended after %d records with %v", w.from, len(w.records), w.errs)
		default:
		}
	}
}

// Watch polls for commits of other processes. It polls soon after a new record, and once a second while there are
// no new records. It yields commits of its own store at once.
func TestWatchPolls(t *testing.T) {
	onWatchedPeers(t, func(e, other *env, mine, l *hooked) {
		w := e.follow(key, 1, nil)
		time.Sleep(5 * time.Second)
		const ms = time.Millisecond
		idle := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, time.Second}
		if got := l.takeIntervals(); !slices.Equal(got[1:], idle) || got[0] != 0 {
			e.Errorf("looks after %v, want 0 and %v", got, idle)
		}
		began := time.Now()
		e.append(say("m1"))
		w.check()
		testlog.Equal(e, "time that passed", time.Since(began), 0)
		amid := e.follow(key, 3, nil)
		synctest.Wait()
		mine.takeCalls()
		other.append(say("o1"))
		time.Sleep(100 * ms)
		synctest.Wait()
		if calls := strings.ReplaceAll(mine.takeCalls(), "Fetch", ""); strings.TrimSpace(calls) != "" {
			e.Errorf("watching took calls besides Fetch: %s", calls)
		}
		w.has(other.records(key))
		amid.has(other.records(key))
		amid.end()
		time.Sleep(time.Hour)
		l.takeCalls()
		other.apply(patch.NewSplice(0, 1))
		time.Sleep(time.Second)
		synctest.Wait()
		w.has(other.records(key))
		if n := strings.Count(l.takeCalls(), "Fetch"); n < 2 {
			e.Errorf("%d looks in the second in which there are news", n)
		}
		e.no(other.store.Delete(ctx, key))
		other.create(nil)
		time.Sleep(time.Second)
		w.ended(6, store.ErrNotFound, "created again")
	})
}

// failing returns a hook that fails the calls whose names end with the argument call.
func failing(call string, err error) func(context.Context, string) (backend.Backend, error) {
	return func(_ context.Context, c string) (backend.Backend, error) {
		if strings.HasSuffix(c, call) {
			return nil, err
		}
		return nil, nil
	}
}

// A watch yields a temporary error and continues. After the cause has passed, it yields each following record
// once.
func TestWatchErrors(t *testing.T) {
	onWatched(t, func(e *env, l *hooked) {
		lost := errors.New("connection lost")
		e.create(nil)
		e.append(says("a", 3)...)
		l.takeIntervals()
		l.set(failing("Fetch", lost)) // the first Fetch of the watch fails
		w := e.follow(key, 2, nil)
		time.Sleep(20 * time.Second)
		const ms = time.Millisecond
		pauses := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms}
		if got := l.takeIntervals(); !slices.Equal(got, pauses) {
			e.Errorf("it tried again after %v, want %v", got, pauses)
		}
		l.set(nil)
		time.Sleep(5 * time.Second)
		check := func(errs int) {
			e.Helper()
			synctest.Wait()
			if len(w.errs) != errs || !errors.Is(w.errs[errs-1], lost) {
				e.Errorf("errors %v, want %d", w.errs, errs)
			}
			w.errs = nil
			w.has(e.records(key))
		}
		check(9)
		l.set(failing("Fetch", lost)) // a Fetch in the middle of the log fails
		e.append(says("b", 3)...)
		synctest.Wait()
		e.append(says("c", 3)...)
		l.set(nil)
		time.Sleep(100 * ms) // after a success, the pause is short again
		check(1)
		for _, end := range []error{backend.ErrDamaged, backend.ErrNotFound, backend.ErrClosed} {
			l.set(failing("Fetch", fmt.Errorf("now: %w", end)))
			e.follow(key, 1, nil).ended(0, map[error]error{
				backend.ErrDamaged: store.ErrCorrupt, backend.ErrNotFound: store.ErrNotFound, backend.ErrClosed: store.ErrClosed,
			}[end])
		}
		l.set(failing("Fetch", lost))
		for _, err := range e.store.Watch(ctx, key, 1) {
			e.is(err, lost)
			break
		}
		l.set(nil)
		w.end()
	})
}

// If a failover lost records, the watch ends before it yields the records that replaced them. If the watch had not
// yet reached the lost records, it yields no record that the new log contradicts.
func TestWatchLostHistory(t *testing.T) {
	for _, c := range []struct {
		kept, lost, instead int
		behind              bool
	}{{1, 1, 0, false}, {0, 2, 0, false}, {0, 2, 1, false}, {0, 2, 2, false}, {0, 2, 3, false}, {0, 2, 2000, false}, {100, 2000, 3000, true}} {
		for _, from := range []uint64{1, 3, 5, 6, 7} {
			t.Run(fmt.Sprint(c, " from ", from), func(t *testing.T) {
				onWatchedPeers(t, func(e, _ *env, mine, l *hooked) {
					e.append(says("b", c.kept)...)
					info := infoOf(e, e.store, key)
					e.append(says("lost", c.lost)...)
					resume := make(chan struct{})
					w := e.follow(key, from, func(r patch.Record) {
						if r.Seq == 300 {
							<-resume
						}
					})
					synctest.Wait()
					if !c.behind {
						w.check()
					}
					after := lostHistory(e, mine, info)
					l.set(func(context.Context, string) (backend.Backend, error) { return after, nil })
					if c.instead > 0 {
						s := newStore(e, unclosed{after}, e.opts)
						e.must(s.AppendEvents(ctx, key, says("x", c.instead), store.AppendOptions{}))
					}
					close(resume)
					time.Sleep(time.Second)
					was := 3 + c.kept + c.lost
					w.ended(min(max(0, was+1-int(from)), 512), store.ErrNotFound, key.String(), "lost") // one read returns at most 512 records
				})
			})
		}
	}
}

// An erase changes records that a watch has yielded. The watch continues and yields the receipt and the records
// after it.
func TestWatchErased(t *testing.T) {
	onWatched(t, func(e *env, _ *hooked) {
		e.create(nil)
		e.append(says("a", 3)...)
		w := e.follow(key, 1, nil)
		w.check()
		e.must(e.store.Erase(ctx, key, store.EraseSelection{EventIDs: []string{"a2"}}, store.EraseOptions{ID: "r"}))
		e.append(say("late"))
		synctest.Wait()
		e.no(e.store.Close())
		w.ended(5, store.ErrClosed)
	})
}

// A watch yields the records before a damaged record and then ends with an error. Verify finds the damage too.
func TestWatchDamage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, path string)
		sound  int // number of records before the damaged record
	}{
		"a record cut short":       {changeRecord(4, func(v []byte) []byte { return v[:len(v)/2] }), 3},
		"a record that is missing": {changeRecord(4, func([]byte) []byte { return nil }), 3},
		"no head":                  {dropName("heads", "session"), 0},
		"another record":           {replaceRecord3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(e *env) {
				e.create(nil)
				e.append(says("a", 6)...)
				e.changeFile(c.change)
				var want error // error of RawEvents, which the watch must return too
				for _, want = range e.store.RawEvents(ctx, key, 1) {
				}
				e.follow(key, 1, nil).ended(c.sound, store.ErrCorrupt, want.Error())
				if len(e.verify(store.VerifyOptions{Key: key})) == 0 {
					e.Error("Verify finds nothing")
				}
			})
		})
	}
}

// Several watches start at any seq and any time while other goroutines write in every way. Each watch yields the
// final log.
func TestWatchersAmongWriters(t *testing.T) {
	run := func(t *testing.T, stores []*env) {
		const each = 25
		e := stores[0]
		first := len(e.records(key))
		random := rand.New(rand.NewPCG(1, 2))
		var watchers []*watching
		watch := func() {
			from, slow := uint64(random.IntN(first+200)), random.IntN(3) == 0
			watchers = append(watchers, stores[random.IntN(len(stores))].follow(key, from, func(r patch.Record) {
				if slow && r.Seq%16 == 0 {
					time.Sleep(time.Millisecond)
				}
			}))
		}
		for range 6 {
			watch()
		}
		var wg sync.WaitGroup
		for i := range 8 {
			random, s := rand.New(rand.NewPCG(3, uint64(i))), stores[i%len(stores)].store
			wg.Go(func() {
				for k := range each {
					id := fmt.Sprint("w", i, ".", k)
					var err error
					switch random.IntN(6) {
					case 0:
						_, err = s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID(id)}, asOfNow)
					case 1:
						_, err = s.AppendEvents(ctx, key, says(id+".", 20), store.AppendOptions{})
					default:
						_, err = s.AppendEvents(ctx, key, []*patch.Event{say(id)}, store.AppendOptions{})
					}
					testlog.WantNil(e, err)
				}
			})
		}
		for range 10 {
			time.Sleep(time.Millisecond)
			watch()
		}
		wg.Wait()
		log := e.records(key)
		for _, w := range watchers {
			w.wait(max(0, len(log)+1-int(w.from)))
			w.has(log)
			w.end()
		}
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 600)...)
		run(e.T, []*env{e})
	})
	t.Run("peers", func(t *testing.T) {
		onPeers(t, func(e, other *env, _ *hooked) {
			run(t, []*env{e, other})
		})
	})
}
