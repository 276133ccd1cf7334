package pg

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// texts are the statements of one call, which fit how much it has of each kind.
type texts struct {
	appends [several + 1][several + 1][several + 1]statement // by records, ids, shared values
	looks   [lonePrefixes + 1]statement                      // by prefixes
}

// How much of a kind there is: none, one or several.
const several = 2

// A look for more prefixes has the statement of a group.
const lonePrefixes = 4

func newTexts(sql func(string) string) *texts {
	t := &texts{}
	for records := range several + 1 {
		for ids := range several + 1 {
			for shared := range several + 1 {
				t.appends[records][ids][shared] = newStatement(sql(loneAppendSQL(records, ids, shared)))
			}
		}
	}
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
func loneAppendSQL(records, ids, shared int) string {
	const fixed = 8
	n := fixed
	params := func(kinds string, count int) (list []any) {
		for range count {
			n++
			list = append(list, fmt.Sprintf(kinds, n))
		}
		return list
	}
	var free, rest string
	switch records {
	case 1:
		rest += fmt.Sprintf(`, put_records AS (
	INSERT INTO patchlog.records (num, seq, data) SELECT num, %s, %s::bytea FROM done
)`, append(params("$%d::bigint", 1), params("$%d", 1)...)...)
	case several:
		rest += fmt.Sprintf(`, put_records AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT d.num, x.seq, x.data FROM done d, unnest(%s::bigint[], %s::bytea[]) AS x(seq, data)
)`, params("$%d", 2)...)
	}
	switch ids {
	case 1:
		p := params("$%d", 2)
		free = fmt.Sprintf(` AND NOT EXISTS (SELECT FROM patchlog.ids d WHERE d.num = s.num AND d.id = %s)`, p[0])
		rest += fmt.Sprintf(`, put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq) SELECT num, %s::bytea, %s::bigint FROM done
)`, p...)
	case several:
		p := params("$%d", 2)
		free = fmt.Sprintf(` AND NOT EXISTS (SELECT FROM patchlog.ids d WHERE d.num = s.num AND d.id = ANY (%s::bytea[]))`, p[0])
		rest += fmt.Sprintf(`, put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT d.num, x.id, x.seq FROM done d, unnest(%s::bytea[], %s::bigint[]) AS x(id, seq)
)`, p...)
	}
	switch shared {
	case 1:
		rest += fmt.Sprintf(`, put_shared AS (
	INSERT INTO patchlog.shared (hash, name, data) SELECT %s::bytea, %s::bytea, %s::bytea FROM done
	ON CONFLICT (hash) DO UPDATE SET data = excluded.data
)`, params("$%d", 3)...)
	case several:
		rest += fmt.Sprintf(`, put_shared AS (
	INSERT INTO patchlog.shared (hash, name, data)
	SELECT x.hash, x.name, x.data FROM done d, unnest(%s::bytea[], %s::bytea[], %s::bytea[]) AS x(hash, name, data)
	ORDER BY x.hash
	ON CONFLICT (hash) DO UPDATE SET data = excluded.data
)`, params("$%d", 3)...)
	}
	return `
WITH locked AS (
	SELECT s.num
	FROM patchlog.sessions s
	WHERE s.hash = $1 AND s.birth = $2 AND s.state = 0 AND s.last = $3 AND s.token = $4` + free + `
	FOR NO KEY UPDATE OF s SKIP LOCKED
), done AS (
	UPDATE patchlog.sessions s
	SET last = $5, token = $6, sum = $7, counts = coalesce($8, s.counts), touched = now()
	FROM locked l
	WHERE s.num = l.num
	RETURNING s.num
)` + rest + `
SELECT num FROM done`
}

// loneArgs returns the statement of a change, and its arguments.
func (t *texts) loneArgs(c *change) (st statement, args []any) {
	args = append(make([]any, 0, 16), c.hash, c.birth, c.after, c.seen, c.last, c.next, int64(c.chain.Sum), c.counts)
	records, ids, shared := min(len(c.records), several), min(len(c.ids), several), min(len(c.shared), several)
	var r rows
	if max(records, ids, shared) == several {
		r.add(0, c)
	}
	switch records {
	case 1:
		args = append(args, c.records[0].seq, c.records[0].data)
	case several:
		args = append(args, r.seqs, r.datas)
	}
	switch ids {
	case 1:
		args = append(args, c.ids[0].id[:], c.ids[0].seq)
	case several:
		args = append(args, r.ids, r.idSeqs)
	}
	switch shared {
	case 1:
		args = append(args, c.shared[0].hash, c.shared[0].name, c.shared[0].data)
	case several:
		args = append(args, r.sharedHashes, r.names, r.values)
	}
	return t.appends[records][ids][shared], args
}

// appendLone appends a change by a statement of its own, and reports whether it did. If it
// did not it did nothing.
func (b *Backend) appendLone(ctx context.Context, c *change) (done bool, err error) {
	st, args := b.texts.loneArgs(c)
	err = b.attempt(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		return b.lone(ctx, conn, st, args, func(rows pgx.Rows) error {
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
