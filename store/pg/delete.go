package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Delete implements [backend.Backend]. One update takes the session's name from its row,
// after any append that holds it, and ends all that others know of it; its rows go after
// that, in transactions of a bounded size. If that does not succeed it is done later, by one
// who opens a backend or begins to stage.
func (b *Backend) Delete(ctx context.Context, session, creation string) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	var num int64
	var found bool
	err := b.attempt(ctx, writes, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, b.sql(`
			UPDATE patchlog.sessions SET hash = NULL, name = NULL, state = 2, touched = now()
			WHERE hash = $1 AND birth = $2
			RETURNING num`), hash(session), hash(creation)).Scan(&num)
		found = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !found:
		return backend.ErrNotFound
	}
	b.left(ctx, b.remove(ctx, num))
	return nil
}
