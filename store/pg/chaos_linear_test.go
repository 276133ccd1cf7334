// Several processes write to a few sessions while something breaks, and what each client saw
// must have an order that explains it (linearizability, by github.com/anishathalye/porcupine).
//
// The tests are short. With PATCHLOG_CHAOS=10m each of them goes on for so long, in rounds
// with sessions of their own, and logs its seed; PATCHLOG_CHAOS_SEED gives the first round's.
//
//	PATCHLOG_CHAOS=10m go test -run TestLinearizable -timeout 2h -v .
package pg_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// load is clients of workers who write to a few sessions.
type load struct {
	workers []*worker
	clients int // of each worker
	seed    uint64
	round   int

	// hurried is how many of a hundred calls have too little time.
	hurried int

	// goOn, if not nil, says whether a run that has taken its time is to take more.
	goOn func() bool

	mu      sync.Mutex
	history []event
	began   time.Time
}

// The sessions of a round. The last one is never deleted.
const loadSessions = 4

func (l *load) session(i int) string {
	if i == loadSessions-1 {
		return fmt.Sprint("kept ", l.round)
	}
	return fmt.Sprint("s", i, " ", l.round)
}

func (l *load) do(w *worker, c call) reply {
	from := time.Since(l.began).Nanoseconds()
	r := w.do(c)
	e := event{call: c, reply: r, from: from, to: time.Since(l.began).Nanoseconds()}
	l.mu.Lock()
	l.history = append(l.history, e)
	l.mu.Unlock()
	return r
}

// run has the clients make calls for so long, and returns what they saw.
func (l *load) run(t testing.TB, long time.Duration) []event {
	t.Helper()
	l.began = time.Now()
	l.history = nil
	for i := range loadSessions {
		for range 100 {
			if r := l.do(l.workers[0], call{Session: l.session(i), Op: "create"}); r.Kind == "done" || r.Kind == "exists" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	until := l.began.Add(long)
	var wg sync.WaitGroup
	for i, w := range l.workers {
		for client := range l.clients {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(l.seed, uint64(i*100+client)))
				for n := 0; time.Now().Before(until) || l.goOn != nil && l.goOn(); n++ {
					l.client(w, client, fmt.Sprintf("%d.%d.%d", i, client, n), random)
				}
			})
		}
	}
	wg.Wait()
	return l.history
}

// client makes one call, and repeats it with the same ids until it knows the outcome.
func (l *load) client(w *worker, client int, id string, random *rand.Rand) {
	at := random.IntN(loadSessions)
	c := call{Client: client, Session: l.session(at), Choice: random.IntN(1000)}
	switch p := random.IntN(100); {
	case p < 35:
		c.Op = "get"
	case p < 65:
		c.Op, c.IDs = "append", []string{id}
		if random.IntN(4) == 0 {
			c.IDs = append(c.IDs, id+"'")
		}
	case p < 75:
		c.Op, c.IDs, c.Guess = "append", []string{id}, true
	case p < 87:
		c.Op, c.IDs, c.Now = "patch", []string{id}, random.IntN(3) == 0
	case p < 93:
		c.Op, c.IDs = "revert", []string{l.aPatch(c.Session, random)}
	case p < 96 && at < loadSessions-1:
		c.Op = "delete"
	default:
		c.Op = "create"
	}
	if random.IntN(100) < l.hurried && c.Op != "get" {
		c.Timeout = time.Duration(1+random.IntN(10)) * time.Millisecond
	}
	unknown := false
	for range 100 {
		r := l.do(w, c)
		c.Timeout = 0
		if r.Kind == "failed" || r.Kind == "unknown" {
			time.Sleep(5 * time.Millisecond)
		}
		unknown = unknown || r.Kind == "unknown"
		if c.Op == "get" || !unknown || r.Kind != "unknown" && r.Kind != "failed" {
			return
		}
	}
}

