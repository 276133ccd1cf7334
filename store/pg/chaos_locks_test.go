package pg_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// If another transaction keeps the rows of some sessions locked, only appends to these sessions wait. Reads of
// these sessions, and all calls for other sessions, continue.
func TestSlowSessions(t *testing.T) {
	for _, slow := range []int{1, 12} { // numbers of locked sessions, below and above the number of connections
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			dsn := pgtest.New(t)
			s := testlog.Must(pg.Open(ctx, dsn, store.Options{Logger: slog.New(slog.DiscardHandler)}, patient(pg.Options{})))(t)
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
			// Wait until the appends occupy all connections that may wait for a lock.
			waitFor(t, dsn, strings.Replace(waitingForLock, "count(*)", fmt.Sprintf("count(*) / %d", min(slow, pg.DefaultMaxConns/2)), 1))
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
