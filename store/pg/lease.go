package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Lease implements [backend.Leaser], with the server's clock. If the time when a lease was acquired is more
// than a minute in the future, the clock was set back, and the lease counts as expired.
func (b *Backend) Lease(ctx context.Context, name, owner string, ttl time.Duration) (held bool, err error) {
	err = b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		if ttl < 0 {
			return c.QueryRow(ctx, b.sql(`
				SELECT NOT EXISTS (SELECT FROM patchlog.leases WHERE hash = $1 AND owner <> $2
					AND until > clock_timestamp() AND taken <= clock_timestamp() + interval '1 minute')`),
				hash(name), []byte(owner)).Scan(&held)
		}
		if ttl == 0 {
			_, err := c.Exec(ctx, b.sql(`DELETE FROM patchlog.leases WHERE hash = $1 AND owner = $2`), hash(name), []byte(owner))
			return err
		}
		held, err = found(c.QueryRow(ctx, b.sql(`
			INSERT INTO patchlog.leases AS l (hash, name, owner, taken, until)
			VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp() + $4::bigint * interval '1 microsecond')
			ON CONFLICT (hash) DO UPDATE
			SET owner = excluded.owner, taken = clock_timestamp(), until = clock_timestamp() + $4::bigint * interval '1 microsecond'
			WHERE l.owner = excluded.owner OR l.until <= clock_timestamp() OR l.taken > clock_timestamp() + interval '1 minute'
			RETURNING true`), hash(name), []byte(name), []byte(owner), max(ttl.Microseconds(), 1)).Scan(nil))
		return err
	})
	return held && err == nil, err
}
