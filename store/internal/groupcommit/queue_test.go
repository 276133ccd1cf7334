package groupcommit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

type job struct {
	n    int
	done int
}

func all(waiting []*job) int { return len(waiting) }

// Do works on each item exactly once, in groups, and never on two groups at the same time.
func TestGroups(t *testing.T) { synctest.Test(t, manyCallers) }

func manyCallers(t *testing.T) {
	var l groupcommit.Queue[*job]
	resource := make(chan struct{}, 1)
	var working, groups atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := range 50 {
				j := &job{n: i*1000 + k}
				err := l.Do(context.Background(), resource, j, func(w []*job) int {
					if len(w) == 0 {
						t.Error("nobody waits, and a group is asked for")
					}
					return min(len(w), 8)
				}, func(group []*job) {
					if working.Add(1) != 1 || len(group) > 8 {
						t.Error("two groups at a time, or one too large")
					}
					groups.Add(1)
					time.Sleep(50 * time.Microsecond) // meanwhile the other callers queue their items
					for _, j := range group {
						j.done++
					}
					working.Add(-1)
				})
				if err != nil || j.done != 1 {
					t.Errorf("job %d: done %d times, %v", j.n, j.done, err)
				}
			}
		})
	}
	wg.Wait()
	if n := groups.Load(); n > 64*50/4 {
		t.Errorf("%d groups for %d jobs: half of a group's places are free", n, 64*50)
	}
}

// Do returns nil if the context ends while the work runs. Do does no work if the context has ended before the
// call.
func TestGivingUp(t *testing.T) {
	var l groupcommit.Queue[*job]
	resource := make(chan struct{}, 1)
	begun := &job{}
	ctx, cancel := context.WithCancel(context.Background())
	if err := l.Do(ctx, resource, begun, all, func(g []*job) { cancel(); g[0].done++ }); err != nil || begun.done != 1 {
		t.Fatalf("%v, done %d times", err, begun.done)
	}
	if err := l.Do(ctx, resource, &job{}, all, func([]*job) { t.Error("worked for nobody") }); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// A panic in the work is raised in the leader, and the resource is released.
func TestPanic(t *testing.T) {
	var l groupcommit.Queue[*job]
	resource := make(chan struct{}, 1)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_ = l.Do(context.Background(), resource, &job{}, all, func([]*job) { panic("at work") })
	}()
	if err := l.Do(context.Background(), resource, &job{}, all, func([]*job) {}); err != nil {
		t.Fatal(err)
	}
}

func TestFit(t *testing.T) {
	fits := groupcommit.LimitGroup(3, 10, func(n int) int { return n })
	for _, c := range []struct {
		waiting []int
		want    int
	}{
		{nil, 0}, {[]int{1}, 1}, {[]int{99}, 1}, {[]int{1, 1, 1, 1}, 3}, {[]int{4, 5, 1}, 3}, {[]int{4, 6, 1}, 2}, {[]int{99, 1}, 1},
	} {
		if got := fits(c.waiting); got != c.want {
			t.Errorf("%v: %d, want %d", c.waiting, got, c.want)
		}
	}
}

// In a detached queue, a caller returns within a second after its context ends, even if the caller is the leader.
// If the work ends soon, Do returns nil, and otherwise ErrBegun.
func TestDetached(t *testing.T) {
	for _, c := range []struct {
		work time.Duration
		want error
	}{{10 * time.Millisecond, nil}, {time.Hour, groupcommit.ErrRunning}} {
		synctest.Test(t, func(t *testing.T) {
			l := groupcommit.Queue[*job]{Detached: true}
			resource := make(chan struct{}, 1)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			began := time.Now()
			for range 2 {
				wg.Go(func() {
					err := l.Do(ctx, resource, &job{}, all, func([]*job) { time.Sleep(c.work) })
					if !errors.Is(err, c.want) && !errors.Is(err, context.Canceled) {
						t.Errorf("work of %v: %v, want %v", c.work, err, c.want)
					}
					if took := time.Since(began); took > time.Second {
						t.Errorf("work of %v: the caller left after %v", c.work, took)
					}
				})
				synctest.Wait() // the second caller is now in the queue
			}
			cancel()
			wg.Wait()
			if err := l.Do(t.Context(), resource, &job{}, all, func([]*job) {}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took < c.work {
				t.Errorf("the next one had the resource after %v", took)
			}
		})
	}
}

// A panic in the work of a detached queue is raised in the leader.
func TestDetachedPanics(t *testing.T) {
	l := groupcommit.Queue[*job]{Detached: true}
	resource := make(chan struct{}, 1)
	defer func() {
		if p := recover(); p != "broken" {
			t.Errorf("recovered %v", p)
		}
		if err := l.Do(t.Context(), resource, &job{}, all, func([]*job) {}); err != nil {
			t.Error(err)
		}
	}()
	_ = l.Do(t.Context(), resource, &job{}, all, func([]*job) { panic("broken") })
}
