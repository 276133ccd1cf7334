package pg

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// change is a batch as the database takes it.
type change struct {
	hash, birth []byte
	after, last int64
	seen, next  int64
	chain       backend.Chain
	counts      []byte
	rows
	bytes int

	outcome outcome
	err     error // if it is not nil there is no outcome
}

// rows are the rows that a change inserts, column by column.
type rows struct {
	seqs                        []int64
	datas                       [][]byte
	ids                         [][]byte
	idSeqs                      []int64
	sharedHashes, names, values [][]byte
	scopes                      [][]byte // hashes
}

// outcome is what the statement says of a batch. The numbers are those of appendSQL.
type outcome int

const (
	landed   outcome = iota
	notFound         // no session of this creation
	hasMoved
	taken
	inTheWay // another transaction has the session
)

// errAbandoned is what becomes of a change if the caller that appends its group panics.
var errAbandoned = &backend.UnknownError{Cause: errors.New("abandoned: a call that shared the statement panicked")}

// newChange copies the batch.
func newChange(session string, batch backend.Batch) *change {
	c := &change{err: errAbandoned,
		hash: hash(session), seen: int64(batch.ExpectedToken), next: int64(batch.Next), chain: batch.Chain, counts: bytes.Clone(batch.Counts),
	}
	c.add(batch.Creation, batch.ExpectedLast, batch.Records)
	values := map[string]int{}
	for _, v := range batch.Shared {
		i, again := values[v.Name]
		if !again {
			i = len(c.names)
			values[v.Name] = i
			c.sharedHashes, c.names, c.values = append(c.sharedHashes, hash(v.Name)), append(c.names, []byte(v.Name)), append(c.values, nil)
		}
		c.values[i] = bytes.Clone(data(v.Data))
		c.bytes += len(v.Data)
	}
	for _, scope := range backend.Scopes(batch.Shared) {
		c.scopes = append(c.scopes, hash(scope))
	}
	return c
}

// add adds the records that follow after.
func (c *change) add(creation string, after uint64, records []backend.Record) {
	c.birth = hash(creation)
	c.after, c.last = number(after), number(after)
	if after > math.MaxInt64-uint64(len(records)) {
		c.after, c.last = math.MaxInt64, math.MaxInt64 // no log has so many
		return
	}
	size := 0
	for _, r := range records {
		size += len(r.Data)
	}
	c.bytes += size
	room := make([]byte, 0, size)
	ids := map[[idBytes]byte]int{}
	for _, r := range records {
		from := len(room)
		room = append(room, r.Data...)
		c.seqs, c.datas = append(c.seqs, int64(r.Seq)), append(c.datas, room[from:len(room):len(room)])
		c.chain = c.chain.Add(r.Sum)
		for _, id := range r.IDs {
			key := idHash(id)
			if at, again := ids[key]; again {
				c.idSeqs[at] = int64(r.Seq)
				continue
			}
			ids[key] = len(c.ids)
			c.ids, c.idSeqs = append(c.ids, key[:]), append(c.idSeqs, int64(r.Seq))
		}
	}
	c.last = int64(after) + int64(len(records))
}

// Append implements [backend.Backend]. Batches for many sessions share a statement.
func (b *Backend) Append(ctx context.Context, session string, batch backend.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := batch.Validate(session); err != nil {
		return err
	}
	if batch.Create {
		return b.create(ctx, session, batch)
	}
	c := newChange(session, batch)
	switch err := b.appends.Do(ctx, b.appender, c, fitting, b.appendGroup); {
	case errors.Is(err, groupcommit.ErrBegun):
		return &backend.UnknownError{Cause: ctx.Err()}
	case err != nil:
		return err
	}
	if c.err == nil && c.outcome == inTheWay {
		c.err = b.appendAlone(ctx, c)
	}
	if c.err != nil {
		return c.err
	}
	switch c.outcome {
	case landed:
		return nil
	case notFound:
		return backend.ErrNotFound
	case taken:
		return backend.ErrTaken
	}
	return backend.ErrMoved
}

// Limits of a group. A row counts as a kilobyte beside its bytes.
const (
	groupChanges = 256
	groupBytes   = 4 << 20
)

var fitting = groupcommit.Fit(groupChanges, groupBytes, func(c *change) int {
	return c.bytes + (len(c.seqs)+len(c.ids)+len(c.names))<<10
})

