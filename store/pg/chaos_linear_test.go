// In these tests several processes write to a few sessions during faults. Package github.com/anishathalye/porcupine
// checks that the history of all calls is linearizable.
//
// A test consists of rounds, each with its own sessions. By default a test has one round. If PATCHLOG_CHAOS is set
// to a duration, the test starts new rounds until the duration has passed. Each round logs its seed.
// PATCHLOG_CHAOS_SEED sets the seed of the first round.
//
//	PATCHLOG_CHAOS=10m go test -run TestLinearizable -timeout 2h -v .
package pg_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/fuzz/linear"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// The history of 64 goroutines on two stores is linearizable. This command makes 1,048,000 calls:
//
//	go test -run 'TestLinearizable$' -timeout 0 -rounds 250 -v .
func TestLinearizable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	linear.Check(t, 1, func(int) []backend.Backend {
		var all []backend.Backend
		for range 2 {
			b := testlog.Must(pg.OpenBackend(ctx, dsn, patient(pg.Options{})))(t)
			all = append(all, b)
		}
		return all
	})
}

// chaos runs the clients of several worker processes, which write to a few sessions during faults.
type chaos struct {
	linear.Load
	round int
}

// run runs the clients for the given time. If goOn is not nil, run then continues until goOn returns false.
func (c *chaos) run(long time.Duration, goOn func() bool) linear.History {
	c.Clients, c.Apps, c.Name = 2*len(c.Callers), 1, fmt.Sprint("chaos ", c.round)
	until := time.Now().Add(long)
	c.More = func() bool { return time.Now().Before(until) || goOn != nil && goOn() }
	return c.Run()
}

func (c *chaos) employ(workers []*ops.Process) {
	c.Callers = nil
	for _, w := range workers {
		c.Callers = append(c.Callers, w)
	}
}

// settle reads all sessions after the faults have ended. It adds the reads to the history, and checks that the
// history is linearizable.
func (c *chaos) settle(t testing.TB, dsn string) {
	t.Helper()
	s := testlog.Must(pg.Open(ctx, dsn, store.Options{Logger: slog.New(slog.DiscardHandler)}, patient(pg.Options{})))(t)
	defer s.Close()
	history := c.End(&ops.Local{Store: s})
	for _, violation := range history.Judge(linear.Options{Faults: true}) {
		t.Errorf("seed %d: %s", c.Seed, violation)
	}
	if t.Failed() {
		c.keep(t, history)
	}
	for problem, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v %v", problem, err)
	}
	b := testlog.Must(pg.OpenBackend(ctx, dsn, patient(pg.Options{})))(t)
	defer b.Close()
	testlog.WantNil(t, b.Check(ctx))
	counts := map[string]int{}
	for _, e := range history {
		counts[fmt.Sprint(e.Kind, " ", e.Outcome)]++
	}
	t.Logf("round %d, seed %d: %d calls in %v: %v", c.round, c.Seed, len(history), c.Since().Round(time.Millisecond), counts)
}

// keep writes the history to a file in the artifact directory of the test, one JSON object per line.
func (c *chaos) keep(t testing.TB, history linear.History) {
	t.Helper()
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	for _, e := range history {
		testlog.WantNil(t, out.Encode(e))
	}
	path := filepath.Join(t.ArtifactDir(), fmt.Sprintf("history-%d.jsonl", c.Seed))
	testlog.WantNil(t, os.WriteFile(path, b.Bytes(), 0o600))
}

// rounds runs at least one round. It starts further rounds until the time in PATCHLOG_CHAOS has passed.
func rounds(t *testing.T, c *chaos, each time.Duration, round func(long time.Duration) (dsn string)) {
	t.Helper()
	c.Seed = uint64(time.Now().UnixNano())
	if given := os.Getenv("PATCHLOG_CHAOS_SEED"); given != "" {
		c.Seed, _ = strconv.ParseUint(given, 10, 64)
	}
	long, _ := time.ParseDuration(os.Getenv("PATCHLOG_CHAOS"))
	for began := time.Now(); ; c.Seed++ {
		c.round++
		c.settle(t, round(each))
		if t.Failed() || time.Since(began) >= long {
			return
		}
	}
}

func startWorkers(t testing.TB, dsn, flawed string, n int) (all []*ops.Process) {
	t.Helper()
	for range n {
		all = append(all, startWorker(t, dsn, flawed))
	}
	return all
}

func short(usual time.Duration) time.Duration {
	if testing.Short() {
		return usual / 3
	}
	return usual
}

