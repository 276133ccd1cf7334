package pg_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// Four processes append to a thousand sessions in random groups, and each append sets the
// same shared value: no two transactions wait for each other, and all is there in the end.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	sessions, each := 1000, 20
	if testing.Short() {
		sessions, each = 200, 10
	}
	const clients = 24
	dsn := pgtest.New(t)
	s := testlog.Must(pg.Open(ctx, dsn, store.Options{}, pg.Options{}))(t)
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := i; n < sessions; n += 16 {
				testlog.WantNil(t, testlog.ErrorOf(s.Create(ctx, keyOf(fmt.Sprint(n)), nil)))
			}
		})
	}
	wg.Wait()
	var mu sync.Mutex
	acknowledged := make([]map[string]uint64, sessions)
	last := map[string]bool{}
	for n := range acknowledged {
		acknowledged[n] = map[string]uint64{}
	}
	began := time.Now()
	for i, w := range startWorkers(t, dsn, "", 4) {
		for client := range clients {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i*100+client)))
				for k := range each {
					n := random.IntN(sessions)
					if random.IntN(4) == 0 {
						n %= 8 // some that all are after
					}
					id := ops.Hot(fmt.Sprint(i, ".", client, ".", k), fmt.Sprint(n))
					r := w.Call(ops.Op{App: chaosName, Session: fmt.Sprint(n), Kind: ops.Append, IDs: []string{id}})
					if r.Outcome != ops.Done || len(r.Seqs) != 1 {
						t.Errorf("an append: %s: %s", r.Outcome, r.Err)
						continue
					}
					mu.Lock()
					acknowledged[n][id] = r.Seqs[0]
					last[id] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(began)
	records := 0
	for n, ids := range acknowledged {
		for record, err := range s.RawEvents(ctx, keyOf(fmt.Sprint(n)), 1) {
			testlog.NoError(t, err)
			if records++; ids[record.ID()] != record.Seq {
				t.Errorf("session %d: record %d is %s, which was acknowledged as %d", n, record.Seq, record.ID(), ids[record.ID()])
			}
			delete(ids, record.ID())
		}
		for id := range ids {
			t.Errorf("session %d: %s was acknowledged and is not there", n, id)
		}
	}
	session := testlog.Must(s.Get(ctx, keyOf("0")))(t)
	if hot, _ := session.Value("app:hot"); !last[hot.Any().(string)] {
		t.Errorf("app:hot is %v", hot)
	}
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	var deadlocks int
	testlog.NoError(t, c.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks))
	t.Logf("%d records of %d sessions in %v, %d deadlocks", records, sessions, took.Round(time.Millisecond), deadlocks)
	if deadlocks > 0 {
		t.Errorf("the server ended %d deadlocks", deadlocks)
	}
}

// Sessions whose rows another transaction keeps locked hold up their own writers and nobody
// else: neither their readers, nor a session that many read, nor its writers.
func TestSlowSessions(t *testing.T) {
	for _, slow := range []int{1, 12} { // fewer and more than there are connections
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			dsn := pgtest.New(t)
			s := testlog.Must(pg.Open(ctx, dsn, store.Options{Logger: slog.New(slog.DiscardHandler)}, pg.Options{}))(t)
			defer s.Close()
			var large []string
			for n := range 1500 {
				large = append(large, fmt.Sprint("large", n))
			}
			local := &ops.Local{Store: s}
			call := func(session string, op ops.Kind, ids ...string) ops.Reply {
				return local.Call(ops.Op{App: chaosName, Session: session, Kind: op, IDs: ids})
			}
			for session, ids := range map[string][]string{"hot": {"a", "b"}, "large": large} {
				for _, op := range []ops.Kind{ops.Create, ops.Append} {
					if r := call(session, op, ids...); r.Outcome != ops.Done {
						t.Fatal(r.Err)
					}
				}
			}
			for n := range slow {
				if r := call(fmt.Sprint("slow ", n), ops.Create); r.Outcome != ops.Done {
					t.Fatal(r.Err)
				}
			}
			release := holdBy(t, dsn, "SELECT num FROM patchlog.sessions WHERE position('slow'::bytea IN name) > 0 FOR UPDATE")
			var writers, readers sync.WaitGroup
			for n := range slow {
				writers.Go(func() {
					if r := call(fmt.Sprint("slow ", n), ops.Append, "x"); r.Outcome != ops.Done {
						t.Errorf("the slow append: %s: %s", r.Outcome, r.Err)
					}
				})
			}
			time.Sleep(200 * time.Millisecond) // they wait
			began := time.Now()
			get := func(session string, times int) {
				readers.Go(func() {
					for range times {
						if _, err := s.Get(ctx, keyOf(session)); err != nil {
							t.Errorf("a Get of %s after %v: %v", session, time.Since(began), err)
							return
						}
					}
				})
			}
			for n := range 64 {
				get("hot", 20)
				if n < 8 {
					get("slow 0", 5)
					get("large", 2)
				}
			}
			readers.Go(func() {
				for n := range 20 {
					if r := local.Call(ops.Op{App: chaosName, Session: "hot", Kind: ops.Append, IDs: []string{fmt.Sprint("c", n)}, Wait: time.Minute}); r.Outcome != ops.Done {
						t.Errorf("an append to the hot session: %s: %s", r.Outcome, r.Err)
					}
				}
			})
			readers.Wait()
			t.Logf("1376 Gets and 20 appends in %v, while %d sessions were locked", time.Since(began).Round(time.Millisecond), slow)
			if number(t, dsn, waitingForLock) == 0 {
				t.Error("no statement waits for a lock: the slow ones were not")
			}
			release()
			writers.Wait()
		})
	}
}
