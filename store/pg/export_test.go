package pg

import "time"

// SetPlanTime sets how long a statement stays prepared.
func (b *Backend) SetPlanTime(d time.Duration) { b.planTime = d }

// IsUnreplicated is isUnreplicated.
var IsUnreplicated = isUnreplicated
