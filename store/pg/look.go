package pg

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// look is a call of Look.
type look struct {
	hash, birth []byte // nil for no session, and for one of any creation
	last        int64
	prefixes    []string

	found bool
	news  backend.News
	err   error
}

// Look implements [backend.Backend]. Calls that wait at the same time share a statement,
// which is sent after each of them began.
func (b *Backend) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	if err := b.enter(ctx); err != nil {
		return backend.News{}, err
	}
	defer b.leave()
	l := &look{last: number(q.After), prefixes: slices.Clone(q.Shared)}
	if q.Session != "" {
		l.hash = hash(q.Session)
	}
	if q.Creation != "" {
		l.birth = hash(q.Creation)
	}
	_, err := b.looks.do(ctx, l)
	switch {
	case err != nil:
		return backend.News{}, err
	case l.err != nil:
		return backend.News{}, l.err
	case !l.found && q.Session != "":
		return backend.News{}, backend.ErrNotFound
	}
	return l.news, nil
}

const groupLooks = 64

func fitsLooks(waiting []*look) int { return min(len(waiting), groupLooks) }

// The kinds of rows that lookSQL returns.
const (
	kindHead = iota
	kindRecord
	kindShared
)

// lookSQL answers as of one moment. The columns after kind and i, which is the look's place
// or the prefix's, are those of a head; a record has its seq in place of last, a shared value
// its name in place of creation, and both their data in place of the meta record.
const lookSQL = `
WITH asked AS (
	SELECT u.i, u.last AS seen, coalesce(u.birth = s.birth, false) AS same, s.*
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS u(hash, birth, last, i)
	JOIN patchlog.sessions s ON s.hash = u.hash
)
SELECT 0::bigint AS kind, a.i, a.last, a.token, a.sum, a.edition, a.counts, a.creation, m.data, a.same
FROM asked a LEFT JOIN patchlog.metas m ON m.num = a.num AND NOT a.same
UNION ALL
SELECT 1, a.i, r.seq, 0, 0, 0, NULL, NULL, r.data, true
FROM asked a CROSS JOIN LATERAL (
	SELECT seq, data FROM (
		SELECT seq, data, sum(length(data)) OVER (ORDER BY seq) - length(data) AS before
		FROM (SELECT seq, data FROM patchlog.records WHERE num = a.num AND seq > a.seen AND seq <= a.last ORDER BY seq LIMIT $4) page
	) measured
	WHERE before < $5
) r
WHERE a.same AND a.seen < a.last
UNION ALL
SELECT 2, p.i, 0, 0, 0, 0, NULL, v.name, v.data, true
FROM unnest($6::bytea[], $7::bytea[]) WITH ORDINALITY AS p(prefix, behind, i)
JOIN patchlog.shared v ON substring(v.name FROM 1 FOR 1024) >= substring(p.prefix FROM 1 FOR 1024)
	AND substring(v.name FROM 1 FOR 1024) < p.behind
	AND substring(v.name FROM 1 FOR length(p.prefix)) = p.prefix`

func (b *Backend) lookGroup(ctx context.Context, group []*look) {
	n := len(group)
	hashes, births, last := make([][]byte, n), make([][]byte, n), make([]int64, n)
	places := map[string]int{} // of prefixes
	var prefixes, ends [][]byte
	for i, l := range group {
		hashes[i], births[i], last[i] = l.hash, l.birth, l.last
		for _, prefix := range l.prefixes {
			if _, ok := places[prefix]; !ok {
				places[prefix] = len(prefixes)
				prefixes, ends = append(prefixes, []byte(prefix)), append(ends, behind(prefix))
			}
		}
	}
	alone := n == 1 && len(prefixes) <= lonePrefixes
	args := []any{hashes, births, last, backend.LookRecords, backend.LookBytes, prefixes, ends}
	if alone {
		args = append(args[:0], hashes[0], births[0], last[0])
		for i := range prefixes {
			args = append(args, prefixes[i], ends[i])
		}
	}
	var values [][]backend.Value
	err := b.attempt(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
		values = make([][]backend.Value, len(prefixes))
		for _, l := range group {
			l.found, l.news, l.err = false, backend.News{}, nil
		}
		var kind, i int64
		var row struct {
			listed
			same bool
		}
		scan := func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&kind, &i, &row.last, &row.token, &row.sum, &row.edition, &row.counts, &row.creation, &row.meta, &row.same}, func() error {
				switch kind {
				case kindHead:
					group[i-1].setHead(row.listed, row.same)
				case kindRecord:
					news := &group[i-1].news
					news.Records = append(news.Records, backend.Record{Seq: uint64(row.last), Data: row.meta})
				case kindShared:
					values[i-1] = append(values[i-1], backend.Value{Name: string(row.creation), Data: row.meta})
				}
				return nil
			})
			return err
		}
		if alone {
			return b.lone(ctx, c, b.lookTexts[len(prefixes)], args, scan)
		}
		// The planner takes a range that a row gives for a part of the table, and a plan of so many
		// parts for one that is worth compiling, which takes a quarter of a second.
		var batch pgx.Batch
		batch.Queue(`SELECT set_config('jit', 'off', true)`)
		batch.Queue(b.sql(lookSQL), args...)
		return secondOf(ctx, c, &batch, scan)
	})
	if err != nil {
		for _, l := range group {
			l.err = err
		}
		return
	}
	for _, v := range values {
		slices.SortFunc(v, func(a, b backend.Value) int { return cmp.Compare(a.Name, b.Name) })
	}
	given := make([]bool, len(values))
	for _, l := range group {
		l.order()
		for _, prefix := range l.prefixes {
			at := places[prefix]
			own := values[at]
			if given[at] {
				own = clone(own)
			}
			given[at] = true
			l.news.Shared = append(l.news.Shared, own)
		}
	}
}

func (l *look) setHead(row listed, same bool) {
	l.found = true
	l.news.Head = row.head()
	if row.meta == nil && !same {
		l.err = errNoMeta
	}
}

// order puts the records in order, and leaves out what follows a gap.
func (l *look) order() {
	r := l.news.Records
	slices.SortFunc(r, func(a, b backend.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := range r {
		if r[i].Seq != uint64(l.last)+1+uint64(i) {
			l.news.Records = r[:i]
			return
		}
	}
}

// clone copies values that another call is given too.
func clone(values []backend.Value) []backend.Value {
	out := slices.Clone(values)
	for i := range out {
		out[i].Data = slices.Clone(out[i].Data)
	}
	return out
}
