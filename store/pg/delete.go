package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Delete implements [backend.Backend]. One update takes the session's name from its row,
// after any append that holds it, and ends all that others know of it; its rows go after
// that, in transactions of a bounded size. If that does not succeed it is done when a
// backend is opened. The row itself stays for an hour: it tells a fence
// that the session had been created.
func (b *Backend) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	condition, args := "", []any{hash(session), hash(creation)}
	if seen != nil { // each commit sets the token, those that replace records too
		condition, args = " AND last = $3 AND token = $4", append(args, number(seen.Last), int64(seen.Token))
	}
	var num int64
	var deleted, there bool
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, b.sql(`
			UPDATE patchlog.sessions SET hash = NULL, name = NULL, state = 3, touched = now()
			WHERE hash = $1 AND birth = $2`+condition+`
			RETURNING num`), args...).Scan(&num)
		deleted, err = found(err)
		return err
	})
	if err == nil && !deleted && seen != nil {
		there, err = b.exists(ctx, `hash = $1 AND birth = $2`, hash(session), hash(creation))
	}
	switch {
	case err != nil:
		return err
	case there:
		return backend.ErrMoved
	case !deleted:
		return backend.ErrNotFound
	}
	b.left(ctx, first(b.remove(ctx, num, true), b.forget(ctx)))
	return nil
}

// forget removes the rows of some sessions that were deleted an hour ago, and that have
// nothing else left. A fence that comes so late finds no statement to keep out.
func (b *Backend) forget(ctx context.Context) error {
	return b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, b.sql(`
			DELETE FROM patchlog.sessions
			WHERE num IN (
				SELECT num FROM patchlog.sessions s
				WHERE hash IS NULL AND state = 3 AND created < now() - interval '1 hour' AND touched < now() - interval '1 hour'
					AND NOT EXISTS (SELECT FROM patchlog.metas m WHERE m.num = s.num)
				ORDER BY created
				LIMIT 16
				FOR UPDATE SKIP LOCKED)`))
		return err
	})
}
