package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Replace implements [backend.Backend]. It waits for transactions that have locked the session's row. PutSnapshot locks
// it too, so no snapshot is stored between the replacement and the removal of the snapshot.
func (b *Backend) Replace(ctx context.Context, session string, r backend.Replacement) error {
	if err := r.Batch().Validate(session); err != nil {
		return err
	}
	appended := change{chain: r.After(r.Chain)}
	appended.add(r.Creation, r.ExpectedLast, r.Appended)
	var put rows
	put.add(1, &appended)
	seqs, olds, datas := make([]int64, len(r.Records)), make([][]byte, len(r.Records)), make([][]byte, len(r.Records))
	for i, x := range r.Records {
		seqs[i], olds[i], datas[i] = number(x.Seq), data(x.Old), data(x.Data)
	}
	var found, done bool
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(b.sql(`SELECT num FROM patchlog.sessions WHERE hash = $1 FOR UPDATE`), hash(session))
		batch.Queue(b.sql(replaceSQL), hash(session), hash(r.Creation), number(r.ExpectedLast), int64(r.ExpectedToken), int64(r.Next),
			int64(appended.chain.Sum), seqs, olds, datas, r.Meta, appended.last, put.seqs, put.datas, put.ids, put.idSeqs, r.Counts).
			QueryRow(func(row pgx.Row) error { return row.Scan(&found, &done) })
		return c.SendBatch(ctx, &batch).Close()
	})
	switch {
	case isTaken(err):
		return backend.ErrTaken
	case err != nil:
		return err
	case !found:
		return backend.ErrNotFound
	case !done:
		return backend.ErrMoved
	}
	return nil
}

const replaceSQL = `
WITH asked AS (
	SELECT x.* FROM unnest($7::bigint[], $8::bytea[], $9::bytea[]) AS x(seq, old, data)
), at AS (
	SELECT num, last, token FROM patchlog.sessions WHERE hash = $1 AND birth = $2 AND state = 0
), done AS (
	UPDATE patchlog.sessions s
	SET last = $11, token = $5, sum = $6, edition = s.edition + 1, counts = coalesce($16, s.counts), touched = now()
	FROM at
	WHERE s.num = at.num AND at.last = $3 AND at.token = $4 AND NOT EXISTS (
		SELECT FROM asked x LEFT JOIN patchlog.records r ON r.num = at.num AND r.seq = x.seq AND r.seq <= at.last
		WHERE r.data IS DISTINCT FROM x.old)
	RETURNING s.num
), put_records AS (
	UPDATE patchlog.records r SET data = x.data
	FROM done d, asked x
	WHERE r.num = d.num AND r.seq = x.seq
), put_appended AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT d.num, x.seq, x.data FROM done d, unnest($12::bigint[], $13::bytea[]) AS x(seq, data)
), put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT d.num, x.id, x.seq FROM done d, unnest($14::bytea[], $15::bigint[]) AS x(id, seq)
), put_meta AS (
	UPDATE patchlog.metas m SET data = $10::bytea
	FROM done d
	WHERE m.num = d.num AND $10::bytea IS NOT NULL
), dropped AS (
	DELETE FROM patchlog.snapshots p USING done d WHERE p.num = d.num
)
SELECT EXISTS (SELECT FROM at), EXISTS (SELECT FROM done)`
