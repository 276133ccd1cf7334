package pg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Kinds of rows in the result of the statement from fetchSQL
const (
	kindHead = iota
	kindRecord
	kindSnapshot
	kindVersion
	kindShared
)

// fetchSQL returns the statement of a Fetch with the given number of prefixes. The statement reads a single
// snapshot of the database. Parameter $3 is the query's After or, for a cold read, its UpTo. Parameter $4 is the
// query's NoMeta.
//
// All rows of the result have the same columns. The first two are the kind of the row and the index of the
// prefix. The other columns are the fields of a head. In rows of other kinds, some of them have another meaning:
//
//	kind      column    meaning
//	record    last      seq
//	          meta      data
//	snapshot  last      seq
//	          sum       chain
//	          meta      data
//	version   token     version of the scope
//	shared    creation  name
//	          meta      data
func fetchSQL(prefixes int, cold bool) string {
	records, bytes := backend.Query{}.Limits()
	log := `SELECT seq, data FROM patchlog.records WHERE num = s.num AND seq > $3 AND seq <= s.last`
	from, where := `patchlog.sessions s`, `s.hash = $1 AND s.birth = $2 AND s.last > $3`
	if cold {
		records, bytes = backend.Query{UpTo: 1}.Limits()
		log = `SELECT seq, data FROM patchlog.records WHERE num = s.num AND seq > coalesce(p.seq, 0) AND seq <= least(s.last, $3)
			UNION ALL
			SELECT r.seq, r.data FROM unnest(p.firsts, p.lasts) AS span(first, last) CROSS JOIN LATERAL (
				SELECT seq, data FROM patchlog.records WHERE num = s.num AND seq BETWEEN span.first AND span.last
			) r`
		from, where = `patchlog.sessions s LEFT JOIN patchlog.snapshots p ON p.num = s.num AND p.seq <= $3`, `s.hash = $1`
	}
	var text strings.Builder
	fmt.Fprintf(&text, `
SELECT 0::bigint AS kind, 0::bigint, s.last, s.token, s.sum, s.edition, s.counts, s.creation,
	CASE WHEN s.birth IS DISTINCT FROM $2 AND NOT $4 THEN (SELECT data FROM patchlog.metas m WHERE m.num = s.num) END, $4 OR coalesce(s.birth = $2, false)
FROM patchlog.sessions s
WHERE s.hash = $1
UNION ALL
SELECT 1, 0, r.seq, 0, 0, 0, NULL, NULL, r.data, true
FROM %s CROSS JOIN LATERAL (
	SELECT seq, data FROM (
		SELECT seq, data, sum(length(data)) OVER (ORDER BY seq) - length(data) AS before
		FROM (%s ORDER BY seq LIMIT %d) page
	) measured
	WHERE before < %d
) r
WHERE %s`, from, log, records, bytes, where)
	if cold {
		text.WriteString(`
UNION ALL
SELECT 2, 0, p.seq, 0, p.sum, 0, NULL, NULL, p.data, true
FROM patchlog.sessions s JOIN patchlog.snapshots p ON p.num = s.num
WHERE s.hash = $1 AND p.seq <= $3`)
	}
	for i := range prefixes {
		fmt.Fprintf(&text, `
UNION ALL
SELECT 3, %[1]d, 0, c.token, 0, 0, NULL, NULL, NULL, true FROM patchlog.scopes c WHERE c.hash = $%[4]d
UNION ALL
SELECT 4, %[1]d, 0, 0, 0, 0, NULL, v.name, v.data, true
FROM patchlog.shared v
WHERE substring(v.name FROM 1 FOR 1024) >= substring($%[2]d::bytea FROM 1 FOR 1024) AND substring(v.name FROM 1 FOR 1024) < $%[3]d
	AND substring(v.name FROM 1 FOR length($%[2]d::bytea)) = $%[2]d
	AND NOT EXISTS (SELECT FROM patchlog.scopes c WHERE c.hash = $%[4]d AND c.token = $%[5]d)`, i, 5+4*i, 6+4*i, 7+4*i, 8+4*i)
	}
	return text.String()
}

// Fetch implements [backend.Backend].
func (b *Backend) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	var session, creation []byte // stay nil, sent as null, if the query has no name or no creation id
	if q.Session != "" {
		session = hash(q.Session)
	}
	cold, from := q.UpTo != 0, q.After
	if cold {
		from = q.UpTo
	} else if q.Creation != "" {
		creation = hash(q.Creation)
	}
	args := []any{session, creation, number(from), q.NoMeta}
	for i, prefix := range q.Shared {
		var known backend.Token
		if i < len(q.KnownVersions) {
			known = q.KnownVersions[i]
		}
		args = append(args, []byte(prefix), behind(prefix), hash(prefix), int64(known))
	}
	var text string
	if n := len(q.Shared); n < len(b.fetchTexts) && !cold {
		text = b.fetchTexts[n]
	} else {
		text = b.sql(fetchSQL(n, cold))
	}
	var news backend.Fetched
	var found, noMeta bool
	err := b.attempt(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
		news, found, noMeta = backend.Fetched{Shared: make([][]backend.Value, len(q.Shared)), Versions: make([]backend.Token, len(q.Shared))}, false, false
		return b.sendPrepared(ctx, c, text, func() error {
			rows, _ := c.Query(ctx, text, args...)
			var kind, prefix int64
			var row listed
			var same bool
			_, err := pgx.ForEachRow(rows, []any{&kind, &prefix, &row.last, &row.token, &row.sum, &row.edition, &row.counts, &row.creation, &row.meta, &same}, func() error {
				switch kind {
				case kindHead:
					found, news.Head, noMeta = true, row.head(), row.meta == nil && !same
				case kindRecord:
					news.Records = append(news.Records, backend.Record{Seq: uint64(row.last), Data: row.meta})
				case kindSnapshot:
					news.Snapshot = backend.Snapshot{Seq: uint64(row.last), Chain: backend.Chain{Sum: uint32(row.sum)}, Data: row.meta}
				case kindVersion:
					news.Versions[prefix] = backend.Token(row.token)
				case kindShared:
					news.Shared[prefix] = append(news.Shared[prefix], backend.Value{Name: string(row.creation), Data: row.meta})
				}
				return nil
			})
			return err
		})
	})
	switch {
	case err != nil:
		return backend.Fetched{}, err
	case noMeta:
		return backend.Fetched{}, errNoMeta
	case !found && q.Session != "":
		return backend.Fetched{}, backend.ErrNotFound
	}
	for _, values := range news.Shared {
		slices.SortFunc(values, func(a, b backend.Value) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortFunc(news.Records, func(a, b backend.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := range news.Records {
		if !cold && news.Records[i].Seq != q.After+1+uint64(i) { // the records have a gap
			news.Records = news.Records[:i]
			break
		}
	}
	return news, nil
}
