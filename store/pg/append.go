package pg

import (
	"bytes"
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// change contains the parameters of the statement that appends a batch, and the result of the statement.
type change struct {
	hash, birth []byte
	after, last int64
	seen, next  int64
	chain       backend.Chain
	counts      []byte
	bytes       int // the total size of the records

	done bool
	err  error

	// The rows to insert, column by column.
	seqs                        []int64
	datas                       [][]byte
	ids                         [][]byte
	idSeqs                      []int64
	sharedHashes, names, values [][]byte
	scopes                      [][]byte // hashes of the scope names
}

// errAbandoned reports that the goroutine that sent the change panicked.
var errAbandoned = &backend.UnknownError{Cause: errors.New("another call that shared the transaction panicked")}

// newChange converts a batch for a session to a change. The change shares no memory with the batch, because Append
// can return before the change is sent if the caller's context ends.
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
	}
	for _, scope := range backend.Scopes(batch.Shared) {
		c.scopes = append(c.scopes, hash(scope))
	}
	return c
}

func (c *change) add(creation string, after uint64, records []backend.Record) {
	c.birth = hash(creation)
	c.after, c.last = number(after), number(after)
	if after > math.MaxInt64-uint64(len(records)) {
		c.after, c.last = math.MaxInt64, math.MaxInt64 // no log reaches this seq, so the statement matches no row
		return
	}
	ids := map[[idBytes]byte]int{}
	for _, r := range records {
		c.seqs, c.datas = append(c.seqs, int64(r.Seq)), append(c.datas, bytes.Clone(data(r.Data)))
		c.bytes += len(r.Data)
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

// Append implements [backend.Backend]. Concurrent appends to different sessions share a transaction. The shared
// transaction skips sessions whose rows are locked. If it does not append a change, Append sends the change again
// in a separate transaction, which waits for the session's row. Each waiting transaction occupies a connection, so
// only half of the connections may wait.
//
// A change with shared values always has its own transaction, which may wait for another transaction that writes
// the same shared values. If a transaction wrote the shared values of several changes, two such transactions could
// deadlock.
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
	queue, senders := &b.appends, b.senders
	if len(c.names) > 0 {
		queue, senders = &groupcommit.Queue[*change]{Detached: true}, make(chan struct{}, 1)
	}
	switch err := queue.Do(ctx, senders, c, fitting, b.appendGroup); {
	case errors.Is(err, groupcommit.ErrRunning):
		return &backend.UnknownError{Cause: ctx.Err()}
	case err != nil:
		return err
	case c.done || c.err != nil:
		return c.err
	}
	return b.appendWaiting(ctx, c)
}

// Limits of a group of appends
const (
	maxGroup      = 256     // changes
	maxGroupBytes = 4 << 20 // total size of the records, plus 1 KiB for each inserted row
)

var fitting = groupcommit.LimitGroup(maxGroup, maxGroupBytes, func(c *change) int { return c.bytes + (len(c.seqs)+len(c.ids))<<10 })

// appendGroup appends the changes in one transaction and sets the result of each change. If a change was not
// written and should be sent again, its done is false and its err is nil. There are four possible reasons:
//
//   - The session has changed or is deleted.
//   - The session's row is locked.
//   - The log already has one of the ids.
//   - The server refused another change of the group.
func (b *Backend) appendGroup(group []*change) {
	text := b.sql(group[0].statement())
	err := b.attempt(context.Background(), writes, func(ctx context.Context, conn *pgx.Conn) error {
		return b.sendPrepared(ctx, conn, text, func() error {
			var batch pgx.Batch
			for _, c := range group {
				batch.Queue(text, c.args()...).Query(c.scanDone)
			}
			return conn.SendBatch(ctx, &batch).Close()
		})
	})
	if err != nil && judge(true, err) == refused && (len(group) > 1 || isTaken(err)) {
		for _, c := range group {
			c.done, c.err = false, nil
		}
		return
	}
	for _, c := range group {
		c.err = err
	}
}

// scanDone sets c.done to true if the statement returned a row, and otherwise to false.
func (c *change) scanDone(rows pgx.Rows) error {
	c.done = rows.Next()
	rows.Close()
	return rows.Err()
}

// appendWaiting waits for the lock on the session's row without holding another lock, and then appends the change.
func (b *Backend) appendWaiting(ctx context.Context, c *change) error {
	var found bool
	var last, token int64
	err := b.attemptWaiting(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		found, c.done = false, false
		var batch pgx.Batch
		batch.Queue(b.sql(`SELECT last, token FROM patchlog.sessions WHERE hash = $1 AND birth = $2 AND state = 0 FOR NO KEY UPDATE`), c.hash, c.birth).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&last, &token}, func() error { found = true; return nil })
				return err
			})
		batch.Queue(b.sql(c.statement()), c.args()...).Query(c.scanDone)
		return conn.SendBatch(ctx, &batch).Close()
	})
	switch {
	case isTaken(err):
		return backend.ErrTaken
	case err != nil || c.done:
		return err
	case !found:
		return backend.ErrNotFound
	case last != c.after || token != c.seen:
		return backend.ErrMoved
	}
	return backend.ErrTaken
}