// appendGroup does what can be done without waiting for another writer of one of the
// sessions. What a failure or another writer keeps from being done is in the way: its caller
// tries again, alone.
func (b *Backend) appendGroup(group []*change) {
	if len(group) == 1 && b.appendOne(group[0]) {
		return
	}
	err := b.attempt(context.Background(), writes, func(ctx context.Context, conn *pgx.Conn) error {
		return b.send(ctx, conn, b.sql(appendSQL), appendArgs(group), func(rows pgx.Rows) error { return scanOutcomes(rows, group) })
	})
	// One that is refused takes the others with it.
	again := err != nil && judge(true, err) == refused && (len(group) > 1 || isTaken(err))
	for _, c := range group {
		if c.err = err; again {
			c.err, c.outcome = nil, inTheWay
		}
	}
}

// appendOne appends a change without shared values by a short statement, and reports whether that has an outcome. If the
// change does not fit the session as it is, or the session's row is locked, there is none, and nothing was written.
func (b *Backend) appendOne(c *change) (done bool) {
	if len(c.names) > 0 {
		return false
	}
	args := []any{c.hash, c.birth, c.after, c.seen, c.next, c.last, int64(c.chain.Sum), c.counts, c.seqs, c.datas, c.ids, c.idSeqs}
	err := b.attempt(context.Background(), writes, func(ctx context.Context, conn *pgx.Conn) error {
		return b.sendPrepared(ctx, conn, b.sql(appendOneSQL), args, func(rows pgx.Rows) error {
			for rows.Next() {
				done = true
			}
			rows.Close()
			return rows.Err()
		})
	})
	if err != nil && isTaken(err) && judge(true, err) == refused {
		return false
	}
	if c.err = err; err == nil && done {
		c.outcome = landed
	}
	return err != nil || done
}

// appendAlone waits for the session's row, while it holds nothing else, and appends then.
func (b *Backend) appendAlone(ctx context.Context, c *change) error {
	group := []*change{c}
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(b.sql(`SELECT num FROM patchlog.sessions WHERE hash = $1 FOR NO KEY UPDATE`), c.hash)
		batch.Queue(b.sql(appendSQL), appendArgs(group)...).Query(func(rows pgx.Rows) error { return scanOutcomes(rows, group) })
		return conn.SendBatch(ctx, &batch).Close()
	})
	if isTaken(err) {
		c.outcome, err = taken, nil
	}
	if err == nil && c.outcome == inTheWay {
		err = errors.New("the session's row was locked and is not there")
	}
	return err
}

// isTaken reports whether a record or an id of a log was in the way.
func isTaken(err error) bool {
	table, _, ok := violates(err)
	return ok && (table == "records" || table == "ids")
}

func scanOutcomes(rows pgx.Rows, group []*change) error {
	var i, o int64
	_, err := pgx.ForEachRow(rows, []any{&i, &o}, func() error {
		group[i-1].outcome = outcome(o)
		return nil
	})
	return err
}

