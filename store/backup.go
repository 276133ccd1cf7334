package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Backup writes a copy of the whole database to w. [Open] can open the copy. It contains all sessions and shared
// scopes as of one moment after the call began, without snapshots. If an erase is unfinished at that moment, it is
// unfinished in the copy too, and [Store.Erase] can finish it there.
//
// Reads and writes continue during the call. A write waits for Backup no longer than it would wait for another
// write. Pages that are freed during the call can be reused only after the copy is complete. Backup waits until
// another Backup or a [Store.Vacuum] ends.
//
// Backup first writes the copy to a temporary file .NAME.backup-… beside the database file NAME, and removes that
// file before it returns. If the store is read-only and the directory is not writable, the temporary file is in the
// system's directory for temporary files. After a crash, delete remaining temporary files. Backup needs memory for
// the names, initial states and shared values of all sessions, and for the view of one session.
//
// Backup checks the copy as [Store.Verify] does before it writes the first byte to w. If anything except a snapshot
// is damaged, the error matches [ErrCorrupt] and nothing is written to w. If w fails, Backup returns the error of
// w, and the data written to w is unusable. If the store is not in a file, the error matches
// [errors.ErrUnsupported]; use the backups of the database server instead.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	c, ok := s.backend.(backend.Copier)
	if !ok {
		return s.errNotInFile("Backup", "use the backups of the database server, or export single sessions")
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

func (s *Store) checkCopy(ctx context.Context, made backend.Backend) error {
	opts := s.opts
	opts.ReadOnly, opts.CacheBytes = true, -1
	c, err := New(made, opts)
	if err != nil {
		return err
	}
	defer c.close() // not Close, which would also close the backend
	for p, err := range c.Verify(ctx, VerifyOptions{}) {
		switch {
		case err != nil:
			return err
		case p.Err == errEraseUnfinished: // the next Erase finishes this erase, in the store and in the copy
		case p.Seq != 0:
			return &CorruptError{p.Key, p.Seq, p.Err}
		default:
			return fmt.Errorf("%w: %s", ErrCorrupt, p)
		}
	}
	return nil
}

// contextReader is a reader that fails when its context ends.
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

func (s *Store) errNotInFile(call, instead string) error {
	return fmt.Errorf("%s: %w: the store is not in a file; %s", call, errors.ErrUnsupported, instead)
}
