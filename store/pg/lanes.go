package pg

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// lanes does the work of calls in groups, up to max groups at a time. A call that finds a
// lane free is not delayed; the busier the lanes, the larger the groups. A group only ever
// has calls that began before its work did.
type lanes[T any] struct {
	max  int
	fits func(waiting []T) int                // how many of the items make a group, at least one
	work func(ctx context.Context, group []T) // puts results into the items, which are therefore pointers
	cut  bool                                 // work may be cut short when the context of its only caller ends
	run  sync.WaitGroup                       // the lanes at work

	mu      sync.Mutex
	waiting []place[T]
	running int
}

type place[T any] struct {
	item T
	done chan struct{}
}

// do returns nil when the item has been worked on. An item that finds a lane free is worked on
// here, under ctx, if that is no harm: to wake another goroutine takes as long as some
// statements. Any other is worked on by a lane's own goroutine, and if ctx ends first the error is the context's: begun says
// whether the work may have begun. It may then go on, and the item must be left alone.
func (l *lanes[T]) do(ctx context.Context, item T) (begun bool, err error) {
	l.mu.Lock()
	free := l.running < l.max // then nobody waits
	if free {
		l.running++
	}
	if free && (l.cut || ctx.Done() == nil) {
		l.mu.Unlock()
		defer l.next()
		l.work(ctx, []T{item})
		return true, nil
	}
	p := place[T]{item, make(chan struct{})}
	l.waiting = append(l.waiting, p)
	if free {
		l.run.Go(l.lane)
	}
	l.mu.Unlock()
	select {
	case <-p.done:
		return true, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.waiting, func(w place[T]) bool { return w.done == p.done })
	if i < 0 {
		return true, ctx.Err()
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return false, ctx.Err()
}

// next gives the caller's lane to those who wait, if any do.
func (l *lanes[T]) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		l.run.Go(l.lane)
	} else {
		l.running--
	}
}

// lane works on groups until nobody waits.
func (l *lanes[T]) lane() {
	for {
		// Those whose turn has just ended come again at once, if they are let.
		runtime.Gosched()
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.running--
			l.mu.Unlock()
			return
		}
		items := make([]T, len(l.waiting))
		for i, p := range l.waiting {
			items[i] = p.item
		}
		n := l.fits(items)
		group := slices.Clone(l.waiting[:n])
		l.waiting = slices.Delete(l.waiting, 0, n)
		l.mu.Unlock()
		l.work(context.Background(), items[:n]) // whoever leaves
		for _, p := range group {
			close(p.done)
		}
	}
}
