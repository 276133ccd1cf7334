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

// A watcher polls for commits of other programs. The first interval is minIdle. After each poll without news the
// interval doubles, up to maxIdle.
const (
	minIdle = 100 * time.Millisecond
	maxIdle = time.Second
)

// After a temporary error, a watcher pauses for minRetry. After each further error the pause doubles, up to
// maxRetry.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = 5 * time.Second
)

// Watch yields the records of the session's log in seq order, patches included, and each record once. It starts at
// fromSeq; 0 and 1 both mean the first record. After the last record it waits for new records, until the loop ends
// or ctx ends. If fromSeq is beyond the end of the log, Watch waits for that record.
//
// Watch reads records when the loop asks for them, at most 512 records and about 1 MiB at a time. Nothing is
// queued for a slow loop. While the loop's body runs or Watch waits, no transaction is open and no lock is held.
// The body may therefore be slow and may write to the store. Any number of goroutines may watch a session. Each
// use of the iterator starts at fromSeq again.
//
// Watch sees a commit of this store at once. It polls for commits of other programs, first 100 ms after the last
// new record, then at intervals that double up to one second. Each poll takes one round trip.
//
// The following errors end the iteration. They are yielded last:
//   - [ErrInvalid], if the key is invalid.
//   - ctx's error, when ctx ends. Watch yields no record after that.
//   - [ErrClosed], when the store is closed. Close does not wait for watchers.
//   - [ErrNotFound], if the session does not exist or is deleted, even if it is created again. Watch also yields
//     this error if a database failover lost records of the log. It never yields a record that contradicts earlier
//     ones. To continue, read the session again and watch it from there.
//   - [ErrCorrupt], if stored data is damaged. For a record that cannot be read, the error is a *[CorruptError].
//
// If a record was erased before Watch reads it, Watch yields it blank. If a record is erased after Watch has
// yielded it, Watch does not yield it again. The receipt of the erase, a patch of type [patch.Erase], names the
// erased records.
//
// Any other error may be temporary, such as a lost connection or a server restart. If the loop continues after such
// an error, Watch retries after 100 ms, then at intervals that double up to 5 seconds. It continues after the last
// record that it yielded. With an error, the record is the zero Record.
func (s *Store) Watch(ctx context.Context, key Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		if err := key.Validate(); err != nil {
			yield(patch.Record{}, err)
			return
		}
		defer s.changes.wake(key) // removes the channel, so other watchers of the session poll once more
		pollCtx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(s.closing, stop)()
		endError := func() error { // returns an error if the store is closed or ctx has ended; pollCtx may end later
			if s.closing.Err() != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("session %s: %w", key, ErrClosed))
			}
			return ctx.Err()
		}

		w := watcher{store: s, key: key, last: max(fromSeq, 1) - 1}
		var idle, retry time.Duration
		for {
			changed := s.changes.channel(key) // get the channel before the poll, so that a commit after the poll closes it
			records, err := w.poll(pollCtx)
			if end := endError(); end != nil {
				yield(patch.Record{}, end)
				return
			}
			if err != nil {
				if !yield(patch.Record{}, err) || isPermanent(err) {
					return
				}
				retry = nextInterval(retry, minRetry, maxRetry)
				pause(pollCtx, nil, retry)
				continue
			}
			retry = 0
			for _, r := range records {
				if end := endError(); end != nil {
					yield(patch.Record{}, end)
					return
				}
				if !yield(r, nil) {
					return
				}
				idle = 0
			}
			if w.last >= w.lastHead.Last { // otherwise read the remaining records without a pause
				idle = nextInterval(idle, minIdle, maxIdle)
				pause(pollCtx, changed, idle)
			}
		}
	}
}

// isPermanent reports whether an error is permanent.
func isPermanent(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) || errors.Is(err, ErrCorrupt)
}

// nextInterval returns the interval that follows the interval last.
func nextInterval(last, shortest, longest time.Duration) time.Duration {
	return min(max(2*last, shortest), longest)
}

// pause waits until changed is closed, until ctx ends, or for at most the duration most.
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
	last  uint64 // seq of the last record read; before the first read, the seq before the first record to read

	lastHead   backend.Head  // head at the last poll; the zero Head before the first poll
	chainKnown bool          // whether chain is valid; if the watch started inside the log, chain is valid only after the watch has reached the end
	chain      backend.Chain // chain of the log up to last
}

