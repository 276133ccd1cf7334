package pg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// The statement of a lone append works for any number of records, ids and shared values; a lone look has a
// statement for each number of prefixes.
func TestShapes(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{NoSync: true})
	b := open(t, server.Database(t), pg.Options{})
	h := create(t, b, "s", 1)
	values := map[string]string{}
	for shape := range 4 * 4 * 4 {
		nRecords, nIDs, nShared := shape%4, shape/4%4, shape/16
		if nRecords == 0 && nIDs > 0 {
			continue
		}
		batch := next(h, nRecords)
		var ids []string
		for i := range batch.Records {
			batch.Records[i].IDs = nil
		}
		for i := range nIDs {
			id := fmt.Sprint(shape, "/", i)
			ids = append(ids, id)
			r := &batch.Records[i%nRecords]
			r.IDs = append(r.IDs, id)
		}
		for i := range nShared {
			v := backend.Value{Name: fmt.Sprint("p", 4-i, "/x"), Data: fmt.Append(nil, shape)}
			values[v.Name] = string(v.Data)
			batch.Shared = append(batch.Shared, v)
		}
		refused := func(want error, change func(*backend.Batch)) {
			t.Helper()
			other := batch
			change(&other)
			testlog.Is(t, b.Append(ctx, "s", other), want, "%d records, %d ids, %d shared values", nRecords, nIDs, nShared)
		}
		refused(backend.ErrMoved, func(x *backend.Batch) { x.Seen++ })
		refused(backend.ErrMoved, func(x *backend.Batch) { x.After, x.Records = x.After-1, records(x.After-1, nRecords) })
		refused(backend.ErrNotFound, func(x *backend.Batch) { x.Creation += "x" })
		if nIDs > 0 {
			refused(backend.ErrTaken, func(x *backend.Batch) {
				x.Records = slices.Clone(x.Records)
				x.Records[0].IDs = append(slices.Clone(x.Records[0].IDs[1:]), "id1")
			})
		}
		testlog.Is(t, b.Append(ctx, "other", batch), backend.ErrNotFound, "Append to another session's creation")
		if err := b.Append(ctx, "s", batch); err != nil {
			t.Fatalf("%d records, %d ids, %d shared values: %v", nRecords, nIDs, nShared, err)
		}
		seen := h.Last
		h = landed(h, batch)
		seqs, err := b.Lookup(ctx, "s", h.Creation, ids)
		for i, seq := range seqs {
			if seq != seen+1+uint64(i%nRecords) {
				t.Errorf("id %d is taken by record %d", i, seq)
			}
		}
		var prefixes []string
		for i := range shape % 7 {
			prefixes = append(prefixes, fmt.Sprint("p", i))
		}
		news, err2 := b.Look(ctx, backend.Query{Session: "s", Creation: h.Creation, After: seen, Shared: prefixes})
		if err != nil || err2 != nil || news.Token != h.Token || news.Chain != h.Chain || news.Last != h.Last || len(news.Records) != nRecords || len(news.Shared) != len(prefixes) {
			t.Fatalf("%d records, %d ids, %d shared values: Lookup %v, Look %+v, %v", nRecords, nIDs, nShared, err, news, err2)
		}
		for i, r := range news.Records {
			if !bytes.Equal(r.Data, batch.Records[i].Data) {
				t.Errorf("record %d is %q", r.Seq, r.Data)
			}
		}
		for i, prefix := range prefixes {
			want, there := values[prefix+"/x"]
			if got := news.Shared[i]; there != (len(got) == 1) || there && string(got[0].Data) != want {
				t.Errorf("shared values %q: %v, want %q", prefix, got, want)
			}
		}
	}
	testlog.Is(t, testlog.ErrorOf(b.Look(ctx, backend.Query{Session: "other", Creation: h.Creation})), backend.ErrNotFound, "Look of another session's creation")
	testlog.WantNil(t, b.Check(ctx))
	if log := server.Log(); strings.Contains(log, "duplicate key") {
		t.Errorf("what was refused is an error to the server: %s", log)
	}
}

