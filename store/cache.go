package store

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// handle is a session that is in use or cached. It contains the newest view that this store has committed or read,
// or nil. Readers load the view without a lock.
type handle struct {
	*write.Session // its lock is held while a goroutine commits or reads the view from the storage
	store          *Store
	key            Key
	cached         atomic.Pointer[write.State]

	size     atomic.Int64 // estimated size of the view in bytes
	snapshot atomic.Pointer[snapshotMark]
	queued   atomic.Bool // whether a snapshot is queued

	// The cache's lock guards the fields below.
	users   int
	counted int64         // the size as counted in the cache's total
	idle    *list.Element // set while the handle has a view and no users
}

func (s *Store) newHandle(key Key) *handle {
	h := &handle{store: s, key: key}
	h.Session = write.NewSession(&s.writing, h, key.name(), key.String(), func(stateKey string) string { return sharedName(key, stateKey) })
	return h
}

// snapshotMark is the position of a session's newest snapshot. A handle outlives its session. If the session is
// deleted and created again, the mark of the earlier creation does not count.
type snapshotMark struct {
	creation string
	seq      uint64
}

// snapshotSeq returns the seq of the session's newest snapshot, or 0. A snapshot of another creation does not
// count.
func (h *handle) snapshotSeq(creation string) uint64 {
	if m := h.snapshot.Load(); m != nil && m.creation == creation {
		return m.seq
	}
	return 0
}

// CachedState and the methods below implement [write.Log].
func (h *handle) CachedState(ctx context.Context) (write.State, error) {
	c, _, err := h.store.cachedOrReplayed(ctx, h, true, scopesQuery{})
	return c, err
}

func (h *handle) NewestState(ctx context.Context, locked bool) (write.State, error) {
	c, _, err := h.store.currentState(ctx, h, locked, scopesQuery{})
	return c, err
}

func (h *handle) Records(ctx context.Context, creation string, seqs []uint64) ([]patch.Record, error) {
	return h.store.readRecords(ctx, h.key, creation, seqs)
}

func (h *handle) Wake() { h.store.changes.wake(h.key) }

func (h *handle) WrapError(err error) error { return fromBackend(h.key, err) }

// Publish makes c the newest state, unless a later state is already published. If a snapshot is due, Publish
// queues the snapshot.
func (h *handle) Publish(c write.State) {
	for {
		old := h.cached.Load()
		if old != nil && old.View.Creation() == c.View.Creation() && old.View.Seq() > c.View.Seq() {
			return
		}
		if h.cached.CompareAndSwap(old, &c) {
			h.size.Store(int64(c.View.Footprint()))
			break
		}
	}
	h.store.maybeSnapshot(h, c.View)
}

// Drop drops the view in memory, which may differ from the stored log.
func (h *handle) Drop() {
	h.cached.Store(nil)
	h.size.Store(0)
}

// dropUnchanged drops the view in memory if it is still the view in the argument seen.
func (h *handle) dropUnchanged(seen write.State) {
	if c := h.cached.Load(); c != nil && c.View.Creation() == seen.View.Creation() && c.View.Seq() == seen.View.Seq() {
		if h.cached.CompareAndSwap(c, nil) {
			h.size.Store(0)
		}
	}
}

// cache has a handle for each session in use. It keeps unused handles up to limit bytes, and evicts the least
// recently used handles first. Each handle counts for at most half of the limit, so two handles of any size fit.
// Without this rule, each call would read a large session again.
type cache struct {
	mu      sync.Mutex
	store   *Store
	limit   int64
	total   int64
	handles map[Key]*handle
	idle    *list.List // handles without users, most recently used first
}

// acquire returns the session's handle. The caller must release it.
func (c *cache) acquire(key Key) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.handles[key]
	if !ok {
		h = c.store.newHandle(key)
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
	size := min(h.size.Load(), max(c.limit/2, 1)) // each handle counts for at most half of the limit, rounded down, so that two large handles fit
	c.total += size - h.counted
	h.counted = size
	if h.users--; h.users == 0 {
		if h.cached.Load() == nil {
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

// forget removes a handle without users.
func (c *cache) forget(h *handle) {
	c.total -= h.counted
	delete(c.handles, h.key)
}
