package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save the whole database to a file",
		Long: `The copy is verified before it gets its name, so FILE is whole or not there. A FILE that is there is not replaced. It is a database, for --db.
Nothing is copied if something is damaged. A database that another program has open is saved by that program
(Store.Backup in Go); a plain copy of its file is of no use.`,
		Example: examples("patchlog backup /backups/patchlog.db"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.backup(cmd.Context(), s, args[0]) })
	}
	return cmd
}

func (a *app) vacuumCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vacuum",
		Short: "Return the space of deleted and erased records",
		Long: `The database is written anew beside its file, which takes as much space again, and replaces it. If this is
interrupted, the old file stays. 'patchlog stats' shows how much there is to gain.`,
		Example: examples("patchlog vacuum"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStore(cmd.Context(), Writing, func(s *store.Store) error { return a.vacuum(cmd.Context(), s) })
	}
	return cmd
}

type backupDocument struct {
	File     string `json:"file"`
	Sessions int    `json:"sessions"`
	Bytes    int64  `json:"bytes"`
}

func (a *app) backup(ctx context.Context, s *store.Store, path string) (err error) {
	if there, err := os.Stat(path); err == nil && there.IsDir() {
		return fmt.Errorf("%q is a directory; name a file in it", path)
	} else if err == nil {
		return errThere(path)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() {
		closeErr := draft.Close()
		if removeErr := os.Remove(draft.Name()); !errors.Is(removeErr, fs.ErrNotExist) { // it has its name
			err = errors.Join(err, removeErr)
		}
		if !errors.Is(closeErr, os.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
	}()
	bar := a.quietProgress("backup")
	defer bar.end()
	doc := backupDocument{File: path}
	sum := sha256.New()
	if err := s.Backup(ctx, io.MultiWriter(draft, sum)); err != nil {
		return err
	}
	if err := draft.Sync(); err != nil {
		return err
	}
	written := sha256.New()
	if _, err = draft.Seek(0, io.SeekStart); err == nil {
		doc.Bytes, err = io.Copy(written, draft)
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(written.Sum(nil), sum.Sum(nil)) {
		return fmt.Errorf("%s does not hold what was written to it; its disk may be damaged", draft.Name())
	}
	if err := draft.Close(); err != nil {
		return err
	}
	if doc.Sessions, err = sessionsIn(ctx, draft.Name(), a.options); err != nil {
		return err
	}
	if err := publish(draft.Name(), path); err != nil {
		return err
	}
	bar.end()
	if a.json {
		return a.out.document(doc)
	}
	return a.out.linef("%s: %s, %s bytes", path, present.Counted(doc.Sessions, "session"), present.Grouped(doc.Bytes))
}

// sessionsIn opens a file for reading and counts its sessions.
func sessionsIn(ctx context.Context, path string, opts store.Options) (n int, err error) {
	opts.ReadOnly = true
	s, err := store.Open(path, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func errThere(path string) error {
	return fmt.Errorf("%q is there; a backup replaces nothing", path)
}

// publish gives a file its name, and makes that durable.
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

type spaceDocument struct {
	File int64 `json:"file"`
	Live int64 `json:"live"`
	Free int64 `json:"free"`
}

func (d spaceDocument) rows() []present.Row {
	return []present.Row{
		{Name: "file", Text: present.Grouped(d.File) + " bytes"},
		{Name: "  live", Text: present.Grouped(d.Live) + " bytes"},
		{Name: "  free", Text: present.Grouped(d.Free) + " bytes"},
	}
}

// space shows how much room the database takes up.
func (a *app) space(ctx context.Context, s *store.Store) error {
	space, err := s.Space(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.document(spaceDocument(space))
	}
	return a.out.rows(spaceDocument(space).rows())
}

func (a *app) vacuum(ctx context.Context, s *store.Store) error {
	before, err := s.Space(ctx)
	if err != nil {
		return err
	}
	if err := s.Vacuum(ctx); err != nil {
		return err
	}
	after, err := s.Space(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.document(struct {
			Before spaceDocument `json:"before"`
			After  spaceDocument `json:"after"`
		}{spaceDocument(before), spaceDocument(after)})
	}
	return a.out.linef("%s: %s bytes, before %s", a.db, present.Grouped(after.File), present.Grouped(before.File))
}