// logged is a log that many write to.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) options() pg.Options {
	return pg.Options{Logger: slog.New(slog.NewTextHandler(l, nil))}
}

func (l *logged) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// Behind a pooler that gives each transaction another connection, everything works from the
// first call on, for many processes at once.
func TestPooledFromTheStart(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	dsn := pgtest.PgBouncer(t, direct)
	testlog.NoError(t, pg.CreateSchema(ctx, direct, pg.Options{}))
	const backends, writers, appends = 12, 8, 6
	logs := make([]logged, backends)
	each(backends, func(i int) {
		b, err := pg.OpenBackend(ctx, dsn, logs[i].options())
		if err != nil {
			t.Error(err)
			return
		}
		defer closed(t, b)
		each(writers, func(w int) {
			name := fmt.Sprint("s", i, "/", w)
			if err := b.Append(ctx, name, backend.Batch{Creation: name, Create: true, Next: 1}); err != nil {
				t.Errorf("Append that creates: %v", err)
				return
			}
			h := backend.Head{Creation: name, Token: 1}
			for range appends {
				batch := next(h, 1)
				if err := b.Append(ctx, name, batch); err != nil {
					t.Errorf("Append: %v", err)
					return
				}
				h = landed(h, batch)
				news, err := b.Look(ctx, backend.Query{Session: name, Creation: name, After: h.Last - 1, Shared: []string{"app/"}})
				if err != nil || news.Token != h.Token || len(news.Records) != 1 {
					t.Errorf("Look: %+v, %v", news, err)
				}
			}
		})
	})
	stopped := 0
	for i := range logs {
		n := logs[i].count("plans each statement anew")
		if n > 1 {
			t.Errorf("a backend says %d times that it stops preparing statements", n)
		}
		stopped += n
	}
	if stopped == 0 {
		t.Error("no backend stopped preparing statements")
	}
	b := open(t, direct, pg.Options{})
	testlog.WantNil(t, b.Check(ctx))
}

// A direct connection keeps the statements of lone calls, unless the connection string says
// otherwise.
func TestPreparedByDefault(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"": true, " default_query_exec_mode=cache_describe": false} {
		server := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: []string{"log_statement=all"}})
		var log logged
		b := open(t, server.Database(t)+mode, log.options())
		h := create(t, b, "s", 0)
		for range 3 {
			batch := next(h, 1)
			testlog.NoError(t, b.Append(ctx, "s", batch))
			h = landed(h, batch)
			testlog.NoError(t, testlog.ErrorOf(b.Look(ctx, backend.Query{Session: "s"})))
		}
		if n := strings.Count(server.Log(), "execute stmt_"); n != 7 && want || n != 0 && !want { // creation, three appends, three looks
			t.Errorf("mode %q: %d prepared statements were executed", mode, n)
		}
		if log.count("msg") != 0 {
			t.Errorf("mode %q: the log says %s", mode, log.text.String())
		}
	}
}

// A plan that was made when the tables were small does not stay.
func TestPlansAge(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: []string{"autovacuum=off"}}).Database(t)
	b := open(t, dsn, pg.Options{})
	b.SetPlanTime(100 * time.Millisecond)
	h := create(t, b, "s", 1)
	write := func(n int) {
		for range n {
			batch := next(h, 1)
			testlog.NoError(t, b.Append(ctx, "s", batch))
			h = landed(h, batch)
			testlog.NoError(t, testlog.ErrorOf(b.Look(ctx, backend.Query{Session: "s", Creation: h.Creation, After: h.Last, Shared: []string{"p/"}})))
		}
	}
	pgtest.Exec(t, dsn, "ANALYZE patchlog.sessions, patchlog.records, patchlog.ids, patchlog.shared")
	write(20)
	const sessions, writes = 10_000, 20
	pgtest.Exec(t, dsn, fmt.Sprintf(`INSERT INTO patchlog.sessions (hash, birth, name, creation, state, last, token, sum)
		SELECT sha256(n::text::bytea), sha256(n::text::bytea), n::text::bytea, n::text::bytea, 0, 0, 1, 0 FROM generate_series(1, %d) n`, sessions))
	time.Sleep(200 * time.Millisecond)
	write(writes)
	closed(t, b) // the server has counted then
	waitFor(t, dsn, "SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	if n := number(t, dsn, "SELECT seq_tup_read FROM pg_stat_all_tables WHERE schemaname = 'patchlog' AND relname = 'sessions'"); n > sessions*writes/4 {
		t.Errorf("%d appends and looks read %d rows of sessions in a row", writes, n)
	}
}

