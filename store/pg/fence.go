package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Fence implements [backend.Backend]. If a transaction has locked the session's row, Fence waits until that
// transaction ends. To prevent the creation of a session, Fence inserts a row with the creation id.
//
// Fence writes a row even if it returns false. The commit that Fence found might exist only on this server.
// Because Fence writes, its own commit waits for the synchronous standby, which then also has all earlier
// commits.
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

// fenceSQL replaces the session's token. It also accepts a row that already has the new token, because an
// earlier attempt may have set the token without an answer.
const fenceSQL = `
UPDATE patchlog.sessions SET token = $4, touched = now()
WHERE hash = $1 AND birth = $2 AND token IN ($3, $4)`

// fenceCreationSQL inserts a row that prevents the creation of a session.
const fenceCreationSQL = `
INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
VALUES ($1, $2, 2, 0, 0, 0)
ON CONFLICT (birth) DO UPDATE SET touched = now() WHERE s.state = 2`

// touchSQL updates the row with the creation id, if there is one. Otherwise it inserts a row in the state of a
// deleted session, which a sweep removes after an hour.
const touchSQL = `
INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
VALUES ($1, $2, 3, 0, 0, 0)
ON CONFLICT (birth) DO UPDATE SET touched = now()`
