package pg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func create(t testing.TB, b *pg.Backend, name string, n int) backend.Head {
	t.Helper()
	testlog.NoError(t, b.Append(ctx, name, backend.Batch{Creation: "creation of " + name, Create: true, Next: 1, Records: records(0, n)}))
	return head(t, b, name)
}

func head(t testing.TB, b *pg.Backend, name string) backend.Head {
	t.Helper()
	return testlog.Must(backend.FetchHead(ctx, b, name))(t)
}

func records(after uint64, n int) (out []backend.Record) {
	for seq := after + 1; seq <= after+uint64(n); seq++ {
		out = append(out, backend.Record{Seq: seq, IDs: []string{fmt.Sprint("id", seq)}, Sum: uint32(seq), Data: fmt.Append(nil, "record ", seq)})
	}
	return out
}

// next returns a batch of n records that follows the head.
func next(h backend.Head, n int) backend.Batch {
	return backend.Batch{Creation: h.Creation, ExpectedLast: h.Last, ExpectedToken: h.Token, Next: backend.Token(rand.Uint64() | 1), Chain: h.Chain, Records: records(h.Last, n)}
}

func landed(h backend.Head, b backend.Batch) backend.Head {
	h.Last, h.Token = h.Last+uint64(len(b.Records)), b.Next
	for _, r := range b.Records {
		h.Chain = h.Chain.Add(r.Sum)
	}
	return h
}

// extend appends n records to the session and returns the new head. The argument h is the current head.
func extend(t testing.TB, b *pg.Backend, name string, h backend.Head, n int) backend.Head {
	t.Helper()
	batch := next(h, n)
	testlog.WantNil(t, b.Append(ctx, name, batch))
	return landed(h, batch)
}

// hold locks the session's row in a transaction that stays open until release is called.
func hold(t *testing.T, dsn, session string) (release func()) {
	t.Helper()
	return holdBy(t, dsn, "SELECT num FROM patchlog.sessions WHERE convert_from(name, 'UTF8') = '"+session+"' FOR UPDATE")
}

// holdBy executes a statement that takes locks. The transaction stays open until release is called.
func holdBy(t *testing.T, dsn, statement string) (release func()) {
	t.Helper()
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	testlog.NoError(t, testlog.ErrorOf(c.Exec(ctx, "BEGIN; "+statement)))
	release = sync.OnceFunc(func() {
		testlog.WantNil(t, testlog.ErrorOf(c.Exec(ctx, "COMMIT")))
		_ = c.Close(ctx)
	})
	t.Cleanup(release)
	return release
}

