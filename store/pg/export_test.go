package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SetPlanTime sets how long a statement stays prepared.
func (b *Backend) SetPlanTime(d time.Duration) { b.planTime = d }

// IsUnreplicated is isUnreplicated.
var IsUnreplicated = isUnreplicated

// Repeat does work that can be done again.
func (b *Backend) Repeat(ctx context.Context, work func(ctx context.Context, c *pgx.Conn) error) error {
	return b.attempt(ctx, repeats, work)
}
