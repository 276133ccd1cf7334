package snapshot

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// Policy decides when a session is due for a new snapshot. The zero value has the defaults.
type Policy struct {
	// Every is the minimum number of records since the last snapshot. 0 means 256; a negative value disables
	// snapshots.
	Every int

	// MinPercent is the least number of records since the last snapshot, in percent of the visible events. It
	// keeps the cost of snapshots in proportion to that of appends. 0 means 10.
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

// Due reports whether a new snapshot is due for a view with the given number of visible events, when the log has
// grown by the given number of records since the last snapshot.
func (p Policy) Due(visible int, grown uint64) bool {
	if p.Every < 0 {
		return false
	}
	if p.Every == 0 {
		p.Every = DefaultEvery
	}
	if p.MinPercent == 0 {
		p.MinPercent = DefaultMinPercent
	}
	return grown >= uint64(p.Every) && grown*100 >= uint64(visible)*uint64(p.MinPercent)
}
