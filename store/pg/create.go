package pg

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// create creates a session. If batch.RenameFrom is set, create renames the staged session instead.
func (b *Backend) create(ctx context.Context, session string, batch backend.Batch) error {
	c := newChange(session, batch)
	text := createSQL
	switch {
	case batch.RenameFrom != "":
		text = createStagedSQL
	case c.after != 0:
		return b.existsOr(ctx, session, backend.ErrMoved)
	}
	var created bool
	err := b.attempt(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		var num int64
		err := conn.QueryRow(ctx, b.sql(text+putMetaSQL+putRowsSQL+putValuesSQL), createArgs(session, batch, c)...).Scan(&num)
		created, err = found(err)
		return err
	})
	switch table, constraint, there := violates(err); {
	case there && constraint == "sessions_hash_key":
		return backend.ErrExists
	case there && table == "sessions", err == nil && !created:
		return b.existsOr(ctx, session, backend.ErrMoved)
	case isTaken(err):
		return backend.ErrTaken
	case err != nil:
		return err
	}
	return nil
}

// existsOr returns ErrExists if the session exists. Otherwise it returns other.
func (b *Backend) existsOr(ctx context.Context, session string, other error) error {
	there, err := b.exists(ctx, `hash = $1`, hash(session))
	if err == nil && there {
		return backend.ErrExists
	}
	return cmp.Or(err, other)
}

// movedOrGone returns ErrMoved if the session exists with this creation id, and ErrNotFound otherwise.
func (b *Backend) movedOrGone(ctx context.Context, session, creation string) error {
	there, err := b.exists(ctx, `hash = $1 AND birth = $2`, hash(session), hash(creation))
	if err == nil && there {
		return backend.ErrMoved
	}
	return cmp.Or(err, backend.ErrNotFound)
}

// exists reports whether a row of the table sessions meets the condition.
func (b *Backend) exists(ctx context.Context, condition string, args ...any) (there bool, err error) {
	err = b.attempt(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, b.sql(`SELECT EXISTS (SELECT FROM patchlog.sessions WHERE `+condition+`)`), args...).Scan(&there)
	})
	return there, err
}

// found reports, from the error of a Scan, whether the query returned a row.
func found(err error) (bool, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// lockSourceSQL locks the row of the session batch.ExpectedSource if its edition is the expected edition. Until the
// commit, no other transaction can delete that session or replace its records. Other transactions can still append to
// it.
const lockSourceSQL = `
WITH unmoved AS (
	SELECT num FROM patchlog.sessions WHERE hash = $19 AND birth = $20 AND state = 0 AND edition = $21
	FOR KEY SHARE
), `

const createSQL = lockSourceSQL + `done AS (
	INSERT INTO patchlog.sessions (hash, birth, name, creation, state, last, token, sum, counts, family)
	SELECT $1, $2, $3, $4, 0, $6::bigint, $7, $8, $23::bytea, $22::bytea
	WHERE $24::bytea IS NULL AND $25::bigint = 0 AND $5::bigint = 0 AND ($19::bytea IS NULL OR EXISTS (SELECT FROM unmoved))
	RETURNING num
)`

const createStagedSQL = lockSourceSQL + `done AS (
	UPDATE patchlog.sessions
	SET hash = $1, name = $3, creation = $4, last = $6, token = $7, sum = $8, counts = coalesce($23, counts), family = $22::bytea, created = now(), touched = now()
	WHERE hash = $24 AND birth = $2 AND state = 0 AND last = $5 AND token = $25 AND ($19::bytea IS NULL OR EXISTS (SELECT FROM unmoved))
	RETURNING num
)`

const putMetaSQL = `, put_meta AS (
	INSERT INTO patchlog.metas (num, data) SELECT num, $18 FROM done
	ON CONFLICT (num) DO UPDATE SET data = excluded.data
)`

func createArgs(session string, batch backend.Batch, c *change) []any {
	var while struct {
		hash, birth []byte
		edition     int64
	}
	if w := batch.ExpectedSource; w != nil {
		while.hash, while.birth, while.edition = hash(w.Session), hash(w.Creation), number(w.Edition)
	}
	var staged, family []byte
	if batch.Family != "" {
		family = hash(batch.Family)
	}
	if batch.RenameFrom != "" {
		staged = hash(batch.RenameFrom)
	}
	return []any{c.hash, c.birth, []byte(session), []byte(batch.Creation), c.after, c.last, c.next, int64(c.chain.Sum),
		c.seqs, c.datas, c.ids, c.idSeqs, c.sharedHashes, c.names, c.values, c.scopes, int64(backend.NewToken()), data(batch.Meta),
		while.hash, while.birth, while.edition, family, c.counts, staged, c.seen}
}
