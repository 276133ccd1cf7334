package store

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// Options of a store. The zero value means the defaults.
type Options struct {
	// MaxRecordBytes is the maximum size of an encoded record before compression. 0 means 16 MiB; the upper limit is
	// [patch.MaxRecordBytes].
	MaxRecordBytes int

	// CacheBytes is about how much memory cached views may take. Above the limit, the least recently used views are
	// dropped. A session counts as at most half of CacheBytes, so two sessions of any size fit. 0 means 256 MiB; a
	// negative value caches no view. Values of shared scopes may take another eighth of CacheBytes.
	CacheBytes int64

	// Snapshots says when a session's snapshot is written.
	Snapshots snapshot.Policy

	// NoSync acknowledges a write before it is on the disk. Such a write survives the end of the process, however it
	// ends. If the system or the power fails, the last writes may be lost and the file may be damaged, since pages
	// reach the disk in any order. Use NoSync for data that can be generated again. Without NoSync, acknowledged writes
	// survive all of these failures.
	NoSync bool

	// LockTimeout is how long [Open] waits for another holder of the file. 0 means
	// one second.
	LockTimeout time.Duration

	// ReadOnly is for [Open]: the file must exist, and is not changed. Calls that would write fail with [ErrReadOnly].
	// Several read-only stores may have a file open at the same time, if no store has it open for writing.
	ReadOnly bool

	// Logger gets warnings for operators. nil means [slog.Default].
	Logger *slog.Logger

	// Now and NewID supply the times and ids that records lack. nil means [time.Now] and random UUIDs. They may be
	// called from several goroutines.
	Now   func() time.Time
	NewID func() string
}

// Defaults of [Options].
const (
	DefaultMaxRecordBytes = 16 << 20
	defaultCacheBytes     = 256 << 20
)

