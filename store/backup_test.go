package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// A backup of what is damaged is none: it names session and record, and writes nothing.
func TestBackupOfADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{})
	e := &env{T: t, store: s}
	e.no(err)
	e.create(nil)
	e.append(says("needle-", 9)...)
	var whole bytes.Buffer
	e.no(s.Backup(ctx, &whole))
	fourth := e.storedForm(key, 4)
	e.no(s.Close())
	data := readFile(e, path)
	flip(fourth)(data)
	e.no(os.WriteFile(path, data, 0o600))
	s = openStore(e, path, store.Options{})
	var w bytes.Buffer
	err = s.Backup(ctx, &w)
	var corrupt *store.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Key != key || corrupt.Seq != 4 || w.Len() > 0 {
		t.Errorf("backup: %v, %d bytes", err, w.Len())
	}
	e.no(s.Close())
}

type fullWriter struct{ after int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

var errFull = errors.New("no space left")

// Errors of a backup are those of what failed, and nothing stays behind.
func TestBackupFails(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(filepath.Join(dir, "log.db"), store.Options{})
	e := &env{T: t, store: s}
	e.no(err)
	e.create(nil)
	e.append(says("e", 99)...)
	for _, after := range []int{0, 40_000} {
		e.is(s.Backup(ctx, &fullWriter{after}), errFull)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	e.is(s.Backup(cancelled, io.Discard), context.Canceled)
	e.no(s.Backup(ctx, io.Discard))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the file there is %v (%v)", left, err)
	}
	e.no(s.Close())
	e.is(s.Backup(ctx, io.Discard), store.ErrClosed)
	e.is(s.Vacuum(ctx), store.ErrClosed)
	_, err = s.Space(ctx)
	e.is(err, store.ErrClosed)

	memory, err := store.OpenMemory(store.Options{})
	e.no(err)
	e.is(memory.Backup(ctx, io.Discard), errors.ErrUnsupported, "export")
	e.is(memory.Vacuum(ctx), errors.ErrUnsupported)
	_, err = memory.Space(ctx)
	e.is(err, errors.ErrUnsupported)
	e.no(memory.Close())
}
