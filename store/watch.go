package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// A watcher looks for other programs' commits at the shortest interval; after each look without news it doubles the
// interval, up to the longest.
const (
	minIdle = 100 * time.Millisecond
	maxIdle = time.Second
)

// After a temporary error, a watcher pauses for the shortest of these times. It doubles the pause after each further
// error, up to the longest.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = 5 * time.Second
)

// Watch yields the records of the session's log from fromSeq on (0 and 1 both mean the first), patches included, in seq
// order and each once. After the last record it waits for more, until the loop or ctx ends. If fromSeq is beyond the
// log's end, it waits for that record.
//
// Records are read when the loop asks for them, at most 512 and about 1 MiB at a time: nothing is queued for a slow
// loop. No transaction is open and no lock is held while the loop's body runs or Watch waits, so the body may be slow
// and may write to the store. Any number of goroutines may watch a session; each call of the iterator begins at
// fromSeq.
//
// Watch sees a commit of this store at once. It polls for commits of other programs: 100 ms after the last new record,
// then at intervals that double up to a second. Each poll is one round trip.
//
// These errors end Watch, and are yielded last:
//   - [ErrInvalid], if the key is not valid.
//   - ctx's error, when ctx ends. No record follows.
//   - [ErrClosed], when the store is closed. Close does not wait for a watcher.
//   - [ErrNotFound], if there is no such session; if it is deleted, even if it is created again; or if a database
//     failover lost records of the watched log. Records that contradict earlier ones are never yielded. To go on, read
//     the session again and watch it from there.
//   - A *[CorruptError], at a record that cannot be read, if it is unclear where the log ends, or if the records are
//     not as they were written.
//
// A record that was erased before Watch reads it is yielded blank. If a record is erased after Watch yielded it, Watch
// does not yield it again, but yields the receipt: a patch of type [patch.Erase], which names the erased records.
//
// Any other error may be temporary, such as a lost connection or a server restart. If the loop goes on after the error,
// Watch retries after 100 ms, then after intervals that double up to 5 seconds, and continues after the last record
// that it yielded. With an error the record is the zero Record.
func (s *Store) Watch(ctx context.Context, key Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		if err := key.Validate(); err != nil {
			yield(patch.Record{}, err)
			return
		}
		defer s.changes.wake(key) // removes the channel; other watchers of the session read once more
		looking, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(s.closing, stop)()
		over := func() error { // of both at once: stop may not have been called yet
			if s.closing.Err() != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("session %s: %w", key, ErrClosed))
			}
			return ctx.Err()
		}

		w := watcher{store: s, key: key, last: max(fromSeq, 1) - 1}
		var idle, retry time.Duration
		for {
			changed := s.changes.next(key) // before looking, so that no commit after the look is missed
			records, err := w.look(looking)
			if end := over(); end != nil {
				yield(patch.Record{}, end)
				return
			}
			if err != nil {
				if !yield(patch.Record{}, err) || lasting(err) {
					return
				}
				retry = longer(retry, minRetry, maxRetry)
				pause(looking, nil, retry)
				continue
			}
			retry = 0
			for _, r := range records {
				if end := over(); end != nil {
					yield(patch.Record{}, end)
					return
				}
				if !yield(r, nil) {
					return
				}
				idle = 0
			}
			if w.last >= w.found.Last { // else there is more, or an error
				idle = longer(idle, minIdle, maxIdle)
				pause(looking, changed, idle)
			}
		}
	}
}

// lasting reports whether an error is permanent.
func lasting(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) || errors.Is(err, ErrCorrupt)
}

// longer returns the time to wait after a wait without result.
func longer(last, shortest, longest time.Duration) time.Duration {
	return min(max(2*last, shortest), longest)
}

