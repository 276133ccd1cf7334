package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Fence implements [backend.Backend]. It waits for a commit that holds the session's row. To
// keep a session from being created, a row takes the place of its creation.
func (b *Backend) Fence(ctx context.Context, session, creation string, seen, next backend.Token) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	if seen != 0 {
		return b.attemptWaiting(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, b.sql(`
				UPDATE patchlog.sessions SET token = $4, touched = now()
				WHERE hash = $1 AND birth = $2 AND token = $3`), hash(session), hash(creation), int64(seen), int64(next))
			return err
		})
	}
	b.staged.drop(creation)
	return b.attemptWaiting(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(b.sql(`
			INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, since, sum)
			VALUES ($1, $2, 3, 0, 0, 0, 0)
			ON CONFLICT (birth) DO UPDATE SET state = 3, last = 0, touched = now() WHERE s.hash IS NULL`), hash(creation), []byte(creation))
		for _, table := range []string{"records", "ids", "snapshots", "metas"} { // of what was staged, or deleted
			batch.Queue(b.sql(`
				DELETE FROM patchlog.`+table+` WHERE num = (SELECT num FROM patchlog.sessions WHERE birth = $1 AND hash IS NULL)`), hash(creation))
		}
		return c.SendBatch(ctx, &batch).Close()
	})
}
