// These tests run a script of calls through a proxy, and cause a network fault at one exchange with the server.
// They repeat the script for each kind of fault and for many exchanges: by default every third exchange, and
// with -short every ninth. If PATCHLOG_CHAOS is set, they test every exchange:
//
//	PATCHLOG_CHAOS=1s go test -run TestEveryFault -timeout 1h -v .
package pg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// script makes a sequence of calls over a network with a fault. It repeats each call until the call succeeds.
type script struct {
	t     *testing.T
	name  string
	dsn   string        // the connection string of the proxy
	most  time.Duration // the timeout of each statement and of each connection attempt
	s     *store.Store
	truth *store.Store // the same store over a connection without faults

	unknown, failed int
	slowest         time.Duration
}

// faultTimeout is the timeout of each statement and of each connection attempt while there are faults. The
// timeout of a call is callTimeouts times faultTimeout.
const (
	faultTimeout = 400 * time.Millisecond
	callTimeouts = 5
)

// until repeats a call until it succeeds. If the outcome of an attempt was unknown, a later attempt may
// instead fail with the error in settled. The function nothing, if not nil, checks that a failed attempt had no effect.
// It is called unless the outcome of an earlier attempt was unknown.
func (x *script) until(what string, call func(ctx context.Context) error, settled error, nothing func() error) {
	x.t.Helper()
	unknown := false
	for range 40 {
		within, stop := context.WithTimeout(ctx, callTimeouts*x.most)
		began := time.Now()
		err := call(within)
		stop()
		took := time.Since(began)
		x.slowest = max(x.slowest, took)
		switch kind := ops.OutcomeOf(err); {
		case err == nil:
			return
		case unknown && settled != nil && errors.Is(err, settled):
			return
		case kind == ops.Unknown:
			x.unknown++
			unknown = true
		case kind == ops.Failed:
			x.failed++
			if nothing != nil && !unknown {
				if wrong := nothing(); wrong != nil {
					x.t.Errorf("%s: %s says %q, but %v", x.name, what, err, wrong)
				}
			}
			time.Sleep(5 * time.Millisecond)
		default:
			x.t.Errorf("%s: %s is refused: %v", x.name, what, err)
			return
		}
	}
	x.t.Errorf("%s: %s is never done", x.name, what)
}

func (x *script) open() {
	x.until("open", func(ctx context.Context) (err error) {
		x.s, err = pg.Open(ctx, x.dsn, store.Options{Snapshots: snapshot.Policy{Every: 4}, Logger: slog.New(slog.DiscardHandler)},
			pg.Options{MaxConns: 3, StatementTimeout: x.most, ConnectTimeout: x.most, Logger: slog.New(slog.DiscardHandler)})
		return err
	}, nil, nil)
}

// absent returns a function that reports an error if the log has any of the ids.
func (x *script) absent(key store.Key, ids ...string) func() error {
	return func() error {
		for record, err := range x.truth.RawEvents(ctx, key, 1) {
			if err != nil {
				return err
			}
			if slices.Contains(ids, record.ID()) {
				return fmt.Errorf("%s is record %d", record.ID(), record.Seq)
			}
		}
		return nil
	}
}

func (x *script) notThere(key store.Key) func() error {
	return func() error {
		if _, err := x.truth.Info(ctx, key); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("the session is there (%v)", err)
		}
		return nil
	}
}

