package pg_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func TestPrefixes(t *testing.T) {
	t.Parallel()
	b := open(t, pgtest.New(t), pg.Options{})
	h := create(t, b, "s", 1)
	batch := next(h, 2)
	for _, i := range []int{1, 2, 5} {
		batch.Shared = append(batch.Shared, backend.Value{Name: fmt.Sprint("p", i, "/x"), Data: fmt.Append(nil, i)})
	}
	testlog.NoError(t, b.Append(ctx, "s", batch))
	var prefixes []string
	for i := range 7 {
		news := testlog.Must(b.Fetch(ctx, backend.Query{Session: "s", Creation: h.Creation, After: 1, Shared: prefixes}))(t)
		if news.Last != 3 || len(news.Records) != 2 || len(news.Shared) != len(prefixes) {
			t.Fatalf("Fetch with %d prefixes: %+v", i, news)
		}
		for k, got := range news.Shared {
			if there := k == 1 || k == 2 || k == 5; there != (len(got) == 1) || there && string(got[0].Data) != fmt.Sprint(k) {
				t.Errorf("Fetch with %d prefixes: shared values %d are %v", i, k, got)
			}
		}
		prefixes = append(prefixes, fmt.Sprint("p", i))
	}
	testlog.ErrorIs(t, testlog.ErrorOf(b.Fetch(ctx, backend.Query{Session: "other", Creation: h.Creation})), backend.ErrNotFound, "Fetch of another session's creation")
}

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

// All calls of concurrent backends succeed behind a pooler in transaction mode, even the first calls.
func TestPooledFromTheStart(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	dsn := pgtest.PgBouncer(t, direct)
	testlog.NoError(t, pg.CreateSchema(ctx, direct, pg.Options{}))
	const backends, writers, appends = 12, 8, 6
	logs := make([]logged, backends)
	each(backends, func(i int) {
		b, err := pg.OpenBackend(ctx, dsn, patient(logs[i].options()))
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
				h = extend(t, b, name, h, 1)
				news, err := b.Fetch(ctx, backend.Query{Session: name, Creation: name, After: h.Last - 1, Shared: []string{"app/"}})
				if err != nil || news.Token != h.Token || len(news.Records) != 1 {
					t.Errorf("Fetch: %+v, %v", news, err)
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

// On a direct connection, appends and fetches use prepared statements unless the connection string sets another
// mode.
func TestPreparedByDefault(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"": true, " default_query_exec_mode=cache_describe": false} {
		server := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: []string{"log_statement=all"}})
		var log logged
		b := open(t, server.Database(t)+mode, log.options())
		h := create(t, b, "s", 0)
		for range 3 {
			h = extend(t, b, "s", h, 1)
			testlog.NoError(t, testlog.ErrorOf(b.Fetch(ctx, backend.Query{Session: "s"})))
		}
		if n := strings.Count(server.Log(), "execute stmt_"); n != 7 && want || n != 0 && !want { // create fetches once; then there are three appends and three fetches
			t.Errorf("mode %q: %d prepared statements were executed", mode, n)
		}
		if log.count("msg") != 0 {
			t.Errorf("mode %q: the log says %s", mode, log.text.String())
		}
	}
}

// The backend does not use a plan made for small tables after the tables have grown.
func TestPlansAge(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: []string{"autovacuum=off"}}).Database(t)
	b := open(t, dsn, pg.Options{})
	b.SetPlanTime(100 * time.Millisecond)
	h := create(t, b, "s", 1)
	write := func(n int) {
		for range n {
			h = extend(t, b, "s", h, 1)
			testlog.NoError(t, testlog.ErrorOf(b.Fetch(ctx, backend.Query{Session: "s", Creation: h.Creation, After: h.Last, Shared: []string{"p/"}})))
		}
	}
	pgtest.Exec(t, dsn, "ANALYZE patchlog.sessions, patchlog.records, patchlog.ids, patchlog.shared")
	write(20)
	const sessions, writes = 10_000, 20
	pgtest.Exec(t, dsn, fmt.Sprintf(`INSERT INTO patchlog.sessions (hash, birth, name, creation, state, last, token, sum)
		SELECT sha256(n::text::bytea), sha256(n::text::bytea), n::text::bytea, n::text::bytea, 0, 0, 1, 0 FROM generate_series(1, %d) n`, sessions))
	time.Sleep(200 * time.Millisecond)
	write(writes)
	closed(t, b) // the server updates its statistics when a connection closes
	waitFor(t, dsn, noneConnected)
	if n := number(t, dsn, "SELECT seq_tup_read FROM pg_stat_all_tables WHERE schemaname = 'patchlog' AND relname = 'sessions'"); n > sessions*writes/4 {
		t.Errorf("%d appends and looks read %d rows of sessions in a row", writes, n)
	}
}

// If a connection is lost while it prepares an append, the backend repeats the append successfully.
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

// Fetch succeeds even if a column's type has changed since Fetch prepared its statements.
func TestAltered(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{MaxConns: 1})
	h := create(t, b, "s", 1)
	for _, kind := range []string{"numeric", "bigint"} {
		for range 2 {
			if news, err := b.Fetch(ctx, backend.Query{Session: "s", Creation: h.Creation}); err != nil || news.Last != 1 || len(news.Records) != 1 {
				t.Errorf("Fetch: %+v, %v", news, err)
			}
		}
		pgtest.Exec(t, dsn, "ALTER TABLE patchlog.records ALTER COLUMN seq TYPE "+kind)
	}
}