// aPatch returns a patch of the session that somebody was told of lately.
func (l *load) aPatch(session string, random *rand.Rand) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	skip := random.IntN(3)
	for _, e := range slices.Backward(l.history) {
		if e.Op == "patch" && e.Session == session && e.Kind == "done" {
			if skip--; skip < 0 {
				return e.IDs[0]
			}
		}
	}
	return "nobody's"
}

// settle reads the sessions, as part of the history, when nothing breaks any more, and
// holds what was acknowledged against the log of the session that nobody deletes.
func (l *load) settle(t testing.TB, dsn string) {
	t.Helper()
	s, err := pg.Open(ctx, dsn, store.Options{Logger: slog.New(slog.DiscardHandler)}, pg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range loadSessions {
		c := call{Session: l.session(i), Op: "get"}
		from := time.Since(l.began).Nanoseconds()
		r, _ := do(s, c, store.Session{}.View)
		l.history = append(l.history, event{call: c, reply: r, from: from, to: time.Since(l.began).Nanoseconds()})
		if r.Kind != "done" && r.Kind != "not found" || i == loadSessions-1 && r.Kind != "done" {
			t.Errorf("session %s in the end: %s: %s", c.Session, r.Kind, r.Err)
		}
	}
	kept := l.session(loadSessions - 1)
	logged := map[string]uint64{}
	for record, err := range s.RawEvents(ctx, keyOf(kept), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if at, twice := logged[record.ID()]; twice {
			t.Errorf("%s is record %d and %d", record.ID(), at, record.Seq)
		}
		logged[record.ID()] = record.Seq
	}
	acknowledged := 0
	maybe := map[string]bool{}
	for _, e := range l.history {
		for _, id := range e.IDs {
			maybe[id] = maybe[id] || e.Kind == "unknown"
		}
		if e.Session != kept || e.Op != "append" && e.Op != "patch" {
			continue
		}
		for i, id := range e.IDs {
			switch {
			case e.Kind == "failed" && logged[id] != 0 && !maybe[id]:
				t.Errorf("%s was refused and is record %d", id, logged[id])
			case e.Kind == "done" && (len(e.Seqs) != len(e.IDs) || logged[id] != e.Seqs[i]):
				t.Errorf("%s was acknowledged as record %v and is record %d", id, e.Seqs, logged[id])
			case e.Kind == "done":
				acknowledged++
			}
		}
	}
	for problem, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v %v", problem, err)
	}
	b, err := pg.OpenBackend(ctx, dsn, pg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Check(ctx); err != nil {
		t.Errorf("Check: %v", err)
	}
	counts := map[string]int{}
	for _, e := range l.history {
		counts[e.Op+" "+e.Kind]++
	}
	t.Logf("round %d, seed %d: %d calls in %v, %d records acknowledged in the kept session: %v",
		l.round, l.seed, len(l.history), time.Since(l.began).Round(time.Millisecond), acknowledged, counts)
}

// rounds runs rounds of a load until the test has taken long enough, and reports violations.
func rounds(t *testing.T, l *load, each time.Duration, round func(long time.Duration) (dsn string)) {
	t.Helper()
	l.seed = uint64(time.Now().UnixNano())
	if given := os.Getenv("PATCHLOG_CHAOS_SEED"); given != "" {
		l.seed, _ = strconv.ParseUint(given, 10, 64)
	}
	long, _ := time.ParseDuration(os.Getenv("PATCHLOG_CHAOS"))
	for began := time.Now(); ; l.seed++ {
		l.round++
		dsn := round(each)
		l.settle(t, dsn)
		for _, violation := range judgeHistory(t, l.history) {
			t.Errorf("seed %d: %s", l.seed, violation)
		}
		if t.Failed() || time.Since(began) >= long {
			return
		}
	}
}

func newLoad(t testing.TB, dsn, flawed string, workers, clients int) *load {
	l := &load{clients: clients}
	for range workers {
		l.workers = append(l.workers, startWorker(t, dsn, flawed))
	}
	return l
}

// short is how long a round takes.
func short(usual time.Duration) time.Duration {
	if testing.Short() {
		return usual / 3
	}
	return usual
}

// during does something over and over while run runs.
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

// killer ends one of the workers' connections, picked at random.
func killer(t testing.TB, server *pgtest.Server) func() error {
	c, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(ctx) })
	return func() error {
		_, err := c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM
			(SELECT pid FROM pg_stat_activity WHERE application_name = 'chaos' ORDER BY random() LIMIT 1) one`)
		return err
	}
}

func TestLinearizableKills(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{NoSync: true})
	dsn := server.Database(t)
	l := newLoad(t, dsn+chaosApp, "", 4, 2)
	l.hurried = 3
	kill := killer(t, server)
	rounds(t, l, short(3*time.Second), func(long time.Duration) string {
		if err := during(20*time.Millisecond, kill, func() { l.run(t, long) }); err != nil {
			t.Error(err)
		}
		return dsn
	})
}

func TestLinearizableRestarts(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{NoSync: true})
	dsn := server.Database(t)
	l := newLoad(t, dsn+chaosApp, "", 4, 2)
	rounds(t, l, short(4*time.Second), func(long time.Duration) string {
		crash := func() error {
			server.Kill()
			return server.Start()
		}
		if err := during(400*time.Millisecond, crash, func() { l.run(t, long) }); err != nil {
			t.Error(err)
		}
		return dsn
	})
}

// A standby takes over from a primary that is killed. Each round has a pair of its own.
func TestLinearizableFailover(t *testing.T) {
	l := &load{}
	rounds(t, l, short(3*time.Second), func(long time.Duration) string {
		primary := pgtest.Start(t, pgtest.Options{NoSync: true})
		standby := primary.Standby(t)
		primary.Exec(t, "CREATE DATABASE chaos")
		hosts := func(s *pgtest.Server) string { return strings.TrimPrefix(strings.Fields(s.DSN("chaos"))[0], "host=") }
		dsn := fmt.Sprintf("host=%s,%s port=5432,5432 user=postgres dbname=chaos sslmode=disable target_session_attrs=read-write", hosts(primary), hosts(standby)) + chaosApp
		round, seed := l.round, l.seed
		*l = load{round: round, seed: seed, clients: 2}
		for range 4 {
			l.workers = append(l.workers, startWorker(t, dsn, ""))
		}
		took := make(chan error, 1)
		var over atomic.Int64 // when the standby has been the primary for long enough
		over.Store(math.MaxInt64)
		time.AfterFunc(long/2, func() {
			primary.Kill()
			err := standby.Promote()
			over.Store(int64(time.Since(l.began) + long/2))
			took <- err
		})
		l.goOn = func() bool { return int64(time.Since(l.began)) < over.Load() }
		l.run(t, long)
		if err := <-took; err != nil {
			t.Fatal(err)
		}
		for _, w := range l.workers {
			w.stop(t)
		}
		later := 0
		for _, e := range l.history {
			if e.Kind == "done" && e.from > over.Load()-int64(long/2) {
				later++
			}
		}
		t.Logf("%d calls succeeded after the standby took over", later)
		if later == 0 {
			t.Error("no call succeeded after the standby took over")
		}
		return standby.DSN("chaos")
	})
}

// What the checker is for, it finds: clients that trust what they have in memory, or news
// that are old.
func TestLinearizableControls(t *testing.T) {
	for _, flawed := range []string{"exclusive", "stale"} {
		t.Run(flawed, func(t *testing.T) {
			dsn := quick(t)
			l := newLoad(t, dsn, flawed, 2, 2)
			l.seed, l.round = 1, 1
			history := l.run(t, 300*time.Millisecond)
			violations := judgeHistory(t, history)
			if len(violations) == 0 {
				t.Errorf("%d calls of which none looks at what others wrote, and no violation", len(history))
			} else {
				t.Log(violations[0])
			}
		})
	}
}
