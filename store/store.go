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

// Options configures a store. The zero value selects the defaults.
type Options struct {
	// MaxRecordBytes is the maximum size of an encoded record before compression. 0 means 16 MiB. The upper limit
	// is [patch.MaxRecordBytes].
	MaxRecordBytes int

	// CacheBytes is the approximate amount of memory for cached views. 0 means 256 MiB. A negative value disables
	// the cache. Above the limit, the store evicts the least recently used views. One session counts for at most
	// half of CacheBytes, so two sessions of any size fit. Values of the shared scopes may take another eighth of
	// CacheBytes.
	CacheBytes int64

	// Snapshots decides when the store writes a snapshot of a session.
	Snapshots snapshot.Policy

	// NoSync acknowledges a write before it is on disk. Only [Open] uses NoSync. An acknowledged write then
	// survives a crash of the process, but not always a crash of the system or a power failure. After such a
	// failure, the last writes may be lost. The file may also be damaged, because pages reach the disk in any
	// order. Use NoSync only for data that can be generated again. Without NoSync, acknowledged writes survive all
	// of these failures.
	NoSync bool

	// LockTimeout is how long [Open] waits while another process or another Store has the file open. 0 means one
	// second.
	LockTimeout time.Duration

	// ReadOnly makes [Open] open the file for reading only. The file must exist, and the store does not change it.
	// Calls that would write fail with [ErrReadOnly]. Several read-only stores may have the same file open, if no
	// store has it open for writing.
	ReadOnly bool

	// Logger receives warnings for operators. nil means [slog.Default].
	Logger *slog.Logger

	// Now supplies the time of records that have none, and NewID supplies their ids. nil means [time.Now] and
	// random UUIDs. Both functions must be safe for concurrent use.
	Now   func() time.Time
	NewID func() string
}

// Default values of [Options].
const (
	DefaultMaxRecordBytes = 16 << 20
	defaultCacheBytes     = 256 << 20
)

// Validate checks the options. The error matches [ErrInvalid] and names the invalid option.
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

// Store is a collection of sessions. It is safe for concurrent use.
type Store struct {
	backend backend.Backend
	owner   string // owner of the leases of this store
	opts    Options
	writing write.Config
	cache   cache
	scopes  scopeCache
	changes notifier

	snapshots snapshotter

	closing context.Context // ends when the store is closed
	close   func()
}

// Open opens the bbolt file at path as a store. It creates a missing file, unless [Options.ReadOnly] is set.
//
// Either one Store may have the file open for writing, or several Stores may have it open for reading only. If
// another Store prevents the open, Open waits for up to [Options.LockTimeout] and then fails with [ErrLocked]. If
// the file is damaged or empty, Open fails with [ErrCorrupt]. If the file has another format, Open fails with
// [ErrNotDatabase]. In both cases the file does not change.
//
// Two pages of the file record its two newest commits, one on each page. If one page is damaged, Open uses the
// other page and logs a warning to Options.Logger, because the last commit may be missing.
//
// If the file is damaged or replaced while it is open, calls fail with [ErrCorrupt] until the file is closed and
// opened again.
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
	if err == nil && !opts.ReadOnly { // the file is locked, so no other program uses a staged session
		s.dropStaged(context.Background(), 0)
	}
	return s, err
}

// OpenMemory opens an empty store in memory. Close discards its contents. The error matches [ErrInvalid] if the
// options are invalid.
func OpenMemory(opts Options) (*Store, error) {
	return New(&memory.Backend{}, opts)
}

// New opens a store on a backend. Closing the store also closes the backend. The error matches [ErrInvalid] if b is
// nil or the options are invalid.
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

// Close closes the store. A running call either completes or fails with [ErrClosed]. Later calls fail with
// ErrClosed. Close writes the snapshots that are due and removes the records of deleted sessions.
//
// Views remain usable, because they never read from the store.
func (s *Store) Close() error {
	s.close()
	s.snapshots.close()
	return fromBackend(Key{}, s.backend.Close())
}

