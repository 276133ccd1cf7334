package pg

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// grouper queues items and works on them in groups. Up to max workers run at a time. An item that finds no worker
// running is not delayed; the more items wait, the larger the groups. Another worker starts when the same items have
// waited for startDelay: large groups cost less per item, but a slow group must not delay the other items. All items of
// a group were queued before its work began.
type grouper[T any] struct {
	max        int
	fits       func(waiting []T) int                // returns how many of the items make a group, at least one
	work       func(ctx context.Context, group []T) // stores results in the items, which are pointers
	startDelay time.Duration

	mu       sync.Mutex
	waiting  []queued[T]
	running  int
	started  int  // how many groups were taken from the queue
	starting bool // a timer runs that may start a worker
}

type queued[T any] struct {
	item T
	done chan struct{}
}

// do queues an item and returns nil when the work on it is done. If no worker runs and ctx cannot end, the caller works
// on the item itself, which is cheaper than waking a goroutine. If ctx ends first, do returns its error, and begun
// reports whether the work may have begun. That work goes on, and the caller must not touch the item again.
func (g *grouper[T]) do(ctx context.Context, item T) (begun bool, err error) {
	g.mu.Lock()
	idle := g.running == 0
	if idle {
		g.running++
	}
	if idle && ctx.Done() == nil {
		g.mu.Unlock()
		defer g.release()
		g.work(ctx, []T{item})
		return true, nil
	}
	q := queued[T]{item, make(chan struct{})}
	g.waiting = append(g.waiting, q)
	if idle {
		go g.run()
	} else {
		g.startLater()
	}
	g.mu.Unlock()
	select {
	case <-q.done:
		return true, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.waiting, func(w queued[T]) bool { return w.done == q.done })
	if i < 0 {
		return true, ctx.Err()
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return false, ctx.Err()
}

// startLater starts a worker after startDelay if no group has been taken from the queue by then. The caller holds mu.
func (g *grouper[T]) startLater() {
	if g.starting || g.running == g.max {
		return
	}
	g.starting = true
	started := g.started
	time.AfterFunc(g.startDelay, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.starting = false
		if len(g.waiting) == 0 {
			return
		}
		if g.started == started && g.running < g.max {
			g.running++
			go g.run()
		}
		g.startLater()
	})
}

// release ends the caller's work. If items wait, a worker takes the caller's place.
func (g *grouper[T]) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		go g.run()
	} else {
		g.running--
	}
}

// run is a worker. It works on groups until the queue is empty.
func (g *grouper[T]) run() {
	for {
		// Yield, so that callers whose item was just done can queue their next one for the same group.
		runtime.Gosched()
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.running--
			g.mu.Unlock()
			return
		}
		items := make([]T, len(g.waiting))
		for i, q := range g.waiting {
			items[i] = q.item
		}
		n := g.fits(items)
		group := slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
		g.started++
		g.mu.Unlock()
		g.work(context.Background(), items[:n]) // the callers' contexts do not end it
		for _, q := range group {
			close(q.done)
		}
	}
}
