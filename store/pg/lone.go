package pg

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// texts are the statements of one call.
type texts struct {
	append statement
	looks  [lonePrefixes + 1]statement // by prefixes
}

// A look for more prefixes has the statement of a group.
const lonePrefixes = 4

func newTexts(sql func(string) string) *texts {
	t := &texts{append: newStatement(sql(loneAppendSQL))}
	for prefixes := range t.looks {
		t.looks[prefixes] = newStatement(sql(loneLookSQL(prefixes)))
	}
	return t
}

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
), put_records AS (
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
		return b.lone(ctx, conn, b.texts.append, args, func(rows pgx.Rows) error {
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
