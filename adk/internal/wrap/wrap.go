// Package wrap keeps sessions in another session service, the base. The events of the base are the log. The patches
// of one call are stored as one additional event.
package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/cache"
	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// New returns a storage over a session service. cacheBytes limits the cache. 0 means the default, and a negative
// value disables the cache.
func New(base session.Service, logger *slog.Logger, cacheBytes int) *Storage {
	b := &Storage{service: base, logger: logger, logs: cache.Cache[store.Key, *baseLog]{Limit: cmp.Or(cacheBytes, maxLogBytes)}}
	for i := range b.locks {
		b.locks[i] = make(chan struct{}, 1)
	}
	return b
}

// maxLogBytes is the approximate memory limit of one generation of cached logs.
const maxLogBytes = 32 << 20

// Storage is a storage in another session service. It keeps patches in events of that service.
type Storage struct {
	service  session.Service
	logger   *slog.Logger
	OnDelete func(store.Key) // called for each session that was deleted
	locks    keyLocks
	logs     cache.Cache[store.Key, *baseLog]

	// edition counts the rebuilds of logs. A rebuilt log gets a new edition, and its views have the same edition. A
	// changed edition tells the finder that its index is outdated.
	edition atomic.Uint64
}

// withLog reads a session from the base and calls do, while it holds the session's lock. If the session is cached,
// the filter in req limits what is read.
func (b *Storage) withLog(ctx context.Context, key store.Key, req session.GetRequest, do func(*baseLog) error) error {
	unlock, err := b.locks.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	l, ok := b.logs.Get(key)
	if !ok {
		l = &baseLog{key: key, logger: b.logger}
	}
	if err := b.refresh(ctx, l, req); err != nil {
		return err
	}
	defer b.cacheLog(l)
	return do(l)
}

// readLog updates a session's log from the base. It returns a copy that can be used without the session's lock.
func (b *Storage) readLog(ctx context.Context, key store.Key) (log baseLog, err error) {
	err = b.withLog(ctx, key, storage.NewestEvents, func(l *baseLog) error {
		log = l.copy()
		return nil
	})
	return log, err
}

// cachedLog returns a copy of the cached log if usable accepts the log. Otherwise it calls readLog. After a call
// of readLog, a caller can therefore read many records without further requests to the base.
func (b *Storage) cachedLog(ctx context.Context, key store.Key, usable func(*baseLog) bool) (baseLog, error) {
	unlock, err := b.locks.lock(ctx, key)
	if err != nil {
		return baseLog{}, err
	}
	if l, ok := b.logs.Get(key); ok && usable(l) {
		defer unlock()
		return l.copy(), nil
	}
	unlock()
	return b.readLog(ctx, key)
}

var allEvents = session.GetRequest{}

func (b *Storage) cacheLog(l *baseLog) {
	b.logs.Put(l.key, l, 1<<10+2*l.size) // the size counts twice, because the base's session has its own copy of the events
}

// forget removes a deleted session from the caches.
func (b *Storage) forget(key store.Key) {
	b.logs.Remove(key)
	b.OnDelete(key)
}

func (b *Storage) refresh(ctx context.Context, l *baseLog, req session.GetRequest) error {
	switch {
	case l.base == nil:
		req = allEvents
	case req == storage.NewestEvents && b.isUnchanged(ctx, l):
		return nil
	}
	req.AppName, req.UserID, req.SessionID = l.key.App, l.key.User, l.key.Session
	resp, err := b.service.Get(ctx, &req)
	if err != nil {
		return b.toNotFound(ctx, l.key, err)
	}
	all := req.NumRecentEvents <= 0 && req.After.IsZero()
	if l.base != nil && l.extend(resp.Session, all) {
		return nil
	}
	if !all {
		return b.refresh(ctx, l, allEvents)
	}
	l.rebuild(resp.Session, b.edition.Add(1))
	return nil
}

// isUnchanged reports whether the base has no new events. It requests only the events that are not earlier than the
// last update time. A new event is among the requested events, or it has changed the session's update time. An SQL
// database answers this request much faster than a request for the newest events, which makes it sort all events.
func (b *Storage) isUnchanged(ctx context.Context, l *baseLog) bool {
	at := l.base.LastUpdateTime()
	if !l.tracksUpdateTime {
		return false
	}
	resp, err := b.service.Get(ctx, &session.GetRequest{AppName: l.key.App, UserID: l.key.User, SessionID: l.key.Session, After: at, NumRecentEvents: storage.NewestEvents.NumRecentEvents})
	if err != nil || !resp.Session.LastUpdateTime().Equal(at) {
		return false
	}
	events := eventsOf(resp.Session)
	isNew := func(e baseEvent) bool { _, ok := l.items[e.id]; return !ok }
	if len(events) >= storage.NewestEvents.NumRecentEvents || slices.ContainsFunc(events, isNew) || !l.matchesCreation(resp.Session) {
		return false
	}
	l.base = resp.Session
	return true
}

