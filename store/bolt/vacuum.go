package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Vacuum implements [backend.Vacuumer]. It copies the rows to a new file in the same directory, called the draft, while
// other calls write. It then blocks writers, copies the rows written meanwhile, and renames the draft over the file.
//
// If the process crashes before the rename, the next vacuum removes the draft. Both files stay locked until the
// rename is durable. A process that waits for the lock of the old file then finds the new file under the name, and
// opens it.
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
	// Only the process that has locked the file creates a draft, so a crash has left any existing draft.
	draft := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".vacuum")
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(draft, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := os.Remove(draft); !errors.Is(removeErr, fs.ErrNotExist) { // after the rename, the draft does not exist
			err = errors.Join(err, removeErr)
		}
	}()
	err = b.withHandle(ctx, func(h *handle) error { return copyOwnership(file, h.file) })
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	r, err := b.newReplicaReader(draft, sum, true)
	if err != nil {
		return err
	}
	unlock, err := r.copyAll(ctx)
	if err != nil {
		return errors.Join(err, r.close())
	}
	defer unlock()
	if err := r.close(); err != nil {
		return err
	}
	return b.replaceFile(draft, target)
}

// copyRounds is the number of times that rows are copied while other calls write. Each round copies the rows written
// during the previous round. So the last copy, which blocks writers, has few rows to copy.
const copyRounds = 3

// copyAll copies all rows. It acquires the writer lock for the last copy. If copyAll succeeds, the caller must call
// unlock.
func (r *sessionReader) copyAll(ctx context.Context) (unlock func(), err error) {
	for range copyRounds {
		if _, err := r.copyNew(ctx); err != nil {
			return nil, err
		}
		if err := r.commit(); err != nil {
			return nil, err
		}
	}
	if unlock, err = acquire(ctx, r.backend.writerLock); err != nil {
		return nil, err
	}
	m, err := r.copyNew(ctx)
	if err == nil {
		err = r.finish(m)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// replaceFile renames the draft over the file and uses the new file from then on. The caller has the writer lock.
func (b *Backend) replaceFile(draft, target string) error {
	h, err := openHandle(draft, b.opts, nil)
	if err != nil {
		return err
	}
	if b.opts.NoSync { // without NoSync, openHandle has already made the draft durable
		err = h.file.Sync()
	}
	b.mu.Lock() // waits until running reads end
	defer b.mu.Unlock()
	current, statErr := os.Stat(target)
	switch {
	case b.closed:
		err = backend.ErrClosed
	case errors.Join(err, statErr) != nil:
		err = errors.Join(err, statErr)
	case !os.SameFile(current, b.handle.info):
		err = fmt.Errorf("%w: %s: the path names another file than the one that is open", backend.ErrDamaged, b.path)
	default:
		err = os.Rename(draft, target)
	}
	if err != nil {
		return errors.Join(err, h.close())
	}
	old := b.handle
	b.handle = h
	h.path = b.path
	if err := b.opts.syncDir(filepath.Dir(target)); err != nil {
		// If the backend wrote now and the power failed, the path could name the old file again. Because handleErr
		// is set, the next call reopens the file, which syncs the directory.
		b.handleErr = fmt.Errorf("make the name of the new file durable: %w", err)
	}
	if err := old.close(); err != nil {
		b.opts.Logger.Warn("patchlog: could not close the old file after a vacuum", "file", b.path, "error", err)
	}
	return b.handleErr
}
