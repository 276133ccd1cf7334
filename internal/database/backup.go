package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store"
)

// Backup saves a database to a new file. The file appears under its name only when it is complete and verified. Backup
// returns the number of sessions and the size of the file.
func Backup(ctx context.Context, s *store.Store, path string, opts store.Options) (sessions int, bytes int64, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return 0, 0, fmt.Errorf("%q is a directory; name a file in it", path)
	} else if err == nil {
		return 0, 0, errExists(path)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*") // os.CreateTemp makes the file accessible only to its owner
	if err != nil {
		return 0, 0, syncdir.ReplacePath(err, path)
	}
	defer func() {
		err = syncdir.ReplacePath(err, path)
		if closeErr := draft.Close(); !errors.Is(closeErr, os.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
		if removeErr := os.Remove(draft.Name()); !errors.Is(removeErr, fs.ErrNotExist) { // publish may already have renamed the draft
			err = errors.Join(err, removeErr)
		}
	}()
	if err := s.Backup(ctx, draft); err != nil {
		return 0, 0, err
	}
	info, err := draft.Stat()
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return 0, 0, err
	}
	opts.ReadOnly = true
	saved, err := store.Open(draft.Name(), opts)
	if err != nil {
		return 0, 0, err
	}
	sessions, err = CountSessions(ctx, saved)
	if err := errors.Join(err, saved.Close()); err != nil {
		return 0, 0, err
	}
	return sessions, info.Size(), publish(draft.Name(), path)
}

// CountSessions returns the number of sessions in a store.
func CountSessions(ctx context.Context, s *store.Store) (n int, err error) {
	for _, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func errExists(path string) error { return fmt.Errorf("%q exists; a backup replaces no file", path) }

// publish durably renames a draft to path, unless a file with this name exists.
func publish(draft, path string) error {
	switch err := os.Link(draft, path); {
	case errors.Is(err, fs.ErrExist):
		return errExists(path)
	case err != nil: // the file system may not support hard links, and Rename alone would replace an existing file
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return errExists(path)
		}
		if err := os.Rename(draft, path); err != nil {
			return err
		}
	}
	return syncdir.Sync(filepath.Dir(path))
}