func (x *script) run() {
	key, forked := keyOf(x.name), keyOf(x.name+" forked")
	key.App, forked.App = x.name, x.name
	source := testlog.Must(store.OpenMemory(store.Options{}))(x.t)
	defer source.Close()
	testlog.NoError(x.t, testlog.ErrorOf(source.Create(ctx, key, map[string]any{"app:copied": true}, store.CreateOptions{})))
	x.open()
	if x.s == nil {
		return
	}
	appends := func(app string, ids ...string) {
		x.t.Helper()
		var events []*patch.Event
		for _, id := range ids {
			events = append(events, chaosEvent(id, app))
		}
		x.until("append "+strings.Join(ids, " "), func(ctx context.Context) error {
			return testlog.ErrorOf(x.s.AppendEvents(ctx, key, events, store.AppendOptions{}))
		}, nil, x.absent(key, ids...))
	}
	get := func(key store.Key, want string) {
		x.t.Helper()
		x.until("get", func(ctx context.Context) error {
			session, err := x.s.Get(ctx, key)
			if err != nil {
				return err
			}
			if got := visibleIDs(session); got != want {
				x.t.Errorf("%s: a Get shows %q, want %q", x.name, got, want)
			}
			if hot, _ := session.Value("app:hot"); hot.Any() != x.name {
				x.t.Errorf("%s: app:hot is %v", x.name, hot)
			}
			return nil
		}, nil, nil)
	}
	x.until("create", func(ctx context.Context) error {
		return testlog.ErrorOf(x.s.Create(ctx, key, map[string]any{"k": 1}, store.CreateOptions{}))
	}, store.ErrExists, x.notThere(key))
	appends("", "a1", "a2")
	appends(x.name, "a3")
	x.until("patch", func(ctx context.Context) error {
		return testlog.ErrorOf(x.s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p1")}, store.PatchOptions{AsOfNow: true}))
	}, nil, x.absent(key, "p1"))
	x.until("revert", func(ctx context.Context) error {
		return testlog.ErrorOf(x.s.Revert(ctx, key, "p1", store.UndoOptions{}))
	}, fold.ErrBlocked, func() error {
		if info, err := x.truth.Info(ctx, key); err != nil || info.Seq != 4 {
			return fmt.Errorf("the log has %d records (%v)", info.Seq, err)
		}
		return nil
	})
	get(key, "a1 a2 a3")
	copied := func() bool {
		session := testlog.Must(x.truth.Get(ctx, key))(x.t)
		_, there := session.Value("app:copied")
		return there
	}
	x.until("copy shared", func(ctx context.Context) error {
		_, err := x.s.CopyFrom(ctx, store.Key{}, source, store.CopyOptions{})
		return err
	}, store.ErrConflict, func() error { // the first attempt can be committed while the second attempt waits for the row
		if copied() {
			return errors.New("the value is there")
		}
		return nil
	})
	if !copied() {
		x.t.Errorf("%s: a shared value that was copied is not there", x.name)
	}
	appends("", "a4", "a5", "a6")
	_ = x.s.Close()
	x.s = nil
	if x.open(); x.s == nil {
		return
	}
	defer x.s.Close()
	get(key, "a1 a2 a3 a4 a5 a6")
	x.until("fork", func(ctx context.Context) error {
		return testlog.ErrorOf(x.s.Fork(ctx, key, forked, store.ForkOptions{}))
	}, store.ErrExists, x.notThere(forked))
	get(forked, "a1 a2 a3 a4 a5 a6")
	x.until("delete", func(ctx context.Context) error { return x.s.Delete(ctx, forked) }, store.ErrNotFound, func() error { return testlog.ErrorOf(x.truth.Info(ctx, forked)) })

	// Check the final state through a connection without faults.
	session := testlog.Must(x.truth.Get(ctx, key))(x.t)
	if got := visibleIDs(session); got != "a1 a2 a3 a4 a5 a6" || session.View.Seq() != 8 {
		x.t.Errorf("%s: in the end there are %s, of %d records", x.name, got, session.View.Seq())
	}
	if err := x.notThere(forked)(); err != nil {
		x.t.Errorf("%s: the fork is deleted, but %v", x.name, err)
	}
}

func visibleIDs(session store.Session) string {
	var ids []string
	for _, e := range session.View.Events() {
		ids = append(ids, e.ID())
	}
	return strings.Join(ids, " ")
}

func TestEveryFault(t *testing.T) {
	dsn := pgtest.New(t)
	truth := testlog.Must(pg.Open(ctx, dsn, store.Options{}, patient(pg.Options{})))(t)
	defer truth.Close()
	p, through := newProxy(t, dsn+" application_name=faulty")
	run := func(name string, most time.Duration) *script {
		x := &script{t: t, name: name, dsn: through, most: most, truth: truth}
		x.run()
		return x
	}
	p.plan(0, "")
	run("no fault", patient(pg.Options{}).StatementTimeout)
	exchanges := p.count()
	step := 3
	switch {
	case os.Getenv("PATCHLOG_CHAOS") != "":
		step = 1
	case testing.Short():
		step = 9
	}
	base := runtime.NumGoroutine()
	for i, what := range []fault{refuse, resetBefore, resetAfter, delay, halfOpen} {
		began := time.Now()
		unknown, failed, cases := 0, 0, 0
		slowest := time.Duration(0)
		for n := 1 + i%step; n <= exchanges; n += step {
			p.plan(n, what)
			x := run(fmt.Sprint(what, " at ", n), faultTimeout)
			if p.count() >= n { // the number of exchanges varies, because the store writes snapshots in the background
				cases++
			}
			unknown, failed, slowest = unknown+x.unknown, failed+x.failed, max(slowest, x.slowest)
		}
		t.Logf("%s: at %d of %d exchanges, %d calls failed, of %d the outcome was unknown, the slowest took %v, all %v",
			what, cases, exchanges, failed, unknown, slowest.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		switch {
		case cases < exchanges/step/2:
			t.Errorf("%s: at %d of %d exchanges only", what, cases, exchanges)
		// If a connection is lost while a statement is prepared, the backend repeats the statement and the call
		// succeeds. So if the test skips some exchanges, there may be no failed call.
		case (what == refuse || what == resetBefore && step == 1 || what == halfOpen) && unknown+failed == 0:
			t.Errorf("%s: no call failed", what)
		}
	}
	p.plan(0, "")
	p.close()
	leaks(t, dsn, base)
	for problem, err := range truth.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v %v", problem, err)
	}
	b := open(t, dsn, pg.Options{})
	testlog.WantNil(t, b.Check(ctx))
}

// leaks fails the test unless the number of goroutines falls to base, and the server closes all connections with
// the application name faulty.
func leaks(t *testing.T, dsn string, base int) {
	t.Helper()
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	goroutines, connections := 0, 0
	for range 30_000 {
		testlog.NoError(t, c.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'faulty'").Scan(&connections))
		if goroutines = runtime.NumGoroutine(); goroutines <= base && connections == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before, and %d connections are left: %s", goroutines, base, connections, stacks[:runtime.Stack(stacks, true)])
}

// If the answer to a write of shared values is lost, the backend does not repeat the write. A repeated write would
// fail, because the shared values have changed.
func TestUnansweredSharedValues(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", " default_query_exec_mode=simple_protocol", " default_query_exec_mode=exec"} {
		p, through := newProxy(t, pgtest.New(t)+mode)
		unknown := 0
		for n := 1; ; n++ {
			b := open(t, through, pg.Options{})
			p.plan(n, resetAfter)
			err := b.PutShared(ctx, []backend.SharedChange{{Name: fmt.Sprint("name ", n)}})
			done := p.count() < n
			switch p.plan(0, ""); {
			case errors.Is(err, backend.ErrUnknown):
				unknown++
			case err != nil:
				t.Errorf("%q: unanswered at %d: %v", mode, n, err)
			}
			closed(t, b)
			if done {
				break
			}
		}
		if unknown < 2 { // the write and the commit are each lost at least once
			t.Errorf("%q: the outcome is unknown %d times", mode, unknown)
		}
	}
}

// A call returns soon after its context ends, even if the network silently drops all packets.
func TestDeadlineOverDeadNetwork(t *testing.T) {
	dsn := pgtest.New(t)
	base := runtime.NumGoroutine()
	p, through := newProxy(t, dsn+" application_name=faulty")
	s := testlog.Must(pg.Open(ctx, through, store.Options{Logger: slog.New(slog.DiscardHandler)}, pg.Options{StatementTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}))(t)
	key := keyOf("s")
	testlog.NoError(t, testlog.ErrorOf(s.Create(ctx, key, nil, store.CreateOptions{})))
	testlog.NoError(t, testlog.ErrorOf(s.AppendEvents(ctx, key, []*patch.Event{chaosEvent("a", "")}, store.AppendOptions{})))
	p.plan(1, allHalfOpen)
	id := 0
	for name, call := range map[string]func(ctx context.Context) error{
		"get":    func(ctx context.Context) error { _, err := s.Get(ctx, key); return err },
		"info":   func(ctx context.Context) error { _, err := s.Info(ctx, key); return err },
		"delete": func(ctx context.Context) error { return s.Delete(ctx, key) },
		"create": func(ctx context.Context) error {
			_, err := s.Create(ctx, keyOf("other"), nil, store.CreateOptions{})
			return err
		},
		"append": func(ctx context.Context) error {
			id++
			_, err := s.AppendEvents(ctx, key, []*patch.Event{chaosEvent(fmt.Sprint("b", id), "")}, store.AppendOptions{})
			return err
		},
		"patch": func(ctx context.Context) error {
			return testlog.ErrorOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{AsOfNow: true}))
		},
		"fork": func(ctx context.Context) error {
			return testlog.ErrorOf(s.Fork(ctx, key, keyOf("fork"), store.ForkOptions{}))
		},
		"rewind": func(ctx context.Context) error {
			return testlog.ErrorOf(s.Rewind(ctx, key, "nobody's", store.UndoOptions{}))
		},
	} {
		for _, cancelled := range []bool{false, true} {
			within, stop := context.WithTimeout(ctx, 200*time.Millisecond)
			wanted := context.DeadlineExceeded
			if cancelled {
				within, stop = context.WithCancel(ctx)
				time.AfterFunc(200*time.Millisecond, stop)
				wanted = context.Canceled
			}
			err := call(within)
			stop()
			if !errors.Is(err, wanted) {
				t.Errorf("%s (cancelled: %v): %v", name, cancelled, err)
			}
		}
	}
	_ = s.Close()
	p.close()
	leaks(t, dsn, base)
}
