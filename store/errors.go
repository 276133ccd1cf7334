package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Errors of a store. Some are defined in other packages. Compare them with [errors.Is], and use [errors.As] for the
// error types below. A call may also return the error of its context, the error of its reader or writer, or
// [errors.ErrUnsupported].
var (
	// ErrNotFound: the session or the record does not exist. If the caller passed a view or a creation id, the
	// session may also have been deleted and created again.
	ErrNotFound = errors.New("not found")

	// ErrExists: the session already exists.
	ErrExists = errors.New("session exists")

	// ErrLocked: another process, or another Store, has the file open.
	ErrLocked = backend.ErrLocked

	// ErrClosed: the store is closed.
	ErrClosed = errors.New("store is closed")

	// ErrReadOnly: the call would write, but the store was opened with Options.ReadOnly.
	ErrReadOnly = errors.New("store is opened for reading only")

	// ErrOutcomeUnknown: a write failed, and the store could not find out whether the write was committed. Repeat
	// the call with the ids that it returned. The retry skips records that are already in the log.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrNotDatabase: the file is not a patchlog database. If the file is a damaged database, the error is
	// [ErrCorrupt], unless no page is recognisable.
	ErrNotDatabase = backend.ErrNotDatabase

	// ErrCorrupt: stored data is damaged.
	ErrCorrupt = patch.ErrCorrupt

	// ErrRetainRunning: another process runs [Store.Retain] on this storage.
	ErrRetainRunning = errors.New("another process is running Retain")

	// ErrInvalid: an argument, an option, an event, a patch or a file to import is malformed.
	ErrInvalid = patch.ErrInvalid

	// ErrTooLarge: a record, an initial state or a file to import exceeds its limit.
	ErrTooLarge = patch.ErrTooLarge

	// ErrDuplicateID: a call uses an id twice, or the log already has the id with other content.
	ErrDuplicateID = fold.ErrDuplicateID

	// ErrConflict: the log has changed since the caller read it. Read the session again, and make a new patch.
	ErrConflict = fold.ErrConflict

	// ErrOutOfRange: the indices of a patch are outside the visible log.
	ErrOutOfRange = fold.ErrOutOfRange

	// ErrEventNotFound: the id in a patch is not the id of a visible event, or no event of the log belongs to the
	// invocation.
	ErrEventNotFound = fold.ErrEventNotFound

	// ErrPinned: the patch would hide a pinned event.
	ErrPinned = fold.ErrPinned

	// ErrOrphanedCall: the patch would separate a function call from its response, or leave a visible log that
	// model APIs refuse.
	ErrOrphanedCall = fold.ErrOrphanedCall

	// ErrBlocked: the patch cannot be reverted, because another patch must be reverted first or the patch is
	// already reverted.
	ErrBlocked = fold.ErrBlocked

	// ErrUnknownPatch: the log has a patch of a type that this version does not support, so indices into the
	// visible log are unreliable.
	ErrUnknownPatch = fold.ErrUnknownPatch
)

// Error types that other packages define.
type (
	// ConflictError names the newest patch that the caller has seen, and the newest patch of the log. It matches
	// [ErrConflict].
	ConflictError = fold.ConflictError

	// PinnedError names the pinned events. It matches [ErrPinned].
	PinnedError = fold.PinnedError

	// OrphanError names the calls that a patch would separate from their responses, and suggests a span that would
	// be accepted. It matches [ErrOrphanedCall].
	OrphanError = fold.OrphanError

	// BlockedError names the patch to revert first. It matches [ErrBlocked].
	BlockedError = fold.BlockedError

	// FieldError names the invalid field and the reason. It matches [ErrInvalid].
	FieldError = patch.FieldError

	// LineError wraps an error in a file to import, and names the line.
	LineError = patch.LineError
)

// SeqError reports that a log does not end at the record that an append expects. Expected is [AppendOptions.IfSeq].
// Last is the seq of the log's last record. It matches [ErrConflict].
type SeqError struct {
	Expected uint64
	Last     uint64
}

func (e *SeqError) Error() string {
	return fmt.Sprintf("conflict: the append expects the log to end at record %d, but its last record is %d", e.Expected, e.Last)
}

// Is reports whether target is [ErrConflict].
func (e *SeqError) Is(target error) bool { return target == ErrConflict }

// DuplicateIDError names the id, and the record that already has it. It matches [ErrDuplicateID].
type DuplicateIDError = fold.DuplicateIDError

// CorruptError names a damaged record, by session and seq. If only the checksum chain of the log is wrong, Seq is
// the last record of the chain. Err is the reason. It matches [ErrCorrupt].
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

// fromBackend converts an error of the backend to an error of the store. If key is not zero, the error names the
// session.
func fromBackend(key Key, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backend.ErrUnknown): // this case comes first, because the cause of the error may match another case
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, write.Cause(err))
	default:
		err = convertError(err)
	}
	if key != (Key{}) {
		return fmt.Errorf("session %s: %w", key, err)
	}
	return err
}

// convertedError is a backend error that also matches an error of this package. Its text contains the text of the
// kind only once.
type convertedError struct{ kind, err error }

func (e *convertedError) Error() string {
	return e.kind.Error() + ": " + strings.TrimPrefix(e.err.Error(), backend.ErrDamaged.Error()+": ")
}

func (e *convertedError) Unwrap() []error { return []error{e.kind, e.err} }

// convertError returns the error of this package for an error of the backend.
func convertError(err error) error {
	for _, e := range []struct{ from, to error }{
		{backend.ErrNotFound, ErrNotFound}, {backend.ErrExists, ErrExists}, {backend.ErrClosed, ErrClosed},
		{backend.ErrDamaged, ErrCorrupt}, {backend.ErrIndex, ErrCorrupt},
		{backend.ErrReadOnly, ErrReadOnly}, {backend.ErrTaken, ErrCorrupt}, {backend.ErrMoved, ErrConflict},
	} {
		switch {
		case err == e.from:
			return e.to
		case errors.Is(err, e.from):
			return &convertedError{e.to, err}
		}
	}
	return err
}
