package snapshot

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// Policy says when a session is due for a new snapshot. The zero value means the
// defaults.
type Policy struct {
	// Every is how many records a log must have grown by since its last snapshot. 0
	// means 256; below 0 there are no snapshots.
	Every int

	// Share is, in percent of the visible events, how many records it must have grown
	// by too, so that the work of writing snapshots stays in proportion to that of
	// appending. 0 means 10.
	Share int
}

// Defaults of [Policy].
const (
	DefaultEvery = 256
	DefaultShare = 10
)

// Validate reports whether the policy makes sense. The error matches
// [patch.ErrInvalid] and names the field.
func (p Policy) Validate() error {
	if p.Share < 0 {
		return &patch.FieldError{Field: "Policy.Share", Problem: fmt.Sprintf("%d percent is below 0", p.Share)}
	}
	return nil
}

// Due reports whether a log whose view has the given number of visible events, and
// which has grown by the given number of records since its last snapshot, is due for a new one.
func (p Policy) Due(visible int, grown uint64) bool {
	if p.Every < 0 {
		return false
	}
	if p.Every == 0 {
		p.Every = DefaultEvery
	}
	if p.Share == 0 {
		p.Share = DefaultShare
	}
	return grown >= uint64(p.Every) && grown*100 >= uint64(visible)*uint64(p.Share)
}
