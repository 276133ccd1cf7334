package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Fence implements [backend.Backend]. It waits for a commit that holds the session's row. To
// keep a session from being created, a row takes the place of its creation.
//
// A fence always writes a row, also if it does not take: a transaction that changes nothing does
// not wait for a synchronous standby, and the commit that it finds may be on this server only.
// The standby has all earlier commits when it has the fence's.
func (b *Backend) Fence(ctx context.Context, session, creation string, seen, next backend.Token) (took bool, err error) {
	if err := b.enter(ctx); err != nil {
		return false, err
	}
	defer b.leave()
	if seen != 0 {
		err = b.attemptWaiting(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
			var batch pgx.Batch
			// One that was sent before, and whose answer was lost, has set next.
			batch.Queue(b.sql(`
				UPDATE patchlog.sessions SET token = $4, touched = now()
				WHERE hash = $1 AND birth = $2 AND token IN ($3, $4)`), hash(session), hash(creation), int64(seen), int64(next))
			batch.Queue(b.sql(touchSQL), hash(creation), []byte(creation))
			took, err = firstAffects(ctx, c, &batch)
			return err
		})
		return took && err == nil, err
	}
	err = b.attemptWaiting(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(b.sql(`
			INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
			VALUES ($1, $2, 2, 0, 0, 0)
			ON CONFLICT (birth) DO UPDATE SET touched = now() WHERE s.state = 2`), hash(creation), []byte(creation))
		batch.Queue(b.sql(touchSQL), hash(creation), []byte(creation))
		took, err = firstAffects(ctx, c, &batch)
		return err
	})
	return took && err == nil, err
}

// touchSQL writes the row of a creation, whatever became of it. If there is none any more it
// leaves one like that of a deleted session, which is removed after an hour.
const touchSQL = `
INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
VALUES ($1, $2, 3, 0, 0, 0)
ON CONFLICT (birth) DO UPDATE SET touched = now()`

// firstAffects sends statements in one transaction and one round trip, and reports whether the
// first one changed a row.
func firstAffects(ctx context.Context, c *pgx.Conn, batch *pgx.Batch) (bool, error) {
	results := c.SendBatch(ctx, batch)
	done, err := results.Exec()
	return done.RowsAffected() > 0, first(err, results.Close())
}
