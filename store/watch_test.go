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

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// looks is a backend that notes when it is asked for news, and may be made to fail then.
type looks struct {
	backend.Backend
	mu   sync.Mutex
	at   []time.Time
	fail func(ctx context.Context) error
	late func() // called once, before a look's answer arrives
}

func (l *looks) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	l.mu.Lock()
	l.at = append(l.at, time.Now())
	fail := l.fail
	l.mu.Unlock()
	if fail != nil {
		if err := fail(ctx); err != nil {
			return backend.News{}, err
		}
	}
	l.mu.Lock()
	b, late := l.Backend, l.late
	l.late = nil
	l.mu.Unlock()
	news, err := b.Look(ctx, q)
	if late != nil {
		late()
	}
	return news, err
}

func (l *looks) failing(fail func(ctx context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = fail
}

// turn puts another backend in the place of the one that is asked.
func (l *looks) turn(b backend.Backend) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Backend = b
}

// times returns how long before each look the last one was, of the looks since the last call.
func (l *looks) times() (apart []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.at[min(1, len(l.at)):] {
		apart = append(apart, l.at[i+1].Sub(l.at[i]))
	}
	l.at = nil
	return apart
}

func (l *looks) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.at)
}

// onWatched runs a test on each engine where time stands still while anything goes on: what
// happens after [synctest.Wait] without time passing happens at once.
func onWatched(t *testing.T, run func(e *env, l *looks)) {
	t.Helper()
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		synctest.Test(e.T, func(t *testing.T) {
			within := e.with(t)
			l := &looks{Backend: e.engine}
			within.reopenOn(func(engine backend.Backend) backend.Backend {
				l.Backend = engine
				return l
			})
			run(within, l)
			if err := within.store.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
				t.Error(err)
			}
			synctest.Wait()
			e.store = within.store
		})
		e.reopen()
	})
}

// watching follows a session in a goroutine of its own.
type watching struct {
	e    *env
	from uint64
	stop func()
	done chan struct{}

	mu      sync.Mutex
	records []patch.Record
	errs    []error
}

// follow follows a session until the test ends. each, if not nil, is called in the loop's body.
func (e *env) follow(key store.Key, from uint64, each func(r patch.Record)) *watching {
	ctx, stop := context.WithCancel(ctx)
	e.Cleanup(stop)
	w := &watching{e: e, from: max(from, 1), stop: stop, done: make(chan struct{})}
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

// has checks that what was yielded is the rest of the log so far, and no error.
func (w *watching) has(log []patch.Record) {
	w.e.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) > 0 {
		w.e.Errorf("watching from record %d: errors %v", w.from, w.errs)
	}
	w.e.same(fmt.Sprint("what was yielded from record ", w.from), forms(w.records), forms(log[min(w.from-1, uint64(len(log))):]))
}

// ended checks that the watch has ended with an error after so many records.
func (w *watching) ended(records int, target error, names ...string) {
	w.e.Helper()
	<-w.done
	if len(w.records) != records || len(w.errs) != 1 {
		w.e.Errorf("watching from record %d: %d records and errors %v, want %d records and one error", w.from, len(w.records), w.errs, records)
		return
	}
	w.e.is(w.errs[0], target, names...)
}

// forms are the byte forms of records, with their seqs.
func forms(records []patch.Record) string {
	var b strings.Builder
	for _, r := range records {
		data, err := patch.AppendRecord(nil, r)
		fmt.Fprintf(&b, "%d %s %08x %v\n", r.Seq, r.ID(), recordform.Checksum(data), err)
	}
	return b.String()
}

