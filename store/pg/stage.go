package pg

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// staging is for which creation ids this backend has staged records. The zero value is empty.
type staging struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s *staging) has(creation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[creation]
}

func (s *staging) put(creation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[creation] = true
}

func (s *staging) drop(creation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, creation)
}

func (s *staging) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.ids))
}

// Stage implements [backend.Backend]. What a process has staged that did not live to close
// the backend is dropped after a day, by another that opens one or begins to stage.
func (b *Backend) Stage(ctx context.Context, creation string, after uint64, records []backend.Record) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	var c change
	if err := first(checkID("creation id", creation), c.add(creation, after, records)); err != nil {
		return err
	}
	if after > 0 && !b.staged.has(creation) {
		return backend.ErrMoved
	}
	text := stageMoreSQL
	if after == 0 {
		text = stageSQL
		b.sweep(ctx)
	}
	var ok bool
	err := b.attempt(ctx, writes, func(ctx context.Context, conn *pgx.Conn) error {
		var rows rows
		rows.add(0, &c)
		var num int64
		err := conn.QueryRow(ctx, b.sql(text+stageRestSQL), c.birth, []byte(creation), c.after, c.last, rows.seqs, rows.datas, rows.ids, rows.idSeqs).Scan(&num)
		ok = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	switch {
	case isTaken(err):
		return backend.ErrTaken
	case errors.Is(err, backend.ErrUnknown):
		// Nothing more is staged on what may not be there.
		b.staged.drop(creation)
		return err
	case err != nil:
		return err
	case !ok:
		return backend.ErrMoved
	}
	b.staged.put(creation)
	return nil
}

const stageSQL = `
WITH made AS (
	INSERT INTO patchlog.sessions AS s (birth, creation, state, last, token, sum)
	SELECT $1, $2, 1, $4::bigint, 0, 0 WHERE $3::bigint = 0
	ON CONFLICT (birth) DO UPDATE SET last = excluded.last, touched = now() WHERE s.state = 1 AND s.last = 0
	RETURNING num
)`

const stageMoreSQL = `
WITH made AS (
	UPDATE patchlog.sessions SET last = $4, touched = now()
	WHERE birth = $1 AND creation = $2 AND state = 1 AND last = $3
	RETURNING num
)`

const stageRestSQL = `, put_records AS (
	INSERT INTO patchlog.records (num, seq, data)
	SELECT m.num, x.seq, x.data FROM made m, unnest($5::bigint[], $6::bytea[]) AS x(seq, data)
), put_ids AS (
	INSERT INTO patchlog.ids (num, id, seq)
	SELECT m.num, x.id, x.seq FROM made m, unnest($7::bytea[], $8::bigint[]) AS x(id, seq)
)
SELECT num FROM made`

// Unstage implements [backend.Backend].
func (b *Backend) Unstage(creation string) {
	if b.enter(context.Background()) != nil {
		return
	}
	defer b.leave()
	b.unstage(creation)
}

func (b *Backend) unstage(creation string) {
	b.staged.drop(creation)
	b.discard(context.Background(), `
		UPDATE patchlog.sessions SET state = 2, touched = now() WHERE birth = $1 AND state = 1
		RETURNING num`, hash(creation))
}

// sweep removes some of what others have left behind: what was staged a day ago and not
// touched since, deleted sessions whose rows are there an hour later, and after thirty days
// the rows that keep a session from being created, when no statement can be under way any
// more that would. Leases that ran out a day ago go too.
func (b *Backend) sweep(ctx context.Context) {
	b.discard(ctx, `
		UPDATE patchlog.sessions SET state = 2
		WHERE num IN (
			SELECT num FROM patchlog.sessions
			WHERE hash IS NULL AND created < now() - interval '1 hour' AND touched < now() - CASE state
				WHEN 1 THEN interval '1 day'
				WHEN 2 THEN interval '1 hour'
				WHEN 4 THEN interval '1 hour'
				ELSE interval '30 days' END
			ORDER BY created
			LIMIT 8
			FOR UPDATE SKIP LOCKED)
		RETURNING num`)
	b.left(ctx, b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, b.sql(`DELETE FROM patchlog.leases WHERE until < now() - interval '1 day'`))
		return err
	}))
}

// discard removes sessions of which nobody sees anything, and that mark has marked so. What
// fails is left to a sweep.
func (b *Backend) discard(ctx context.Context, mark string, args ...any) {
	var nums []int64
	err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, b.sql(mark), args...)
		if err == nil {
			nums, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	for _, num := range nums {
		err = first(err, b.remove(ctx, num, false))
	}
	b.left(ctx, err)
}

// left tells the operator what kept something from being removed, if anything did.
func (b *Backend) left(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		b.opts.Logger.Warn("patchlog: what has no owner any more is left in the database for now", "schema", b.opts.Schema, "error", err)
	}
}

// A transaction removes so many rows of a table, so that it neither takes long nor holds up
// what cleans the tables.
const removeRows = 5000

// remove removes a session of which nobody sees anything: its rows, and then the session's,
// unless that is to be kept.
func (b *Backend) remove(ctx context.Context, num int64, keep bool) error {
	for {
		more := false
		err := b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
			var batch pgx.Batch
			batch.Queue(b.sql(`DELETE FROM patchlog.records WHERE num = $1 AND seq IN (SELECT seq FROM patchlog.records WHERE num = $1 ORDER BY seq LIMIT $2)`), num, removeRows)
			batch.Queue(b.sql(`DELETE FROM patchlog.ids WHERE num = $1 AND id IN (SELECT id FROM patchlog.ids WHERE num = $1 ORDER BY id LIMIT $2)`), num, removeRows)
			results := c.SendBatch(ctx, &batch)
			records, err := results.Exec()
			if err != nil {
				return first(err, results.Close())
			}
			ids, err := results.Exec()
			more = records.RowsAffected() == removeRows || ids.RowsAffected() == removeRows
			return first(err, results.Close())
		})
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	return b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		for _, table := range []string{"snapshots", "metas"} {
			batch.Queue(b.sql(`DELETE FROM patchlog.`+table+` WHERE num = $1`), num)
		}
		if !keep { // a fence may have taken the row meanwhile
			batch.Queue(b.sql(`DELETE FROM patchlog.sessions WHERE num = $1 AND state = 2`), num)
		}
		return c.SendBatch(ctx, &batch).Close()
	})
}
