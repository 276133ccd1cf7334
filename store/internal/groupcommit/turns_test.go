package groupcommit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// A caller that gives up leaves the queue: the next leader does no work for it.
func TestWhoGaveUpIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l groupcommit.Queue[*job]
		resource := make(chan struct{}, 1)
		resource <- struct{}{} // somebody else holds it
		jobs := []*job{{n: 0}, {n: 1}, {n: 2}}
		ctx, cancel := context.WithCancel(t.Context())
		results := make([]chan error, len(jobs))
		var group []int
		for i, j := range jobs {
			results[i] = make(chan error, 1)
			of := t.Context()
			if i == 1 {
				of = ctx
			}
			go func() {
				results[i] <- l.Do(of, resource, j, all, func(g []*job) {
					for _, j := range g {
						group = append(group, j.n)
					}
				})
			}()
			synctest.Wait() // it is in the queue
		}
		cancel()
		if err := <-results[1]; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		<-resource
		if a, b := <-results[0], <-results[2]; a != nil || b != nil {
			t.Errorf("the others got %v and %v", a, b)
		}
		if len(group) != 2 || group[0] != 0 || group[1] != 2 {
			t.Errorf("worked for %v, want 0 and 2 in one group", group)
		}
	})
}

// Who gives up while others work for it waits for their end, and has no error.
func TestGivingUpTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l groupcommit.Queue[*job]
		resource := make(chan struct{}, 1)
		resource <- struct{}{}
		release := make(chan struct{})
		work := func(g []*job) {
			<-release
			for _, j := range g {
				j.done++
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		lead, follow := &job{}, &job{}
		led, followed := make(chan error, 1), make(chan error, 1)
		// The follower holds a resource of its own that is taken, so it never leads.
		taken := make(chan struct{}, 1)
		taken <- struct{}{}
		go func() { led <- l.Do(t.Context(), resource, lead, all, work) }()
		synctest.Wait()
		go func() { followed <- l.Do(ctx, taken, follow, all, work) }()
		synctest.Wait()
		<-resource
		synctest.Wait() // the work has begun
		cancel()
		synctest.Wait()
		if len(followed) > 0 {
			t.Error("who gave up did not wait for the work on its item")
		}
		close(release)
		if a, b := <-led, <-followed; a != nil || b != nil || lead.done != 1 || follow.done != 1 {
			t.Errorf("%v and %v, done %d times and %d", a, b, lead.done, follow.done)
		}
	})
}

// Waiting items share the next group. Behind a slow group they wait for SpareAfter at most, unless all resources are held.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var groups []int
		l := groupcommit.Queue[*int]{Spare: make(chan struct{}, 2), SpareAfter: 2 * time.Millisecond}
		resource := make(chan struct{}, 1)
		var calls sync.WaitGroup
		call := func(work, most time.Duration) {
			n, began := int(work), time.Now()
			calls.Go(func() {
				err := l.Do(t.Context(), resource, &n, func(w []*int) int { return len(w) }, func(group []*int) {
					mu.Lock()
					groups = append(groups, len(group))
					mu.Unlock()
					time.Sleep(time.Duration(*group[0]))
				})
				if took := time.Since(began); err != nil || took > most {
					t.Errorf("a call took %v, want at most %v (%v)", took, most, err)
				}
			})
			synctest.Wait()
		}
		call(time.Hour, time.Hour) // at once
		for range 5 {
			call(time.Millisecond, 3*time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		mu.Lock()
		if len(groups) != 2 || groups[1] != 5 {
			t.Errorf("groups of %v, want of 1 and 5", groups)
		}
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		call(time.Hour, time.Hour+2*time.Millisecond)
		call(time.Hour, time.Hour+2*time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		call(0, time.Hour) // all resources are held
		calls.Wait()
		if len(l.Spare) != 0 || len(resource) != 0 {
			t.Error("in the end a resource is held")
		}
	})
}