// Whatever is written is yielded at once, to each watcher from where it began.
func TestWatch(t *testing.T) {
	onWatched(t, func(e *env, l *looks) {
		e.create(nil)
		e.append(says("a", 4)...)
		began := time.Now()
		var watchers []*watching
		for _, from := range []uint64{0, 1, 3, 4, 5, 9, 1000, 1 << 63, ^uint64(0)} {
			watchers = append(watchers, e.follow(key, from, nil))
		}
		check := func() {
			e.Helper()
			synctest.Wait()
			log := e.records(key)
			for _, w := range watchers {
				w.has(log)
			}
		}
		check()
		e.append(event(`{"id":"b1","invocationId":"inv2"}`), say("b2"))
		check()
		e.apply(patch.NewSplice(0, 1).WithID("p1"))
		check()
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p1"))
		check()
		e.must(e.store.Rewind(ctx, key, store.UndoOptions{}, "inv2"))
		check()
		e.apply(patch.NewSummarise(0, 2, summary("s1")))
		check()
		e.must(e.store.Import(ctx, key, strings.NewReader(e.export()+`{"id":"c1","author":"user"}`+"\n"), store.ImportOptions{}))
		check()
		e.append(says("d", 2000)...)
		check()
		if passed := time.Since(began); passed != 0 {
			e.Errorf("it took %v", passed)
		}
		if n := len(e.records(key)); n < 1000 {
			e.Errorf("the log has %d records", n)
		}
		time.Sleep(time.Hour)
		check()
		for _, w := range watchers {
			w.stop()
			<-w.done
		}
	})
}

// What is committed while a look is under way, too late for it, is not left for later.
func TestWatchMeetsCommit(t *testing.T) {
	onWatched(t, func(e *env, l *looks) {
		e.create(nil)
		e.append(says("a", 3)...)
		w := e.follow(key, 1, nil)
		synctest.Wait()
		began := time.Now()
		l.late = func() { e.append(say("c")) }
		e.append(say("b"))
		synctest.Wait()
		w.has(e.records(key))
		if passed := time.Since(began); passed != 0 || w.seen() != 5 {
			e.Errorf("%d records after %v", w.seen(), passed)
		}
		w.stop()
		<-w.done
	})
}

// A commit whose outcome is unknown is yielded if it took place, at once, whether the writer
// found out or not.
func TestWatchUnknownOutcome(t *testing.T) {
	onWatched(t, func(e *env, l *looks) {
		faulty := &storetest.Faulty{Backend: l.Backend}
		l.Backend = faulty
		e.create(nil)
		w := e.follow(key, 1, nil)
		synctest.Wait()
		began := time.Now()
		for i, plan := range []storetest.Plan{
			{Write: 1, Failure: storetest.Refused}, {Write: 1, Failure: storetest.Lost}, {Write: 1, Failure: storetest.Landed},
			{Write: 1, Failure: storetest.Landed, Then: 1}, // and asking fails
		} {
			faulty.Plan(plan)
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say(fmt.Sprint("a", i)))
			if (err == nil) != (i == 2) || errors.Is(err, store.ErrOutcomeUnknown) != (i == 3) {
				e.Errorf("append %d: %v", i, err)
			}
			faulty.Plan(storetest.Plan{})
			synctest.Wait()
			w.has(e.records(key))
		}
		if passed := time.Since(began); passed != 0 || w.seen() != 2 {
			e.Errorf("%d records after %v", w.seen(), passed)
		}
		faulty.Plan(storetest.Plan{Write: 1, Failure: storetest.Landed, Then: 1})
		if err := e.store.Delete(ctx, key); err == nil {
			e.Error("a deletion that could not be asked about succeeded")
		}
		synctest.Wait()
		w.ended(2, store.ErrNotFound, key.String())
		faulty.Plan(storetest.Plan{})
	})
}

// A watch is of one creation of a session.
func TestWatchDeleted(t *testing.T) {
	onWatched(t, func(e *env, _ *looks) {
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
		synctest.Wait()
		w.has(e.records(key))
		e.no(e.store.Delete(ctx, key))
		synctest.Wait()
		w.ended(9, store.ErrNotFound, key.String())
		e.create(nil)
	})
}

// The loop's body may write, and read, and take its time.
func TestWatchBody(t *testing.T) {
	onWatched(t, func(e *env, l *looks) {
		e.create(nil)
		e.append(say("a0"))
		w := e.follow(key, 1, func(r patch.Record) {
			if r.Seq < 700 { // more than a look gives
				e.append(say(fmt.Sprint("a", r.Seq)))
			}
			if r.Seq == 350 {
				time.Sleep(time.Minute)
			}
		})
		time.Sleep(2 * time.Minute)
		w.has(e.records(key))
		if w.seen() != 700 {
			e.Errorf("%d records", w.seen())
		}
		w.stop()
		<-w.done

		// While a body takes its time nothing is read for it.
		resume := make(chan struct{})
		w = e.follow(key, 700, func(r patch.Record) {
			if r.Seq == 700 {
				<-resume
			}
		})
		synctest.Wait()
		l.times()
		for i := range 30 {
			e.append(says(fmt.Sprint("b", i, "."), 100)...)
		}
		synctest.Wait()
		if n := l.count(); n > 0 {
			e.Errorf("%d looks for a loop that did not ask", n)
		}
		close(resume)
		synctest.Wait()
		w.has(e.records(key))
		if n := l.count(); n > 8 {
			e.Errorf("%d looks at 3000 records", n)
		}
	})
}