// appendSQL appends the batches whose sessions are as they say, but for those that another
// transaction has locked, and says of each what became of it. The statement sees the tables
// as they were when it began. That is after the commit that a batch names was acknowledged:
// what does not match then never will. What is locked is looked at again as it is now. Shared
// values are written in the order of hashes, so that no two statements wait for each other.
const appendSQL = `
WITH asked AS (
	SELECT u.*, s.num, s.last AS was, s.token
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $18::bytea[])
		WITH ORDINALITY AS u(hash, birth, after, seen, next, head, sum, counts, i)
	LEFT JOIN patchlog.sessions s ON s.hash = u.hash AND s.birth = u.birth
), taken AS (
	SELECT DISTINCT a.i
	FROM unnest($8::bigint[], $9::bytea[]) AS x(i, id)
	JOIN asked a ON a.i = x.i
	JOIN patchlog.ids d ON d.num = a.num AND d.id = x.id
), locked AS (
	SELECT s.num, a.i
	FROM asked a JOIN patchlog.sessions s ON s.num = a.num
	WHERE s.state = 0 AND s.last = a.after AND s.token = a.seen AND a.i NOT IN (SELECT i FROM taken)
	ORDER BY s.num
	FOR NO KEY UPDATE OF s SKIP LOCKED
), done AS (
	UPDATE patchlog.sessions s
	SET last = a.head, token = a.next, sum = a.sum, counts = coalesce(a.counts, s.counts), touched = now()
	FROM locked l JOIN asked a ON a.i = l.i
	WHERE s.num = l.num
	RETURNING a.i, s.num
), put_records AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT d.num, x.seq, x.data
	FROM unnest($11::bigint[], $12::bigint[], $13::bytea[]) AS x(i, seq, data) JOIN done d ON d.i = x.i
), put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT d.num, x.id, x.seq
	FROM unnest($8::bigint[], $9::bytea[], $10::bigint[]) AS x(i, id, seq) JOIN done d ON d.i = x.i
), put_shared AS (
	INSERT INTO patchlog.shared (hash, name, data)
	SELECT DISTINCT ON (x.hash) x.hash, x.name, x.data
	FROM unnest($14::bigint[], $15::bytea[], $16::bytea[], $17::bytea[]) AS x(i, hash, name, data) JOIN done d ON d.i = x.i
	ORDER BY x.hash, x.i DESC
	ON CONFLICT (hash) DO UPDATE SET data = excluded.data
), put_scopes AS (
	INSERT INTO patchlog.scopes (hash, token)
	SELECT DISTINCT ON (x.hash) x.hash, $21
	FROM unnest($19::bigint[], $20::bytea[]) AS x(i, hash) JOIN done d ON d.i = x.i
	ORDER BY x.hash
	ON CONFLICT (hash) DO UPDATE SET token = excluded.token
)
SELECT a.i, (CASE
	WHEN d.i IS NOT NULL THEN 0
	WHEN a.num IS NULL THEN 1
	WHEN a.was <> a.after OR a.token <> a.seen THEN 2
	WHEN t.i IS NOT NULL THEN 3
	ELSE 4 END)::bigint
FROM asked a LEFT JOIN done d ON d.i = a.i LEFT JOIN taken t ON t.i = a.i`

// appendOneSQL is appendSQL of one batch without shared values. It returns a row if it has appended the batch.
const appendOneSQL = `
WITH done AS (
	UPDATE patchlog.sessions s
	SET last = $6, token = $5, sum = $7, counts = coalesce($8, s.counts), touched = now()
	FROM (
		SELECT num FROM patchlog.sessions
		WHERE hash = $1 AND birth = $2 AND last = $3 AND token = $4 AND state = 0
			AND NOT EXISTS (SELECT FROM patchlog.ids d WHERE d.num = sessions.num AND d.id = ANY ($11::bytea[]))
		FOR NO KEY UPDATE SKIP LOCKED
	) locked
	WHERE s.num = locked.num
	RETURNING s.num
)` + putRowsSQL + `
SELECT 1 FROM done`

// putRowsSQL inserts the records and ids of the one change whose session is done.
const putRowsSQL = `, put_records AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT d.num, x.seq, x.data FROM done d, unnest($9::bigint[], $10::bytea[]) AS x(seq, data)
), put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT d.num, x.id, x.seq FROM done d, unnest($11::bytea[], $12::bigint[]) AS x(id, seq)
)`

func appendArgs(group []*change) []any {
	n := len(group)
	hashes, births, counts := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	after, seen, next, head, sum := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	var all rows
	var idOf, recordOf, sharedOf, scopeOf []int64 // the change of each row
	for i, c := range group {
		hashes[i], births[i] = c.hash, c.birth
		after[i], seen[i], next[i], head[i] = c.after, c.seen, c.next, c.last
		sum[i], counts[i] = int64(c.chain.Sum), c.counts
		of := func(rows int) []int64 { return slices.Repeat([]int64{int64(i + 1)}, rows) }
		idOf, all.ids, all.idSeqs = append(idOf, of(len(c.ids))...), append(all.ids, c.ids...), append(all.idSeqs, c.idSeqs...)
		recordOf, all.seqs, all.datas = append(recordOf, of(len(c.seqs))...), append(all.seqs, c.seqs...), append(all.datas, c.datas...)
		sharedOf, all.sharedHashes = append(sharedOf, of(len(c.names))...), append(all.sharedHashes, c.sharedHashes...)
		all.names, all.values = append(all.names, c.names...), append(all.values, c.values...)
		scopeOf, all.scopes = append(scopeOf, of(len(c.scopes))...), append(all.scopes, c.scopes...)
	}
	return []any{hashes, births, after, seen, next, head, sum,
		idOf, all.ids, all.idSeqs,
		recordOf, all.seqs, all.datas,
		sharedOf, all.sharedHashes, all.names, all.values, counts,
		scopeOf, all.scopes, int64(backend.NewToken())}
}