// toNotFound makes err match [store.ErrNotFound] if the base does not list the session. Session services have no
// common error for a missing session.
func (b *Storage) toNotFound(ctx context.Context, key store.Key, err error) error {
	if exists, listErr := b.exists(ctx, key); exists || listErr != nil {
		return err
	}
	b.forget(key)
	return fmt.Errorf("session %s: %w: %w", key, store.ErrNotFound, err)
}

func (b *Storage) exists(ctx context.Context, key store.Key) (bool, error) {
	for info, err := range b.List(ctx, store.ListOptions{App: key.App, User: key.User}) {
		if err != nil || info.Key == key {
			return err == nil, err
		}
	}
	return false, nil
}

// Create creates the session in the base, with a creation id and the initial state.
func (b *Storage) Create(ctx context.Context, req *session.CreateRequest, _ time.Time) (out storage.Session, err error) {
	key := store.Key{App: req.AppName, User: req.UserID, Session: req.SessionID}
	value, err := patch.NewValue(req.State)
	if err != nil {
		return storage.Session{}, err
	}
	if _, exists := req.State[portable.StateKey]; exists {
		return storage.Session{}, reservedKeyError(portable.StateKey)
	}
	unlock, err := b.locks.lock(ctx, key)
	if err != nil {
		return storage.Session{}, err
	}
	defer unlock()
	state, _ := value.Any().(map[string]any)
	request := *req
	request.State = withOrigin(state)
	resp, err := b.service.Create(ctx, &request)
	if err != nil {
		if exists, _ := b.exists(ctx, key); exists {
			err = fmt.Errorf("%w: %w", store.ErrExists, err)
		}
		return storage.Session{}, err
	}
	key.Session = resp.Session.ID()
	l := &baseLog{key: key, logger: b.logger}
	l.rebuild(resp.Session, b.edition.Add(1))
	b.cacheLog(l)
	return l.session(), nil
}

func reservedKeyError(key string) error {
	return &patch.FieldError{Field: key, Problem: "the key is reserved for patchlog; use another key"}
}

// Get reads the session. If the session is cached, the base applies the filter.
func (b *Storage) Get(ctx context.Context, key store.Key, filter session.GetRequest) (out storage.Session, err error) {
	err = b.withLog(ctx, key, filter, func(l *baseLog) error {
		out = l.session()
		return nil
	})
	return out, err
}

