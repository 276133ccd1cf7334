package fold

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Errors of this package. [View.Check] gives most of them, and [patch.ErrInvalid] for a
// malformed patch.
var (
	// ErrConflict: another patch has been logged since the author looked. The error
	// is a *[ConflictError].
	ErrConflict = errors.New("conflict")

	// ErrOutOfRange: the patch names visible events that are not there.
	ErrOutOfRange = errors.New("out of range")

	// ErrEventNotFound: the event that the patch names is not visible.
	ErrEventNotFound = errors.New("event not found")

	// ErrPinned: the patch would hide a pinned event. The error is a *[PinnedError].
	ErrPinned = errors.New("pinned")

	// ErrOrphanedCall: the patch would split a function call from its response, or
	// leave a visible log that a model's API refuses. The error is an *[OrphanError].
	ErrOrphanedCall = errors.New("orphaned function call")

	// ErrUnknownPatch: the log holds a patch of a type that this program does not
	// know, so that indices into the visible log cannot be trusted.
	ErrUnknownPatch = errors.New("log holds a patch of unknown type")

	// ErrBlocked: a revert cannot be applied before a later patch is reverted. The error
	// is a *[BlockedError].
	ErrBlocked = errors.New("revert blocked")

	// ErrOutdated: records meant something else to the program that wrote the binary form
	// of a view.
	ErrOutdated = errors.New("view of another version")

	// ErrSeq: a record was applied to a view that it does not follow.
	ErrSeq = errors.New("record out of sequence")
)

// ConflictError says which patch an author had not seen. It matches [ErrConflict].
type ConflictError struct {
	Base   uint64 // the newest patch that the author had seen
	Newest uint64 // the log's newest patch
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict: the patch was made after seeing patch %d, but the log's newest patch is %d; look again and make it anew", e.Base, e.Newest)
}

// Is reports whether target is [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// errBlocked stands for a [BlockedError] that has not been made yet.
var errBlocked = errors.New("revert blocked")

// BlockedError says which patch is in the way of a revert: what the revert would take
// back does not stand whole any more. It matches [ErrBlocked].
type BlockedError struct {
	PatchID     string // the patch that was to be reverted
	Blocking    string // the newest of the patches that must be reverted before
	BlockingSeq uint64 // its seq
	TakenBack   bool   // Blocking is a revert of the patch, which is taken back already
}

func (e *BlockedError) Error() string {
	if e.TakenBack {
		return fmt.Sprintf("revert blocked: patch %q has been taken back already, by revert %q (record %d)", e.PatchID, e.Blocking, e.BlockingSeq)
	}
	return fmt.Sprintf("revert blocked: patch %q (record %d) stands on what patch %q put in; revert %q first", e.Blocking, e.BlockingSeq, e.PatchID, e.Blocking)
}

// Is reports whether target is [ErrBlocked].
func (e *BlockedError) Is(target error) bool { return target == ErrBlocked }

// PinnedError lists the pinned events that a patch would hide. It matches [ErrPinned].
type PinnedError struct {
	Events []Entry // in order
}

func (e *PinnedError) Error() string {
	const most = 5
	text := "pinned: the patch would hide"
	for i, p := range e.Events {
		if i == most {
			text += fmt.Sprintf(" and %d more", len(e.Events)-most)
			break
		}
		text += fmt.Sprintf(" visible event %d (id %q),", p.Index, p.Event.ID())
	}
	return strings.TrimSuffix(text, ",") + "; unpin it, leave it in sight, or allow pinned events to be hidden"
}

// Is reports whether target is [ErrPinned].
func (e *PinnedError) Is(target error) bool { return target == ErrPinned }

// notVisible is the refusal of a patch whose event is not there.
func notVisible(p *patch.PatchEvent) error {
	return fmt.Errorf("%w: no visible event has the id %q", ErrEventNotFound, p.EventID())
}

// invalidBase is the refusal of a base that cannot have been seen.
func invalidBase(base, last uint64) error {
	return &patch.FieldError{Field: "base", Problem: fmt.Sprintf("it is %d, but the log's last record is %d", base, last)}
}