// pause waits until something has changed, ctx has ended or the time has passed.
func pause(ctx context.Context, changed <-chan struct{}, most time.Duration) {
	select {
	case <-changed:
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// watcher is the position of a watch in a log.
type watcher struct {
	store *Store
	key   Key
	last  uint64 // the seq of the last record read, or of the record before the first one to read

	found backend.Head  // as of the last look; the zero Head before the first look
	known bool          // chain is known; if reading began inside the log, only once its end is reached
	chain backend.Chain // of the log up to last
}

// look returns the records after the last one, up to the limits of one look. A look that fails does not change the
// watcher.
func (w *watcher) look(ctx context.Context) ([]patch.Record, error) {
	s := w.store
	news, err := s.backend.Fetch(ctx, backend.Query{Session: w.key.name(), Creation: w.found.Creation, After: w.last, NoMeta: true})
	if err != nil {
		return nil, fromBackend(w.key, err)
	}
	head := news.Head
	switch {
	case w.found.Creation == "":
		w.found, w.known = head, w.last == 0
		if w.last < head.Last {
			return nil, nil
		}
	case head.Creation != w.found.Creation:
		return nil, fmt.Errorf("session %s: %w: it was deleted and created again", w.key, ErrNotFound)
	}
	// Part of what was read was erased since, so the chain up to it has changed.
	erased := head.Edition > w.found.Edition
	p, err := decodePage(w.key, news.Records, backend.Range(w.last+1, len(news.Records)))
	records, chain := p.records, w.chain
	for _, raw := range news.Records[:len(records)] {
		chain = chain.Add(recordform.Checksum(raw.Data))
	}
	last := w.last + uint64(len(records))
	switch {
	case len(records) > 0: // what comes before damage can be read
	case err != nil:
		return nil, err
	case last < head.Last:
		return nil, errMissing(w.key, last+1)
	}
	whole := last == head.Last
	switch {
	case erased && head.Last < w.found.Last:
		return nil, w.contradicted(ctx)
	case erased:
		w.known = false
	default:
		if err := w.carriesOn(ctx, head, whole && w.known, chain); err != nil {
			return nil, err
		}
	}
	if whole {
		w.known, chain = true, head.Chain
	}
	w.last, w.chain, w.found = last, chain, head
	return records, nil
}

// carriesOn returns an error unless the log continues the log of the last look. known says that the records just read
// reach the log's end; then chain must be the head's. Otherwise the chain, with the records since the last look, must
// give the head's.
func (w *watcher) carriesOn(ctx context.Context, head backend.Head, known bool, chain backend.Chain) error {
	s := w.store
	switch {
	case head.Last < w.found.Last, known && chain != head.Chain:
		return w.contradicted(ctx)
	case known, head.Token == w.found.Token:
		return nil
	}
	before := w.found.Chain
	for _, err := range s.pagesAfter(ctx, w.key, head, &before, nil, w.found.Last+1, newest) {
		if errors.Is(err, ErrCorrupt) || errors.Is(err, errOtherLog) {
			return w.contradicted(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// contradicted returns why the log is not the one found before. If reading it from its first record shows damage, that
// is the reason; otherwise it is another log.
func (w *watcher) contradicted(ctx context.Context) error {
	head, err := w.store.head(ctx, w.key)
	if err != nil {
		return err
	}
	for _, err := range w.store.pages(ctx, w.key, head, 1, newest) {
		if err != nil && !errors.Is(err, errOtherLog) {
			return err
		}
	}
	return fmt.Errorf("session %s: %w: the log that was watched is gone: records that were there, up to record %d, were lost; watch it anew",
		w.key, ErrNotFound, w.found.Last)
}

// changes wakes the watchers of a session when this store has changed it, or may have.
type changes struct {
	mu   sync.Mutex
	news map[Key]chan struct{} // a channel for each watched session
}

// next returns a channel that is closed with the session's next change.
func (c *changes) next(key Key) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news[key] == nil {
		if c.news == nil {
			c.news = map[Key]chan struct{}{}
		}
		c.news[key] = make(chan struct{})
	}
	return c.news[key]
}

// wake wakes the session's watchers. It does not wait.
func (c *changes) wake(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if news := c.news[key]; news != nil {
		close(news)
		delete(c.news, key)
	}
}
