// Package line lets callers who wait for the same resource share one turn at it: whoever
// gets the resource does the work of all who wait. A lone caller is not delayed, and the
// busier the resource, the larger the groups.
package line

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Line is callers who wait. The zero Line is empty.
type Line[T any] struct {
	// Detached lets callers leave whose context ends while their item is worked on, also the
	// one whose turn it is, if the work is not done in a moment: it has a goroutine of its
	// own. It is for work that may take long. A panic in it is the caller's whose turn it is.
	Detached bool

	mu      sync.Mutex
	waiting []*entry[T]
	crowded bool // the last group had several items
}

// grace is how long a caller whose context has ended waits for work that has begun.
const grace = 250 * time.Millisecond

// ErrBegun: the context ended while the item was being worked on. It is being worked on
// still, and must not be looked at any more.
var ErrBegun = errors.New("the work has begun")

type entry[T any] struct {
	item T
	done chan struct{}
}

// Fit returns a function for Do that makes groups of at most so many items, and ends one
// with the item that brings its size to total.
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

// Do puts item in the line and returns when it has been worked on, by this caller or by
// another. Who can send on resource holds it: it calls work with items from the head of
// the line, this caller's own perhaps not among them, and then receives. fits says how
// many of the waiting items, at least one, make a group. work puts results into the
// items, which are therefore pointers.
//
// If ctx ends while the item waits, it is taken out of the line and the error is the
// context's. Once someone works on it, Do waits for the end. If the line is detached, it
// waits for a moment only, and then the error is [ErrBegun].
func (l *Line[T]) Do(ctx context.Context, resource chan struct{}, item T, fits func(waiting []T) int, work func(group []T)) error {
	return l.DoLater(ctx, 0, resource, item, fits, work)
}

// DoLater is Do for what is not urgent: it leaves the work to the other callers for a
// while, and takes the resource itself only if none came.
func (l *Line[T]) DoLater(ctx context.Context, patience time.Duration, resource chan struct{}, item T, fits func(waiting []T) int, work func(group []T)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := &entry[T]{item, make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, e)
	l.mu.Unlock()
	if patience > 0 {
		select {
		case <-e.done:
			return nil
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
	turn := resource
	var led chan any // says that the turn has ended, and with what panic
	for waits := true; waits; {
		select {
		case <-e.done:
			waits = false
		case resource <- struct{}{}:
			if !l.Detached {
				l.lead(resource, fits, work)
				continue
			}
			led = make(chan any, 1)
			go func(led chan any) {
				defer func() { led <- recover() }()
				l.lead(turn, fits, work)
			}(led)
			resource = nil // until that has ended
		case p := <-led:
			if p != nil {
				panic(p)
			}
			resource, led = turn, nil
		case <-ctx.Done():
			if l.leave(e) {
				return ctx.Err()
			}
			var late <-chan time.Time
			if l.Detached {
				late = time.After(grace)
			}
			select {
			case <-e.done:
				waits = false
			case <-late:
				return ErrBegun
			}
		}
	}
	if led != nil {
		if p := <-led; p != nil {
			panic(p)
		}
	}
	return nil
}

func (l *Line[T]) lead(resource chan struct{}, fits func([]T) int, work func([]T)) {
	defer func() { <-resource }()
	l.mu.Lock()
	// Those whose turn has just ended come again at once, if they are let, and others with them: else callers
	// take turns in small groups.
	for more := l.crowded || len(l.waiting) > 1; more; {
		n := len(l.waiting)
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
		more = len(l.waiting) > n
	}
	items := make([]T, len(l.waiting))
	for i, e := range l.waiting {
		items[i] = e.item
	}
	n := 0
	if len(items) > 0 {
		n = fits(items)
	}
	group := slices.Clone(l.waiting[:n])
	l.crowded = n > 1
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.mu.Unlock()
	if n == 0 {
		return
	}
	// Also if work panics: then nobody is left waiting.
	defer func() {
		for _, e := range group {
			close(e.done)
		}
	}()
	work(items[:n])
}

func (l *Line[T]) leave(e *entry[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, e)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}