// isTaken reports whether err means that the log already has one of the seqs or ids of the change.
func isTaken(err error) bool {
	table, _, ok := violates(err)
	return ok && (table == "records" || table == "ids")
}

// statement returns the SQL statement that appends the change. The statement returns a row if it has appended the change.
// It depends only on whether the change has shared values.
func (c *change) statement() string {
	if len(c.names) == 0 {
		return appendSQL + putRowsSQL + putNoValuesSQL
	}
	return appendSQL + putRowsSQL + putValuesSQL
}

// args returns the arguments of the statement.
func (c *change) args() []any {
	args := []any{c.hash, c.birth, c.after, c.seen, c.next, c.last, int64(c.chain.Sum), c.counts, c.seqs, c.datas, c.ids, c.idSeqs}
	if len(c.names) == 0 {
		return args
	}
	return append(args, c.sharedHashes, c.names, c.values, c.scopes, int64(backend.NewToken()))
}

// appendSQL updates the session's row if the change fits. The LIMIT makes the planner use an index lookup for the
// ids. Without it, the planner estimates 10 elements for the array, and may choose to read all ids of the session.
const appendSQL = `
WITH done AS (
	UPDATE patchlog.sessions s
	SET last = $6, token = $5, sum = $7, counts = coalesce($8, s.counts), touched = now()
	FROM (
		SELECT num FROM patchlog.sessions
		WHERE hash = $1 AND birth = $2 AND last = $3 AND token = $4 AND state = 0
			AND NOT EXISTS (
				SELECT FROM (SELECT unnest($11::bytea[]) LIMIT cardinality($11::bytea[])) new(id)
				JOIN patchlog.ids d ON d.num = sessions.num AND d.id = new.id)
		FOR NO KEY UPDATE SKIP LOCKED
	) locked
	WHERE s.num = locked.num
	RETURNING s.num
)`

// putRowsSQL inserts the records and ids of the change, if the session's row was updated or inserted.
const putRowsSQL = `, put_records AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT d.num, x.seq, x.data FROM done d, unnest($9::bigint[], $10::bytea[]) AS x(seq, data)
), put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT d.num, x.id, x.seq FROM done d, unnest($11::bytea[], $12::bigint[]) AS x(id, seq)
)`

// putValuesSQL and putNoValuesSQL are the two possible ends of an append's statement. putValuesSQL writes the
// shared values of the change, sorted by hash so that two statements cannot deadlock. The sort reads the CTE named
// done, so the statement locks the session's row before it locks the rows of the values.
const (
	putNoValuesSQL = `
SELECT num FROM done`

	putValuesSQL = `, put_shared AS (
	INSERT INTO patchlog.shared (hash, name, data)
	SELECT x.hash, x.name, x.data FROM done d, unnest($13::bytea[], $14::bytea[], $15::bytea[]) AS x(hash, name, data)
	ORDER BY x.hash
	ON CONFLICT (hash) DO UPDATE SET data = excluded.data
), put_scopes AS (
	INSERT INTO patchlog.scopes (hash, token)
	SELECT x.hash, $17 FROM done d, unnest($16::bytea[]) AS x(hash)
	ORDER BY x.hash
	ON CONFLICT (hash) DO UPDATE SET token = excluded.token
)` + putNoValuesSQL
)
