package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	bbolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

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

// openHandle opens the file, which must be there and, if was is not nil, be that one, with
// what it held. What it shows is durable then, unless opts say otherwise.
func openHandle(path string, opts Options, was *opened) (h *handle, err error) {
	db, file, err := openDB(path, opts, was, lookOver)
	for try := 0; errors.Is(err, errSuspect) && try < maxSuspicions; try++ {
		// Somebody else may have been writing it. Whoever reads it keeps them from that.
		shared := opts
		shared.ReadOnly = true
		if db, file, err = openDB(path, shared, was, nil); err != nil {
			return nil, err
		}
		if err := errors.Join(lookOver(file), db.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		db, file, err = openDB(path, opts, was, lookOver)
	}
	if err != nil {
		return nil, err
	}
	if was == nil && !named(file, path) { // it was replaced while its lock was waited for
		if err := db.Close(); err != nil {
			return nil, err
		}
		return openHandle(path, opts, nil)
	}
	h = &handle{path: path, db: db, file: file, place: make(chan struct{}, 1), gone: make(chan struct{})}
	if err := h.prepare(opts, was); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// A file that is suspect each time, and in order whenever it is looked at in peace, so often,
// is not waited for.
const maxSuspicions = 3

var errSuspect = errors.New("what bbolt would believe is not in order")

// openDB has bbolt open the file. look, if not nil, sees it first: before it is locked, since
// bbolt reads it as soon as it has the lock. What look finds wrong matches errSuspect.
func openDB(path string, opts Options, was *opened, look func(*os.File) error) (db *bbolt.DB, file *os.File, err error) {
	defer func() {
		if p := (*panicError)(nil); errors.As(err, &p) && file != nil {
			release(file)
		}
	}()
	defer recoverDamage(path, &err)()
	var refused error
	db, err = bbolt.Open(path, 0, &bbolt.Options{
		Timeout:         opts.LockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		PreLoadFreelist: look != nil,
		InitialMmapSize: initialMmapSize,
		NoSync:          opts.NoSync,
		ReadOnly:        opts.ReadOnly,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			if file, err = os.OpenFile(name, flag&^os.O_CREATE, perm); err != nil {
				return nil, err
			}
			if refused = acceptable(file, path, was); refused == nil && look != nil {
				if err := look(file); err != nil {
					refused = fmt.Errorf("%w: %w", errSuspect, err)
				}
			}
			if refused != nil {
				_ = file.Close()
				return nil, refused
			}
			return file, nil
		},
	})
	var system syscall.Errno
	var failed *fs.PathError
	switch {
	case refused != nil:
		return nil, nil, refused
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, nil, fmt.Errorf("%w: %s: waited %v; is another process using it?", backend.ErrLocked, path, opts.LockTimeout)
	case errors.As(err, &failed):
		return nil, nil, err
	case errors.As(err, &system):
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	case err != nil: // what bbolt itself finds wrong
		return nil, nil, fmt.Errorf("%w: %s: %w", backend.ErrDamaged, path, err)
	}
	return db, file, nil
}

// long reports whether the file is as long as it should be.
func long(file *os.File, bytes int64) error {
	info, err := file.Stat()
	if err == nil && info.Size() < bytes {
		err = fmt.Errorf("%w: the file has %d bytes of %d; its end is missing", backend.ErrDamaged, info.Size(), bytes)
	}
	return err
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

// prepare checks the file and, if it is to be written, makes durable what it shows.
func (h *handle) prepare(opts Options, was *opened) error {
	metas, err := readMetas(h.file)
	if err != nil {
		return err
	}
	current := metas.current()
	if current == nil {
		return fmt.Errorf("%w: %s: both meta pages", backend.ErrDamaged, h.path)
	}
	id := current.txid()
	if was != nil && id != was.last && id != was.last+1 { // nothing is written over it
		h.last.Store(was.last)
		return h.changed(id)
	}
	h.metas = metas
	h.last.Store(id)
	if err := h.view(func(tx *txn) error { return check(tx, h.file) }); err != nil {
		if p := (*panicError)(nil); errors.As(err, &p) {
			return err
		}
		return fmt.Errorf("%s: %w", h.path, err)
	}
	if doubt := metas.doubt(); doubt != nil {
		opts.Logger.Warn("patchlog: a file is read in spite of damage", "file", h.path, "error", doubt)
	}
	if opts.ReadOnly {
		return nil
	}
	if h.free, err = freeSumOf(h.file, current); err != nil {
		return fmt.Errorf("%s: %w", h.path, err)
	}
	if err := h.view(func(tx *txn) error { return freeUnused(tx, h.file, current) }); err != nil {
		return fmt.Errorf("%s: %w", h.path, err)
	}
	if err := tighten(h.file, opts); err != nil {
		return err
	}
	h.wrote = h.modified()
	if opts.NoSync {
		return nil
	}
	target, err := resolve(h.path)
	if err == nil {
		err = syncDir(filepath.Dir(target))
	}
	if err == nil {
		err = opts.settle(h.file, current)
	}
	if err != nil {
		return fmt.Errorf("%s: make durable what it holds: %w", h.path, err)
	}
	h.wrote = h.modified()
	return nil
}

// check reports whether the file is whole, one of ours, and of a version that we know.
func check(tx *txn, file *os.File) error {
	if err := long(file, tx.Size()); err != nil {
		return err
	}
	// First: bbolt would read beyond a bucket that says so.
	free := func(id uint64) bool {
		page, err := tx.Page(int(id))
		return err != nil || page.Type == "free"
	}
	if err := pagesOf(tx, file, free).roots(tx.tree.root); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrDamaged, err)
	}
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		for _, name := range buckets[1:] {
			if tx.Bucket(name) != nil {
				return fmt.Errorf("%w: bucket %q is missing", backend.ErrDamaged, bucketMeta)
			}
		}
		if k, _ := tx.tree.cursor().First(); k != nil {
			return fmt.Errorf("%w: it is a bbolt file of another program", backend.ErrNotDatabase)
		}
		return fmt.Errorf("%w: it is a bbolt file without a bucket, which is not how a store begins", backend.ErrNotDatabase)
	}
	if v := meta.Get(keyVersion); !bytes.Equal(v, number(FileVersion)) {
		return fmt.Errorf("%w: file version %x; this program knows version %d, a newer one may know it", backend.ErrDamaged, v, FileVersion)
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: bucket %q is missing", backend.ErrDamaged, name)
		}
	}
	return nil
}

