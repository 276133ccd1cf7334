package bolt

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Copy implements [backend.Copier]. The copy is made beside the file, or, if that is only read
// and nothing may be written beside it, in the directory for temporary files.
func (b *Backend) Copy(ctx context.Context, sum func(record []byte) uint32, use func(copy backend.Backend, file io.Reader) error) (err error) {
	path, err := b.draft()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	if err := b.copyTo(ctx, path, sum); err != nil {
		return err
	}
	c, err := Open(path, Options{ReadOnly: true, Logger: b.opts.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return use(c, file)
}

// draft makes an empty file for a copy.
func (b *Backend) draft() (path string, err error) {
	target, err := filepath.EvalSymlinks(b.path)
	if err != nil {
		return "", err
	}
	pattern := "." + filepath.Base(target) + ".backup-*"
	file, err := os.CreateTemp(filepath.Dir(target), pattern)
	if err != nil && b.opts.ReadOnly && (errors.Is(err, fs.ErrPermission) || readOnlyFS(err)) {
		file, err = os.CreateTemp("", pattern)
	}
	if err != nil {
		return "", err
	}
	return file.Name(), file.Close()
}

func (b *Backend) copyTo(ctx context.Context, path string, sum func([]byte) uint32) (err error) {
	resume, err := b.pauseRemovals(ctx)
	if err != nil {
		return err
	}
	defer resume()
	r, err := b.replicate(path, sum, false)
	if err != nil {
		return err
	}
	m, _, err := r.copy(ctx)
	if err == nil {
		err = r.finish(m)
	}
	return errors.Join(err, r.close())
}