func waitFor(t testing.TB, dsn, query string) {
	t.Helper()
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	for range 30_000 {
		var n int
		testlog.NoError(t, c.QueryRow(ctx, query).Scan(&n))
		if n > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: stays 0", query)
}

const (
	waitingForLock = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
	noneWaits      = "SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
	noneConnected  = "SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

// Each append of a group has its own result. A refused append does not affect the others in the group.
func TestGroup(t *testing.T) {
	b := open(t, pgtest.New(t), pg.Options{})
	const sessions = 60
	var heads [sessions]backend.Head
	each(sessions, func(i int) { heads[i] = create(t, b, fmt.Sprint("s", i), 3) })
	each(sessions, func(i int) {
		name, batch := fmt.Sprint("s", i), next(heads[i], 2)
		if i%2 == 0 {
			batch.Shared = []backend.Value{{Name: "hot", Data: []byte("x")}, {Name: fmt.Sprint("own", i), Data: []byte("x")}}
		}
		var want error
		switch i % 12 / 2 {
		case 1:
			batch.ExpectedToken++
			want = backend.ErrMoved
		case 2:
			batch.Creation += "x"
			want = backend.ErrNotFound
		case 3:
			batch.Records[1].IDs = []string{"new", "id2"}
			want = backend.ErrTaken
		case 4:
			batch.ExpectedLast, batch.Records = 2, records(2, 2)
			want = backend.ErrMoved
		}
		testlog.ErrorIs(t, b.Append(ctx, name, batch), want, "Append %d", i)
		h := heads[i]
		if want == nil {
			h = landed(h, batch)
		}
		if got := head(t, b, name); got.Last != h.Last || got.Token != h.Token || got.Chain != h.Chain {
			t.Errorf("session %d ends at %d with token %d, want %d and %d", i, got.Last, got.Token, h.Last, h.Token)
		}
		values, err := backend.FetchShared(ctx, b, fmt.Sprint("own", i))
		if written := want == nil && i%2 == 0; err != nil || i >= 10 && written != (len(values) > 0) {
			t.Errorf("shared values of append %d, whose result is %v: %v, %v", i, want, values, err)
		}
	})
	testlog.WantNil(t, b.Check(ctx))
}

// A group of appends is one transaction, which skips sessions that have changed.
func TestGroupIsOneTransaction(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	batches := map[string]backend.Batch{}
	for i := range 64 {
		name := fmt.Sprint("s", i)
		batches[name] = next(create(t, b, name, 1), 1)
	}
	extend(t, b, "s0", head(t, b, "s0"), 1)
	if done := b.AppendGroup(batches); len(done) != 63 || slices.Contains(done, "s0") {
		t.Errorf("%d of 64 changes are done: %q", len(done), done)
	}
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	var transactions, rows int
	testlog.NoError(t, c.QueryRow(ctx, `
		SELECT count(DISTINCT r.xmin::text), count(*) FROM patchlog.records r JOIN patchlog.sessions s USING (num)
		WHERE r.seq = 2 AND s.name <> 's0'`).Scan(&transactions, &rows))
	if transactions != 1 || rows != 63 {
		t.Errorf("%d transactions wrote %d records, want 1 and 63", transactions, rows)
	}
}

// If the log of a session unexpectedly has a record after the head's last seq, only the append to that session
// fails.
func TestRecordInTheWay(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	var heads [20]backend.Head
	for i := range heads {
		heads[i] = create(t, b, fmt.Sprint("s", i), 1)
	}
	pgtest.Exec(t, dsn, "INSERT INTO patchlog.records SELECT num, 2, 'x' FROM patchlog.sessions WHERE name = 's7'")
	each(len(heads), func(i int) {
		err := b.Append(ctx, fmt.Sprint("s", i), next(heads[i], 1))
		if i == 7 && !errors.Is(err, backend.ErrTaken) || i != 7 && err != nil {
			t.Errorf("Append %d: %v", i, err)
		}
	})
}

// Two backends write the same shared values in random order, at two isolation levels, without deadlocks or lost
// appends. The only error is ErrMoved.
func TestHotShared(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "serializable"} {
		t.Run(level, func(t *testing.T) { hotShared(t, isolated(t, level)) })
	}
}

func hotShared(t *testing.T, dsn string) {
	backends := []*pg.Backend{open(t, dsn, pg.Options{}), open(t, dsn, pg.Options{})}
	const sessions, writers, appends = 24, 48, 8
	for i := range sessions {
		create(t, backends[0], fmt.Sprint("s", i), 0)
	}
	var sum [sessions]atomic.Uint64
	each(writers, func(w int) {
		b := backends[w%2]
		for n := 0; n < appends; {
			i := rand.IntN(sessions)
			name := fmt.Sprint("s", i)
			batch := next(head(t, b, name), 1)
			batch.Records[0].IDs = []string{fmt.Sprint(w, "/", n)}
			for _, k := range rand.Perm(6) {
				batch.Shared = append(batch.Shared, backend.Value{Name: fmt.Sprint("hot", k), Data: fmt.Append(nil, w, n)})
			}
			switch err := b.Append(ctx, name, batch); {
			case err == nil:
				n++
				sum[i].Add(1)
			case !errors.Is(err, backend.ErrMoved):
				t.Errorf("Append: %v", err)
				return
			}
		}
	})
	for i := range sum {
		if h, n := head(t, backends[1], fmt.Sprint("s", i)), sum[i].Load(); h.Last != n {
			t.Errorf("session %d has %d records of %d", i, h.Last, n)
		}
	}
	testlog.WantNil(t, backends[0].Check(ctx))
	for _, b := range backends {
		closed(t, b) // the server updates its statistics when a connection closes
	}
	waitFor(t, dsn, noneConnected)
	if n := number(t, dsn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("the server ended %d deadlocks", n)
	}
}

// A call returns soon after its context ends, even if the server does not answer. A write then returns
// ErrUnknown.
func TestLeave(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	h := create(t, b, "held", 1)
	release := hold(t, dsn, "held")
	calls := map[string]func(ctx context.Context) error{
		"Append": func(ctx context.Context) error { return b.Append(ctx, "held", next(h, 1)) },
		"Delete": func(ctx context.Context) error { return b.Delete(ctx, "held", h.Creation, nil) },
		"Fence":  func(ctx context.Context) error { _, err := b.Fence(ctx, "held", h.Creation, h.Token, 5); return err },
		"PutSnapshot": func(ctx context.Context) error {
			return b.PutSnapshot(ctx, "held", h.Creation, backend.Snapshot{Seq: 1, Data: nil})
		},
	}
	for name, call := range calls {
		left, leave := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- call(left) }()
		waitFor(t, dsn, waitingForLock)
		leave()
		err := <-done // the session's row is still locked
		testlog.ErrorIs(t, err, context.Canceled, "%s", name)
		testlog.ErrorIs(t, err, backend.ErrUnknown, "%s", name)
		waitFor(t, dsn, noneWaits)
	}
	pgtest.Exec(t, dsn, "SELECT count(*) FROM patchlog.sessions")
	release()
	// The server may execute a cancelled statement after the lock is released. Fence resolves the outcome.
	testlog.WantNil(t, testlog.ErrorOf(b.Fence(ctx, "held", h.Creation, h.Token, 9)))
}

