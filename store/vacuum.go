package store

import (
	"context"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// VacuumOptions are options of [Store.Vacuum].
type VacuumOptions struct {
	// DryRun only measures the space of the file, and does not rewrite the file.
	DryRun bool
}

// Vacuum rewrites the file to free the space of deleted sessions and old pages. Views and running calls stay valid.
// Vacuum returns the space that the file takes after the rewrite. To measure this space, Vacuum reads every name
// and the length of every value. Writes during the measurement are counted in part.
//
// Vacuum writes a new file .NAME.vacuum beside the file NAME, and renames it over NAME. Until then the disk needs
// room for both files. If an error, a crash or a power failure interrupts Vacuum, NAME is either the complete old
// file or the complete new one. The next Vacuum removes a remaining .NAME.vacuum. The new file has the owner and
// group of the old one. A hard link still points to the old file.
//
// Reads and writes continue during the call. At its end, writers wait while Vacuum copies the last writes and opens
// the new file. No other process can lock the file during the exchange. Vacuum waits until a running [Store.Backup]
// ends.
//
// If records are missing or altered, or the index of ids or a shared value is damaged, Vacuum does not change the
// file. The error then matches [ErrCorrupt]. Vacuum fails with [ErrReadOnly] if the store is read-only. If the
// store is not in a file, the error matches [errors.ErrUnsupported]. After any other error, Vacuum can be called
// again.
func (s *Store) Vacuum(ctx context.Context, opts VacuumOptions) (backend.Space, error) {
	v, ok := s.backend.(backend.Vacuumer)
	if !ok {
		return backend.Space{}, s.errNotInFile("Vacuum", "use the vacuum and the statistics of the database server")
	}
	if !opts.DryRun {
		if err := v.Vacuum(ctx, recordform.Checksum); err != nil {
			return backend.Space{}, fromBackend(Key{}, err)
		}
	}
	space, err := v.Space(ctx)
	return space, fromBackend(Key{}, err)
}
