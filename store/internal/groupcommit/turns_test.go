package groupcommit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// No leader works on the item of a caller that gave up while its item was queued.
func TestWhoGaveUpIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l groupcommit.Queue[*job]
		resource := make(chan struct{}, 1)
		resource <- struct{}{} // another caller has the resource
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
			synctest.Wait() // the item is now in the queue
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

// If the context ends while another caller works on the item, Do waits until the work ends and returns nil.
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
		// The resource of the follower is never free, so the follower never becomes the leader.
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
