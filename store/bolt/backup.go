package bolt

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Copy implements [backend.Copier]. It makes the copy in the directory of the file. If the backend is read-only and
// that directory is not writable, Copy uses the directory for temporary files.
func (b *Backend) Copy(ctx context.Context, sum func(record []byte) uint32, use func(copy backend.Backend, file io.Reader) error) (err error) {
	target, err := filepath.EvalSymlinks(b.path)
	if err != nil {
		return err
	}
	pattern := "." + filepath.Base(target) + ".backup-*"
	file, err := os.CreateTemp(filepath.Dir(target), pattern)
	if err != nil && b.opts.ReadOnly {
		file, err = os.CreateTemp("", pattern)
	}
	if err != nil {
		return syncdir.ReplacePath(err, filepath.Join(filepath.Dir(target), "a copy of "+filepath.Base(target)))
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	if err := b.copyTo(ctx, file.Name(), sum); err != nil {
		return err
	}
	c, err := Open(file.Name(), Options{ReadOnly: true, Logger: b.opts.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return use(c, file)
}

func (b *Backend) copyTo(ctx context.Context, path string, sum func([]byte) uint32) error {
	resume, err := b.pauseRemovals(ctx)
	if err != nil {
		return err
	}
	defer resume()
	r, err := b.newReplicaReader(path, sum, false)
	if err != nil {
		return err
	}
	m, err := r.copyNew(ctx)
	if err == nil {
		err = r.finish(m)
	}
	return errors.Join(err, r.close())
}
