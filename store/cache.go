package store

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// handle is a session in use or cached: its writer lock and its newest view. Readers
// take no lock: they load the view, and find it nil or the newest that this store has
// committed or read.
type handle struct {
	key    Key
	newest atomic.Pointer[current]
	writer chan struct{}               // holds a token while someone writes or replays
	line   groupcommit.Queue[*request] // writes that wait for the lock

	size     atomic.Int64 // about how many bytes the view takes
	snapshot atomic.Pointer[snapshotMark]
	queued   atomic.Bool // for a new one

	// Guarded by the cache's lock.
	users   int
	counted int64         // the size that the cache's total has
	idle    *list.Element // in the cache's list while there is a view and no users
}

// snapshotMark says where a session's newest snapshot stands. The handle outlives the
// session: one that is created again has no snapshot yet.
type snapshotMark struct {
	creation string
	seq      uint64
}

// snapshotSeq returns the seq of the newest snapshot of the session that was created
// under the given id, or 0.
func (h *handle) snapshotSeq(creation string) uint64 {
	if m := h.snapshot.Load(); m != nil && m.creation == creation {
		return m.seq
	}
	return 0
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

// current is a session's view, and what the head says of the log with it.
type current struct {
	view   fold.View
	token  backend.Token
	chain  backend.Chain
	counts counts

	// invocations are the last ones of which the index of ids is known to have the first event.
	invocations []string
}

// publish makes a view that is committed, or was read, the newest, unless there is a newer
// one.
func (h *handle) publish(c current) {
	for {
		old := h.newest.Load()
		if old != nil && old.view.Creation() == c.view.Creation() && old.view.Seq() > c.view.Seq() {
			return
		}
		if h.newest.CompareAndSwap(old, &c) {
			h.size.Store(int64(c.view.Footprint()))
			return
		}
	}
}

// drop forgets the view: what is in memory may no longer be what is stored.
func (h *handle) drop() {
	h.newest.Store(nil)
	h.size.Store(0)
}

// dropSeen is drop, unless there is a newer view than the one that was seen.
func (h *handle) dropSeen(seen current) {
	if c := h.newest.Load(); c != nil && c.view.Creation() == seen.view.Creation() && c.view.Seq() == seen.view.Seq() {
		if h.newest.CompareAndSwap(c, nil) {
			h.size.Store(0)
		}
	}
}

// cache has one handle for each session in use, and keeps the others, the least
// recently used one the shortest, within a number of bytes. None counts for more than half
// of them: the last used one is always kept, and beside small ones a large one is, which
// else would be read again at each call.
type cache struct {
	mu      sync.Mutex
	limit   int64
	remote  bool // a commit may take long: a caller whose context ends does not wait for it
	total   int64
	handles map[Key]*handle
	idle    *list.List // of handles without users, the last used first
}

func newCache(limit int64, remote bool) cache {
	return cache{limit: max(limit, 0), remote: remote, handles: map[Key]*handle{}, idle: list.New()}
}

// acquire returns the session's handle. The caller must release it.
func (c *cache) acquire(key Key) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.handles[key]
	if !ok {
		h = &handle{key: key, writer: make(chan struct{}, 1), line: groupcommit.Queue[*request]{Detached: c.remote}}
		c.handles[key] = h
	}
	if h.idle != nil {
		c.idle.Remove(h.idle)
		h.idle = nil
	}
	h.users++
	return h
}

func (c *cache) release(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := min(h.size.Load(), max(c.limit/2, 1)) // rounded down, so that two large ones fit
	c.total += size - h.counted
	h.counted = size
	if h.users--; h.users == 0 {
		if h.newest.Load() == nil {
			c.forget(h)
		} else {
			h.idle = c.idle.PushFront(h)
		}
	}
	for (c.total > c.limit || c.limit == 0) && c.idle.Len() > 0 {
		oldest := c.idle.Remove(c.idle.Back()).(*handle)
		c.forget(oldest)
	}
}

// forget drops a handle without users.
func (c *cache) forget(h *handle) {
	c.total -= h.counted
	delete(c.handles, h.key)
}
