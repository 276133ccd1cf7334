package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Delete implements [backend.Backend]. It first removes the name from the session's row, in one update, so that no
// call finds the session. The update waits for transactions that have locked the row. Delete then removes the
// session's other rows in transactions of bounded size. If one of these transactions fails, a later sweep removes
// the remaining rows. The session's row stays for an hour, so that a fence can tell that the session was created.
func (b *Backend) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	condition, args := "", []any{hash(session), hash(creation)}
	switch {
	case seen != nil && seen.Token == 0:
		condition, args = " AND edition = $3", append(args, number(seen.Edition))
	case seen != nil: // every commit changes the token, so the seq and the token together also imply the edition
		condition, args = " AND last = $3 AND token = $4", append(args, number(seen.Last), int64(seen.Token))
	}
	var num int64
	var deleted bool
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, b.sql(`
			UPDATE patchlog.sessions SET hash = NULL, name = NULL, state = 3, touched = now()
			WHERE hash = $1 AND birth = $2`+condition+`
			RETURNING num`), args...).Scan(&num)
		deleted, err = found(err)
		return err
	})
	if err == nil && !deleted {
		err = b.movedOrGone(ctx, session, creation)
	}
	if err != nil {
		return err
	}
	b.left(ctx, b.remove(ctx, num, true))
	b.sweep(ctx)
	return nil
}