// Validate reports whether the options make sense. The error matches [ErrInvalid] and
// names the option.
func (o Options) Validate() error {
	bad := func(field, format string, args ...any) error {
		return &patch.FieldError{Field: "Options." + field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case o.MaxRecordBytes < 0 || o.MaxRecordBytes > patch.MaxRecordBytes:
		return bad("MaxRecordBytes", "%d is not between 0 and %d", o.MaxRecordBytes, patch.MaxRecordBytes)
	case o.Snapshots.Validate() != nil:
		return fmt.Errorf("Options.Snapshots: %w", o.Snapshots.Validate())
	case o.LockTimeout < 0:
		return bad("LockTimeout", "%v is below 0", o.LockTimeout)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MaxRecordBytes = cmp.Or(o.MaxRecordBytes, DefaultMaxRecordBytes)
	o.CacheBytes = cmp.Or(o.CacheBytes, defaultCacheBytes)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	return o
}

// Store keeps sessions. It is safe for use by any number of goroutines.
type Store struct {
	backend backend.Backend
	owner   string // of the leases that this store takes
	opts    Options
	writing write.Config
	cache   cache
	scopes  scopeCache
	changes changes

	snapshots snapshotter

	closing context.Context // ends when the store is closed
	close   func()
}

// Open opens the store in the bbolt file at path, and creates a missing file, unless [Options.ReadOnly] is set. Either
// one Store for writing, or several for reading only, may have the file open; any other Open fails with [ErrLocked]
// after [Options.LockTimeout]. A damaged or empty file gives [ErrCorrupt], any other file that is no store
// [ErrNotDatabase]; Open does not change them. If one of the two pages that name the file's last commit is damaged,
// Options.Logger gets a warning: that commit may be missing.
//
// If the file is damaged or replaced while it is open, calls fail with [ErrCorrupt] from
// then on, until it is opened anew.
func Open(path string, opts Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	b, err := bolt.Open(path, bolt.Options{
		LockTimeout: opts.LockTimeout, NoSync: opts.NoSync, ReadOnly: opts.ReadOnly, Logger: opts.Logger,
	})
	if err != nil {
		return nil, fromBackend(Key{}, err)
	}
	s, err := New(b, opts)
	if err == nil && !opts.ReadOnly { // no other program can be staging
		s.dropStaged(context.Background(), 0)
	}
	return s, err
}

// OpenMemory opens an empty store in memory. Its contents are lost when it is closed.
func OpenMemory(opts Options) (*Store, error) {
	return New(&memory.Backend{}, opts)
}

// New opens a store on any backend. Closing the store closes the backend. The error matches [ErrInvalid] if b is nil or
// the options are invalid.
func New(b backend.Backend, opts Options) (*Store, error) {
	if v := reflect.ValueOf(b); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the backend is nil", ErrInvalid)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	_, remote := b.(backend.Leaser)
	s := &Store{backend: b, owner: uuid.NewString(), opts: opts}
	s.writing = write.Config{Backend: b, Remote: remote, MaxRecordBytes: opts.MaxRecordBytes, NewID: opts.NewID, Now: opts.Now, Logger: opts.Logger}
	s.cache = cache{store: s, limit: max(opts.CacheBytes, 0), handles: map[Key]*handle{}, idle: list.New()}
	s.snapshots.turn = make(chan struct{}, 1)
	s.scopes.limit = int(max(opts.CacheBytes, 0) / 8)
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Close closes the store. Running calls end first or fail with [ErrClosed]; later calls fail with ErrClosed. Close
// writes due snapshots and removes the remains of deleted sessions. Views stay usable, except for what they read from
// the log on demand: [fold.View.Skipped] of a view that came from a snapshot, and the events that a revert restores.
func (s *Store) Close() error {
	s.close()
	s.snapshots.close()
	return fromBackend(Key{}, s.backend.Close())
}

// Info describes a session in a listing.
type Info struct {
	Key      Key       `json:"key"`
	Creation string    `json:"creation"`         // an id that changes when the session is deleted and created again
	Created  time.Time `json:"created,omitzero"` // when the session was created
	Seq      uint64    `json:"seq"`              // of the last record; 0 if there is none

	// Each commit updates these fields, so a listing reads no logs.
	Visible       int       `json:"visible"`            // events of the visible log
	VisibleTokens int       `json:"visibleTokens"`      // estimated tokens of the visible events in a model's prompt
	Tokens        int       `json:"tokens"`             // estimated tokens of all events ever logged
	Active        time.Time `json:"active,omitzero"`    // the newest time of an event or a patch, except erasures; zero if there is none
	Compacted     time.Time `json:"compacted,omitzero"` // of the newest compaction; zero if there is none
}

// infoOf decodes a session's head.
func infoOf(key Key, head backend.Head) Info {
	c := write.CountsOf(head)
	return Info{Key: key, Creation: head.Creation, Created: c.Created, Seq: head.Last,
		Visible: c.Visible, VisibleTokens: c.VisibleTokens, Tokens: c.Tokens, Active: c.Active, Compacted: c.Compacted}
}

// ListOptions say which sessions to list. The zero value means all.
type ListOptions struct {
	App  string // only this app's; "" means all
	User string // only this user's; "" means all

	// After is the key after which the listing begins. To get the next page, pass the key of this page's last session.
	After Key
}

const listPage = 256

// List yields the sessions in the order of their keys. Sessions that are created or
// deleted meanwhile may or may not be among them.
//
// A session that is damaged is yielded with an error that matches [ErrCorrupt], and its key as far as that is known;
// List goes on with the next session. Any other error ends the listing.
func (s *Store) List(ctx context.Context, opts ListOptions) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		prefix := ""
		if opts.App != "" {
			prefix = prefixOf(opts.App)
			if opts.User != "" {
				prefix = prefixOf(opts.App, opts.User)
			}
		}
		after := write.StagedEnd
		if opts.After != (Key{}) {
			after = opts.After.name()
		}
		page := func(after string) ([]backend.Listed, error) { return s.backend.List(ctx, prefix, after, listPage) }
		for l, err := range listAll(after, page) {
			var info Info
			if err == nil {
				info, err = listedInfo(l)
			}
			if opts.User != "" && info.Key.User != opts.User && info.Key != (Key{}) {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// listAll yields the sessions of a listing that is read page by page, or its error.
func listAll(after string, page func(after string) ([]backend.Listed, error)) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		for {
			found, err := page(after)
			if err != nil {
				yield(backend.Listed{}, fromBackend(Key{}, err))
				return
			}
			for _, l := range found {
				after = max(after, l.Session)
				if !yield(l, nil) {
					return
				}
			}
			if len(found) < listPage {
				return
			}
		}
	}
}

// Info returns the session's entry in a listing. It fails with [ErrNotFound] if there is no such session, and with a
// *[CorruptError] if it is damaged.
func (s *Store) Info(ctx context.Context, key Key) (Info, error) {
	head, err := s.head(ctx, key)
	if err != nil {
		return Info{}, err
	}
	return infoOf(key, head), nil
}

// listedInfo decodes a listed session. With an error it still returns the key, if known.
func listedInfo(l backend.Listed) (Info, error) {
	key, err := keyOf(l.Session)
	if err != nil {
		return Info{}, err
	}
	switch {
	case l.Err != nil:
		return Info{Key: key}, fromBackend(key, l.Err)
	}
	return infoOf(key, l.Head), nil
}

// Delete removes a session with its whole log. The records of a large session are removed in several commits, with
// other writes between them; after the first commit no reader sees the session. If an erase of the session is not
// finished, Delete finishes it first, in forks too. The shared scopes stay as they are. It fails with [ErrNotFound] if
// there is no such session. After [ErrOutcomeUnknown] it can be called again.
func (s *Store) Delete(ctx context.Context, key Key) error {
	return s.delete(ctx, key, nil)
}

// delete deletes a session. If seen is not nil, it is the head on which the caller based the decision: the error
// matches [backend.ErrMoved] if the session was written to since.
func (s *Store) delete(ctx context.Context, key Key, seen *backend.Head) error {
	for {
		head := seen
		if head == nil {
			now, err := s.head(ctx, key)
			// Only the session's receipts say what its calls still have to do in forks. A damaged session cannot tell.
			if err == nil && write.CountsOf(now).Calls > 0 {
				if err = s.finishErasures(ctx, key, true); err == nil || errors.Is(err, ErrCorrupt) {
					now, err = s.head(ctx, key)
				}
			}
			if err != nil {
				return err
			}
			now.Token = 0 // only an erasure that begins meanwhile counts
			head = &now
		}
		err := s.deleteSeen(ctx, key, head)
		switch {
		case !errors.Is(err, backend.ErrMoved):
			return fromBackend(key, err)
		case seen != nil:
			return fromBackend(key, fmt.Errorf("it was written to meanwhile: %w", err))
		}
	}
}

// deleteSeen deletes a session, unless it has moved on since the head seen. Errors are the backend's.
func (s *Store) deleteSeen(ctx context.Context, key Key, seen *backend.Head) error {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	if err := h.Lock(ctx); err != nil {
		return err
	}
	defer h.Unlock()
	h.Drop()
	defer s.changes.wake(key)
	return s.backend.Delete(ctx, key.name(), seen.Creation, seen)
}
