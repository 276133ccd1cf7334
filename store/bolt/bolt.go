// Package bolt is the storage port on bbolt, an embedded B+ tree in one file. It is
// the only code that knows a page, a bucket or a sync.
//
// A file is held by one open at a time, or by several that only read; within it, any
// number of goroutines read while one writes. Transactions end before a method returns.
package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// Options of [Open]. The zero value means the defaults.
type Options struct {
	// LockTimeout is how long Open waits for another holder of the file. 0 means one
	// second.
	LockTimeout time.Duration

	// NoSync leaves out the syncs that make commits durable.
	NoSync bool

	// ReadOnly opens a file that is there for reading: not a byte of it is changed, and
	// what would write fails with [backend.ErrReadOnly]. Several may read a file so at a
	// time, while nobody has it open for writing.
	ReadOnly bool

	// Logger gets what an operator should know. nil means [slog.Default].
	Logger *slog.Logger

	rewriteMeta func(durableFile, *metaPage) error // a test may make it fail
}

func (o Options) withDefaults() Options {
	if o.LockTimeout <= 0 {
		o.LockTimeout = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.rewriteMeta == nil {
		o.rewriteMeta = rewriteMeta
	}
	return o
}

// FileVersion is the version of the file's layout. Docs: docs/FORMAT.md.
const FileVersion = 1

// Buckets. In records and snapshots a session goes by a number of eight bytes, big endian, that is
// never used again. Whatever has a name has it in two buckets. Each row has a checksum over its key and
// value (see rows.go), but for the two of bucketMeta.
var (
	bucketMeta        = []byte("patchlog")    // "version" → FileVersion, "numbers" → the last number given out
	bucketSessions    = []byte("sessions")    // session name → entry: see session
	bucketHeads       = []byte("heads")       // session name → head: see head
	bucketRecords     = []byte("records")     // number ‖ seq → record and hashes of the ids that it takes; number ‖ 0 → label: see session
	bucketSnapshots   = []byte("snapshots")   // number → snapshot
	bucketShared      = []byte("shared")      // name → value
	bucketSharedNames = []byte("sharednames") // name → nothing
	bucketUnlinked    = []byte("unlinked")    // number → nothing: see unlink
	keyVersion        = []byte("version")
	keyNumbers        = []byte("numbers")

	buckets = [][]byte{bucketMeta, bucketSessions, bucketHeads, bucketRecords, bucketSnapshots, bucketShared, bucketSharedNames, bucketUnlinked}
)

// Keys of records ascend within a session: full pages are better than half-full ones.
const fillPercent = 0.9

// Backend keeps sessions in a bbolt file.
type Backend struct {
	path            string
	opts            Options
	file            os.FileInfo                 // which file was opened
	queue           groupcommit.Queue[*pending] // batches that wait for the writer lock
	writer          chan struct{}               // the writer lock: holds a token while a writer has it
	ids             idCache                     // of records, by session
	copying         chan struct{}               // holds a token while the file is copied
	removalsPaused  atomic.Bool                 // for a copy: no row of a session is changed or removed
	removalsPending atomic.Bool                 // a removal was put off

	mu     sync.RWMutex // held for reading while handle is used
	handle *handle      // nil if the file was closed after a failed commit
	last   uint64       // its last transaction then
	broken error        // the failed commit after which handle must not be used
	closed bool

	commit func(*bbolt.Tx) error // a test may make it fail
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Checker = (*Backend)(nil)
	_ backend.Copier  = (*Backend)(nil)
	_ backend.Vacuum  = (*Backend)(nil)
)

// Open opens the file at path, and creates it if it is not there and not to be read only.
// What it then shows is durable. It fails with [backend.ErrLocked] if another holder does
// not let go of the file in time, and with [backend.ErrDamaged] if it is not such a file;
// an empty one is not. A new file is for its owner alone.
func Open(path string, opts Options) (*Backend, error) {
	opts = opts.withDefaults()
	h, err := openHandle(path, opts, nil)
	for try := 0; errors.Is(err, fs.ErrNotExist) && !opts.ReadOnly && try < maxCreations; try++ {
		if err = create(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		h, err = openHandle(path, opts, nil)
	}
	if err != nil {
		return nil, err
	}
	b := &Backend{path: path, opts: opts, handle: h, writer: make(chan struct{}, 1), copying: make(chan struct{}, 1), commit: (*bbolt.Tx).Commit}
	if b.file, err = h.file.Stat(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return b, nil
}

// A file that was there, is gone, and is there again, so often, is not waited for.
const maxCreations = 3

// use calls f with the open file. After a failed commit it opens the file anew first: the
// handle that failed may show pages that are not on disk.
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

// reopen opens the file again, the one that was open: none is created, and another that
// has taken its place, or another one's content in it, is refused. Opening makes durable
// what the failed commit left, and only then can it be said what that is.
func (b *Backend) reopen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.broken == nil {
		return nil
	}
	if b.handle != nil {
		if err := b.handle.close(); err != nil {
			return fmt.Errorf("close %s after a failed commit (%w): %w", b.path, b.broken, err)
		}
		b.last = b.handle.last.Load()
		b.handle = nil
	}
	h, err := openHandle(b.path, b.opts, &opened{b.file, b.last})
	if err != nil {
		return fmt.Errorf("open again after a failed commit (%w): %w", b.broken, err)
	}
	b.handle, b.broken = h, nil
	return nil
}

func (b *Backend) view(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	return b.use(ctx, func(h *handle) error { return h.view(f) })
}

// lockWriter lets one writer at a time come to the database, so that after a failed
// commit none that has been waiting goes on with the handle that failed.
func (b *Backend) lockWriter(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case b.writer <- struct{}{}:
		return func() { <-b.writer }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// update commits what f does, in a transaction of its own.
func (b *Backend) update(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	unlock, err := b.lockWriter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return b.write(f)
}

// write commits what f does. The caller holds the writer lock. An error of f means that nothing
// was done; an error of the commit itself means that the outcome is unknown.
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
	if !b.handle.abandoned() { // that is for good
		b.broken = err
	}
	return &backend.UnknownError{Cause: err}
}

// Fence implements [backend.Backend]. No other program writes: once the failed commit is over, the file says
// what became of it, and nothing of it is under way.
func (b *Backend) Fence(ctx context.Context, name, creation string, seen, _ backend.Token) (took bool, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := find(tx, name)
		switch there := err == nil && s.creation == creation; {
		case err != nil && !errors.Is(err, backend.ErrNotFound):
			return err
		case seen == 0:
			took = !there
		default:
			took = there && s.head != nil && s.head.token == seen
		}
		return nil
	})
	return took, err
}

// Close implements [backend.Backend]. It removes what deleted sessions have left.
func (b *Backend) Close() error {
	b.sweep(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return backend.ErrClosed
	}
	b.closed = true
	if b.handle == nil {
		return nil
	}
	return b.handle.close()
}