// If the server does not answer, a call fails after StatementTimeout.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	h := create(t, open(t, dsn, pg.Options{}), "held", 1)
	b := openImpatient(t, dsn, pg.Options{StatementTimeout: time.Second})
	hold(t, dsn, "held")
	err := b.Append(ctx, "held", next(h, 1))
	if !errors.Is(err, pg.ErrNoAnswer) || !errors.Is(err, backend.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Append without an answer: %v", err)
	}
	pgtest.Exec(t, dsn, "ALTER TABLE patchlog.metas RENAME TO gone")
	if _, err := backend.FetchHead(ctx, b, "held"); err == nil || errors.Is(err, backend.ErrNotFound) {
		t.Errorf("Head without a table: %v", err)
	}

	silent := testlog.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	_, err = pg.OpenBackend(ctx, "sslmode=disable host=127.0.0.1 port="+fmt.Sprint(silent.Addr().(*net.TCPAddr).Port), pg.Options{ConnectTimeout: 50 * time.Millisecond, StatementTimeout: time.Second})
	if err == nil {
		t.Error("a silent server was opened")
	}
}

// Append and Fence lock the session's row in the order of the calls. After the fence, an append with the old
// token fails with ErrMoved.
func TestFenceMeetsAppend(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"append first", "fence first"} {
		t.Run(order, func(t *testing.T) {
			dsn := pgtest.New(t)
			b, other := open(t, dsn, pg.Options{}), open(t, dsn, pg.Options{})
			h := create(t, b, "held", 1)
			release := hold(t, dsn, "held")
			batch := next(h, 1)
			const token = 77
			calls := []func() error{
				func() error { return b.Append(ctx, "held", batch) },
				func() error { _, err := other.Fence(ctx, "held", h.Creation, h.Token, token); return err },
			}
			done := []chan error{make(chan error, 1), make(chan error, 1)}
			first := 0
			if order == "fence first" {
				first = 1
			}
			go func() { done[first] <- calls[first]() }()
			waitFor(t, dsn, waitingForLock)
			go func() { done[1-first] <- calls[1-first]() }()
			waitFor(t, dsn, strings.Replace(waitingForLock, "count(*)", "count(*) / 2", 1))
			release()
			appended, fenced := <-done[0], <-done[1]
			got := head(t, b, "held")
			switch {
			case fenced != nil:
				t.Errorf("Fence: %v", fenced)
			case first == 0 && (appended != nil || got.Token != batch.Next || got.Last != 2):
				t.Errorf("Append before the fence: %v, and the head is at %d with token %d", appended, got.Last, got.Token)
			case first == 1 && (!errors.Is(appended, backend.ErrMoved) || got.Token != token || got.Last != 1):
				t.Errorf("Append after the fence: %v, and the head is at %d with token %d", appended, got.Last, got.Token)
			}
		})
	}
}