// A watch that its loop, its context or the store ends leaves nothing behind.
func TestWatchEnds(t *testing.T) {
	onWatched(t, func(e *env, l *looks) {
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
		if n := store.Handles(e.store); n != 0 {
			e.Errorf("%d handles are left after a break", n)
		}
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
		synctest.Wait()
		waiting.has(e.records(key))
		if n := store.Handles(e.store); n != 1 {
			e.Errorf("%d handles while a session is watched", n)
		}
		waiting.stop()
		waiting.ended(4, context.Canceled)
		deadline, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		var errs []error
		for _, err := range e.store.Watch(deadline, key, 6) {
			errs = append(errs, err)
		}
		if len(errs) != 1 || errs[0] != context.DeadlineExceeded {
			e.Errorf("errors %v", errs)
		}
		if n := store.Handles(e.store); n != 0 {
			e.Errorf("%d handles are left", n)
		}

		// Close ends those that wait, pause, look or are in their body, and waits for none.
		resume := make(chan struct{})
		body := e.follow(key, 5, func(patch.Record) { <-resume })
		waiting = e.follow(key, 5, nil)
		synctest.Wait()
		l.failing(func(context.Context) error { return errors.New("no connection") })
		pausing := e.follow(key, 5, nil)
		synctest.Wait()
		l.failing(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		looking := e.follow(key, 5, nil)
		synctest.Wait()
		e.no(e.store.Close())
		waiting.ended(1, store.ErrClosed, key.String())
		looking.ended(0, store.ErrClosed)
		<-pausing.done
		if len(pausing.errs) != 2 {
			e.Errorf("errors %v", pausing.errs)
		}
		e.is(pausing.errs[1], store.ErrClosed)
		close(resume)
		body.ended(1, store.ErrClosed)
		e.follow(key, 1, nil).ended(0, store.ErrClosed)
	})
}

// A session's view is not kept in memory because somebody watches.
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
		w.stop()
		<-w.done
		if n := store.Handles(c.store); n != 2 {
			c.Errorf("%d sessions are cached, want 2 without the one that was watched", n)
		}
		w = c.follow(numbered(1), 20, nil)
		w.wait(1)
		w.stop()
		<-w.done
		if c.read(1) || c.read(2) {
			c.Error("a session is no longer cached, since it was watched")
		}
		for range 3 {
			for i := range 3 {
				c.read(i)
			}
		}
		if n := store.Handles(c.store); n != 2 {
			c.Errorf("%d sessions are cached, want 2", n)
		}
	})
}

// wait waits until so many records have been yielded.
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

// Where others write, the storage is asked: soon after news, and once a second while there
// are none. What this store writes is seen at once.
func TestWatchPolls(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		synctest.Test(e.T, func(t *testing.T) {
			e, l := e.with(t), &looks{Backend: unclosed{mine}}
			e.store = newStore(e, l, e.opts)
			w := e.follow(key, 1, nil)
			time.Sleep(5 * time.Second)
			const ms = time.Millisecond
			idle := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, time.Second}
			if got := l.times(); !slices.Equal(got[1:], idle) || got[0] != 0 {
				e.Errorf("looks after %v, want 0 and %v", got, idle)
			}
			began := time.Now()
			e.append(say("m1"))
			synctest.Wait()
			w.has(e.records(key))
			if passed := time.Since(began); passed != 0 {
				e.Errorf("its own store's append was seen after %v", passed)
			}
			amid := e.follow(key, 3, nil)
			synctest.Wait()
			mine.took()
			other.append(say("o1"))
			time.Sleep(100 * ms)
			synctest.Wait()
			if calls := strings.ReplaceAll(mine.took(), "Look", ""); strings.TrimSpace(calls) != "" {
				e.Errorf("watching took calls besides Look: %s", calls)
			}
			w.has(other.records(key))
			amid.has(other.records(key))
			amid.stop()
			<-amid.done
			time.Sleep(time.Hour)
			l.times()
			other.apply(patch.NewSplice(0, 1))
			time.Sleep(time.Second)
			synctest.Wait()
			w.has(other.records(key))
			if n := l.count(); n < 2 {
				e.Errorf("%d looks in the second in which there are news", n)
			}
			e.no(other.store.Delete(ctx, key))
			other.create(nil)
			time.Sleep(time.Second)
			w.ended(6, store.ErrNotFound, "created again")
			e.no(e.store.Close())
		})
	})
}