// A statement that was prepared on another connection of the server's is sent again.
func TestPooledLater(t *testing.T) {
	t.Parallel()
	dsn := pgtest.PgBouncer(t, pgtest.New(t))
	var log logged
	opts := log.options()
	opts.MaxConns = 1
	b := open(t, dsn, opts)
	h := create(t, b, "s", 0)
	for round := range 3 {
		batch := next(h, 1)
		if err := b.Append(ctx, "s", batch); err != nil {
			t.Fatalf("Append %d: %v", round, err)
		}
		h = landed(h, batch)
		c := testlog.Must(pgx.Connect(ctx, dsn))(t)
		defer c.Close(ctx)
		if _, err := c.Exec(ctx, "BEGIN"); err != nil { // has a connection of the server's, the last one used
			t.Fatal(err)
		}
	}
	if log.count("SQLSTATE 26000") != 1 || log.count("level=INFO") != 1 {
		t.Errorf("the log says %q", log.text.String())
	}
}

// A connection that is lost before an append is sent leaves nothing open.
func TestLostBeforeAppend(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	h := create(t, b, "s", 1)
	release := holdBy(t, dsn, "LOCK TABLE patchlog.records")
	done := make(chan error, 1)
	go func() { done <- b.Append(ctx, "s", next(h, 1)) }()
	for range 2 {
		waitFor(t, dsn, waitingForLock)
		pgtest.Exec(t, dsn, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
	}
	waitFor(t, dsn, waitingForLock)
	release()
	testlog.WantNil(t, <-done)
}

// A table that is altered does not end what was prepared.
func TestAltered(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{MaxConns: 1})
	h := create(t, b, "s", 1)
	for _, kind := range []string{"numeric", "bigint"} {
		for range 2 {
			if news, err := b.Look(ctx, backend.Query{Session: "s", Creation: h.Creation}); err != nil || news.Last != 1 || len(news.Records) != 1 {
				t.Errorf("Look: %+v, %v", news, err)
			}
		}
		pgtest.Exec(t, dsn, "ALTER TABLE patchlog.records ALTER COLUMN seq TYPE "+kind)
	}
}

// However many calls the server keeps waiting, each leaves when its context ends, and those
// that stay are answered, also the one that found no lane free.
func TestKeptWaiting(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	h := create(t, b, "s", 1)
	const calls = 5 // one more than there are lanes
	for range 2 {
		release := holdBy(t, dsn, "LOCK TABLE patchlog.sessions")
		each(2*calls, func(i int) {
			bounded, stop := context.WithTimeout(ctx, 100*time.Millisecond)
			defer stop()
			var err error
			if i < calls {
				_, err = b.Look(bounded, backend.Query{Session: "s"})
			} else {
				err = b.Append(bounded, "s", next(h, 1))
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d: %v, want %v", i, err, context.DeadlineExceeded)
			}
		})
		// What went on without its caller ends.
		release()
		waitFor(t, dsn, strings.Replace(waitingForLock, "count(*)", "(count(*) = 0)::int", 1))
		release = holdBy(t, dsn, "LOCK TABLE patchlog.sessions")
		done := make(chan error, calls)
		for i := range calls {
			go func() {
				_, err := b.Look(ctx, backend.Query{Session: "s"})
				done <- err
			}()
			waitFor(t, dsn, strings.Replace(waitingForLock, "count(*)", fmt.Sprintf("count(*) / %d", min(i+1, calls-1)), 1))
		}
		time.Sleep(50 * time.Millisecond) // the last one waits for a lane
		release()
		for range calls {
			testlog.WantNil(t, <-done)
		}
	}
}
