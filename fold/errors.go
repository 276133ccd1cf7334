package fold

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Errors of this package. Errors about malformed patches match [patch.ErrInvalid].
var (
	// ErrConflict: the log has a patch that the author has not seen. The error is a *[ConflictError].
	ErrConflict = errors.New("conflict")

	// ErrOutOfRange: the patch's indices are outside the visible log.
	ErrOutOfRange = errors.New("out of range")

	// ErrEventNotFound: the event that the patch names is not visible.
	ErrEventNotFound = errors.New("event not found")

	// ErrPinned: the patch would hide a pinned event. The error is a *[PinnedError].
	ErrPinned = errors.New("pinned")

	// ErrOrphanedCall: the patch would separate a function call from its response, or leave a visible log that
	// model APIs refuse. The error is an *[OrphanError].
	ErrOrphanedCall = errors.New("orphaned function call")

	// ErrUnknownPatch: the log contains a patch of a type that this program does not support. Indices into the
	// visible log are therefore unreliable.
	ErrUnknownPatch = errors.New("the log contains a patch of unknown type")

	// ErrBlocked: a later patch must be reverted first, or the patch is already reverted. The error is a
	// *[BlockedError].
	ErrBlocked = errors.New("revert blocked")

	// ErrOutdated: the binary form of a view has another version.
	ErrOutdated = errors.New("view of another version")

	// ErrDuplicateID: an id is already used for other content. The error is a *[DuplicateIDError].
	ErrDuplicateID = errors.New("duplicate id")

	// ErrSeq: a record does not directly follow the view's last record.
	ErrSeq = errors.New("record out of sequence")
)

// ConflictError reports that the log has a patch that the author has not seen. It matches [ErrConflict].
type ConflictError struct {
	Base   uint64 // seq of the newest patch that the author has seen
	Newest uint64 // seq of the log's newest patch
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict: the patch is based on record %d, but the log's newest patch is %d; read the session again and make a new patch", e.Base, e.Newest)
}

// Is reports whether target is [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// DuplicateIDError reports an id that is already used for other content. It matches [ErrDuplicateID].
type DuplicateIDError struct {
	ID  string
	Seq uint64 // seq of the record that uses the id; 0 if the record is in the same call
}

func (e *DuplicateIDError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("duplicate id: %q occurs twice in one call", e.ID)
	}
	return fmt.Sprintf("duplicate id: %q is already used by record %d, with other content", e.ID, e.Seq)
}

// Is reports whether target is [ErrDuplicateID].
func (e *DuplicateIDError) Is(target error) bool { return target == ErrDuplicateID }

// errBlocked is a revert's error before the fields of a [BlockedError] are computed.
var errBlocked = errors.New("revert blocked")

// BlockedError reports that a revert cannot be applied. Either a later patch must be reverted first, or the
// target is already reverted. A later patch blocks the revert if it hid an event that the target added, or put
// an event between such events. BlockedError matches [ErrBlocked].
type BlockedError struct {
	PatchID     string // id of the patch to revert
	Blocking    string // id of the newest patch that must be reverted first
	BlockingSeq uint64 // seq of this patch

	// AlreadyReverted says that no patch of the target's group is active. Blocking is then the newest active
	// revert of the target. Reverting that revert redoes the target.
	AlreadyReverted bool
}

func (e *BlockedError) Error() string {
	if e.AlreadyReverted {
		return fmt.Sprintf("revert blocked: patch %q is already reverted, by revert %q (record %d); to redo the patch, revert record %d", e.PatchID, e.Blocking, e.BlockingSeq, e.BlockingSeq)
	}
	return fmt.Sprintf("revert blocked: patch %q (record %d) changed events that patch %q added; revert %q first", e.Blocking, e.BlockingSeq, e.PatchID, e.Blocking)
}

// Is reports whether target is [ErrBlocked].
func (e *BlockedError) Is(target error) bool { return target == ErrBlocked }

// PinnedError lists the pinned events that a patch would hide. It matches [ErrPinned].
type PinnedError struct {
	Events []Entry // in the order of the visible log
}

func (e *PinnedError) Error() string {
	const limit = 5
	text := "pinned: the patch would hide"
	for i, p := range e.Events {
		if i == limit {
			text += fmt.Sprintf(" and %d more", len(e.Events)-limit)
			break
		}
		text += fmt.Sprintf(" visible event %d (id %q),", p.Index, p.Event.ID())
	}
	return strings.TrimSuffix(text, ",") + "; unpin it, keep it visible, or allow pinned events to be hidden"
}

// Is reports whether target is [ErrPinned].
func (e *PinnedError) Is(target error) bool { return target == ErrPinned }

func eventNotVisible(p *patch.PatchEvent) error {
	return fmt.Errorf("%w: no visible event has the id %q", ErrEventNotFound, p.EventID())
}

func invalidBase(base, last uint64) error {
	return &patch.FieldError{Field: "base", Problem: fmt.Sprintf("the base is %d, but the log's last record is %d", base, last)}
}
