package pg

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// sweep deletes rows that are no longer needed. It runs when a backend is opened and after each Delete. It deletes
// these rows:
//
//   - The rows of sessions that were deleted at least an hour ago, and any records that a crash or an error has left.
//   - Rows by which a fence prevented a creation, after thirty days. No statement that creates the session is then in flight.
//   - Leases that expired at least a day ago.
//
// One sweep deletes at most eight rows of the table sessions.
func (b *Backend) sweep(ctx context.Context) {
	var nums []int64
	err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, b.sql(`
			UPDATE patchlog.sessions SET state = 1
			WHERE num IN (
				SELECT num FROM patchlog.sessions
				WHERE hash IS NULL AND created < now() - interval '1 hour' AND touched < now() - CASE state
					WHEN 2 THEN interval '30 days'
					ELSE interval '1 hour' END
				ORDER BY created
				LIMIT 8
				FOR UPDATE SKIP LOCKED)
			RETURNING num`))
		if err == nil {
			nums, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err == nil {
			_, err = c.Exec(ctx, b.sql(`DELETE FROM patchlog.leases WHERE until < now() - interval '1 day'`))
		}
		return err
	})
	for _, num := range nums {
		err = cmp.Or(err, b.remove(ctx, num, false))
	}
	b.left(ctx, err)
}

// left logs an error that prevented the removal of rows. It ignores ErrClosed and errors caused by the end of
// the context.
func (b *Backend) left(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, backend.ErrClosed) {
		b.opts.Logger.Warn("patchlog: unlinked rows were not removed; a later sweep removes them", "schema", b.opts.Schema, "error", err)
	}
}

// removeRows limits the number of rows that one transaction removes from a table. A long transaction would delay
// vacuum.
const removeRows = 5000

// remove removes the rows of a deleted session from all tables. If keep is set, the row in the table sessions stays.
func (b *Backend) remove(ctx context.Context, num int64, keep bool) error {
	for more := true; more; {
		err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
			more = false
			note := func(done pgconn.CommandTag) error {
				more = more || done.RowsAffected() == removeRows
				return nil
			}
			var batch pgx.Batch
			batch.Queue(b.sql(`DELETE FROM patchlog.records WHERE num = $1 AND seq IN (SELECT seq FROM patchlog.records WHERE num = $1 ORDER BY seq LIMIT $2)`), num, removeRows).Exec(note)
			batch.Queue(b.sql(`DELETE FROM patchlog.ids WHERE num = $1 AND id IN (SELECT id FROM patchlog.ids WHERE num = $1 ORDER BY id LIMIT $2)`), num, removeRows).Exec(note)
			return c.SendBatch(ctx, &batch).Close()
		})
		if err != nil {
			return err
		}
	}
	return b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		for _, table := range []string{"snapshots", "metas"} {
			batch.Queue(b.sql(`DELETE FROM patchlog.`+table+` WHERE num = $1`), num)
		}
		if !keep { // only sweep removes the row, and only sweep sets state 1
			batch.Queue(b.sql(`DELETE FROM patchlog.sessions WHERE num = $1 AND state = 1`), num)
		}
		return c.SendBatch(ctx, &batch).Close()
	})
}
