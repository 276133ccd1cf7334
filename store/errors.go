package store

import (
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Errors of a store, including errors that other packages define. Compare them with [errors.Is], and get the types
// below with [errors.As]. A call may also return the error of its context, of its reader or writer, or
// [errors.ErrUnsupported].
var (
	// ErrNotFound: the session or the record does not exist, or the session was deleted and created again since the caller's view
	// was made.
	ErrNotFound = errors.New("not found")

	// ErrExists: the session exists already.
	ErrExists = errors.New("session exists")

	// ErrLocked: another process, or another Store, has the file open.
	ErrLocked = backend.ErrLocked

	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store is closed")

	// ErrReadOnly: the store was opened with Options.ReadOnly, and the call would write.
	ErrReadOnly = errors.New("store is opened for reading only")

	// ErrOutcomeUnknown: a write failed, and the store could not find out whether it took place. Retry with the ids
	// that the call returned: the retry skips records that are logged already.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrNotDatabase: the file to open is not a patchlog database. A damaged database gives [ErrCorrupt], unless the
	// damage has left no page of it recognisable.
	ErrNotDatabase = backend.ErrNotDatabase

	// ErrCorrupt: stored data is damaged.
	ErrCorrupt = patch.ErrCorrupt

	// ErrRetainRunning: another process runs [Store.Retain] on this storage.
	ErrRetainRunning = errors.New("another process is at it")

	// ErrInvalid: an argument, an option, an event, a patch or a file to import is malformed.
	ErrInvalid = patch.ErrInvalid

	// ErrTooLarge: a record, an initial state or a file to import is over its limit.
	ErrTooLarge = patch.ErrTooLarge

	// ErrDuplicateID: an id is used already, for other content.
	ErrDuplicateID = fold.ErrDuplicateID

	// ErrConflict: the log has changed since the caller read it. Read it again, and make a new patch.
	ErrConflict = fold.ErrConflict

	// ErrOutOfRange: a patch names events beyond the end of the visible log.
	ErrOutOfRange = fold.ErrOutOfRange

	// ErrEventNotFound: no visible event has the id, or no event has the id of the invocation.
	ErrEventNotFound = fold.ErrEventNotFound

	// ErrPinned: a patch would hide a pinned event.
	ErrPinned = fold.ErrPinned

	// ErrOrphanedCall: a patch would split a function call from its response.
	ErrOrphanedCall = fold.ErrOrphanedCall

	// ErrBlocked: another patch depends on the one to revert.
	ErrBlocked = fold.ErrBlocked

	// ErrUnknownPatch: the log has a patch of a type that this version does not know, so indices cannot be trusted.
	ErrUnknownPatch = fold.ErrUnknownPatch
)

// Types of errors that other packages define.
type (
	// ConflictError says which patch the caller had seen, and which is the newest. It matches [ErrConflict].
	ConflictError = fold.ConflictError

	// PinnedError says which events are pinned. It matches [ErrPinned].
	PinnedError = fold.PinnedError

	// OrphanError says which calls a patch would split, and which span would not. It matches [ErrOrphanedCall].
	OrphanError = fold.OrphanError

	// BlockedError says which patch to revert first. It matches [ErrBlocked].
	BlockedError = fold.BlockedError

	// FieldError says which field is invalid, and why. It matches [ErrInvalid].
	FieldError = patch.FieldError

	// LineError wraps an error in a file to import and names the line.
	LineError = patch.LineError
)

// SeqError says that a log does not end where an append expected it to. It matches
// [ErrConflict].
type SeqError struct {
	Expected uint64
	Last     uint64
}

func (e *SeqError) Error() string {
	return fmt.Sprintf("conflict: the append expects the log to end at record %d, but its last record is %d", e.Expected, e.Last)
}

// Is reports whether target is [ErrConflict].
func (e *SeqError) Is(target error) bool { return target == ErrConflict }

// DuplicateIDError says which id is used, and where. It matches [ErrDuplicateID].
type DuplicateIDError = fold.DuplicateIDError

// CorruptError says which record cannot be read. It matches [ErrCorrupt].
type CorruptError struct {
	Key Key
	Seq uint64
	Err error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("session %s, record %d: %v", e.Key, e.Seq, e.Err)
}

// Unwrap returns [ErrCorrupt] and the reason.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// fromBackend converts an error of the backend to one of the store.
func fromBackend(key Key, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backend.ErrUnknown): // first: its cause may be one of the others
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, write.CauseOf(err))
	default:
		err = named(err)
	}
	if key != (Key{}) {
		return fmt.Errorf("session %s: %w", key, err)
	}
	return err
}

func named(err error) error {
	for _, e := range []struct{ from, to error }{
		{backend.ErrNotFound, ErrNotFound}, {backend.ErrExists, ErrExists}, {backend.ErrClosed, ErrClosed},
		{backend.ErrDamaged, ErrCorrupt}, {backend.ErrIndex, ErrCorrupt},
		{backend.ErrReadOnly, ErrReadOnly}, {backend.ErrTaken, ErrCorrupt}, {backend.ErrMoved, ErrConflict},
	} {
		switch {
		case err == e.from:
			return e.to
		case errors.Is(err, e.from):
			return fmt.Errorf("%w: %w", e.to, err)
		}
	}
	return err
}
