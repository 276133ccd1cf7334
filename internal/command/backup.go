package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) backupCommand() *cobra.Command {
	cmd := command(`backup FILE
Save the database to a file

FILE is a database for --db. It must not exist, and appears only when the copy is complete and verified. A damaged database
is not copied. While another program has the database open, only that program can save it (Store.Backup in Go); a plain
copy of the file is unusable.

$ patchlog backup /backups/patchlog.db`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withFile(cmd.Context(), Reading, func(s *store.Store) error { return a.backup(cmd.Context(), s, args[0]) })
	}
	return cmd
}

func (a *app) backup(ctx context.Context, s *store.Store, path string) (err error) {
	if there, err := os.Stat(path); err == nil && there.IsDir() {
		return fmt.Errorf("%q is a directory; name a file in it", path)
	} else if err == nil {
		return errThere(path)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*") // for its owner alone
	if err != nil {
		return syncdir.Named(err, path)
	}
	defer func() {
		err = syncdir.Named(err, path)
		closeErr := draft.Close()
		if removeErr := os.Remove(draft.Name()); !errors.Is(removeErr, fs.ErrNotExist) { // it has its name
			err = errors.Join(err, removeErr)
		}
		if !errors.Is(closeErr, os.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
	}()
	if err := s.Backup(ctx, draft); err != nil {
		return err
	}
	info, err := draft.Stat()
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	sessions, err := sessionsIn(ctx, draft.Name(), a.options)
	if err != nil {
		return err
	}
	if err := publish(draft.Name(), path); err != nil {
		return err
	}
	return a.receipt(struct {
		File     string `json:"file"`
		Sessions int    `json:"sessions"`
		Bytes    int64  `json:"bytes"`
	}{path, sessions, info.Size()}, "%s: %s, %s bytes", path, present.Counted(sessions, "session"), present.Grouped(info.Size()))
}

// sessionsIn opens a file for reading and counts its sessions.
func sessionsIn(ctx context.Context, path string, opts store.Options) (n int, err error) {
	opts.ReadOnly = true
	s, err := store.Open(path, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return countSessions(ctx, s)
}

func countSessions(ctx context.Context, s *store.Store) (n int, err error) {
	for _, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func errThere(path string) error {
	return fmt.Errorf("%q exists; a backup replaces no file", path)
}

// publish renames the draft to path, durably, unless path exists.
func publish(draft, path string) error {
	switch err := os.Link(draft, path); {
	case errors.Is(err, fs.ErrExist):
		return errThere(path)
	case err != nil: // not every file system has hard links; a rename would replace
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return errThere(path)
		}
		if err := os.Rename(draft, path); err != nil {
			return err
		}
	}
	return syncdir.Sync(filepath.Dir(path))
}