// A creation that is in flight when its fence arrives is committed before the fence or never.
func TestFenceMeetsCreate(t *testing.T) {
	b := open(t, pgtest.New(t), pg.Options{})
	each(40, func(i int) {
		name, creation := fmt.Sprint("s", i), fmt.Sprint("c", i)
		done := make(chan error, 1)
		go func() {
			done <- b.Append(ctx, name, backend.Batch{Creation: creation, Create: true, Next: 5, Records: records(0, 2)})
		}()
		if i%2 == 0 {
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		}
		testlog.WantNil(t, testlog.ErrorOf(b.Fence(ctx, name, creation, 0, 7)))
		_, there := backend.FetchHead(ctx, b, name)
		if err := <-done; (err == nil) != (there == nil) || err != nil && !errors.Is(err, backend.ErrMoved) {
			t.Errorf("Append that creates: %v, and when the fence had returned: %v", err, there)
		}
	})
	testlog.WantNil(t, b.Check(ctx))
}

// If the connection ends after a write was sent, the outcome is unknown, even if the server reports why the
// connection ended. Reads are repeated.
func TestLostConnection(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	h := create(t, b, "held", 1)
	release := hold(t, dsn, "held")
	done := make(chan error, 1)
	go func() { done <- b.Append(ctx, "held", next(h, 1)) }()
	waitFor(t, dsn, waitingForLock)
	pgtest.Exec(t, dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
	testlog.ErrorIs(t, <-done, backend.ErrUnknown, "Append on a connection that ended")
	release()
	for range 5 {
		pgtest.Exec(t, dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()")
		if got := head(t, b, "held"); got.Last != 1 {
			t.Errorf("the head is at %d", got.Last)
		}
	}
}

// Close leaves no goroutine and no connection, even after calls whose callers gave up.
func TestLeaks(t *testing.T) {
	direct := pgtest.New(t)
	dsn := direct + " application_name=faulty" // leaks counts the connections with this application name
	setup := open(t, dsn, pg.Options{})
	h := create(t, setup, "held", 1)
	closed(t, setup)
	before := runtime.NumGoroutine()
	for range 3 {
		b := open(t, dsn, pg.Options{})
		release := hold(t, direct, "held")
		each(20, func(i int) {
			bounded, stop := context.WithTimeout(ctx, time.Duration(i)*5*time.Millisecond)
			defer stop()
			_ = b.Append(bounded, "held", next(h, 1))
			_, _ = b.Fetch(bounded, backend.Query{Session: "held"})
		})
		release()
		closed(t, b)
	}
	leaks(t, direct, before)
}

// Delete removes all rows of a session, even during appends and snapshots.
func TestDeleteMeetsAppend(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	b, other := open(t, dsn, pg.Options{}), open(t, dsn, pg.Options{})
	each(24, func(i int) {
		name := fmt.Sprint("s", i)
		h := create(t, b, name, 3)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				batch := next(h, 2)
				if err := b.Append(ctx, name, batch); err != nil {
					if !errors.Is(err, backend.ErrNotFound) {
						t.Errorf("Append to a session that is deleted: %v", err)
					}
					return
				}
				h = landed(h, batch)
			}
		})
		wg.Go(func() {
			for {
				if err := other.PutSnapshot(ctx, name, "creation of "+name, backend.Snapshot{Seq: 1, Data: []byte("x")}); err != nil {
					if !errors.Is(err, backend.ErrNotFound) {
						t.Errorf("PutSnapshot of a session that is deleted: %v", err)
					}
					return
				}
			}
		})
		time.Sleep(time.Duration(i) * time.Millisecond)
		testlog.WantNil(t, other.Delete(ctx, name, "creation of "+name, nil))
		wg.Wait()
	})
	for _, table := range []string{"sessions WHERE state <> 3", "records", "ids", "snapshots", "metas"} {
		if n := number(t, dsn, "SELECT count(*) FROM patchlog."+table); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
}