// An error that may pass is yielded, and what follows when it has passed: nothing twice, and
// nothing left out.
func TestWatchErrors(t *testing.T) {
	onWatched(t, func(e *env, l *looks) {
		lost := errors.New("connection lost")
		e.create(nil)
		e.append(says("a", 3)...)
		fail := func(context.Context) error { return lost }
		l.times()
		l.failing(fail) // at the start
		w := e.follow(key, 2, nil)
		time.Sleep(20 * time.Second)
		const ms = time.Millisecond
		pauses := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms}
		if got := l.times(); !slices.Equal(got, pauses) {
			e.Errorf("it tried again after %v, want %v", got, pauses)
		}
		l.failing(nil)
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
		l.failing(fail) // amid the log
		e.append(says("b", 3)...)
		synctest.Wait()
		e.append(says("c", 3)...)
		l.failing(nil)
		time.Sleep(100 * ms) // the pause is short again
		check(1)
		for _, end := range []error{backend.ErrDamaged, backend.ErrNotFound, backend.ErrClosed} {
			l.failing(func(context.Context) error { return fmt.Errorf("now: %w", end) })
			e.follow(key, 1, nil).ended(0, map[error]error{
				backend.ErrDamaged: store.ErrCorrupt, backend.ErrNotFound: store.ErrNotFound, backend.ErrClosed: store.ErrClosed,
			}[end])
		}
		l.failing(fail)
		for _, err := range e.store.Watch(ctx, key, 1) {
			e.is(err, lost)
			break
		}
		l.failing(nil)
		w.stop()
		<-w.done
	})
}

// What a server that took over has lost ends a watch, before it yields what came instead.
func TestWatchLostHistory(t *testing.T) {
	for _, c := range []struct{ lost, instead int }{{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}, {2, 2000}} {
		for _, from := range []uint64{1, 3, 5, 6, 7} {
			t.Run(fmt.Sprint(c, " from ", from), func(t *testing.T) {
				onPeers(t, func(e, other *env, mine *counted) {
					synctest.Test(e.T, func(t *testing.T) {
						e := e.with(t)
						l := &looks{Backend: unclosed{mine}}
						e.store = newStore(e, l, e.opts)
						e.append(says("b", 2-c.lost)...)
						info := infoOf(e, e.store, key)
						e.append(says("lost", c.lost)...)
						w := e.follow(key, from, nil)
						synctest.Wait()
						w.has(e.records(key))
						l.turn(lostHistory(e, mine, info))
						if c.instead > 0 {
							s := newStore(e, unclosed{l.Backend}, e.opts)
							e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, says("x", c.instead)...))
						}
						time.Sleep(time.Second)
						w.ended(max(0, 6-int(from)), store.ErrNotFound, key.String(), "lost")
						e.no(e.store.Close())
					})
				})
			})
		}
	}
}

// Erasing changes records that a watcher has read, and contradicts nothing: the watch yields the
// receipt and what comes after it.
func TestWatchErased(t *testing.T) {
	onWatched(t, func(e *env, _ *looks) {
		e.create(nil)
		e.append(says("a", 3)...)
		w := e.follow(key, 1, nil)
		synctest.Wait()
		w.has(e.records(key))
		e.must(e.store.Erase(ctx, key, store.EraseSelection{EventIDs: []string{"a2"}}, store.EraseOptions{ID: "r"}))
		e.append(say("late"))
		synctest.Wait()
		e.no(e.store.Close())
		w.ended(5, store.ErrClosed)
	})
}