// Fork copies a session's events into a new session. It drops "app:" and "user:" keys, because the original events
// have already changed the shared scopes.
func (b *Storage) Fork(ctx context.Context, key, newKey store.Key, opts store.ForkOptions) (out storage.Session, err error) {
	var events []*session.Event
	var initial map[string]any
	err = b.withLog(ctx, key, allEvents, func(l *baseLog) error {
		records, err := l.recordsUpTo(opts.At)
		if err != nil {
			return err
		}
		left := len(records)
		initial = l.empty.State()
		for i, e := range eventsOf(l.base) {
			if it := l.items[l.order[i]]; it.patches != nil {
				left -= len(it.patches.IDs())
			} else {
				left--
			}
			if left < 0 {
				break
			}
			copied := convert.CopyEvent(e.event)
			copied.Timestamp = copied.Timestamp.UTC() // SQLite compares times as text
			maps.DeleteFunc(copied.Actions.StateDelta, func(key string, _ any) bool { return convert.IsSharedKey(key) })
			events = append(events, copied)
		}
		return nil
	})
	if err == nil {
		_, err = b.Create(ctx, &session.CreateRequest{AppName: newKey.App, UserID: newKey.User, SessionID: newKey.Session, State: initial}, time.Time{})
	}
	if err != nil {
		return storage.Session{}, err
	}
	err = b.withLog(ctx, newKey, allEvents, func(l *baseLog) error {
		for _, e := range events {
			if err := b.service.AppendEvent(ctx, l.base, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return b.Get(ctx, newKey, allEvents)
	}
	return storage.Session{}, errors.Join(err, b.Delete(context.WithoutCancel(ctx), newKey))
}

// Erase fails, because a session service cannot replace events.
func (b *Storage) Erase(context.Context, store.Key, store.EraseSelection, store.EraseOptions) (store.Erasure, error) {
	return store.Erasure{}, errCannotErase
}

// List yields the base's sessions ordered by key. The results contain only the keys.
func (b *Storage) List(ctx context.Context, opts store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		resp, err := b.service.List(ctx, &session.ListRequest{AppName: opts.App, UserID: opts.User})
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		infos := make([]store.Info, len(resp.Sessions))
		for i, s := range resp.Sessions {
			infos[i] = store.Info{Key: store.Key{App: s.AppName(), User: s.UserID(), Session: s.ID()}}
		}
		slices.SortFunc(infos, func(a, b store.Info) int { return compareKeys(a.Key, b.Key) })
		for _, info := range infos {
			if opts.After != (store.Key{}) && compareKeys(info.Key, opts.After) <= 0 {
				continue
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Info reads only the newest events of the session. It does not set Created, because a base does not report when a
// session was created.
func (b *Storage) Info(ctx context.Context, key store.Key) (store.Info, error) {
	l, err := b.readLog(ctx, key)
	return store.Info{Key: key, Creation: l.creation, Seq: l.view.Seq()}, err
}

// Delete deletes the session from the service.
func (b *Storage) Delete(ctx context.Context, key store.Key) error {
	unlock, err := b.locks.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.service.Delete(ctx, &session.DeleteRequest{AppName: key.App, UserID: key.User, SessionID: key.Session}); err != nil {
		return err
	}
	b.forget(key)
	return nil
}

// View returns the view of the session's current log.
func (b *Storage) View(ctx context.Context, key store.Key) (fold.View, error) {
	l, err := b.readLog(ctx, key)
	return l.view, err
}

// RecentView returns the view as of the last read of the session.
func (b *Storage) RecentView(ctx context.Context, key store.Key) (fold.View, error) {
	l, err := b.cachedLog(ctx, key, func(*baseLog) bool { return true })
	return l.view, err
}

// ViewAt folds the session's records up to seq.
func (b *Storage) ViewAt(ctx context.Context, key store.Key, seq uint64) (v fold.View, err error) {
	l, err := b.readLog(ctx, key)
	if err != nil {
		return v, err
	}
	records, err := l.recordsUpTo(&seq)
	if err != nil {
		return v, err
	}
	return l.empty.Apply(records...)
}

// RawEvents yields the session's records as of the last read of the session.
func (b *Storage) RawEvents(ctx context.Context, key store.Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return yieldFrom(ctx, fromSeq, func() ([]patch.Record, error) {
		l, err := b.cachedLog(ctx, key, func(*baseLog) bool { return true })
		return l.records, err
	})
}

// Records yields the records of a view with the given seqs. The finder calls it.
func (b *Storage) Records(ctx context.Context, key store.Key, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	return yieldFrom(ctx, 1, func() (out []patch.Record, err error) {
		records, err := b.recordsOf(ctx, key, v)
		for i := 0; err == nil && i < len(seqs); i++ {
			out = append(out, records[seqs[i]-1])
		}
		return out, err
	})
}

// HistoryPage returns a page of a view's history, from the view's records and the seq of the record that contains
// the event with the id before.
func (b *Storage) HistoryPage(ctx context.Context, key store.Key, v fold.View, before string, limit int) ([]fold.Entry, error) {
	records, err := b.recordsOf(ctx, key, v)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(records, func(r patch.Record) bool { return before != "" && slices.Contains(slices.Collect(r.IDs()), before) })
	return v.WithRecords(records).HistoryPage(before, uint64(at+1), limit)
}

func (b *Storage) recordsOf(ctx context.Context, key store.Key, v fold.View) ([]patch.Record, error) {
	l, err := b.cachedLog(ctx, key, func(l *baseLog) bool { return l.view.Edition() == v.Edition() && l.view.Seq() >= v.Seq() })
	if err == nil && (l.creation != v.Creation() || v.Seq() > l.view.Seq()) {
		err = errReordered
	}
	if err != nil {
		return nil, err
	}
	return l.records[:v.Seq()], nil
}

// yieldFrom yields the records that read returns, from the record with the given seq on.
func yieldFrom(ctx context.Context, seq uint64, read func() ([]patch.Record, error)) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		records, err := read()
		for i := max(seq, 1) - 1; err == nil && i < uint64(len(records)); i++ {
			if err = ctx.Err(); err == nil && !yield(records[i], nil) {
				return
			}
		}
		if err != nil {
			yield(patch.Record{}, err)
		}
	}
}

// Lease always reports that the caller holds the lease, because a base has no leases.
func (b *Storage) Lease(context.Context, store.Key, string, time.Duration) (bool, error) {
	return true, nil
}

// Base returns the wrapped service.
func (b *Storage) Base() session.Service { return b.service }

// Cached returns the number of cached sessions.
func (b *Storage) Cached() int { return b.logs.Len() }

// CanSkip returns true, because every error may concern only one session.
func (b *Storage) CanSkip(error) bool { return true }

// Handle returns a name that contains the event's id, because the seqs of a base's records can change.
func (b *Storage) Handle(_ uint64, _ int, e *patch.Event) string { return storage.IDHandle + e.ID() }

var _ storage.Storage = (*Storage)(nil)

// keyLocks contains the locks of sessions within this process. Sessions whose keys have the same hash share a
// lock.
type keyLocks [1024]chan struct{} // while a lock is held, its channel contains one element

var lockSeed = maphash.MakeSeed()

func (k *keyLocks) lock(ctx context.Context, key store.Key) (unlock func(), err error) {
	l := k[maphash.Comparable(lockSeed, key)%uint64(len(k))]
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// compareKeys orders the sessions of an app by user and session id.
func compareKeys(a, b store.Key) int {
	return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Session, b.Session))
}

var errCannotErase = fmt.Errorf("%w: a wrapped service cannot erase the content of events; to erase content, move the sessions into a store with patchlog import", errors.ErrUnsupported)
