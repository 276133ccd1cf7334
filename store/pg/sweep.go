package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sweep removes some of what other programs have left behind: deleted sessions whose rows are
// there an hour later, and after thirty days the rows that keep a session from being created, when
// no statement can be under way that would. Leases that ran out a day ago go too.
func (b *Backend) sweep(ctx context.Context) {
	b.discard(ctx, `
		UPDATE patchlog.sessions SET state = 1
		WHERE num IN (
			SELECT num FROM patchlog.sessions
			WHERE hash IS NULL AND created < now() - interval '1 hour' AND touched < now() - CASE state
				WHEN 2 THEN interval '30 days'
				ELSE interval '1 hour' END
			ORDER BY created
			LIMIT 8
			FOR UPDATE SKIP LOCKED)
		RETURNING num`)
	b.left(ctx, b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, b.sql(`DELETE FROM patchlog.leases WHERE until < now() - interval '1 day'`))
		return err
	}))
}

// discard removes sessions of which nobody sees anything, and that mark has marked so. What
// fails is left to a sweep.
func (b *Backend) discard(ctx context.Context, mark string, args ...any) {
	var nums []int64
	err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, b.sql(mark), args...)
		if err == nil {
			nums, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	for _, num := range nums {
		err = first(err, b.remove(ctx, num, false))
	}
	b.left(ctx, err)
}

// left tells the operator what kept something from being removed, if anything did.
func (b *Backend) left(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		b.opts.Logger.Warn("patchlog: what has no owner any more is left in the database for now", "schema", b.opts.Schema, "error", err)
	}
}

// A transaction removes so many rows of a table, so that it neither takes long nor holds up
// what cleans the tables.
const removeRows = 5000

// remove removes a session of which nobody sees anything: its rows, and then the session's,
// unless that is to be kept.
func (b *Backend) remove(ctx context.Context, num int64, keep bool) error {
	for {
		more := false
		err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
			var batch pgx.Batch
			batch.Queue(b.sql(`DELETE FROM patchlog.records WHERE num = $1 AND seq IN (SELECT seq FROM patchlog.records WHERE num = $1 ORDER BY seq LIMIT $2)`), num, removeRows)
			batch.Queue(b.sql(`DELETE FROM patchlog.ids WHERE num = $1 AND id IN (SELECT id FROM patchlog.ids WHERE num = $1 ORDER BY id LIMIT $2)`), num, removeRows)
			results := c.SendBatch(ctx, &batch)
			records, err := results.Exec()
			if err != nil {
				return first(err, results.Close())
			}
			ids, err := results.Exec()
			more = records.RowsAffected() == removeRows || ids.RowsAffected() == removeRows
			return first(err, results.Close())
		})
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	return b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		for _, table := range []string{"snapshots", "metas"} {
			batch.Queue(b.sql(`DELETE FROM patchlog.`+table+` WHERE num = $1`), num)
		}
		if !keep { // a fence may have taken the row meanwhile
			batch.Queue(b.sql(`DELETE FROM patchlog.sessions WHERE num = $1 AND state = 1`), num)
		}
		return c.SendBatch(ctx, &batch).Close()
	})
}
