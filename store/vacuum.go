package store

import (
	"context"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// VacuumOptions are options of [Store.Vacuum].
type VacuumOptions struct {
	// DryRun only finds out how much room the file takes up.
	DryRun bool
}

// Vacuum frees the space of deleted sessions and old pages in the file. Views, and calls under way, go on. It returns how much
// space the file takes afterwards, for which it reads every name and the length of every value; writes meanwhile are counted
// in part.
//
// It writes a new file beside the old one, which takes as much space again, and renames it over the old one. If it is interrupted
// by an error, a crash or a power failure, one of the two is in place, complete; the next Vacuum removes the remains of the new
// one, .NAME.vacuum. Others read and write meanwhile. Writers wait at the end, while the last writes are copied and the new file is
// synced and opened. No other process can lock the file in between. Owner and group stay; a hard link keeps the old file.
//
// It fails with an error that matches [ErrCorrupt], and does not change the file, if records are missing or altered, or if the
// index of ids or a shared value is damaged; with [ErrReadOnly] if the store is; and with one that matches [errors.ErrUnsupported]
// if the store is not in a file. After any other error it can be called again. A Vacuum waits for a running [Store.Backup].
func (s *Store) Vacuum(ctx context.Context, opts VacuumOptions) (backend.Space, error) {
	v, ok := s.backend.(backend.Vacuum)
	if !ok {
		return backend.Space{}, s.notInAFile("Vacuum", "a server has its own vacuum, and its own figures")
	}
	if !opts.DryRun {
		if err := v.Vacuum(ctx, recordform.Checksum); err != nil {
			return backend.Space{}, fromBackend(Key{}, err)
		}
	}
	space, err := v.Space(ctx)
	return space, fromBackend(Key{}, err)
}