// Most appends update the session's row in place, as a heap-only tuple (HOT) update.
func TestUpdatesInPlace(t *testing.T) {
	dsn := pgtest.New(t)
	b := open(t, dsn, pg.Options{})
	const sessions, appends = 20, 20
	each(sessions, func(i int) {
		name := fmt.Sprint("s", i)
		h := create(t, b, name, 0)
		for range appends {
			h = extend(t, b, name, h, 1)
		}
	})
	closed(t, b) // the server updates its statistics when a connection closes
	const of = " FROM pg_stat_all_tables WHERE relname = 'sessions'"
	waitFor(t, dsn, fmt.Sprintf("SELECT (n_tup_upd >= %d)::int"+of, sessions*appends))
	if n := number(t, dsn, "SELECT n_tup_hot_upd"+of); n < sessions*appends*8/10 {
		t.Errorf("%d of %d updates were in place", n, sessions*appends)
	}
}

// An erasure and a fork succeed even while another process keeps appending.
func TestEraseAndForkWithoutPause(t *testing.T) {
	dsn := pgtest.New(t)
	s, other := testlog.Must(store.New(open(t, dsn, pg.Options{}), store.Options{}))(t), testlog.Must(store.New(open(t, dsn, pg.Options{}), store.Options{}))(t)
	key, fork := store.Key{App: "a", User: "u", Session: "s"}, store.Key{App: "a", User: "u", Session: "fork"}
	say := func(id, text string) *patch.Event {
		return testlog.Must(patch.NewEvent(patch.Fields{ID: id, Author: "user", Content: patch.Text("user", text)}))(t)
	}
	testlog.Must(s.Create(ctx, key, nil, store.CreateOptions{}))(t)
	for i := range 200 {
		testlog.Must(s.AppendEvents(ctx, key, []*patch.Event{say(fmt.Sprint("e", i), fmt.Sprint("secret ", i))}, store.AppendOptions{}))(t)
	}
	var writes atomic.Int64
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				if _, err := other.AppendEvents(ctx, key, []*patch.Event{say(fmt.Sprint("w", w, ".", n), "more")}, store.AppendOptions{}); err != nil {
					t.Error(err)
					return
				}
				writes.Add(1)
			}
		})
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := s.Fork(limited, key, fork, store.ForkOptions{})
	testlog.NoError(t, err)
	done, err := s.Erase(limited, key, store.EraseSelection{Match: "secret"}, store.EraseOptions{})
	testlog.NoError(t, err)
	stop()
	writers.Wait()
	t.Logf("%d writes beside them", writes.Load())
	for _, one := range done.Sessions {
		testlog.Equal(t, "events of "+one.Key.Session+" that were erased", len(one.Events), 200)
	}
	for _, key := range []store.Key{key, fork} {
		for r, err := range other.RawEvents(ctx, key, 1) {
			testlog.NoError(t, err)
			if line, _ := r.MarshalJSON(); strings.Contains(string(line), "secret") {
				t.Fatalf("%s says %s", key, line)
			}
		}
	}
	for p, err := range other.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("verify: %v, %v", p, err)
	}
}
