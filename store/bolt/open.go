package bolt

import (
	"cmp"
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

// initialMmapSize is the initial size of the memory map. When the file outgrows the map, readers and the writer wait
// for each other. A large map avoids such waits and, on 64-bit systems, costs only address space.
const initialMmapSize = 1 << 30

// errReplaced means that another file was renamed over this file while Open waited for the lock.
var errReplaced = errors.New("the file was replaced while waiting for its lock")

// openHandle opens an existing file. If previous is not nil, it is the closed handle of a failed commit. The path
// must then name the same file. The last transaction of the file must be the last one that the closed handle
// committed, or the next one. The content is durable when openHandle returns, unless ReadOnly or NoSync is set.
func openHandle(path string, opts Options, previous *handle) (h *handle, err error) {
	h = &handle{path: path}
	metas, err := h.open(opts, previous)
	for errors.Is(err, errReplaced) {
		metas, err = h.open(opts, previous)
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

// open locks and checks the file and passes the same descriptor to bbolt.
func (h *handle) open(opts Options, previous *handle) (metas metaPages, err error) {
	defer func() {
		if p := (*panicError)(nil); errors.As(err, &p) && h.file != nil {
			release(h.file)
		}
	}()
	defer recoverDamage(h.path, &err)()
	var inspectErr error
	h.db, err = bbolt.Open(h.path, 0, &bbolt.Options{
		Timeout:         opts.LockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		PreLoadFreelist: true, // Space needs the free list
		InitialMmapSize: initialMmapSize,
		NoSync:          opts.NoSync,
		ReadOnly:        opts.ReadOnly,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			file, err := os.OpenFile(name, flag&^os.O_CREATE, perm)
			if err != nil {
				return nil, err
			}
			if h.info, inspectErr = file.Stat(); inspectErr == nil {
				metas, inspectErr = h.lockAndCheck(file, opts, previous)
			}
			if inspectErr != nil {
				_ = file.Close()
				return nil, inspectErr
			}
			h.file = file
			return file, nil
		},
	})
	var errno syscall.Errno
	var pathErr *fs.PathError
	switch {
	case inspectErr != nil:
		return metas, inspectErr
	case errors.Is(err, bolterrors.ErrTimeout):
		return metas, lockedError(h.path, opts)
	case errors.As(err, &pathErr):
		return metas, err
	case errors.As(err, &errno):
		return metas, fmt.Errorf("open %s: %w", h.path, err)
	case err != nil: // bbolt has detected damage
		return metas, fmt.Errorf("%w: %s: %w", backend.ErrDamaged, h.path, err)
	}
	return metas, nil
}

func lockedError(path string, opts Options) error {
	return fmt.Errorf("%w: %s is in use by %s (waited %v)", backend.ErrLocked, path, cmp.Or(lockHolder(path), "another process"), opts.LockTimeout)
}

// lockAndCheck locks the file. It returns an error if bbolt cannot open the file safely.
func (h *handle) lockAndCheck(file *os.File, opts Options, previous *handle) (metas metaPages, err error) {
	if err := h.checkBeforeLock(file, previous); err != nil {
		return metas, err
	}
	if locked, err := lock(file, !opts.ReadOnly, opts.LockTimeout); err != nil {
		return metas, fmt.Errorf("lock %s: %w", h.path, err)
	} else if !locked {
		return metas, lockedError(h.path, opts)
	}
	if current, err := os.Stat(h.path); previous == nil && (err != nil || !os.SameFile(current, h.info)) {
		return metas, errReplaced
	}
	if metas, err = checkOpen(file); err != nil {
		return metas, fmt.Errorf("%s: %w", h.path, err)
	}
	if previous == nil {
		return metas, nil
	}
	// A transaction of another writer must not be overwritten.
	if id, last := metas.current().Txid, previous.lastTxid.Load(); id != last && id != last+1 {
		return metas, fmt.Errorf("%w: %s: another program changed the file while it was open: its last transaction is now %d, and was %d before",
			backend.ErrDamaged, h.path, id, last)
	}
	return metas, nil
}

// checkBeforeLock makes the checks that need no lock. It rejects an empty file, which bbolt would initialise.
func (h *handle) checkBeforeLock(file *os.File, previous *handle) error {
	switch {
	case previous != nil && !os.SameFile(h.info, previous.info):
		return fmt.Errorf("%w: %s: the path names another file than the one that was open", backend.ErrDamaged, h.path)
	case h.info.Mode().IsRegular() && h.info.Size() == 0:
		return fmt.Errorf("%w: %s: the file is empty; if it never had data, remove it, so that a new file is created", backend.ErrDamaged, h.path)
	case previous == nil:
		isDatabase, err := hasPages(file, h.info.Size())
		if err == nil && !isDatabase {
			err = fmt.Errorf("%w: %s: the file has no database pages", backend.ErrNotDatabase, h.path)
		}
		return err
	}
	return nil
}

// hasPages reports whether a file has a meta page of bbolt, or another page that contains its own page number. A
// database that lost both meta pages counts as damaged. A file without any such page has another format.
func hasPages(file io.ReaderAt, size int64) (bool, error) {
	metas, err := readMetas(file)
	if err != nil || metas.current() != nil {
		return err == nil, err
	}
	head := make([]byte, min(size, 1<<20)) // a database has at least four pages
	if _, err := file.ReadAt(head, 0); ignoreEOF(err) != nil {
		return false, err
	}
	for pageSize := 1 << 10; pageSize <= 1<<16; pageSize <<= 1 {
		for at := 0; at+pageHeaderBytes+4 <= len(head); at += pageSize {
			id := uint64(at / pageSize)
			if id > 1 && binary.NativeEndian.Uint64(head[at:]) == id || id < 2 && binary.NativeEndian.Uint32(head[at+pageHeaderBytes:]) == metaMagic {
				return true, nil
			}
		}
	}
	return false, nil
}

// makeDurable logs a damaged meta page. If the file is opened for writing, makeDurable makes the current transaction
// durable.
func (h *handle) makeDurable(opts Options, metas metaPages) error {
	current := metas.current()
	h.openedTxid, h.metaDamage = current.Txid, metas.damage()
	h.lastTxid.Store(h.openedTxid)
	if h.metaDamage != nil {
		opts.Logger.Warn("patchlog: opened a damaged file", "file", h.path, "error", h.metaDamage)
	}
	if opts.ReadOnly || opts.NoSync {
		return nil
	}
	target, err := filepath.EvalSymlinks(h.path)
	if err == nil {
		err = opts.syncDir(filepath.Dir(target))
	}
	if err == nil {
		err = opts.rewriteMeta(h.file, current)
	}
	if err != nil {
		return fmt.Errorf("%s: make the content durable: %w", h.path, err)
	}
	return nil
}

// create creates a database at path. If a file with that name exists, create fails with [fs.ErrExist]. The file is
// built under another name in the same directory, synced, and then renamed. So after an error or a crash, path is
// either absent or complete.
func create(path string) (err error) {
	dir := filepath.Dir(path)
	draft, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*") // the mode is 0600
	if err != nil {
		return syncdir.ReplacePath(err, path)
	}
	defer func() {
		if removeErr := os.Remove(draft.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	db, err := newDatabase(draft.Name(), true)
	if err == nil {
		err = db.Close()
	}
	if err = errors.Join(err, draft.Sync(), draft.Close()); err == nil {
		err = publish(draft.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, syncdir.ReplacePath(err, path))
	}
	return syncdir.Sync(dir)
}

// newDatabase creates a database without sessions in an empty file. It does not sync. If growSync is set, the file
// grows in steps of 16 MiB. Otherwise, it grows only by the bytes written.
func newDatabase(path string, growSync bool) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true, NoGrowSync: !growSync,
	})
	if err != nil {
		return nil, err
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return setVersion(tx, 0)
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// publish renames the draft to target, unless target exists.
func publish(draft, target string) error {
	err := os.Link(draft, target)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// The file system may not support hard links. A rename would replace an existing target, so check that there is
	// none.
	if _, statErr := os.Lstat(target); !errors.Is(statErr, fs.ErrNotExist) {
		return errors.Join(err, statErr)
	}
	if renameErr := os.Rename(draft, target); renameErr != nil {
		return errors.Join(err, renameErr)
	}
	return nil
}
