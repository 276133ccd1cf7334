package recall

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Log is what a [Finder] reads: sessions, each named by a key. Its methods may be called from any
// number of goroutines.
type Log[K comparable] interface {
	// View returns the newest view of a session.
	View(ctx context.Context, key K) (fold.View, error)

	// RecordsFrom yields the records of the log that a view is of, from a seq on, at least as
	// far as the view reaches. It ends with an error if the session is another one by now.
	RecordsFrom(ctx context.Context, key K, v fold.View, from uint64) iter.Seq2[patch.Record, error]

	// Records returns the records with the given seqs, which ascend, of the log that a view
	// is of.
	Records(ctx context.Context, key K, v fold.View, seqs []uint64) ([]patch.Record, error)
}

// DefaultMaxBytes is how much memory the indexes of a [Finder] take unless it is said
// otherwise.
const DefaultMaxBytes = 128 << 20

// Finder searches the sessions of a log. It indexes a session when that is searched for the first
// time, and what was appended since when it is searched again; it keeps the indexes that were
// used last. It is safe for use by any number of goroutines.
type Finder[K comparable] struct {
	log   Log[K]
	limit int

	mu      sync.Mutex
	total   int
	entries map[K]*entry[K]
	recent  *list.List // of entries, the last used first
}

// entry is a session's index. Its users hold its lock.
type entry[K comparable] struct {
	key      K
	lock     chan struct{} // holds a value while it is locked
	creation string
	edition  uint64
	index    *Index

	// Guarded by the finder's lock.
	users int
	bytes int
	at    *list.Element
}

func newEntry[K comparable](key K) *entry[K] {
	return &entry[K]{key: key, lock: make(chan struct{}, 1)}
}

// entryBytes is about what an entry takes besides its index, with its share of the finder's map.
const entryBytes = 1 << 10

// NewFinder returns a finder over a log, whose indexes take about so many bytes of memory at
// most while they are not in use: 0 means [DefaultMaxBytes], and below 0 none is kept.
func NewFinder[K comparable](log Log[K], maxBytes int) *Finder[K] {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	return &Finder[K]{log: log, limit: max(maxBytes, 0), entries: map[K]*entry[K]{}, recent: list.New()}
}

// Forget drops the index of a session, if there is one.
func (f *Finder[K]) Forget(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[key]; e != nil {
		f.drop(e)
	}
}

// Bytes is about how many bytes of memory the indexes take that are kept.
func (f *Finder[K]) Bytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// acquire returns a session's entry, which is kept until the caller releases it.
func (f *Finder[K]) acquire(key K) *entry[K] {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entries[key]
	if e == nil {
		e = newEntry(key)
		e.at = f.recent.PushFront(e)
		f.entries[key] = e
	}
	f.recent.MoveToFront(e.at)
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
			f.drop(old)
		}
	}
}

// resize notes how much an entry takes. Its own lock is held.
func (f *Finder[K]) resize(e *entry[K]) {
	bytes := entryBytes + e.index.Bytes()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[e.key] == e { // else it was forgotten
		f.total += bytes - e.bytes
		e.bytes = bytes
	}
}

// drop removes an entry. Its current users keep it. The lock is held.
func (f *Finder[K]) drop(e *entry[K]) {
	f.recent.Remove(e.at)
	delete(f.entries, e.key)
	f.total -= e.bytes
	e.bytes = 0
}

// locked calls do with an entry locked.
func (e *entry[K]) locked(ctx context.Context, do func() error) error {
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

// apart returns an entry for a view that a search names: another one, of nobody else's, if the
// entry is of another creation of the session, which goes on being searched.
func (f *Finder[K]) apart(ctx context.Context, e *entry[K], v fold.View) (*entry[K], error) {
	own := e
	err := e.locked(ctx, func() error {
		if e.index != nil && e.creation != v.Creation() {
			own = newEntry(e.key)
		}
		return nil
	})
	return own, err
}

// indexed calls do with an index of all records of a view.
func (f *Finder[K]) indexed(ctx context.Context, e *entry[K], v fold.View, do func(*Index) error) error {
	return e.locked(ctx, func() error {
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

// extend adds what an index lacks of a view's records.
func (f *Finder[K]) extend(ctx context.Context, x *Index, key K, v fold.View) error {
	if x.Seq() >= v.Seq() {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for some := range f.read(ctx, key, v, x.Seq()+1) {
		if some.err != nil {
			return some.err
		}
		for _, r := range some.records {
			x.Add(r)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if at := x.Seq(); at < v.Seq() {
		return fmt.Errorf("the log ends at record %d, before the view's %d", at, v.Seq())
	}
	return nil
}

// batch is records that were read, or why no more were.
type batch struct {
	records []patch.Record
	err     error
}

// batchRecords is how many records are handed over at a time.
const batchRecords = 256

// read reads records in a goroutine of its own, since indexing takes about as long. It ends when
// the context does.
func (f *Finder[K]) read(ctx context.Context, key K, v fold.View, from uint64) <-chan batch {
	out := make(chan batch, 4)
	go func() {
		defer close(out)
		send := func(b batch) bool {
			select {
			case out <- b:
				return true
			case <-ctx.Done():
				return false
			}
		}
		var some []patch.Record
		for r, err := range f.log.RecordsFrom(ctx, key, v, from) {
			if err != nil {
				send(batch{err: err})
				return
			}
			if some = append(some, r); len(some) == batchRecords {
				if !send(batch{records: some}) {
					return
				}
				some = nil
			}
		}
		send(batch{records: some})
	}()
	return out
}