// A server takes over while a watcher is far behind: it has yielded nothing that the new log
// contradicts, and does not begin to.
func TestWatchLostHistoryWhileBehind(t *testing.T) {
	for _, from := range []uint64{1, 3} {
		onPeers(t, func(e, other *env, mine *counted) {
			synctest.Test(e.T, func(t *testing.T) {
				e := e.with(t)
				l := &looks{Backend: unclosed{mine}}
				e.store = newStore(e, l, e.opts)
				e.append(says("b", 100)...)
				info := infoOf(e, e.store, key)
				e.append(says("lost", 2000)...)
				resume := make(chan struct{})
				w := e.follow(key, from, func(r patch.Record) {
					if r.Seq == 300 {
						<-resume
					}
				})
				synctest.Wait()
				l.turn(lostHistory(e, mine, info))
				s := newStore(e, unclosed{l.Backend}, e.opts)
				for i := range 3 {
					e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, says(fmt.Sprint("x", i, "."), 1000)...))
				}
				close(resume)
				w.ended(512, store.ErrNotFound, "lost") // what one look gave
				e.no(e.store.Close())
			})
		})
	}
}

// Damage ends a watch where it is met; what comes before is yielded.
func TestWatchDamage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, path string)
		sound  int // records that are yielded first
	}{
		"a record cut short":       {changeRecord(4, func(v []byte) []byte { return v[:len(v)-1] }), 3},
		"a record that is missing": {changeRecord(4, func([]byte) []byte { return nil }), 3},
		"the end in doubt":         {dropName("sessions", "session"), 0},
		"no head":                  {dropName("heads", "session"), 6},
		"another record":           {changeRecord(3, anotherRecord3), 0},
	} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(e *env) {
				e.create(nil)
				e.append(says("a", 6)...)
				e.changeFile(c.change)
				var want error // what a reader is told
				for _, want = range e.store.RawEvents(ctx, key, 1) {
				}
				e.follow(key, 1, nil).ended(c.sound, store.ErrCorrupt, want.Error())
			})
		})
	}
}

// doubtful is a backend whose logs are in doubt from record 3 on.
type doubtful struct{ backend.Backend }

func (d doubtful) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	news, err := d.Backend.Look(ctx, q)
	news.Damaged = 3
	return news, err
}

// Of what is in doubt nothing is yielded, be it there or not.
func TestWatchInDoubt(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		e.reopenOn(func(engine backend.Backend) backend.Backend { return doubtful{engine} })
		for from := range uint64(7) {
			var want error
			for _, want = range e.store.RawEvents(ctx, key, from) {
			}
			e.follow(key, from, nil).ended(max(0, 3-max(1, int(from))), store.ErrCorrupt, want.Error())
		}
		e.reopen()
	})
}

// Writers of all kinds and watchers that begin where and when they like: each sees the log as
// it stands in the end.
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
					switch random.IntN(12) {
					case 0:
						_, err = s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1).WithID(id))
					case 1:
						p := "p" + id
						if _, err = s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 0, say(id)).WithID(p)); err == nil {
							_, err = s.Revert(ctx, key, store.UndoOptions{}, p)
						}
					case 2: // seldom, for it is refused if somebody else was faster
						var text strings.Builder
						if err = s.Export(ctx, key, &text, store.ExportOptions{}); err == nil {
							fmt.Fprintf(&text, "{\"id\":%q}\n", id)
							_, err = s.Import(ctx, key, strings.NewReader(text.String()), store.ImportOptions{})
						}
					case 3:
						_, err = s.AppendEvents(ctx, key, store.AppendOptions{}, says(id+".", 20)...)
					default:
						_, err = s.AppendEvents(ctx, key, store.AppendOptions{}, say(id))
					}
					if err != nil && !errors.Is(err, fold.ErrBlocked) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, fold.ErrOutOfRange) {
						e.Errorf("writer %d: %v", i, err)
					}
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
			w.stop()
			<-w.done
		}
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 600)...)
		run(e.T, []*env{e})
	})
	t.Run("peers", func(t *testing.T) {
		onPeers(t, func(e, other *env, _ *counted) {
			run(t, []*env{e, other})
		})
	})
}
