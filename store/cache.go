package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store/internal/line"
)

// handle is a session in use or cached: its writer lock and its newest view. Readers
// take no lock: they load the view, and find it nil or the newest that has been
// committed.
type handle struct {
	key    Key
	view   atomic.Pointer[fold.View]
	writer chan struct{} // holds a token while someone writes or replays
	users  int           // guarded by cache.mu

	line line.Line[*request] // writes that wait for the lock
}

func (h *handle) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case h.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *handle) unlock() { <-h.writer }

// cache has one handle for each session in use, and keeps some that are not.
type cache struct {
	mu      sync.Mutex
	most    int
	handles map[Key]*handle
}

func newCache(most int) cache {
	return cache{most: most, handles: map[Key]*handle{}}
}

// acquire returns the session's handle. The caller must release it.
func (c *cache) acquire(key Key) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.handles[key]
	if !ok {
		h = &handle{key: key, writer: make(chan struct{}, 1)}
		c.handles[key] = h
	}
	h.users++
	return h
}

func (c *cache) release(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users--
	if h.users == 0 && h.view.Load() == nil {
		delete(c.handles, h.key)
	}
	if len(c.handles) <= max(c.most, 0) {
		return
	}
	for key, old := range c.handles { // any will do; map order is as good as random
		if old.users == 0 {
			delete(c.handles, key)
			return
		}
	}
}
