package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Backup writes a copy of the whole database to w: a file that [Open] opens. The copy is the database at one moment after the call
// began, over all sessions and shared scopes, without snapshots.
//
// Reads and writes go on meanwhile; a write waits for Backup no longer than for another write. Space that is freed
// meanwhile can be reused when the copy is complete. Backup first makes a file with the copy, and removes it before it
// returns. The file is beside the database, or in the directory for temporary files if the store is read-only and the
// database's directory is not writable. After a crash, delete remaining files .NAME.backup-…. Backup needs memory for
// the names, initial states and shared values of all sessions, and for one session's view.
//
// The copy is checked before its first byte goes to w, as by [Store.Verify]. If anything but a snapshot is damaged,
// Backup fails with an error that matches [ErrCorrupt] and writes nothing. If w fails, its error is returned, and the
// data in w is useless. An unfinished erasure is unfinished in the copy too, where [Store.Erase] finishes it. A Backup
// waits for another Backup or a [Store.Vacuum] to end. It fails with an error that matches [errors.ErrUnsupported] if
// the store is not in a file; a database server has its own backups.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	c, ok := s.backend.(backend.Copier)
	if !ok {
		return s.notInAFile("Backup", "on a server it is the server's backup that saves a store, and export saves single sessions")
	}
	err := c.Copy(ctx, recordform.Checksum, func(made backend.Backend, file io.Reader) error {
		if err := s.checkCopy(ctx, made); err != nil {
			return err
		}
		_, err := io.Copy(w, contextReader{ctx, file})
		return err
	})
	return fromBackend(Key{}, err)
}

// checkCopy verifies a copy.
func (s *Store) checkCopy(ctx context.Context, made backend.Backend) error {
	opts := s.opts
	opts.ReadOnly, opts.CacheBytes = true, -1
	c, err := New(made, opts)
	if err != nil {
		return err
	}
	defer c.close() // the backend is not this store's
	for p, err := range c.Verify(ctx, VerifyOptions{}) {
		switch {
		case err != nil:
			return err
		case p.Err == errUnfinished: // the next Erase finishes it, in the store and in the copy
		case p.Seq != 0:
			return &CorruptError{p.Key, p.Seq, p.Err}
		default:
			return fmt.Errorf("%w: %s", ErrCorrupt, p)
		}
	}
	return nil
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func (s *Store) notInAFile(call, instead string) error {
	return fmt.Errorf("%s: %w: the store is not in a file; %s", call, errors.ErrUnsupported, instead)
}
