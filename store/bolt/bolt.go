// Package bolt is the storage port on bbolt, an embedded B+ tree in one file. It is
// the only code that knows a page, a bucket or a sync.
//
// A file is held by one open at a time; within it, any number of goroutines read
// while one writes. Transactions end before a method returns.
package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	bbolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/line"
)

// Options of [Open]. The zero value means the defaults.
type Options struct {
	// LockTimeout is how long Open waits for another holder of the file. 0 means one
	// second.
	LockTimeout time.Duration

	// NoSync leaves out the syncs that make commits durable. For tests.
	NoSync bool
}

const defaultLockTimeout = time.Second

// FileVersion is the version of the file's layout. A file of version 1 is read as it is,
// and becomes one of this version with the first write. Docs: docs/FORMAT.md.
const FileVersion = 2

const oldVersion = 1

// Buckets. Inside records and ids a session goes by a number of eight bytes, big
// endian, that is never used again. Whatever has a name has it in two buckets.
var (
	bucketMeta        = []byte("patchlog")    // "version" → FileVersion, "numbers" → the last number given out
	bucketSessions    = []byte("sessions")    // session name → entry: see session
	bucketHeads       = []byte("heads")       // session name → head: see head
	bucketRecords     = []byte("records")     // number ‖ seq → record
	bucketIDs         = []byte("ids")         // number ‖ hash of id → seq
	bucketSnapshots   = []byte("snapshots")   // number → snapshot
	bucketShared      = []byte("shared")      // name → checksum ‖ value
	bucketSharedNames = []byte("sharednames") // name → checksum
	keyVersion        = []byte("version")
	keyNumbers        = []byte("numbers")

	oldBuckets = [][]byte{bucketSessions, bucketRecords, bucketIDs, bucketSnapshots, bucketShared}
	newBuckets = [][]byte{bucketHeads, bucketSharedNames}
)

// Keys of records ascend within a session: full pages are better than half-full ones.
const fillPercent = 0.9

// On 64-bit systems the map is virtual: a large one costs nothing, and a small one
// makes writer and readers wait for each other when the file outgrows it.
const initialMmapSize = 1 << 30

// Backend keeps sessions in a bbolt file.
type Backend struct {
	path   string
	opts   Options
	line   line.Line[*pending] // batches that wait for the writer's place
	writer chan struct{}       // holds a token while someone writes
	counts counts              // of the rows of ids

	written counts // of sessions: the pages that they are written to are known to be whole

	mu     sync.RWMutex // held for reading while db is used
	db     *bbolt.DB
	broken error // the failed commit after which db must not be used
	closed bool

	commit func(*bbolt.Tx) error // a test may make it fail
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Checker = (*Backend)(nil)
)

// Open opens the file at path, and creates it if it is not there. It fails with
// [backend.ErrLocked] if another holder does not let go of it in time, and with
// [backend.ErrDamaged] if it is not such a file.
func Open(path string, opts Options) (*Backend, error) {
	b := &Backend{path: path, opts: opts, writer: make(chan struct{}, 1), commit: (*bbolt.Tx).Commit}
	_, statErr := os.Stat(path)
	if err := b.open(); err != nil {
		return nil, err
	}
	if errors.Is(statErr, os.ErrNotExist) {
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, b.db.Close())
		}
	}
	return b, nil
}

// open opens the file.
func (b *Backend) open() (err error) {
	var file *os.File
	defer b.recoverDamage(&err, func() { release(file) })()
	timeout := b.opts.LockTimeout
	if timeout <= 0 {
		timeout = defaultLockTimeout
	}
	db, err := bbolt.Open(b.path, 0o600, &bbolt.Options{
		Timeout:         timeout,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMmapSize,
		NoSync:          b.opts.NoSync,
		OpenFile: func(name string, flag int, perm os.FileMode) (f *os.File, err error) {
			file, err = os.OpenFile(name, flag, perm)
			return file, err
		},
	})
	var system syscall.Errno
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s: waited %v; is another process using it?", backend.ErrLocked, b.path, timeout)
	case errors.As(err, &system):
		return fmt.Errorf("open %s: %w", b.path, err)
	case err != nil: // what bbolt itself finds wrong
		return fmt.Errorf("%w: %s: %w", backend.ErrDamaged, b.path, err)
	}
	// Most opens find all in place; they write nothing.
	err = db.View(func(tx *bbolt.Tx) error { return check(tx, file) })
	if errors.Is(err, errNew) {
		err = db.Update(initialise)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", b.path, err), db.Close())
	}
	b.db = db
	return nil
}

