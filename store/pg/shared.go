package pg

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// PutShared implements [backend.Backend]. It locks the rows in the order of their hashes, as Append does.
func (b *Backend) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	ordered := slices.Clone(changes)
	slices.SortFunc(ordered, func(x, y backend.SharedChange) int { return bytes.Compare(hash(x.Name), hash(y.Name)) })
	var values []backend.Value
	for _, c := range ordered {
		values = append(values, backend.Value{Name: c.Name})
		if err := backend.CheckName("a shared name", c.Name, 1); err != nil {
			return err
		}
	}
	var scopes [][]byte
	for _, scope := range backend.Scopes(values) {
		scopes = append(scopes, hash(scope))
	}
	var moved bool
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		moved = false
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // a no-op after the commit
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
		if _, err := tx.Exec(ctx, b.sql(putScopesSQL), scopes, int64(backend.NewToken())); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	if err == nil && moved {
		return backend.ErrMoved
	}
	return err
}

const (
	putSharedSQL = `UPDATE patchlog.shared SET data = $3 WHERE hash = $1 AND data = $2`
	putScopesSQL = `INSERT INTO patchlog.scopes (hash, token) SELECT hash, $2 FROM unnest($1::bytea[]) AS x(hash) ORDER BY hash
		ON CONFLICT (hash) DO UPDATE SET token = excluded.token`
	putNewSharedSQL = `INSERT INTO patchlog.shared (hash, name, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
)
