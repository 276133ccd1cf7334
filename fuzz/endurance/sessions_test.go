package endurance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/store"
)

func numbered(i int) store.Key {
	return store.Key{App: "app", User: fmt.Sprintf("user-%03d", i%100), Session: fmt.Sprintf("s-%07d", i)}
}

// perSession is how many events a session has.
func perSession(i int) int { return 1 + i%5 }

// A store gets fuller and fuller.
func TestManySessions(t *testing.T) {
	marks := []int{100, 1000}
	if long.Long() {
		marks = []int{1000, 10_000, 100_000}
	} else if testing.Short() {
		marks = []int{100, 300}
	}
	for r := range long.Rounds(t, 1) {
		f := newFile(t, r, "sessions")
		var first map[string]uint64
		n := 0
		for _, mark := range marks {
			f.measure(fmt.Sprintf("create %d to %d, 16 at a time", n, mark), func() error { return f.fill(n, mark) })
			n = mark
			costs := f.look(n)
			if first == nil {
				first = costs
				continue
			}
			for what, now := range costs {
				if err := worse(fmt.Sprintf("%s of %d sessions", what, n), now, first[what], 3); err != nil {
					t.Error(err)
				}
			}
		}
		if err := f.areWhole(n); err != nil {
			t.Error(err)
		}
		f.whole(true)
		f.close()
	}
}

// fill creates sessions, with a shared value each for some.
func (f *file) fill(from, to int) error {
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range 16 {
		wg.Go(func() {
			for i := range next {
				_, err := f.store.Create(ctx, numbered(i), map[string]any{"n": i})
				for e := 0; err == nil && e < perSession(i); e++ {
					_, err = f.store.AppendEvents(ctx, numbered(i), store.AppendOptions{}, event(e))
				}
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for i := from; i < to; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	return failed
}

// look measures the calls of a store with so many sessions, and returns what those allocate that
// are about one session.
func (f *file) look(mark int) map[string]uint64 {
	f.t.Helper()
	at := func(what string) string { return fmt.Sprintf("%s at %d", what, mark) }
	costs := map[string]uint64{}
	f.close()
	costs["open"] = f.measure(at("open"), func() error { f.open(); return nil }).allocated
	f.report(at("heap in use KiB"), int(held()>>10))
	costs["the first of a list"] = f.measure(at("the first of a list"), func() error {
		for _, err := range f.store.List(ctx, store.ListOptions{}) {
			return err
		}
		return nil
	}).allocated
	costs["a user's list"] = f.measure(at("a user's list, by session"), func() error {
		n := 0
		for _, err := range f.store.List(ctx, store.ListOptions{App: "app", User: "user-042"}) {
			if n++; err != nil {
				return err
			}
		}
		if n != mark/100 {
			return fmt.Errorf("%d sessions of a user, want %d", n, mark/100)
		}
		return nil
	}).allocated / uint64(mark/100)
	f.measure(at("list"), func() error {
		n := 0
		for _, err := range f.store.List(ctx, store.ListOptions{}) {
			if n++; err != nil {
				return err
			}
		}
		if n != mark {
			return fmt.Errorf("%d sessions, want %d", n, mark)
		}
		return nil
	})
	random := rand.New(rand.NewPCG(1, uint64(mark)))
	for _, what := range []string{"get, cold", "append"} {
		var calls singles
		f.measure(at(fmt.Sprint(probes, " of ", what)), func() error {
			for range probes {
				i := random.IntN(mark)
				if err := calls.take(func() error { return f.use(i, what == "append") }); err != nil {
					return err
				}
			}
			return nil
		})
		costs[what] = f.reportSingles(at(what), calls)
	}
	return costs
}

// use reads a session, and appends an event to it that is there.
func (f *file) use(i int, add bool) error {
	got, err := f.store.Get(ctx, numbered(i))
	if err == nil && add {
		_, err = f.store.AppendEvents(ctx, numbered(i), store.AppendOptions{}, event(0))
	}
	if err == nil && got.View.Len() != perSession(i) {
		err = fmt.Errorf("session %d has %d events, want %d", i, got.View.Len(), perSession(i))
	}
	return err
}

// areWhole holds what is listed, and read of some sessions, against what was written.
func (f *file) areWhole(sessions int) error {
	f.t.Helper()
	var wrong []error
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	seen := make([]bool, sessions)
	last := store.Key{}
	for info, err := range f.store.List(ctx, store.ListOptions{}) {
		no(f.t, err)
		var i int
		if _, err := fmt.Sscanf(info.Key.Session, "s-%d", &i); err != nil || i >= sessions || info.Key != numbered(i) || seen[i] {
			report("there is a session %v", info.Key)
			continue
		}
		if last.User > info.Key.User || last.User == info.Key.User && last.Session >= info.Key.Session {
			report("session %v is behind %v", info.Key, last)
		}
		seen[i], last = true, info.Key
		if info.Seq != uint64(perSession(i)) {
			report("session %v has %d records, want %d", info.Key, info.Seq, perSession(i))
		}
		if i%97 != 0 {
			continue
		}
		got, err := f.store.Get(ctx, info.Key)
		no(f.t, err)
		if err := same(got.View, f.folded(info.Key, info.Creation, info.Seq)); err != nil || fmt.Sprint(got.State()["n"]) != fmt.Sprint(i) {
			report("session %v: %w, state %v", info.Key, err, got.State())
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		report("session %d is not listed", i)
	}
	return errors.Join(wrong...)
}

// Sessions that are missing, or have an event too many, are reported.
func TestControlSessions(t *testing.T) {
	for r := range long.Rounds(t, 1) {
		f := newFile(t, r, "control")
		defer func() { f.close() }()
		no(t, f.fill(0, 30))
		no(t, f.areWhole(30))
		for _, n := range []int{29, 31} {
			if f.areWhole(n) == nil {
				t.Errorf("there are 30 sessions, not %d, and it is not reported", n)
			}
		}
		_, err := f.store.AppendEvents(ctx, numbered(3), store.AppendOptions{}, event(99))
		no(t, err)
		if f.areWhole(30) == nil {
			t.Error("a session has an event too many, and it is not reported")
		}
	}
}
