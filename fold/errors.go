package fold

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Errors of this package. Malformed patches are [patch.ErrInvalid].
var (
	// ErrConflict: another patch was logged since the author read the view. The error is a *[ConflictError].
	ErrConflict = errors.New("conflict")

	// ErrOutOfRange: the patch's indices are outside the visible log.
	ErrOutOfRange = errors.New("out of range")

	// ErrEventNotFound: the patch's event is not visible.
	ErrEventNotFound = errors.New("event not found")

	// ErrPinned: the patch would hide a pinned event. The error is a *[PinnedError].
	ErrPinned = errors.New("pinned")

	// ErrOrphanedCall: the patch would separate a function call from its response, or leave a visible log that model
	// APIs refuse. The error is an *[OrphanError].
	ErrOrphanedCall = errors.New("orphaned function call")

	// ErrUnknownPatch: the log holds a patch of a type that this program does not know, so indices into the visible
	// log are unreliable.
	ErrUnknownPatch = errors.New("log holds a patch of unknown type")

	// ErrBlocked: a later patch must be reverted first, or the patch is already reverted. The error is a
	// *[BlockedError].
	ErrBlocked = errors.New("revert blocked")

	// ErrOutdated: the binary form of a view has another version.
	ErrOutdated = errors.New("view of another version")

	// ErrDuplicateID: an id is already used for other content. The error is a *[DuplicateIDError].
	ErrDuplicateID = errors.New("duplicate id")

	// ErrSeq: a record does not directly follow the view.
	ErrSeq = errors.New("record out of sequence")
)

// ConflictError names the patch that an author has not seen. It matches [ErrConflict].
type ConflictError struct {
	Base   uint64 // the newest patch that the author has seen
	Newest uint64 // the log's newest patch
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict: the patch is based on patch %d, but the log's newest patch is %d; read the session again and make the patch from that", e.Base, e.Newest)
}

// Is reports whether target is [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// DuplicateIDError names an id that is already used, and the record that uses it. It matches [ErrDuplicateID].
type DuplicateIDError struct {
	ID  string
	Seq uint64 // of the record that uses the id; 0 if it is in the same call
}

func (e *DuplicateIDError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("duplicate id: %q is there twice in one call", e.ID)
	}
	return fmt.Sprintf("duplicate id: %q is used by record %d, with other content", e.ID, e.Seq)
}

// Is reports whether target is [ErrDuplicateID].
func (e *DuplicateIDError) Is(target error) bool { return target == ErrDuplicateID }

// errBlocked is a placeholder for a [BlockedError] whose fields are not computed yet.
var errBlocked = errors.New("revert blocked")

// BlockedError is the refusal of a revert. Either a later patch must be reverted first, because some events that the
// target added are no longer visible and adjacent, or the target is already reverted. It matches [ErrBlocked].
type BlockedError struct {
	PatchID     string // the patch to revert
	Blocking    string // the newest of the patches that must be reverted first
	BlockingSeq uint64 // its seq

	// AlreadyReverted says that no patch of the target's group is active. Blocking is then the newest active revert
	// of the target; reverting it is a redo.
	AlreadyReverted bool
}

func (e *BlockedError) Error() string {
	if e.AlreadyReverted {
		return fmt.Sprintf("revert blocked: patch %q is already reverted, by revert %q (record %d); to redo the patch, revert that", e.PatchID, e.Blocking, e.BlockingSeq)
	}
	return fmt.Sprintf("revert blocked: patch %q (record %d) changed events that patch %q added; revert %q first", e.Blocking, e.BlockingSeq, e.PatchID, e.Blocking)
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
	return strings.TrimSuffix(text, ",") + "; unpin it, keep it visible, or allow pinned events to be hidden"
}

// Is reports whether target is [ErrPinned].
func (e *PinnedError) Is(target error) bool { return target == ErrPinned }

// notVisible is the refusal of a patch whose event is not visible.
func notVisible(p *patch.PatchEvent) error {
	return fmt.Errorf("%w: no visible event has the id %q", ErrEventNotFound, p.EventID())
}

// invalidBase is the refusal of a base above the log's last seq.
func invalidBase(base, last uint64) error {
	return &patch.FieldError{Field: "base", Problem: fmt.Sprintf("it is %d, but the log's last record is %d", base, last)}
}
