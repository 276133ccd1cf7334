package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// query executes a read-only statement and returns its rows.
func query[T any](ctx context.Context, b *Backend, scan func(pgx.CollectableRow) (T, error), text string, args ...any) (out []T, err error) {
	err = b.attempt(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, b.sql(text), args...)
		if err == nil {
			out, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// queryOf calls query with a statement that returns at least one row if the session exists. If there is no row,
// queryOf returns ErrNotFound.
func queryOf[T any](ctx context.Context, b *Backend, scan func(pgx.CollectableRow) (T, error), text string, args ...any) ([]T, error) {
	rows, err := query(ctx, b, scan, text, args...)
	if err == nil && len(rows) == 0 {
		err = backend.ErrNotFound
	}
	return rows, err
}

// listed is a session's row together with its meta record.
type listed struct {
	name, creation, meta, counts []byte
	last, token, sum, edition    int64
}

var errNoMeta = fmt.Errorf("%w: the meta record is missing", backend.ErrDamaged)

func (l listed) head() backend.Head {
	return backend.Head{Creation: string(l.creation), Meta: l.meta, Last: uint64(l.last), Token: backend.Token(l.token),
		Chain: backend.Chain{Sum: uint32(l.sum)}, Counts: l.counts, Edition: uint64(l.edition)}
}

func scanListed(row pgx.CollectableRow) (l listed, err error) {
	err = row.Scan(&l.name, &l.creation, &l.meta, &l.last, &l.token, &l.sum, &l.edition, &l.counts)
	return l, err
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	found, err := query(ctx, b, scanListed, `
		SELECT s.name, s.creation, CASE WHEN m.num IS NOT NULL THEN ''::bytea END, s.last, s.token, s.sum, s.edition, s.counts
		FROM patchlog.sessions s LEFT JOIN patchlog.metas m ON m.num = s.num
		WHERE s.hash IS NOT NULL
			AND substring(s.name FROM 1 FOR 1024) >= substring($1::bytea FROM 1 FOR 1024)
			AND substring(s.name FROM 1 FOR 1024) < $2
			AND s.name > $3 AND substring(s.name FROM 1 FOR length($4::bytea)) = $4
		ORDER BY substring(s.name FROM 1 FOR 1024), s.name
		LIMIT $5`, []byte(max(prefix, after)), behind(prefix), []byte(after), []byte(prefix), max(limit, 0))
	if err != nil {
		return nil, err
	}
	out := listing(found)
	for i := range out {
		out[i].Meta = nil // the query returns '' for an existing meta record
	}
	return out, nil
}

func listing(found []listed) []backend.Listed {
	out := make([]backend.Listed, len(found))
	for i, l := range found {
		out[i].Session = string(l.name)
		if out[i].Head = l.head(); l.meta == nil {
			out[i].Head, out[i].Err = backend.Head{}, errNoMeta
		}
	}
	return out
}

// Relatives implements [backend.Backend].
func (b *Backend) Relatives(ctx context.Context, family, after string, limit int) ([]backend.Listed, error) {
	found, err := query(ctx, b, scanListed, `
		SELECT s.name, s.creation, m.data, s.last, s.token, s.sum, s.edition, s.counts
		FROM patchlog.sessions s LEFT JOIN patchlog.metas m ON m.num = s.num
		WHERE s.hash IS NOT NULL AND (s.birth = $1 OR s.family = $1) AND s.name > $2
		ORDER BY s.name
		LIMIT $3`, hash(family), []byte(after), max(limit, 0))
	return listing(found), err
}

type foundRow struct {
	seq  *int64 // nil if no row matches the query
	data []byte
}

func scanFound(row pgx.CollectableRow) (f foundRow, err error) {
	err = row.Scan(&f.seq, &f.data)
	return f, err
}

// Read implements [backend.Backend].
func (b *Backend) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	wanted := make([]int64, len(seqs))
	for i, seq := range seqs {
		wanted[i] = number(seq)
	}
	rows, err := queryOf(ctx, b, scanFound, `
		SELECT r.seq, r.data
		FROM patchlog.sessions s LEFT JOIN LATERAL (
			SELECT seq, data FROM (
				SELECT seq, data, sum(length(data)) OVER (ORDER BY seq) AS bytes, row_number() OVER (ORDER BY seq) AS n
				FROM patchlog.records WHERE num = s.num AND seq = ANY ($3::bigint[]) AND seq <= s.last
			) measured
			WHERE bytes <= $4 OR n = 1
		) r ON true
		WHERE s.hash = $1 AND s.birth = $2
		ORDER BY r.seq`, hash(session), hash(creation), wanted, max(maxBytes, 0))
	if err != nil {
		return nil, err
	}
	var out []backend.Record
	for i, r := range rows {
		if r.seq == nil || uint64(*r.seq) != seqs[i] {
			break
		}
		out = append(out, backend.Record{Seq: seqs[i], Data: r.data})
	}
	return out, nil
}

// Lookup implements [backend.Backend].
func (b *Backend) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	wanted := make([][]byte, len(ids))
	for i, id := range ids {
		key := idHash(id)
		wanted[i] = key[:]
	}
	rows, err := queryOf(ctx, b, scanFound, `
		SELECT d.seq, d.id
		FROM patchlog.sessions s LEFT JOIN patchlog.ids d ON d.num = s.num AND d.id = ANY ($3::bytea[])
		WHERE s.hash = $1 AND s.birth = $2`, hash(session), hash(creation), wanted)
	if err != nil {
		return nil, err
	}
	at := map[string]uint64{}
	for _, r := range rows {
		if r.seq != nil {
			at[string(r.data)] = uint64(*r.seq)
		}
	}
	seqs := make([]uint64, len(ids))
	for i, key := range wanted {
		seqs[i] = at[string(key)]
	}
	return seqs, nil
}

// PutSnapshot implements [backend.Backend]. It locks the session's row, so that no other transaction deletes the
// session or replaces its records. The lock does not block appends.
func (b *Backend) PutSnapshot(ctx context.Context, session, creation string, kept backend.Snapshot) error {
	firsts, lasts := make([]int64, len(kept.Spans)), make([]int64, len(kept.Spans))
	for i, span := range kept.Spans {
		firsts[i], lasts[i] = number(span.First), number(span.Last)
	}
	var held bool
	err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, b.sql(`
			WITH held AS (
				SELECT num FROM patchlog.sessions WHERE hash = $1 AND birth = $2 AND edition = $6 FOR KEY SHARE
			), put AS (
				INSERT INTO patchlog.snapshots AS p (num, seq, sum, data, firsts, lasts)
				SELECT num, $3::bigint, $4::bigint, $5::bytea, $7::bigint[], $8::bigint[] FROM held
				ON CONFLICT (num) DO UPDATE
				SET seq = excluded.seq, sum = excluded.sum, data = excluded.data, firsts = excluded.firsts, lasts = excluded.lasts
				WHERE p.seq <= excluded.seq
			)
			SELECT EXISTS (SELECT FROM held)`), hash(session), hash(creation), number(kept.Seq), int64(kept.Chain.Sum), data(kept.Data), number(kept.Edition), firsts, lasts).Scan(&held)
	})
	if err == nil && !held { // the statement may have waited for a deletion that it does not see, so check with another statement
		err = b.movedOrGone(ctx, session, creation)
	}
	return err
}