// tighten takes from others than the owner what access they have. Who may write the file
// but does not own it goes on without.
func tighten(file *os.File, opts Options) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if runtime.GOOS == "windows" || !info.Mode().IsRegular() || mode&0o077 == 0 {
		return nil
	}
	switch err := file.Chmod(mode &^ 0o077); {
	case errors.Is(err, fs.ErrPermission):
		opts.Logger.Warn("patchlog: others have access to a file, and it is not ours to change that", "file", file.Name(), "mode", mode.String())
	case err != nil:
		return err
	default:
		opts.Logger.Warn("patchlog: others had access to a file; now its owner alone has", "file", file.Name(), "mode", mode.String())
	}
	return nil
}

// create makes a new file at path, which must not be there. Whenever it is cut short, by
// an error or a crash, there is no such file or a whole one: it is built under another
// name beside it, synced, and given its own then. It fails with [fs.ErrExist] if someone
// else was first. A symbolic link to nothing is followed: the file is made where it points.
func create(path string) (err error) {
	target, err := resolve(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(target)
	draft, err := os.CreateTemp(dir, "."+filepath.Base(target)+".new-*") // for its owner alone
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
	if err := publish(draft.Name(), target); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncDir(dir)
}

// build makes an empty store in an empty file.
func build(path string) (err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true})
	if err != nil {
		return err
	}
	return errors.Join(db.Update(func(tx *bbolt.Tx) error { return initialise(newTxn(tx)) }), db.Close())
}

func initialise(tx *txn) error {
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

// So many symbolic links in a row are a circle.
const maxLinks = 40

// resolve follows symbolic links at the end of path, also to what is not there.
func resolve(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}
