// Package groupcommit combines concurrent calls that need the same exclusive resource, such as a database file.
// Calls queue their items. The caller that acquires the resource is the leader, and works on a group of queued
// items. A single caller is not delayed, and groups grow with the load.
package groupcommit

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Queue is a queue of items that wait for a resource. The zero Queue is empty.
type Queue[T any] struct {
	// Detached makes the work run on another goroutine. It is for work that may take long. If a caller's context
	// ends, the caller can return before the work ends. If the work panics, the leader panics with the same value,
	// unless the leader has returned.
	Detached bool

	mu      sync.Mutex
	waiting []*entry[T]
	crowded bool // whether the last group had several items
}

// detachedWait limits how long a caller of a detached queue waits for running work after the caller's context has ended.
const detachedWait = 250 * time.Millisecond

// ErrRunning reports that the context ended while the work on the item was running. The work continues, so the caller
// must not use the item again.
var ErrRunning = errors.New("the work is already running")

type entry[T any] struct {
	item T
	done chan struct{}
}

// LimitGroup returns a function for the argument groupSize of [Queue.Do]. A group then has at most the given number of items,
// and is complete when the sum of the sizes of its items reaches total.
func LimitGroup[T any](items, total int, size func(T) int) func(waiting []T) int {
	return func(waiting []T) int {
		n, sum := 0, 0
		for n < len(waiting) && n < items && sum < total {
			sum += size(waiting[n])
			n++
		}
		return n
	}
}

// Do queues item, and returns when the work on the item is done, by this caller or by another.
//
// A caller becomes the leader by sending to resource, and later receives from resource to release it. The leader
// removes a group of items from the head of the queue and calls work with the group. The group may lack the leader's
// own item. The argument groupSize returns how many of the waiting items belong to the next group, at least one. The
// function work stores its results in the items, so items are usually pointers.
//
// If ctx ends while the item is queued, Do removes the item and returns the context's error. If ctx ends while the work
// on the item runs, Do waits until the work ends. In a detached queue, Do waits only for a short time, and then returns
// [ErrRunning].
func (q *Queue[T]) Do(ctx context.Context, resource chan struct{}, item T, groupSize func(waiting []T) int, work func(group []T)) error {
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
			return q.abandon(ctx, e)
		}
		didLead := false
		if !q.Detached || ctx.Done() == nil {
			didLead = q.lead(e, resource, groupSize, work)
		} else {
			ended := make(chan any, 1) // receives the value of a panic, or nil if there was none
			go func() {
				defer func() { ended <- recover() }()
				didLead = q.lead(e, resource, groupSize, work)
			}()
			select {
			case p := <-ended:
				if p != nil {
					panic(p)
				}
			case <-ctx.Done():
				return q.abandon(ctx, e)
			}
		}
		if !didLead { // another leader has taken the item
			resource = nil
		}
	}
}

// abandon returns the result of Do for a caller whose context has ended.
func (q *Queue[T]) abandon(ctx context.Context, e *entry[T]) error {
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
		late = time.After(detachedWait)
	}
	select {
	case <-e.done:
		return nil
	case <-late:
		return ErrRunning
	}
}

// lead works on the next group and releases resource. If own is no longer in the queue, lead only releases
// resource.
func (q *Queue[T]) lead(own *entry[T], resource chan struct{}, groupSize func([]T) int, work func([]T)) (didLead bool) {
	defer func() { <-resource }()
	q.mu.Lock()
	// Yield while the queue grows, because the callers of the last group soon return with new items. Without this
	// pause, two sets of callers would alternate in small groups.
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
	n := groupSize(items)
	group := slices.Clone(q.waiting[:n])
	q.crowded = n > 1
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.mu.Unlock()
	// Use defer, so that the callers return even if work panics.
	defer func() {
		for _, e := range group {
			close(e.done)
		}
	}()
	work(items[:n])
	return true
}
