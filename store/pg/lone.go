package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// The statements of one append and of one look are prepared, so that the server plans them
// a few times for a connection and not each time. They find their rows by unique indexes, or
// by a range of an index.

// planTime is how long the statements of a connection stay prepared. A plan that was made for tables of
// a page or two reads them whole, and stays until the server has analyzed the tables again.
const planTime = 5 * time.Second

// plannedKey is the time, in a connection's own data, from which its plans are.
const plannedKey = "patchlog.planned"

// preparedError is the error of a statement that was to be prepared before.
type preparedError struct {
	error
	unsent bool // it failed while it was prepared, and was not executed
}

func (e *preparedError) Unwrap() error { return e.error }

// lone sends a statement of one call: prepared, if that works.
func (b *Backend) lone(ctx context.Context, c *pgx.Conn, text string, args []any, scan func(pgx.Rows) error) error {
	prepare := b.prepares.Load()
	data := c.PgConn().CustomData()
	if prepare {
		var err error
		if planned, ok := data[plannedKey].(time.Time); !ok || time.Since(planned) > b.planTime {
			if ok {
				err = c.DeallocateAll(ctx)
			}
			data[plannedKey] = time.Now()
		}
		if err == nil {
			_, err = c.Prepare(ctx, text, text) // under a name that the driver makes of the text
		}
		if err != nil {
			return &preparedError{err, true}
		}
	}
	rows, err := c.Query(ctx, text, args...)
	if err = first(err, scan(rows)); err == nil || !prepare {
		return err
	}
	err = &preparedError{err, false}
	if isOutdated(err) {
		data[plannedKey] = time.Time{}
	}
	return err
}

// isUnprepared reports whether a statement did nothing because a pooler gave the connection another one of the
// server's: there the prepared statement is missing, or its name is taken.
func isUnprepared(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && hasCode(err, "26000", "42P05")
}

// isOutdated reports whether a statement did nothing since what it returns has changed from
// when it was prepared: a table was altered.
func isOutdated(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && hasCode(err, "0A000")
}

// unsent reports whether a statement was not sent, since it failed while it was prepared.
func unsent(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && p.unsent
}

// stopPreparing has statements sent from now on in the way that works on any connection. Connections
// that have prepared some would go on executing those.
func (b *Backend) stopPreparing(why error) {
	if b.prepares.Swap(false) {
		b.pool.Reset()
		b.opts.Logger.Info("patchlog: the database is behind a pooler that does not keep prepared statements: the server plans each statement anew",
			"schema", b.opts.Schema, "error", why)
	}
}

// A look for more prefixes has the statement of a group.
const lonePrefixes = 4

// loneAppendSQL appends one batch, as appendSQL does, or does nothing: it does not say why.
//
// The look for ids sees what there was when the statement began, also if the row that is
// locked is newer. That does not matter: ids come with a commit, which sets the token that
// no caller can have known then, and the row that is locked has the one that the caller saw.
const loneAppendSQL = `
WITH locked AS (
	SELECT s.num
	FROM patchlog.sessions s
	WHERE s.hash = $1 AND s.birth = $2 AND s.state = 0 AND s.last = $3 AND s.token = $4
		AND NOT EXISTS (SELECT FROM patchlog.ids d WHERE d.num = s.num AND d.id = ANY ($11::bytea[]))
	FOR NO KEY UPDATE OF s SKIP LOCKED
), done AS (
	UPDATE patchlog.sessions s
	SET last = $5, token = $6, sum = $7, counts = coalesce($8, s.counts), touched = now()
	FROM locked l
	WHERE s.num = l.num
	RETURNING s.num
)` + putRowsSQL

// putRowsSQL ends a statement that appends one batch: it inserts the rows of the session in done, if there is one.
const putRowsSQL = `, put_records AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT d.num, x.seq, x.data FROM done d, unnest($9::bigint[], $10::bytea[]) AS x(seq, data)
), put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT d.num, x.id, x.seq FROM done d, unnest($11::bytea[], $12::bigint[]) AS x(id, seq)
), put_shared AS (
	INSERT INTO patchlog.shared (hash, name, data)
	SELECT x.hash, x.name, x.data FROM done d, unnest($13::bytea[], $14::bytea[], $15::bytea[]) AS x(hash, name, data)
	ORDER BY x.hash
	ON CONFLICT (hash) DO UPDATE SET data = excluded.data
)
SELECT num FROM done`

// appendLone appends a change by a statement of its own, and reports whether it did. If it
// did not it did nothing.
func (b *Backend) appendLone(ctx context.Context, c *change) (done bool, err error) {
	var r rows
	r.add(0, c)
	args := []any{c.hash, c.birth, c.after, c.seen, c.last, c.next, int64(c.chain.Sum), c.counts,
		r.seqs, r.datas, r.ids, r.idSeqs, r.sharedHashes, r.names, r.values}
	err = b.attempt(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		return b.lone(ctx, conn, b.sql(loneAppendSQL), args, func(rows pgx.Rows) error {
			done = false
			var num int64
			_, err := pgx.ForEachRow(rows, []any{&num}, func() error {
				done = true
				return nil
			})
			return err
		})
	})
	return done && err == nil, err
}

// loneLookSQL is lookSQL for one look.
func loneLookSQL(prefixes int) string {
	var text strings.Builder
	fmt.Fprintf(&text, `
SELECT 0::bigint AS kind, 1::bigint, s.last, s.token, s.sum, s.edition, s.counts, s.creation,
	CASE WHEN s.birth IS DISTINCT FROM $2 THEN (SELECT data FROM patchlog.metas m WHERE m.num = s.num) END, coalesce(s.birth = $2, false)
FROM patchlog.sessions s
WHERE s.hash = $1
UNION ALL
SELECT 1, 1, r.seq, 0, 0, 0, NULL, NULL, r.data, true
FROM patchlog.sessions s CROSS JOIN LATERAL (
	SELECT seq, data FROM (
		SELECT seq, data, sum(length(data)) OVER (ORDER BY seq) - length(data) AS before
		FROM (SELECT seq, data FROM patchlog.records WHERE num = s.num AND seq > $3 AND seq <= s.last ORDER BY seq LIMIT %d) page
	) measured
	WHERE before < %d
) r
WHERE s.hash = $1 AND s.birth = $2 AND s.last > $3`, backend.LookRecords, backend.LookBytes)
	for i := range prefixes {
		fmt.Fprintf(&text, `
UNION ALL
SELECT 2, %[1]d, 0, 0, 0, 0, NULL, v.name, v.data, true
FROM patchlog.shared v
WHERE substring(v.name FROM 1 FOR 1024) >= substring($%[2]d::bytea FROM 1 FOR 1024) AND substring(v.name FROM 1 FOR 1024) < $%[3]d
	AND substring(v.name FROM 1 FOR length($%[2]d::bytea)) = $%[2]d`, i+1, 4+2*i, 5+2*i)
	}
	return text.String()
}
