package pg

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// lanes does the work of calls in groups, up to max groups at a time. A call that finds no
// lane at work is not delayed; the busier the lanes, the larger the groups. Another lane
// opens when calls have waited for as long as patience: large groups cost less, but one that
// is slow must not hold up the others. A group only ever has calls that began before its
// work did.
type lanes[T any] struct {
	max  int
	fits func(waiting []T) int                // how many of the items make a group, at least one
	work func(ctx context.Context, group []T) // puts results into the items, which are therefore pointers
	cut  bool                                 // work may be cut short when the context of its only caller ends
	run  sync.WaitGroup                       // the lanes at work

	patience time.Duration

	mu      sync.Mutex
	waiting []place[T]
	running int
	served  int  // groups that have been begun
	opening bool // a timer runs that may open a lane
}

type place[T any] struct {
	item T
	done chan struct{}
}

// do returns nil when the item has been worked on. An item that finds a lane free is worked on
// here, under ctx, if that is no harm: to wake another goroutine takes as long as some
// statements. Any other is worked on by a lane's own goroutine, and if ctx ends first the
// error is the context's: begun says whether the work may have begun. It may then go on, and
// the item must be left alone.
func (l *lanes[T]) do(ctx context.Context, item T) (begun bool, err error) {
	l.mu.Lock()
	free := l.running == 0 || l.running < l.max && l.patience == 0 // then nobody waits
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
	} else {
		l.openLater()
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

// openLater has a lane opened if calls still wait after a while. The mutex is held.
func (l *lanes[T]) openLater() {
	if l.opening || l.running == l.max {
		return
	}
	l.opening = true
	served := l.served
	time.AfterFunc(l.patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.opening = false
		if len(l.waiting) == 0 {
			return
		}
		if l.served == served && l.running < l.max { // the same calls wait as did then
			l.running++
			l.run.Go(l.lane)
		}
		l.openLater()
	})
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
		l.served++
		l.mu.Unlock()
		l.work(context.Background(), items[:n]) // whoever leaves
		for _, p := range group {
			close(p.done)
		}
	}
}