// during calls something repeatedly, with a pause before each call, until run returns.
func during(pause time.Duration, something func() error, run func()) error {
	var errs error
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(pause):
				errs = errors.Join(errs, something())
			}
		}
	}()
	run()
	close(stop)
	<-ended
	return errs
}

const chaosApp = " application_name=chaos"

// killer returns a function that terminates a random connection of the workers.
func killer(t testing.TB, server *pgtest.Server) func() error {
	c := testlog.Must(pgx.Connect(ctx, server.DSN("postgres")))(t)
	t.Cleanup(func() { _ = c.Close(ctx) })
	return func() error {
		_, err := c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM
			(SELECT pid FROM pg_stat_activity WHERE application_name = 'chaos' ORDER BY random() LIMIT 1) one`)
		return err
	}
}

func TestLinearizableKills(t *testing.T) {
	t.Parallel()
	breaking(t, &chaos{Load: linear.Load{ShortTimeouts: 3, Forks: true}}, 3*time.Second, 20*time.Millisecond, func(server *pgtest.Server) func() error { return killer(t, server) })
}

func TestLinearizableRestarts(t *testing.T) {
	t.Parallel()
	breaking(t, &chaos{Load: linear.Load{Forks: true}}, 4*time.Second, 400*time.Millisecond, func(server *pgtest.Server) func() error {
		return func() error {
			server.Kill()
			return server.Start()
		}
	})
}

func breaking(t *testing.T, c *chaos, each, pause time.Duration, fault func(*pgtest.Server) func() error) {
	server := pgtest.Start(t, pgtest.Options{NoSync: true})
	dsn := server.Database(t)
	c.employ(startWorkers(t, dsn+chaosApp, "", 4))
	occur := fault(server)
	rounds(t, c, short(each), func(long time.Duration) string {
		testlog.WantNil(t, during(pause, occur, func() { c.run(long, nil) }))
		return dsn
	})
}

// since is a caller that counts successful calls, if they began after moment was set.
type since struct {
	ops.Caller
	moment *atomic.Bool
	done   *atomic.Int64
}

func (s since) Call(o ops.Op) ops.Reply {
	after := s.moment.Load()
	r := s.Caller.Call(o)
	if after && r.Outcome == ops.Done {
		s.done.Add(1)
	}
	return r
}

// The history stays linearizable when the primary is killed and its standby is promoted. Each round starts its
// own two servers, and continues until a call succeeds after the promotion.
func TestLinearizableFailover(t *testing.T) {
	t.Parallel()
	c := &chaos{Load: linear.Load{Forks: true}}
	rounds(t, c, short(3*time.Second), func(long time.Duration) string {
		primary, standby, dsn := pair(t)
		workers := startWorkers(t, dsn, "", 4)
		c.employ(workers)
		var promoted atomic.Bool
		var later atomic.Int64
		for i, w := range c.Callers {
			c.Callers[i] = since{w, &promoted, &later}
		}
		took := make(chan error, 1)
		var over atomic.Int64 // the time when the round may end
		over.Store(math.MaxInt64)
		began := time.Now()
		time.AfterFunc(long/2, func() {
			primary.Kill()
			err := standby.Promote()
			promoted.Store(err == nil)
			over.Store(int64(time.Since(began) + long/2))
			took <- err
		})
		c.run(long, func() bool {
			now := time.Since(began)
			return int64(now) < over.Load() || promoted.Load() && later.Load() == 0 && now < 5*time.Minute
		})
		testlog.NoError(t, <-took)
		for _, w := range workers {
			testlog.WantNil(t, w.Stop())
		}
		t.Logf("%d calls succeeded after the standby took over", later.Load())
		if later.Load() == 0 {
			t.Error("no call succeeded after the standby took over")
		}
		return standby.DSN("chaos")
	})
}

// The checker finds the errors of clients that rely on stale reads, and of clients that overwrite other
// clients' writes.
func TestLinearizableControls(t *testing.T) {
	for _, flawed := range []string{"stale", "overrun"} {
		t.Run(flawed, func(t *testing.T) {
			dsn := pgtest.New(t)
			c := &chaos{}
			c.employ(startWorkers(t, dsn, flawed, 2))
			var all []string
			for c.round = range 1000 { // some histories contain no error, so several rounds may be needed
				all = append(all, c.run(300*time.Millisecond, nil).Judge(linear.Options{Faults: true})...)
				if i := slices.IndexFunc(all, func(v string) bool { return strings.Contains(v, "have no order") }); i >= 0 {
					t.Logf("load %d: %s", c.round, all[i])
					return
				}
			}
			t.Errorf("no violation is found, but %v", all)
		})
	}
}
