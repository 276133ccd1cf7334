package pg

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Replace implements [backend.Backend]. It waits for transactions that have locked the session's row, and then
// locks the row for one round trip. PutSnapshot locks the same row. Therefore PutSnapshot cannot store a
// snapshot of the old records after Replace has deleted the snapshots.
func (b *Backend) Replace(ctx context.Context, session, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	if err := (backend.Batch{Creation: creation}).Validate(session); err != nil {
		return err
	}
	var refused error
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, c *pgx.Conn) error {
		refused = nil
		var row listed
		var found, done bool
		var lock, commit pgx.Batch
		lock.Queue(`BEGIN`)
		lock.Queue(b.sql(`SELECT creation, last, token, sum, edition, counts FROM patchlog.sessions WHERE hash = $1 AND birth = $2 AND state = 0 FOR UPDATE`),
			hash(session), hash(creation)).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&row.creation, &row.last, &row.token, &row.sum, &row.edition, &row.counts}, func() error { found = true; return nil })
			return err
		})
		err := c.SendBatch(ctx, &lock).Close()
		if err == nil && found {
			var r backend.Replacement
			if r, refused = make(row.head()); refused == nil {
				refused = r.Batch(creation, row.head()).Validate(session)
			}
			if refused == nil {
				commit.Queue(b.sql(replaceSQL), replaceArgs(session, creation, row.head(), r)...).QueryRow(func(row pgx.Row) error { return row.Scan(&done) })
				commit.Queue(`COMMIT`)
				err = c.SendBatch(ctx, &commit).Close()
			}
		} else if err == nil {
			refused = backend.ErrNotFound
		}
		if err != nil || refused != nil {
			if _, rollback := c.Exec(ctx, `ROLLBACK`); err == nil {
				return rollback
			}
			return err
		}
		if !done {
			refused = backend.ErrMoved
		}
		return nil
	})
	if isTaken(err) {
		return backend.ErrTaken
	}
	return cmp.Or(err, refused)
}

func replaceArgs(session, creation string, head backend.Head, r backend.Replacement) []any {
	appended := change{chain: r.ReplacedChain(head)}
	appended.add(creation, head.Last, r.Appended)
	seqs, olds, datas := []int64{}, [][]byte{}, [][]byte{}
	for _, x := range r.Records {
		seqs, olds, datas = append(seqs, number(x.Seq)), append(olds, data(x.Old)), append(datas, data(x.Data))
	}
	return []any{hash(session), r.OldMeta, int64(r.Next), int64(appended.chain.Sum), seqs, olds, datas, r.Meta,
		appended.seqs, appended.datas, appended.ids, appended.idSeqs, appended.last, r.Counts}
}

const replaceSQL = `
WITH asked AS (
	SELECT x.* FROM unnest($5::bigint[], $6::bytea[], $7::bytea[]) AS x(seq, old, data)
), at AS (
	SELECT num, last FROM patchlog.sessions WHERE hash = $1
), done AS (
	UPDATE patchlog.sessions s
	SET last = $13, token = $3, sum = $4, edition = s.edition + 1, counts = coalesce($14, s.counts), touched = now()
	FROM at
	WHERE s.num = at.num AND NOT EXISTS (
		SELECT FROM asked x LEFT JOIN patchlog.records r ON r.num = at.num AND r.seq = x.seq AND r.seq <= at.last
		WHERE r.data IS DISTINCT FROM x.old)
		AND ($8::bytea IS NULL OR EXISTS (SELECT FROM patchlog.metas m WHERE m.num = at.num AND m.data = $2::bytea))
	RETURNING s.num
), replaced AS (
	UPDATE patchlog.records r SET data = x.data
	FROM done d, asked x
	WHERE r.num = d.num AND r.seq = x.seq
)` + putRowsSQL + `, put_meta AS (
	UPDATE patchlog.metas m SET data = $8::bytea
	FROM done d
	WHERE m.num = d.num AND $8::bytea IS NOT NULL
), dropped AS (
	DELETE FROM patchlog.snapshots p USING done d WHERE p.num = d.num
)
SELECT EXISTS (SELECT FROM done)`