// recoverDamage returns a function to be deferred that turns a panic into an error, and
// calls cleanUp then. bbolt panics on some damage, and where pages are missing the
// memory map faults.
func (b *Backend) recoverDamage(err *error, cleanUp func()) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		p := recover()
		if p == nil {
			return
		}
		if fault, ok := p.(interface{ Addr() uintptr }); ok {
			p = fmt.Sprintf("no page at address %#x", fault.Addr())
		}
		*err = fmt.Errorf("%w: %s: %v", backend.ErrDamaged, b.path, p)
		cleanUp()
	}
}

var errNew = errors.New("new file")

// check reports whether the file is whole, one of ours, and of a version that we know.
func check(tx *bbolt.Tx, file *os.File) error {
	if info, err := file.Stat(); err != nil {
		return err
	} else if info.Size() < tx.Size() {
		return fmt.Errorf("%w: the file has %d bytes of %d; its end is missing", backend.ErrDamaged, info.Size(), tx.Size())
	}
	if err := pathsOf(tx, file).smallBuckets(tx.ID()); err != nil {
		return err
	}
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return fmt.Errorf("%w: a bbolt file of another program", backend.ErrDamaged)
		}
		return errNew
	}
	buckets := oldBuckets
	switch v := meta.Get(keyVersion); {
	case bytes.Equal(v, number(FileVersion)):
		buckets = slices.Concat(oldBuckets, newBuckets)
	case !bytes.Equal(v, number(oldVersion)):
		return fmt.Errorf("%w: file version %x; this program knows versions %d and %d, a newer one may know it", backend.ErrDamaged, v, oldVersion, FileVersion)
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: bucket %q is missing", backend.ErrDamaged, name)
		}
	}
	return nil
}

func initialise(tx *bbolt.Tx) error {
	for _, name := range slices.Concat([][]byte{bucketMeta}, oldBuckets, newBuckets) {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return setVersion(tx, 0)
}

// syncDir makes a file's name in its directory durable, which bbolt leaves to others.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// use calls f with the open database. After a failed commit it opens the file anew
// first: the handle that failed may show pages that are not on disk.
func (b *Backend) use(ctx context.Context, f func(db *bbolt.DB) error) (err error) {
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
	defer b.recoverDamage(&err, func() {})()
	return f(b.db)
}

func (b *Backend) reopen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.broken == nil {
		return nil
	}
	if b.db != nil {
		if err := b.db.Close(); err != nil {
			return fmt.Errorf("close %s after a failed commit (%w): %w", b.path, b.broken, err)
		}
		b.db = nil
	}
	if err := b.open(); err != nil {
		return fmt.Errorf("open again after a failed commit (%w): %w", b.broken, err)
	}
	b.broken = nil
	return nil
}

func (b *Backend) view(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	return b.use(ctx, func(db *bbolt.DB) error { return db.View(f) })
}

// lockWriter lets one writer at a time come to the database, so that after a failed
// commit none that has been waiting goes on with the handle that failed.
func (b *Backend) lockWriter(ctx context.Context) (unlock func(), err error) {
	select {
	case b.writer <- struct{}{}:
		return func() { <-b.writer }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// update commits what f does, in a transaction of its own.
func (b *Backend) update(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	unlock, err := b.lockWriter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return b.write(f)
}

// write commits what f does, for a caller that holds the writer's place. An error of f
// means that nothing was done; an error of the commit itself means that the outcome is
// unknown.
func (b *Backend) write(f func(tx *bbolt.Tx) error) error {
	committing := false
	err := b.use(context.Background(), func(db *bbolt.DB) error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if err := f(tx); err != nil {
			return err
		}
		committing = true
		return b.commit(tx)
	})
	if err == nil || !committing {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
	return &backend.UnknownError{Cause: err}
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return backend.ErrClosed
	}
	b.closed = true
	if b.db == nil {
		return nil
	}
	return b.db.Close()
}
