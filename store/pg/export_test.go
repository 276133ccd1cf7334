package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// SetPlanTime sets how long a statement stays prepared.
func (b *Backend) SetPlanTime(d time.Duration) { b.planTime = d }

// IsUnreplicated is isUnreplicated.
var IsUnreplicated = isUnreplicated

// Repeat does work that can be done again.
func (b *Backend) Repeat(ctx context.Context, work func(ctx context.Context, c *pgx.Conn) error) error {
	return b.attempt(ctx, repeats, work)
}

// AppendGroup appends a batch to each of the sessions, as one group, and returns the sessions whose batch is appended.
func (b *Backend) AppendGroup(batches map[string]backend.Batch) (done []string) {
	var group []*change
	var names []string
	for name, batch := range batches {
		group, names = append(group, newChange(name, batch)), append(names, name)
	}
	b.appendGroup(group)
	for i, c := range group {
		if c.done && c.err == nil {
			done = append(done, names[i])
		}
	}
	return done
}
