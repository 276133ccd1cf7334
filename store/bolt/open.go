package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	bbolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// On 64-bit systems the map is virtual: a large one costs nothing, and a small one
// makes writer and readers wait for each other when the file outgrows it.
const initialMmapSize = 1 << 30

// opened is what a file was when it was open before.
type opened struct {
	info os.FileInfo
	last uint64 // transaction; the one after may have been committed, or not
}

// errRenamed: another file has the name, since the lock of this one was waited for.
var errRenamed = errors.New("the file was replaced while its lock was waited for")

// openHandle opens the file, which must be there and, if was is not nil, be that one, with
// what it held. What it shows is durable then, unless opts say otherwise.
func openHandle(path string, opts Options, was *opened) (h *handle, err error) {
	h = &handle{path: path, gone: make(chan struct{})}
	metas, err := h.open(opts, was)
	for errors.Is(err, errRenamed) {
		metas, err = h.open(opts, was)
	}
	if err != nil {
		return nil, err
	}
	if err = h.view(checkBuckets); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	} else {
		err = h.makeDurable(opts, metas)
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// open has bbolt open the file. It is locked and checked first, and the same descriptor is handed over.
func (h *handle) open(opts Options, was *opened) (metas metaPages, err error) {
	defer func() {
		if p := (*panicError)(nil); errors.As(err, &p) && h.file != nil {
			release(h.file)
		}
	}()
	defer recoverDamage(h.path, &err)()
	var refused error
	h.db, err = bbolt.Open(h.path, 0, &bbolt.Options{
		Timeout:         opts.LockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMmapSize,
		NoSync:          opts.NoSync,
		ReadOnly:        opts.ReadOnly,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			file, err := os.OpenFile(name, flag&^os.O_CREATE, perm)
			if err != nil {
				return nil, err
			}
			if metas, refused = inspect(file, h.path, opts, was); refused != nil {
				_ = file.Close()
				return nil, refused
			}
			h.file = file
			return file, nil
		},
	})
	var system syscall.Errno
	var failed *fs.PathError
	switch {
	case refused != nil:
		return metas, refused
	case errors.Is(err, bolterrors.ErrTimeout):
		return metas, lockedError(h.path, opts)
	case errors.As(err, &failed):
		return metas, err
	case errors.As(err, &system):
		return metas, fmt.Errorf("open %s: %w", h.path, err)
	case err != nil: // what bbolt itself finds wrong
		return metas, fmt.Errorf("%w: %s: %w", backend.ErrDamaged, h.path, err)
	}
	return metas, nil
}

func lockedError(path string, opts Options) error {
	return fmt.Errorf("%w: %s: waited %v; is another process using it?", backend.ErrLocked, path, opts.LockTimeout)
}

// inspect locks the file, and reports whether bbolt may have it.
func inspect(file *os.File, path string, opts Options, was *opened) (metas metaPages, err error) {
	if err := acceptable(file, path, was); err != nil {
		return metas, err
	}
	if locked, err := lock(file, !opts.ReadOnly, opts.LockTimeout); err != nil {
		return metas, fmt.Errorf("lock %s: %w", path, err)
	} else if !locked {
		return metas, lockedError(path, opts)
	}
	if was == nil && !named(file, path) {
		return metas, errRenamed
	}
	if metas, err = checkOpen(file); err != nil {
		return metas, fmt.Errorf("%s: %w", path, err)
	}
	if was == nil {
		return metas, nil
	}
	if id := metas.current().txid(); id != was.last && id != was.last+1 { // nothing is written over it
		return metas, fmt.Errorf("%w: %s: it was changed from outside while it was open: its last transaction is %d, and was %d",
			backend.ErrDamaged, path, id, was.last)
	}
	return metas, nil
}

