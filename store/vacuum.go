package store

import (
	"context"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// VacuumOptions are options of [Store.Vacuum].
type VacuumOptions struct {
	// DryRun only measures how much space the file takes.
	DryRun bool
}

// Vacuum frees the space of deleted sessions and old pages in the file. Views and running calls stay valid. Vacuum
// returns how much space the file takes afterwards; for that it reads every name and the length of every value, and
// counts concurrent writes in part.
//
// Vacuum writes a new file, .NAME.vacuum, beside the old file and renames it over the old file. Until then the disk
// needs room for both. If an error, a crash or a power failure interrupts Vacuum, either the old or the new file is in
// place, complete; the next Vacuum removes a remaining .NAME.vacuum. Reads and writes go on meanwhile. At the end
// writers wait while Vacuum copies the last writes and opens the new file. No other process can lock the file during
// the exchange. The file's owner and group stay; a hard link keeps pointing to the old file.
//
// If records are missing or altered, or if the index of ids or a shared value is damaged, Vacuum does not change the
// file and the error matches [ErrCorrupt]. It fails with [ErrReadOnly] if the store was opened read-only, and with an
// error that matches [errors.ErrUnsupported] if the store is not in a file. After any other error it can be called
// again. A Vacuum waits for a running [Store.Backup].
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
