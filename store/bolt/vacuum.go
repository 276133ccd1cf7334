package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// A vacuum is over after so many rounds, or one that took so few rows: what has been written
// since is copied while writers wait.
const (
	vacuumRounds = 8
	vacuumRows   = 2048
)

// Vacuum implements [backend.Vacuum]. A replica of the file is made beside it while others
// write, and then what they wrote meanwhile is added, again and again, until that is little.
// The last of it is added while writers wait. Then the replica, which is durable, is given the
// file's name. This program holds both files' locks until the name is durable: whoever waits
// for the old file's finds that it has no name any more.
func (b *Backend) Vacuum(ctx context.Context, sum func(record []byte) uint32) (err error) {
	if b.opts.ReadOnly {
		return backend.ErrReadOnly
	}
	resume, err := b.pauseRemovals(ctx)
	if err != nil {
		return err
	}
	defer resume()
	target, err := filepath.EvalSymlinks(b.path)
	if err != nil {
		return err
	}
	draft, err := b.vacuumDraft(target)
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := os.Remove(draft); !errors.Is(removeErr, fs.ErrNotExist) { // it has its name
			err = errors.Join(err, removeErr)
		}
	}()
	r, err := b.replicate(draft, sum, true)
	if err != nil {
		return err
	}
	unlock, err := r.catchUp(ctx)
	if err != nil {
		return errors.Join(err, r.close())
	}
	defer unlock()
	if err := r.close(); err != nil {
		return err
	}
	return b.replace(draft, target)
}

// vacuumDraft makes an empty file for a replica, of the owner that the database has. Who holds
// the database's lock is the only one to make it, so one that is there is left from a crash.
func (b *Backend) vacuumDraft(target string) (path string, err error) {
	path = filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".vacuum")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(own(file, b.file), file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// catchUp copies the backend's rows, and those written in the meantime. Unless it fails it returns with the
// writer lock held.
func (r *replica) catchUp(ctx context.Context) (unlock func(), err error) {
	for range vacuumRounds {
		_, rows, err := r.copy(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.commit(); err != nil {
			return nil, err
		}
		if rows <= vacuumRows {
			break
		}
	}
	if unlock, err = r.of.lockWriter(ctx); err != nil {
		return nil, err
	}
	m, _, err := r.copy(ctx)
	if err == nil {
		err = r.finish(m)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// replace gives the draft the file's name, and goes on with it. The caller has the writer's
// place.
func (b *Backend) replace(draft, target string) error {
	h, err := openHandle(draft, b.opts, nil)
	if err != nil {
		return err
	}
	if b.opts.NoSync { // else opening has made it durable
		if err := h.file.Sync(); err != nil {
			return errors.Join(err, h.close())
		}
	}
	info, err := h.file.Stat()
	if err != nil {
		return errors.Join(err, h.close())
	}
	b.mu.Lock() // nobody reads
	defer b.mu.Unlock()
	switch there, err := os.Stat(target); {
	case b.closed:
		return errors.Join(backend.ErrClosed, h.close())
	case err != nil:
		return errors.Join(err, h.close())
	case !os.SameFile(there, b.file):
		return errors.Join(fmt.Errorf("%w: %s: another file has taken the place of the one that is open", backend.ErrDamaged, b.path), h.close())
	}
	if err := os.Rename(draft, target); err != nil && !named(h.file, target) {
		return errors.Join(err, h.close())
	}
	old := b.handle
	b.handle, b.file = h, info
	h.path = b.path
	if err := syncdir.Sync(filepath.Dir(target)); err != nil {
		// Nothing is written before the name is durable.
		b.broken = fmt.Errorf("the name of the new file: %w", err)
	}
	if err := old.close(); err != nil {
		b.opts.Logger.Warn("patchlog: closing the file that a vacuum replaced failed", "file", b.path, "error", err)
	}
	return b.broken
}
