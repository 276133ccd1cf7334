package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Backup writes a copy of the whole database to w: a file that [Open] opens. The copy holds
// what the database held at one moment after the call began: every write that was
// acknowledged before the call, none that began after it returned, and of two writes never
// the later one without the earlier one, over sessions and shared scopes too. A call's
// writes are in it together or not at all. Snapshots are left out, which are made anew.
//
// Others read and write meanwhile; a write waits for Backup no longer than for another
// write. What is deleted meanwhile takes up its room until the copy is made. The copy is
// made beside the file, which takes as much room again until Backup returns, or in the
// directory for temporary files if a file that is only read has a directory that may not be
// written to. What a crash leaves of it, under the name .NAME.backup-…, may be removed.
// Memory is taken for the names, initial states and shared values of all sessions, and for
// what is visible of a session when it is checked.
//
// The copy is checked before its first byte goes to w: its structure, and everything that
// [Store.Verify] checks. If anything but a snapshot is damaged, Backup fails with an error
// that matches [ErrCorrupt] and writes nothing. An error of w is returned, and what w has got
// is of no use then. What an erasing has still to do is to do in the copy too, where an [Store.Erase]
// finishes it. One backup runs at a time, and none during a [Store.Vacuum]: others wait.
// It fails with an error that matches [errors.ErrUnsupported] if the store is not in a file:
// to back up a server is the server's matter.
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

// checkCopy verifies what a copy holds.
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
		case p.Err == errUnfinished: // the next Erase finishes it, here and there
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
