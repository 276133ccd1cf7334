package pg

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Waiting items share the next group. Behind a slow group they wait for startDelay at most, unless all workers run.
func TestWorkerStartsBesideASlowOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var groups []int
		l := &grouper[*int]{max: 3, startDelay: 2 * time.Millisecond, fits: func(w []*int) int { return len(w) },
			work: func(_ context.Context, group []*int) {
				mu.Lock()
				groups = append(groups, len(group))
				mu.Unlock()
				time.Sleep(time.Duration(*group[0]))
			}}
		var calls sync.WaitGroup
		call := func(work, most time.Duration) {
			n, began := int(work), time.Now()
			calls.Go(func() {
				if _, err := l.do(t.Context(), &n); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > most {
					t.Errorf("a call took %v, want at most %v", took, most)
				}
			})
			synctest.Wait()
		}
		call(time.Hour, time.Hour) // no worker runs: at once
		for range 5 {
			call(time.Millisecond, 4*time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		mu.Lock()
		if len(groups) != 2 || groups[1] != 5 {
			t.Errorf("groups of %v, want of 1 and 5", groups)
		}
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		call(time.Hour, time.Hour+5*time.Millisecond)
		call(time.Hour, 2*time.Hour)
		time.Sleep(10 * time.Millisecond)
		call(0, 2*time.Hour) // all workers are busy
		calls.Wait()
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running != 0 || l.starting {
			t.Errorf("in the end %d workers run, one starts: %v", l.running, l.starting)
		}
	})
}
