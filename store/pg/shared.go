package pg

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// PutShared implements [backend.Backend]. It takes the rows in the order in which appends do.
func (b *Backend) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	ordered := slices.Clone(changes)
	slices.SortFunc(ordered, func(x, y backend.SharedChange) int { return bytes.Compare(hash(x.Name), hash(y.Name)) })
	for _, c := range ordered {
		if err := backend.CheckName("a shared name", c.Name, 1); err != nil {
			return err
		}
	}
	var moved bool
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		moved = false
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // after the commit it does nothing
		for _, c := range ordered {
			text, args := putNewSharedSQL, []any{hash(c.Name), []byte(c.Name), data(c.Data)}
			if c.Old != nil {
				text, args = putSharedSQL, []any{hash(c.Name), data(c.Old.Data), data(c.Data)}
			}
			done, err := tx.Exec(ctx, b.sql(text), args...)
			if err != nil {
				return err
			}
			if done.RowsAffected() == 0 {
				moved = true
				return nil
			}
		}
		return tx.Commit(ctx)
	})
	if err == nil && moved {
		return backend.ErrMoved
	}
	return err
}

const (
	putSharedSQL    = `UPDATE patchlog.shared SET data = $3 WHERE hash = $1 AND data = $2`
	putNewSharedSQL = `INSERT INTO patchlog.shared (hash, name, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
)
