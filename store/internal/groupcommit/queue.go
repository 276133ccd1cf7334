// Package groupcommit queues work for an exclusive resource and does it in groups: the caller that acquires the
// resource also does the queued work of other callers. A lone caller is not delayed, and groups grow with the load.
package groupcommit

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Queue holds items that wait for a resource. The zero Queue is empty.
type Queue[T any] struct {
	// Detached is for work that may take long. The work of a group then runs on another goroutine, so a caller whose
	// context ends can return before the work ends. If the work panics, the panic is raised again in the group's
	// leader, if that still waits.
	Detached bool

	mu      sync.Mutex
	waiting []*entry[T]
	crowded bool // the last group had several items
}

// grace is how long a caller of a detached queue waits, after its context ended, for work that is running.
const grace = 250 * time.Millisecond

// ErrBegun is returned if the context ended while the work on the item was running. The work continues, so the caller
// must not touch the item again.
var ErrBegun = errors.New("the work has begun")

type entry[T any] struct {
	item T
	done chan struct{}
}

// Fit returns a function for Do that limits a group to a number of items. The group also ends with the item that brings
// its size to total.
func Fit[T any](items, total int, size func(T) int) func(waiting []T) int {
	return func(waiting []T) int {
		n, sum := 0, 0
		for n < len(waiting) && n < items && sum < total {
			sum += size(waiting[n])
			n++
		}
		return n
	}
}

// Do queues item and returns when the work on it is done, by this caller or by another. A caller holds resource once
// its send on it succeeds. It then calls work with items from the head of the queue, not necessarily its own, and
// receives from resource. fits returns how many of the waiting items, at least one, make a group. work stores results
// in the items, which are therefore pointers.
//
// If ctx ends while the item is queued, Do removes the item and returns the context's error. Once the work on the item
// runs, Do waits for its end; a detached queue waits only for a short time, and then returns [ErrBegun].
func (q *Queue[T]) Do(ctx context.Context, resource chan struct{}, item T, fits func(waiting []T) int, work func(group []T)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := &entry[T]{item, make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, e)
	q.mu.Unlock()
	for {
		select {
		case <-e.done:
			return nil
		case resource <- struct{}{}:
		case <-ctx.Done():
			return q.giveUp(ctx, e)
		}
		led := false
		if !q.Detached || ctx.Done() == nil {
			led = q.lead(e, resource, fits, work)
		} else {
			ended := make(chan any, 1) // gets the value of a panic, or nil
			go func() {
				defer func() { ended <- recover() }()
				led = q.lead(e, resource, fits, work)
			}()
			select {
			case p := <-ended:
				if p != nil {
					panic(p)
				}
			case <-ctx.Done():
				return q.giveUp(ctx, e)
			}
		}
		if !led { // another caller works on the item
			resource = nil
		}
	}
}

// giveUp ends the wait of a caller whose context has ended.
func (q *Queue[T]) giveUp(ctx context.Context, e *entry[T]) error {
	q.mu.Lock()
	i := slices.Index(q.waiting, e)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i >= 0 {
		return ctx.Err()
	}
	var late <-chan time.Time
	if q.Detached {
		late = time.After(grace)
	}
	select {
	case <-e.done:
		return nil
	case <-late:
		return ErrBegun
	}
}

// lead works on a group, unless the caller's own item has left the queue.
func (q *Queue[T]) lead(own *entry[T], resource chan struct{}, fits func([]T) int, work func([]T)) (led bool) {
	defer func() { <-resource }()
	q.mu.Lock()
	// Yield while the queue grows: the callers of the last group return at once with new items. Without this, callers
	// alternate in small groups.
	for more := q.crowded || len(q.waiting) > 1; more; {
		n := len(q.waiting)
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		more = len(q.waiting) > n
	}
	if !slices.Contains(q.waiting, own) {
		q.mu.Unlock()
		return false
	}
	items := make([]T, len(q.waiting))
	for i, e := range q.waiting {
		items[i] = e.item
	}
	n := fits(items)
	group := slices.Clone(q.waiting[:n])
	q.crowded = n > 1
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.mu.Unlock()
	// Deferred, so that no caller is left waiting if work panics.
	defer func() {
		for _, e := range group {
			close(e.done)
		}
	}()
	work(items[:n])
	return true
}
