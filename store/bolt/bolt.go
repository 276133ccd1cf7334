// Package bolt implements the storage port on bbolt, an embedded B+ tree in one file. No other package of the store
// handles pages or buckets.
//
// One process holds a file for writing, or several hold it for reading. Within a process, any number of
// goroutines read while one writes. Transactions end before a method returns.
package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// Options of [Open]. The zero value means the defaults.
type Options struct {
	// LockTimeout is how long Open waits for the file's lock. 0 means one second.
	LockTimeout time.Duration

	// NoSync skips the syncs that make commits durable.
	NoSync bool

	// ReadOnly opens an existing file for reading. The file is not changed, and calls that
	// write fail with [backend.ErrReadOnly]. Several processes can read a file at the same
	// time, unless one has it open for writing.
	ReadOnly bool

	// Logger gets warnings for the operator. nil means [slog.Default].
	Logger *slog.Logger

	// Tests make these fail.
	rewriteMeta func(durableFile, *metaPage) error
	syncDir     func(dir string) error
}

func (o Options) withDefaults() Options {
	o.LockTimeout = cmp.Or(max(o.LockTimeout, 0), time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.rewriteMeta == nil {
		o.rewriteMeta = rewriteMeta
	}
	if o.syncDir == nil {
		o.syncDir = syncdir.Sync
	}
	return o
}

// FileVersion is the version of the file's layout. Docs: docs/FORMAT.md.
const FileVersion = 1

// Buckets. Keys of records and snapshots begin with the session's number: eight bytes, big endian, never reused. Each
// name is a key in two buckets. Each row has a checksum over its key and value (see rows.go), except the two rows of
// bucketMeta.
var (
	bucketMeta        = []byte("patchlog")    // "version" → FileVersion, "numbers" → the last number assigned
	bucketSessions    = []byte("sessions")    // session name → entry: see session
	bucketHeads       = []byte("heads")       // session name → head: see head
	bucketRecords     = []byte("records")     // number ‖ seq → record and hashes of its ids; number ‖ 0 → label: see session
	bucketIDs         = []byte("ids")         // number ‖ first seq of a run ‖ hash → ids of the run: see idruns.go
	bucketSnapshots   = []byte("snapshots")   // number → snapshot
	bucketShared      = []byte("shared")      // name → value
	bucketSharedNames = []byte("sharednames") // name → nothing
	bucketScopes      = []byte("scopes")      // scope of shared values → version
	bucketUnlinked    = []byte("unlinked")    // number of a deleted session whose rows are not all removed → nothing
	bucketFamilies    = []byte("families")    // see family.go
	keyVersion        = []byte("version")
	keyNumbers        = []byte("numbers")

	buckets = [][]byte{bucketMeta, bucketSessions, bucketHeads, bucketRecords, bucketIDs, bucketSnapshots, bucketShared, bucketSharedNames, bucketScopes, bucketUnlinked, bucketFamilies}
)

// Keys of records ascend within a session, so pages are filled further before a split.
const fillPercent = 0.9

// Backend keeps sessions in a bbolt file.
type Backend struct {
	path           string
	opts           Options
	queue          groupcommit.Queue[*pending] // batches that wait for the writer lock
	writer         chan struct{}               // the writer lock: holds a token while it is held
	ids            idCache                     // ids of records, by session
	copying        chan struct{}               // holds a token while the file is copied
	removalsPaused atomic.Bool                 // during a copy, rows of sessions are neither changed nor removed

	mu     sync.RWMutex // held for reading while handle is used
	handle *handle      // closed if the file could not be opened again after a failed commit
	broken error        // if not nil, the error of a failed commit: handle must not be used
	closed bool

	commit func(*bbolt.Tx) error // tests make it fail
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Checker = (*Backend)(nil)
	_ backend.Copier  = (*Backend)(nil)
	_ backend.Vacuum  = (*Backend)(nil)
)

// Open opens the file at path. It creates a missing file, with mode 0600, unless opts.ReadOnly is set. Unless ReadOnly
// or NoSync is set, the file's content is durable when Open returns. Open fails with [backend.ErrLocked] if the file
// stays locked for opts.LockTimeout, with [backend.ErrNotDatabase] if the file has another format, and with
// [backend.ErrDamaged] if the file is damaged or empty.
func Open(path string, opts Options) (*Backend, error) {
	opts = opts.withDefaults()
	h, err := openHandle(path, opts, nil)
	if errors.Is(err, fs.ErrNotExist) && !opts.ReadOnly {
		if err = create(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		h, err = openHandle(path, opts, nil)
	}
	if err != nil {
		return nil, err
	}
	return &Backend{path: path, opts: opts, handle: h, writer: make(chan struct{}, 1), copying: make(chan struct{}, 1), commit: (*bbolt.Tx).Commit}, nil
}

// use calls f with the open file. After a failed commit it reopens the file first, since the failed handle may show
// pages that are not on disk.
func (b *Backend) use(ctx context.Context, f func(h *handle) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.RLock()
	for b.broken != nil && !b.closed {
		b.mu.RUnlock()
		if err := b.reopen(); err != nil {
			return err
		}
		b.mu.RLock()
	}
	defer b.mu.RUnlock()
	if b.closed {
		return backend.ErrClosed
	}
	return f(b.handle)
}

// reopen opens the file again after a failed commit. It creates no file. It refuses another file under the same name,
// and a file whose last transaction is neither the failed one nor the one before it. Opening makes the file's current
// transaction durable, which settles whether the failed commit took place.
func (b *Backend) reopen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.broken == nil {
		return nil
	}
	if err := b.handle.close(); err != nil {
		return fmt.Errorf("close %s after a failed commit (%w): %w", b.path, b.broken, err)
	}
	h, err := openHandle(b.path, b.opts, b.handle)
	if err != nil {
		return fmt.Errorf("open again after a failed commit (%w): %w", b.broken, err)
	}
	b.handle, b.broken = h, nil
	return nil
}

func (b *Backend) view(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	return b.use(ctx, func(h *handle) error { return h.view(f) })
}

// acquire acquires a lock: a channel that holds a token while the lock is held. Writers wait for this lock, not for
// bbolt's own, so that after a failed commit no waiting writer uses the failed handle.
func acquire(ctx context.Context, lock chan struct{}) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// update calls f in a write transaction and commits it.
func (b *Backend) update(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	unlock, err := acquire(ctx, b.writer)
	if err != nil {
		return err
	}
	defer unlock()
	return b.write(f)
}

// write is update for a caller that holds the writer lock. If f fails, nothing is written. If the commit fails, its
// outcome is unknown.
func (b *Backend) write(f func(tx *bbolt.Tx) error) error {
	if b.opts.ReadOnly {
		return backend.ErrReadOnly
	}
	committing := false
	err := b.use(context.Background(), func(h *handle) (err error) {
		committing, err = h.write(f, b.commit)
		return err
	})
	if err == nil || !committing {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.handle.abandoned() { // an abandoned handle is not reopened
		b.broken = err
	}
	return &backend.UnknownError{Cause: err}
}

// Fence implements [backend.Backend]. No other process writes. So once the file is reopened after a failed commit, no
// commit is in flight, and the file's content is the outcome.
func (b *Backend) Fence(ctx context.Context, name, creation string, seen, _ backend.Token) (took bool, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if errors.Is(err, backend.ErrNotFound) {
			took = seen == 0
			return nil
		}
		took = err == nil && seen != 0 && s.head.Token == seen
		return err
	})
	return took, err
}

// Close implements [backend.Backend]. It removes the rows of deleted sessions.
func (b *Backend) Close() error {
	b.sweep(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return backend.ErrClosed
	}
	b.closed = true
	return b.handle.close()
}
