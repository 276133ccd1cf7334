package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

func (b *Backend) SetPlanTime(d time.Duration) { b.planTime = d }

var IsUnreplicated = isUnreplicated

// Repeat runs work in a transaction that the backend may repeat.
func (b *Backend) Repeat(ctx context.Context, work func(ctx context.Context, c *pgx.Conn) error) error {
	return b.attempt(ctx, repeats, work)
}

// AppendGroup appends the batches, keyed by session name, as one group. It returns the names of the sessions that
// were appended to.
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
