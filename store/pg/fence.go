package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Fence implements [backend.Backend]. It waits for a commit that holds the session's row. To
// keep a session from being created, a row takes the place of its creation.
//
// A fence always writes a row, also if it does not take: a transaction that changes nothing does
// not wait for a synchronous standby, and the commit that it finds may be on this server only.
// The standby has all earlier commits when it has the fence's.
func (b *Backend) Fence(ctx context.Context, session, creation string, seen, next backend.Token) (took bool, err error) {
	text, args := fenceSQL, []any{hash(session), hash(creation), int64(seen), int64(next)}
	if seen == 0 {
		text, args = fenceCreationSQL, []any{hash(creation), []byte(creation)}
	}
	err = b.attemptWaiting(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(b.sql(text), args...).Exec(func(done pgconn.CommandTag) error {
			took = done.RowsAffected() > 0
			return nil
		})
		batch.Queue(b.sql(touchSQL), hash(creation), []byte(creation))
		return c.SendBatch(ctx, &batch).Close()
	})
	return took && err == nil, err
}

// fenceSQL sets the session's token. A fence that was sent before, and whose answer was lost, has set it to next.
const fenceSQL = `
UPDATE patchlog.sessions SET token = $4, touched = now()
WHERE hash = $1 AND birth = $2 AND token IN ($3, $4)`

// fenceCreationSQL makes a row that keeps a session from being created.
const fenceCreationSQL = `
INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
VALUES ($1, $2, 2, 0, 0, 0)
ON CONFLICT (birth) DO UPDATE SET touched = now() WHERE s.state = 2`

// touchSQL writes the row of a creation, whatever became of it. If there is none it
// leaves one like that of a deleted session, which is removed after an hour.
const touchSQL = `
INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
VALUES ($1, $2, 3, 0, 0, 0)
ON CONFLICT (birth) DO UPDATE SET touched = now()`
