// Package bolt implements [backend.Backend] on bbolt, an embedded B+ tree in one file. No other package of the store
// handles pages or buckets.
//
// Either one process has the file open for writing, or several processes have it open for reading. Within a process,
// any number of goroutines can read while one writes. A method ends its transactions before it returns.
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
	// LockTimeout limits how long Open waits for the file's lock. 0 means one second.
	LockTimeout time.Duration

	// NoSync omits the syncs that make commits durable.
	NoSync bool

	// ReadOnly opens an existing file for reading. The file is not changed, and calls that write fail with
	// [backend.ErrReadOnly]. Several processes can read a file at the same time, unless one process has the file open
	// for writing.
	ReadOnly bool

	// Logger gets warnings for the operator. nil means [slog.Default].
	Logger *slog.Logger

	// Tests replace these functions to make them fail.
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

// FileVersion is the version of the file layout, which docs/FORMAT.md describes.
const FileVersion = 1

// Buckets. Keys of records, ids and snapshots begin with the number of the session: eight bytes, big endian, never
// reused. Each name is a key in two buckets, so that the loss of one is detected. Each row has a checksum over its
// key and value (see rows.go), except the two rows of bucketMeta.
var (
	bucketMeta        = []byte("patchlog")    // "version" → FileVersion; "numbers" → last assigned session number
	bucketSessions    = []byte("sessions")    // session name → entry, see session
	bucketHeads       = []byte("heads")       // session name → head, see head
	bucketRecords     = []byte("records")     // number ‖ seq → record and hashes of its ids; number ‖ 0 → label, see session
	bucketIDs         = []byte("ids")         // number ‖ first seq of a run ‖ hash → ids of the run, see idruns.go
	bucketSnapshots   = []byte("snapshots")   // number → snapshot
	bucketShared      = []byte("shared")      // name → value
	bucketSharedNames = []byte("sharednames") // name → empty
	bucketScopes      = []byte("scopes")      // scope of shared values → version
	bucketUnlinked    = []byte("unlinked")    // number of a deleted session that still has rows → empty
	bucketFamilies    = []byte("families")    // see family.go
	keyVersion        = []byte("version")
	keyNumbers        = []byte("numbers")

	buckets = [][]byte{bucketMeta, bucketSessions, bucketHeads, bucketRecords, bucketIDs, bucketSnapshots, bucketShared, bucketSharedNames, bucketScopes, bucketUnlinked, bucketFamilies}
)

// Keys of records ascend within a session, so pages are filled more than bbolt's default before they are split.
const fillPercent = 0.9

// Backend keeps sessions in a bbolt file.
type Backend struct {
	path           string
	opts           Options
	queue          groupcommit.Queue[*pending] // batches that wait for the writer lock
	writerLock     chan struct{}               // has one element while the writer lock is locked
	ids            idCache                     // cache of record ids
	copyLock       chan struct{}               // has one element while a Check, Copy, Vacuum or Replace runs
	removalsPaused atomic.Bool                 // set during a Check, Copy or Vacuum, which must find the rows of all sessions unchanged

	mu        sync.RWMutex // locked for reading while handle is used
	handle    *handle      // a closed handle if the file could not be reopened after a failed commit
	handleErr error        // if not nil, the reason to reopen the file: a failed commit, or a rename that may not be durable
	closed    bool

	commit func(*bbolt.Tx) error // commits a transaction; tests replace it to make it fail
}

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Checker  = (*Backend)(nil)
	_ backend.Copier   = (*Backend)(nil)
	_ backend.Vacuumer = (*Backend)(nil)
)

// Open opens the file at path. If the file does not exist, Open creates it with mode 0600, unless opts.ReadOnly is
// set. When Open returns, the content of the file is durable, unless ReadOnly or NoSync is set. Open fails
//
//   - with [backend.ErrLocked] if another process keeps the file locked for opts.LockTimeout,
//   - with [backend.ErrNotDatabase] if the file has another format, and
//   - with [backend.ErrDamaged] if the file is damaged or empty.
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
	return &Backend{path: path, opts: opts, handle: h, writerLock: make(chan struct{}, 1), copyLock: make(chan struct{}, 1), commit: (*bbolt.Tx).Commit}, nil
}

// withHandle calls f with the open file. After a failed commit, it first reopens the file, because the old handle may
// show pages that are not on disk.
func (b *Backend) withHandle(ctx context.Context, f func(h *handle) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.RLock()
	for b.handleErr != nil && !b.closed {
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

// reopen reopens the file after a failed commit. It does not create a file. It fails if path now names another file,
// or if the file's last transaction is neither the failed one nor the one before it. Opening makes the last
// transaction durable, so from then on the outcome of the failed commit is known.
func (b *Backend) reopen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.handleErr == nil {
		return nil
	}
	if err := b.handle.close(); err != nil {
		return fmt.Errorf("close %s after a failed commit (%w): %w", b.path, b.handleErr, err)
	}
	h, err := openHandle(b.path, b.opts, b.handle)
	if err != nil {
		return fmt.Errorf("reopen the file after a failed commit (%w): %w", b.handleErr, err)
	}
	b.handle, b.handleErr = h, nil
	return nil
}

func (b *Backend) view(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	return b.withHandle(ctx, func(h *handle) error { return h.view(f) })
}

// acquire locks a channel that has one element while it is locked. Writers wait for such a lock instead of bbolt's
// own lock. A waiting writer therefore does not use the old handle after a failed commit.
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
	unlock, err := acquire(ctx, b.writerLock)
	if err != nil {
		return err
	}
	defer unlock()
	return b.write(f)
}

// write calls f in a write transaction and commits it. The caller has the writer lock. If f fails, nothing is
// written. If the commit fails, its outcome is unknown.
func (b *Backend) write(f func(tx *bbolt.Tx) error) error {
	if b.opts.ReadOnly {
		return backend.ErrReadOnly
	}
	commitFailed := false
	err := b.withHandle(context.Background(), func(h *handle) (err error) {
		commitFailed, err = h.write(f, b.commit)
		return err
	})
	if err == nil || !commitFailed {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.handle.isAbandoned() { // an abandoned handle cannot be reopened
		b.handleErr = err
	}
	return &backend.UnknownError{Cause: err}
}

// Fence implements [backend.Backend]. No other process can write. Once the file is reopened after a failed commit,
// no commit is in flight, so the content of the file shows the outcome.
func (b *Backend) Fence(ctx context.Context, name, creation string, seen, _ backend.Token) (tookEffect bool, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if errors.Is(err, backend.ErrNotFound) {
			tookEffect = seen == 0
			return nil
		}
		tookEffect = err == nil && seen != 0 && s.head.Token == seen
		return err
	})
	return tookEffect, err
}

// Close implements [backend.Backend]. It first removes the rows of deleted sessions.
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