// acceptable reports whether bbolt may have the file: it would make an empty one new.
func acceptable(file *os.File, path string, was *opened) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir(): // which can be opened for reading
		return &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case was != nil && !os.SameFile(info, was.info):
		return fmt.Errorf("%w: %s: another file has taken the place of the one that was open", backend.ErrDamaged, path)
	case info.Mode().IsRegular() && info.Size() == 0:
		return fmt.Errorf("%w: %s: the file is empty; if nothing was ever stored in it, remove it and a new one will be made", backend.ErrDamaged, path)
	case was == nil && info.Mode().IsRegular():
		ours, err := hasPages(file, info.Size())
		if err == nil && !ours {
			err = fmt.Errorf("%w: %s: no page in it has the form of one", backend.ErrNotDatabase, path)
		}
		return err
	}
	return nil
}

// hasPages reports whether a file has a meta page of bbolt, or a page further on that has its
// own number: a database that has lost its meta pages is damaged, a file without either is
// something else.
func hasPages(file io.ReaderAt, size int64) (bool, error) {
	metas, err := readMetas(file)
	if err != nil || metas.current() != nil {
		return err == nil, err
	}
	const searched = 1 << 20 // bytes of the file; a database has four pages at least
	var header [pageHeaderBytes + 4]byte
	for pageSize := int64(1 << 10); pageSize <= 1<<16; pageSize <<= 1 {
		for at := int64(0); at+int64(len(header)) <= min(size, searched); at += pageSize {
			if _, err := file.ReadAt(header[:], at); noEnd(err) != nil {
				return false, err
			}
			id := uint64(at / pageSize)
			if id > 1 && binary.NativeEndian.Uint64(header[:]) == id || id < 2 && binary.NativeEndian.Uint32(header[pageHeaderBytes:]) == metaMagic {
				return true, nil
			}
		}
	}
	return false, nil
}

// named reports whether the file is the one that goes by path.
func named(file *os.File, path string) bool {
	there, err := os.Stat(path)
	own, ownErr := file.Stat()
	return err == nil && ownErr == nil && os.SameFile(there, own)
}

// makeDurable logs a damaged meta page, and makes the file's current transaction durable if the file is opened for writing.
func (h *handle) makeDurable(opts Options, metas metaPages) error {
	current := metas.current()
	h.opened, h.doubt = current.txid(), metas.doubt()
	h.last.Store(h.opened)
	if h.doubt != nil {
		opts.Logger.Warn("patchlog: a file is read in spite of damage", "file", h.path, "error", h.doubt)
	}
	if opts.ReadOnly || opts.NoSync {
		return nil
	}
	target, err := filepath.EvalSymlinks(h.path)
	if err == nil {
		err = syncdir.Sync(filepath.Dir(target))
	}
	if err == nil {
		err = opts.rewriteMeta(h.file, current)
	}
	if err != nil {
		return fmt.Errorf("%s: make durable what it holds: %w", h.path, err)
	}
	return nil
}

// create makes a new file at path, which must not be there. Whenever it is cut short, by
// an error or a crash, there is no such file or a whole one: it is built under another
// name beside it, synced, and given its own then. It fails with [fs.ErrExist] if someone
// else was first.
func create(path string) (err error) {
	dir := filepath.Dir(path)
	draft, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := os.Remove(draft.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	if err := errors.Join(build(draft.Name()), draft.Sync(), draft.Close()); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if err := publish(draft.Name(), path); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncdir.Sync(dir)
}

// build makes an empty store in an empty file.
func build(path string) (err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true})
	if err != nil {
		return err
	}
	return errors.Join(db.Update(func(tx *bbolt.Tx) error { return initialise(tx) }), db.Close())
}

func initialise(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return setVersion(tx, 0)
}

// publish gives a file its name, unless the name is taken.
func publish(draft, target string) error {
	err := os.Link(draft, target)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// Not every file system has hard links. A rename would replace, so it is looked first.
	if _, statErr := os.Lstat(target); !errors.Is(statErr, fs.ErrNotExist) {
		return errors.Join(err, statErr)
	}
	if renameErr := os.Rename(draft, target); renameErr != nil {
		return errors.Join(err, renameErr)
	}
	return nil
}