// Info describes a session in a listing.
type Info struct {
	Key      Key       `json:"key"`
	Creation string    `json:"creation"`         // id that changes when the session is deleted and created again
	Created  time.Time `json:"created,omitzero"` // time when the session was created
	Seq      uint64    `json:"seq"`              // seq of the last record; 0 if the log is empty

	// Each commit updates the following fields, so that a listing reads no logs.
	Visible       int       `json:"visible"`            // number of visible events
	VisibleTokens int       `json:"visibleTokens"`      // estimated tokens of the visible events in a model's prompt
	Tokens        int       `json:"tokens"`             // estimated tokens of all events ever logged
	Active        time.Time `json:"active,omitzero"`    // newest timestamp of an event or a patch, except erase receipts; zero if there is none
	Compacted     time.Time `json:"compacted,omitzero"` // time of the newest compaction; zero if there is none
}

func infoOf(key Key, head backend.Head) Info {
	c := write.CountsOf(head)
	return Info{Key: key, Creation: head.Creation, Created: c.Created, Seq: head.Last,
		Visible: c.Visible, VisibleTokens: c.VisibleTokens, Tokens: c.Tokens, Active: c.Active, Compacted: c.Compacted}
}

// ListOptions selects the sessions to list. The zero value selects all.
type ListOptions struct {
	App  string // app whose sessions are listed; "" means all apps
	User string // user whose sessions are listed; "" means all users

	// After is the key after which the listing starts. The zero Key starts at the first session. For the next
	// page, pass the key of the last session of the current page.
	After Key
}

const listPage = 256

// List yields the sessions in key order. It may omit or include a session that is created or deleted during the
// iteration.
//
// If a session is damaged, List yields an error that matches [ErrCorrupt], and continues with the next session. The
// Info then contains the session's key, or the zero Key if the key cannot be read. Any other error ends the
// iteration.
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

// listAll yields the sessions that page returns, page by page. An error of page ends the iteration.
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

// Info returns the session's entry in a listing. It fails with [ErrNotFound] if the session does not exist, and
// with [ErrCorrupt] if the session is damaged.
func (s *Store) Info(ctx context.Context, key Key) (Info, error) {
	head, err := s.head(ctx, key)
	if err != nil {
		return Info{}, err
	}
	return infoOf(key, head), nil
}

// listedInfo decodes a session of a listing. If it returns an error, it still returns the key, if the key can be
// read.
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

// Delete deletes a session and its log. The shared scopes do not change. If an erase of the session is unfinished,
// Delete first finishes it, in this session and in its forks.
//
// After the first commit no reader sees the session. The records of a large session are removed in further commits,
// between which other writes run. Delete fails with [ErrNotFound] if the session does not exist. After
// [ErrOutcomeUnknown], call Delete again.
func (s *Store) Delete(ctx context.Context, key Key) error {
	return s.delete(ctx, key, nil)
}

// delete deletes a session. The argument seen, if not nil, is the head on which the caller based its decision. If
// another write has changed the session since that head, the error matches [backend.ErrMoved].
func (s *Store) delete(ctx context.Context, key Key, seen *backend.Head) error {
	for {
		head := seen
		if head == nil {
			now, err := s.head(ctx, key)
			// Only the session's own receipts record the work that its erase calls still have to do in forks. In a
			// damaged session these receipts may be unreadable. Then the session is deleted without finishing the
			// calls.
			if err == nil && write.CountsOf(now).Calls > 0 {
				if err = s.finishErasures(ctx, key, true); err == nil || errors.Is(err, ErrCorrupt) {
					now, err = s.head(ctx, key)
				}
			}
			if err != nil {
				return err
			}
			now.Token = 0 // without a token, only an erase that starts after this head was read refuses the delete
			head = &now
		}
		err := s.deleteUnchanged(ctx, key, head)
		switch {
		case !errors.Is(err, backend.ErrMoved):
			return fromBackend(key, err)
		case seen != nil:
			return fromBackend(key, fmt.Errorf("it was written to during the call: %w", err))
		}
	}
}

// deleteUnchanged deletes a session, unless another write has changed it since the head seen. It returns the backend's
// errors.
func (s *Store) deleteUnchanged(ctx context.Context, key Key, seen *backend.Head) error {
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
