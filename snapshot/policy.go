package snapshot

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// Policy determines when a store should write a new snapshot of a session. The zero value has the defaults.
type Policy struct {
	// Every is the minimum number of records since the last snapshot. 0 means 256. A negative value disables
	// snapshots.
	Every int

	// MinPercent is the minimum number of records since the last snapshot, as a percentage of the visible
	// events. It keeps the cost of snapshots proportional to the cost of appends. 0 means 10.
	MinPercent int
}

// Defaults of [Policy].
const (
	DefaultEvery      = 256
	DefaultMinPercent = 10
)

// Validate checks the policy. The error matches [patch.ErrInvalid] and names the field.
func (p Policy) Validate() error {
	if p.MinPercent < 0 {
		return &patch.FieldError{Field: "Policy.MinPercent", Problem: fmt.Sprintf("%d percent is below 0", p.MinPercent)}
	}
	return nil
}

// Due reports whether a store should write a new snapshot. The argument visible is the number of visible events
// in the view. The argument newRecords is the number of records logged since the last snapshot.
func (p Policy) Due(visible int, newRecords uint64) bool {
	if p.Every < 0 {
		return false
	}
	if p.Every == 0 {
		p.Every = DefaultEvery
	}
	if p.MinPercent == 0 {
		p.MinPercent = DefaultMinPercent
	}
	return newRecords >= uint64(p.Every) && newRecords*100 >= uint64(visible)*uint64(p.MinPercent)
}
