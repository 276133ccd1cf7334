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

// Vacuum gives the room back that deleted sessions, and writing itself, have left in the
// file: it is as short then as what it holds allows. Views, and calls under way, go on. It returns how much room the file
// takes up afterwards, for which it reads every name and how long what stands under it is; writes meanwhile are counted in
// part.
//
// A new file is made beside the old one, which takes as much room again, and put in its
// place. Whenever that is cut short, by an error, a crash or a power failure, the one or the
// other is there, with all that was acknowledged; what is left of the new one, under the name
// .NAME.vacuum, the next Vacuum removes. Others read and write meanwhile. Writers wait at the
// end: for the last writes to be copied, and for the new file to be synced and opened.
// No other process can lock the file in between. Owner and group stay; a hard link keeps
// the old file.
//
// It fails with an error that matches [ErrCorrupt], and leaves the file as it is, if records
// are missing or are not those that were written, or if the index of ids or a shared value is
// damaged; with [ErrReadOnly] if the store is; and with one that matches
// [errors.ErrUnsupported] if the store is not in a file. After any error but one that matches
// [ErrCorrupt] it can be called again. A Vacuum waits for a [Store.Backup] that runs.
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
