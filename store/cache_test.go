package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// What is kept in memory changes nothing but speed.
func TestCacheBytes(t *testing.T) {
	for _, most := range []int64{-1, 1, 3_000, 0} {
		t.Run(fmt.Sprint("bytes=", most), func(t *testing.T) {
			onEachWith(t, store.Options{CacheBytes: most}, func(e *env) {
				k := func(i int) store.Key { return store.Key{App: "a", User: "u", Session: fmt.Sprint(i)} }
				for i := range 8 {
					e.must(e.store.Create(ctx, k(i), map[string]any{"n": i}))
				}
				for round := range 3 {
					for i := range 8 {
						e.must(e.store.AppendEvents(ctx, k(i), store.AppendOptions{}, say(fmt.Sprint("e", round))))
						s := sessionOf(e, e.store, k(i))
						if s.View.Len() != round+1 {
							e.Errorf("session %d has %d events, want %d", i, s.View.Len(), round+1)
						}
						_, err := e.store.Get(ctx, k(100+i))
						e.is(err, store.ErrNotFound)
					}
				}
			})
		})
	}
}

// readings counts how often each session is read from the storage.
type readings struct {
	backend.Backend
	mu sync.Mutex
	n  map[string]int
}

func (r *readings) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	r.mu.Lock()
	r.n[session]++
	r.mu.Unlock()
	return r.Backend.Snapshot(ctx, session, creation)
}

// cached is a store whose cache has a limit, on sessions that are all in the storage.
type cached struct {
	*env
	reads *readings
}

func numbered(i int) store.Key { return store.Key{App: "a", User: "u", Session: fmt.Sprint("s", i)} }

// onCache runs a test with a limit that is found by fill, which fills sessions.
func onCache(t *testing.T, fill func(e *env) (limit int), run func(c cached)) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.opts.CacheBytes = int64(fill(e))
		reads := &readings{n: map[string]int{}}
		e.reopenOn(func(engine backend.Backend) backend.Backend {
			reads.Backend = engine
			return reads
		})
		run(cached{e, reads})
	})
}

// filled creates a session with n events and returns its size in memory.
func (e *env) filled(i, n int) int {
	e.Helper()
	e.must(e.store.Create(ctx, numbered(i), nil))
	return e.more(i, says("e", n)...)
}

func (e *env) more(i int, events ...*patch.Event) int {
	e.Helper()
	c, err := e.store.AppendEvents(ctx, numbered(i), store.AppendOptions{}, events...)
	e.no(err)
	return c.View.Footprint()
}

// read reports whether using the session reads it from the storage.
func (c cached) read(i int) bool {
	c.Helper()
	for n := range c.reads.n {
		delete(c.reads.n, n)
	}
	_, err := c.store.Get(ctx, numbered(i))
	c.no(err)
	return len(c.reads.n) > 0
}

// The least recently used session goes first, and as many stay as the limit lets.
func TestCacheOrder(t *testing.T) {
	const sessions, kept = 10, 4
	onCache(t, func(e *env) (limit int) {
		for i := range sessions {
			limit = kept*e.filled(i, 20) + 1000
		}
		return limit
	}, func(c cached) {
		random := rand.New(rand.NewPCG(1, 2))
		var used []int // the last first
		for n := range 400 {
			i := random.IntN(sessions)
			at := slices.Index(used, i)
			if got, want := c.read(i), at < 0 || at >= kept; got != want {
				c.Fatalf("use %d: session %d is read: %t, want %t; it was used after %v", n, i, got, want, used[:max(at, 0)])
			}
			if at >= 0 {
				used = slices.Delete(used, at, at+1)
			}
			used = slices.Insert(used, 0, i)
		}
	})
}

// What a session grows by counts.
func TestCacheCountsGrowth(t *testing.T) {
	onCache(t, func(e *env) int { return e.filled(0, 20) + e.filled(1, 20) + e.filled(2, 20) + 1000 }, func(c cached) {
		for i := range 3 {
			c.read(i)
		}
		c.more(2, says("more", 10)...)
		if c.read(1) || c.read(2) || !c.read(0) {
			c.Error("session 0 was to go, and no other")
		}
	})
}

// A session that is larger than the cache is read once, used alone or beside small ones;
// of three of them two are kept.
func TestCacheKeepsLargeSession(t *testing.T) {
	onCache(t, func(e *env) int {
		size := 0
		for i := range 3 {
			size = e.filled(i, 300)
		}
		e.filled(3, 1)
		e.filled(4, 1)
		return size / 4
	}, func(c cached) {
		for n := range 10 {
			c.more(0, say(fmt.Sprint("more", n)))
			if c.read(0) && n > 0 {
				c.Errorf("append %d had the session read again", n)
			}
		}
		for n := range 10 {
			if got := c.read(3 + n%2); got != (n < 2) {
				c.Errorf("use %d of a small session: read %t", n, got)
			}
			if c.read(0) {
				c.Errorf("after use %d of a small session the large one is read again", n)
			}
		}
		for _, step := range []struct {
			use  int
			read bool
		}{{1, true}, {0, false}, {1, false}, {2, true}, {1, false}, {2, false}, {0, true}, {1, true}, {0, false}} {
			if got := c.read(step.use); got != step.read {
				c.Errorf("large session %d: read %t, want %t", step.use, got, step.read)
			}
		}
	})
}

// Events that patches hide do not count as if they were in memory.
func TestCacheCountsWhatIsThere(t *testing.T) {
	onCache(t, func(e *env) int {
		size := 0
		for i := range 4 {
			size = e.filled(i, 500)
			for n := range 5 {
				e.must(e.store.ApplyPatch(ctx, numbered(i), asOfNow, patch.NewSummarise(n, 90, summary(fmt.Sprint("s", n)))))
			}
		}
		return size // of one with nothing hidden
	}, func(c cached) {
		for round := range 3 {
			for i := range 4 {
				if got := c.read(i); got != (round == 0) {
					c.Errorf("round %d: session %d is read: %t", round, i, got)
				}
			}
		}
		for i := range 4 { // nor while they are being hidden
			c.more(i, says("big", 400)...)
			view, err := c.store.View(ctx, numbered(i))
			c.no(err)
			_, err = c.store.ApplyPatch(ctx, numbered(i), asOfNow, patch.NewSplice(0, view.Len()).WithState(patch.Keep))
			c.no(err)
		}
		for i := range 4 {
			if c.read(i) {
				c.Errorf("session %d, of which nothing is visible, is read again", i)
			}
		}
	})
}

func TestCacheOff(t *testing.T) {
	onCache(t, func(e *env) int { e.filled(0, 1); return -1 }, func(c cached) {
		for range 3 {
			if !c.read(0) {
				c.Error("a session is kept in memory")
			}
		}
	})
}