// poll returns the records after w.last, up to the limits of one Fetch. If poll fails, the watcher does not change.
func (w *watcher) poll(ctx context.Context) ([]patch.Record, error) {
	s := w.store
	fetched, err := s.backend.Fetch(ctx, backend.Query{Session: w.key.name(), Creation: w.lastHead.Creation, After: w.last, NoMeta: true})
	if err != nil {
		return nil, fromBackend(w.key, err)
	}
	head := fetched.Head
	switch {
	case w.lastHead.Creation == "":
		w.lastHead, w.chainKnown = head, w.last == 0
		if w.last < head.Last {
			return nil, nil
		}
	case head.Creation != w.lastHead.Creation:
		return nil, fmt.Errorf("session %s: %w: it was deleted and created again", w.key, ErrNotFound)
	}
	// If the edition has changed, records were erased since the last poll, so the chain of the earlier records has
	// changed too.
	erased := head.Edition > w.lastHead.Edition
	p, err := decodePage(w.key, fetched.Records, backend.Range(w.last+1, len(fetched.Records)))
	records, chain := p.records, w.chain
	for _, raw := range fetched.Records[:len(records)] {
		chain = chain.Add(recordform.Checksum(raw.Data))
	}
	last := w.last + uint64(len(records))
	switch {
	case len(records) > 0: // on error, yield the records before the damaged record
	case err != nil:
		return nil, err
	case last < head.Last:
		return nil, errMissing(w.key, last+1)
	}
	whole := last == head.Last
	switch {
	case erased && head.Last < w.lastHead.Last:
		return nil, w.lossError(ctx)
	case erased:
		w.chainKnown = false
	default:
		if err := w.checkContinues(ctx, head, whole && w.chainKnown, chain); err != nil {
			return nil, err
		}
	}
	if whole {
		w.chainKnown, chain = true, head.Chain
	}
	w.last, w.chain, w.lastHead = last, chain, head
	return records, nil
}

// checkContinues returns an error unless the log continues the log of the last poll. The argument chain is the
// chain up to the records just read. If known is true, these records reach the end of the log, and chain must
// equal the head's chain. If known is false, checkContinues extends the chain of the last poll by the records
// since then, and compares the result with the head's chain.
func (w *watcher) checkContinues(ctx context.Context, head backend.Head, known bool, chain backend.Chain) error {
	s := w.store
	switch {
	case head.Last < w.lastHead.Last, known && chain != head.Chain:
		return w.lossError(ctx)
	case known, head.Token == w.lastHead.Token:
		return nil
	}
	before := w.lastHead.Chain
	for _, err := range s.pagesAfter(ctx, w.key, head, &before, nil, w.lastHead.Last+1, endOfLog) {
		if errors.Is(err, ErrCorrupt) || errors.Is(err, errLogChanged) {
			return w.lossError(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lossError returns the error for a log that does not continue the records that the watcher has read. If the log
// is damaged, lossError returns the damage. Otherwise records were lost, and the error matches [ErrNotFound].
func (w *watcher) lossError(ctx context.Context) error {
	head, err := w.store.head(ctx, w.key)
	if err != nil {
		return err
	}
	for _, err := range w.store.pages(ctx, w.key, head, 1, endOfLog) {
		if err != nil && !errors.Is(err, errLogChanged) {
			return err
		}
	}
	return fmt.Errorf("session %s: %w: a database failover lost records that were watched, up to record %d; watch the session again",
		w.key, ErrNotFound, w.lastHead.Last)
}

// notifier wakes the watchers of a session when this store has, or may have, changed the session.
type notifier struct {
	mu       sync.Mutex
	channels map[Key]chan struct{} // one channel for each watched session
}

// channel returns a channel that is closed at the session's next change.
func (c *notifier) channel(key Key) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels[key] == nil {
		if c.channels == nil {
			c.channels = map[Key]chan struct{}{}
		}
		c.channels[key] = make(chan struct{})
	}
	return c.channels[key]
}

// wake wakes the session's watchers. It does not block.
func (c *notifier) wake(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fetched := c.channels[key]; fetched != nil {
		close(fetched)
		delete(c.channels, key)
	}
}
