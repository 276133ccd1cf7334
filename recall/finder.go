package recall

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Log is the source of the records that a [Finder] searches. Keys identify its sessions. Its methods must be safe for
// concurrent use.
type Log[K comparable] interface {
	// View returns the newest view of a session.
	View(ctx context.Context, key K) (fold.View, error)

	// Records yields the records with the given seqs from the log that the view v was folded from. The seqs are in
	// ascending order. If the session was deleted and recreated after v, Records ends with an error.
	Records(ctx context.Context, key K, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error]
}

// DefaultMaxBytes is the default memory limit for the indexes of a [Finder].
const DefaultMaxBytes = 128 << 20

// Finder searches the sessions of a log. The first search of a session builds an index of the session's log. Later
// searches add only new records. The finder caches indexes and evicts the least recently used ones. It is safe for
// concurrent use.
type Finder[K comparable] struct {
	log   Log[K]
	limit int

	mu      sync.Mutex
	total   int
	entries map[K]*entry[K]
	recent  *list.List // entries, the most recently used first
}

// entry is the cached index of a session. A goroutine must lock the entry to use it.
type entry[K comparable] struct {
	key      K
	lock     chan struct{} // contains a value while the entry is locked
	creation string
	edition  uint64
	index    *Index

	// The mutex of the finder guards the following fields.
	users   int
	bytes   int
	element *list.Element
}

func newEntry[K comparable](key K) *entry[K] {
	return &entry[K]{key: key, lock: make(chan struct{}, 1)}
}

// entryBytes estimates the memory of an entry without its index. It includes the entry's share of the finder's map.
const entryBytes = 1 << 10

// NewFinder returns a finder for a log. Its cached indexes use at most about maxBytes. 0 means [DefaultMaxBytes]. A
// negative value disables the cache.
func NewFinder[K comparable](log Log[K], maxBytes int) *Finder[K] {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	return &Finder[K]{log: log, limit: max(maxBytes, 0), entries: map[K]*entry[K]{}, recent: list.New()}
}

// Forget removes the index of a session from the cache.
func (f *Finder[K]) Forget(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[key]; e != nil {
		f.evict(e)
	}
}

// Bytes estimates the memory that the cached indexes use.
func (f *Finder[K]) Bytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// acquire returns a session's entry. The entry is not evicted until the caller releases it.
func (f *Finder[K]) acquire(key K) *entry[K] {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entries[key]
	if e == nil {
		e = newEntry(key)
		e.element = f.recent.PushFront(e)
		f.entries[key] = e
	}
	f.recent.MoveToFront(e.element)
	e.users++
	return e
}

func (f *Finder[K]) release(e *entry[K]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.users--
	for at := f.recent.Back(); at != nil && (f.total > f.limit || f.limit == 0); {
		old := at.Value.(*entry[K])
		at = at.Prev()
		if old.users == 0 {
			f.evict(old)
		}
	}
}

// resize updates the size of an entry, which the caller must have locked.
func (f *Finder[K]) resize(e *entry[K]) {
	bytes := entryBytes + e.index.Bytes()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[e.key] == e { // false if the entry was removed from the cache
		f.total += bytes - e.bytes
		e.bytes = bytes
	}
}

// evict removes an entry from the cache. Goroutines that use the entry can continue. The caller must hold the
// finder's mutex.
func (f *Finder[K]) evict(e *entry[K]) {
	f.recent.Remove(e.element)
	delete(f.entries, e.key)
	f.total -= e.bytes
	e.bytes = 0
}

// withLock calls do while the entry is locked.
func (e *entry[K]) withLock(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.lock }()
	return do()
}

// entryForView returns the entry to use for [Search.View]. If e indexes an earlier or later session with the same
// key, it returns a new entry that is not cached. Otherwise, it returns e.
func (f *Finder[K]) entryForView(ctx context.Context, e *entry[K], v fold.View) (*entry[K], error) {
	own := e
	err := e.withLock(ctx, func() error {
		if e.index != nil && e.creation != v.Creation() {
			own = newEntry(e.key)
		}
		return nil
	})
	return own, err
}

// withIndex calls do with an index that contains all records of a view.
func (f *Finder[K]) withIndex(ctx context.Context, e *entry[K], v fold.View, do func(*Index) error) error {
	return e.withLock(ctx, func() error {
		if e.index == nil || e.creation != v.Creation() || e.edition < v.Edition() {
			e.index, e.creation, e.edition = new(Index), v.Creation(), v.Edition()
		}
		err := f.extend(ctx, e.index, e.key, v)
		f.resize(e)
		if err != nil {
			return err
		}
		return do(e.index)
	})
}

// extend adds the records of a view that the index does not contain yet.
func (f *Finder[K]) extend(ctx context.Context, x *Index, key K, v fold.View) error {
	if x.Seq() >= v.Seq() {
		return nil
	}
	seqs := make([]uint64, 0, v.Seq()-x.Seq())
	for seq := x.Seq() + 1; seq <= v.Seq(); seq++ {
		seqs = append(seqs, seq)
	}
	for r, err := range f.log.Records(ctx, key, v, seqs) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		x.Add(r)
	}
	if at := x.Seq(); at < v.Seq() {
		return fmt.Errorf("the log ends at record %d, before the view's %d", at, v.Seq())
	}
	return nil
}
