// Package kill kills processes while 32 clients use them. After a kill, another client repeats the operations that
// were in flight. The history of all clients must be linearizable. So no acknowledged write is lost, and every other
// write takes effect once and as a whole, or not at all.
//
//	go test ./internal/fuzz/kill -run 'TestKilled$' -timeout 0 -rounds 2000 -v
//
// [Harness] runs this test on any storage.
package kill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/linear"
	"github.com/patchlog-dev/patchlog/internal/fuzz/long"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/store"
)

// Environment variables of a process that will be killed.
const (
	envPlace = "PATCHLOG_KILL"
	envFlaw  = "PATCHLOG_KILL_FLAW"
)

// AppName is the PGAPPNAME of a process that will be killed.
const AppName = "to be killed"

// Harness tests one kind of storage.
type Harness struct {
	// Open opens the store in a place, which may be a file or a database. The flaw is a key of [ops.Flaws], or "".
	Open func(place, flaw string) (*store.Store, error)

	// AfterKill waits until the server has closed the connections named [AppName]. In some rounds, the operations in
	// flight are repeated before AfterKill is called. If AfterKill is nil, no operation is in flight after the
	// process has ended.
	AfterKill func(t testing.TB, place string)

	// Backups reports whether the store can vacuum, and whether [store.Open] opens its backups.
	Backups bool

	// Cut, if not nil, simulates a power cut at the end of a round, before the process is killed. Restore is
	// called after the process has ended.
	Cut, Restore func(place string) error
}

// Child runs the process that a harness has started, and does not return in it. Call Child in an init function,
// before the tests run.
func (h Harness) Child() {
	place, flaw := os.Getenv(envPlace), os.Getenv(envFlaw)
	if place == "" {
		return
	}
	s, err := h.Open(place, flaw)
	if err == nil {
		err = (&ops.Local{Store: s}).Serve(os.Stdin, os.Stdout)
	}
	fmt.Fprintln(os.Stderr, "killed too late:", err)
	os.Exit(1)
}

// Check runs rounds. Each round kills a process. The function place creates a storage and returns its name. Each
// storage is used for perPlace rounds.
func (h Harness) Check(t *testing.T, few, perPlace int, place func() string) {
	var p *Storage
	for r := range long.Rounds(t, few) {
		if p == nil || r.N%perPlace == 0 {
			p = &Storage{Harness: h, name: place()}
		}
		if err := p.Round(t, r.N, r.Random, r.Count); err != nil {
			t.Error(err)
		}
	}
}

// Finds runs rounds with a flaw until a round reports the flaw. If no round reports it, Finds fails the test. The
// number of rounds varies, because a kill must hit a moment at which the flaw shows.
func (h Harness) Finds(t *testing.T, flaw, place string) {
	const maxRounds = 1000
	p := &Storage{Harness: h, name: place, flaw: flaw}
	for n := range maxRounds {
		if err := p.Round(t, n, rand.New(rand.NewPCG(uint64(n), 0)), func(string, int) {}); err != nil {
			t.Logf("round %d: %.900s", n, err.Error())
			return
		}
	}
	t.Errorf("%d rounds found nothing wrong with the flaw %s", maxRounds, flaw)
}

// Storage is a storage on which processes run, one after another. Each process is killed.
type Storage struct {
	Harness
	name, flaw string
	before     map[store.Key]string // key: session; value: the log at the end of the last round
}

const clients = 32

// patience is the longest time before a process is killed.
const patience = 10 * time.Second

// Round runs clients on a process and kills the process. Then it checks that acknowledged writes exist, and that all
// other writes exist as a whole or not at all. A repeated operation must have taken effect once, and nothing else
// may have changed.
func (p *Storage) Round(t testing.TB, n int, random *rand.Rand, count func(string, int)) error {
	ctx := context.Background()
	process, err := ops.Start(envPlace+"="+p.name, envFlaw+"="+p.flaw, "PGAPPNAME="+AppName, "GORACE=halt_on_error=1")
	if err != nil {
		return err
	}
	l := &linear.Load{
		Clients: clients, Apps: 2, Name: fmt.Sprint("round ", n),
		Seed: random.Uint64(), More: func() bool { return true }, Forks: true,
	}
	l.Begin()
	var once sync.Once
	var cutErr error
	var cutAt int64
	end := func() {
		once.Do(func() {
			cutAt = l.Since().Nanoseconds()
			if p.Cut != nil {
				cutErr = p.Cut(p.name)
			}
			_ = process.Cmd.Process.Kill()
		})
	}
	l.Callers = []ops.Caller{newKillAfter(process, random, end)}
	if p.Backups {
		l.Backups = t.TempDir()
		defer os.RemoveAll(l.Backups) // a long run creates many such directories
	}
	late := time.AfterFunc(patience, end)
	l.Create()
	l.Work()
	late.Stop()
	end()
	stderr, exited := process.Kill()
	// After a power cut, the process may fail before it is killed.
	if exited && runtime.GOOS != "windows" && (p.Cut == nil || strings.Contains(fmt.Sprint(stderr), "panic")) {
		return fmt.Errorf("the process ended before it was killed: %s", stderr)
	}
	if p.Cut != nil {
		l.MarkGoneAfter(cutAt)
	}
	if p.Restore != nil {
		cutErr = errors.Join(cutErr, p.Restore(p.name))
	}
	if cutErr != nil {
		return cutErr
	}
	s, err := p.Open(p.name, p.flaw)
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	history := l.History()
	count("kills", 1)
	for _, e := range history {
		if e.Outcome == ops.Done {
			count(string(e.Kind), 1)
		}
		count(e.Outcome, 1)
	}
	local := &ops.Local{Store: s}
	if p.AfterKill != nil {
		if random.IntN(2) == 0 {
			l.Repeat(local)
		}
		p.AfterKill(t, p.name)
	}
	now, err := Recover(ctx, l, local, p.before)
	p.before = now
	err = errors.Join(err, s.Close(), p.checkBackup(l, history, count))
	for _, violation := range l.History().Judge(linear.Options{Faults: true}) {
		err = errors.Join(err, errors.New(violation))
	}
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	return nil
}

// Recover reads a store after a crash, repeats the operations in flight, and reads the store again. It adds these
// operations to the history of the load and returns the logs of the store. If the store is damaged, or if a log
// differs from the log in before, it returns an error.
func Recover(ctx context.Context, l *linear.Load, local *ops.Local, before map[store.Key]string) (map[store.Key]string, error) {
	l.End(local)
	l.Repeat(local)
	l.End(local)
	now, err := ops.Audit(ctx, local.Store)
	return now, errors.Join(err, ops.CheckUnchanged(before, now))
}

// checkBackup checks that the last complete backup shows the store at a moment between the start and the end of the
// backup.
func (p *Storage) checkBackup(l *linear.Load, history linear.History, count func(string, int)) error {
	if !p.Backups {
		return nil
	}
	for i := len(history) - 1; i >= 0; i-- {
		e := history[i]
		if _, err := os.Stat(e.File); e.Kind != ops.Backup || err != nil {
			continue
		}
		s, err := store.Open(e.File, store.Options{ReadOnly: true})
		if err != nil {
			return fmt.Errorf("backup: %w", err)
		}
		l.ReadDuring(&ops.Local{Store: s}, e)
		count("backups checked", 1)
		return s.Close()
	}
	return nil
}

// killAfter is a process that is killed shortly after a given number of operations. It counts operations instead of
// time, because the duration of an operation depends on the machine.
type killAfter struct {
	*ops.Process
	kinds string        // kinds of operations to count when they start; if "", all operations are counted when they end
	left  atomic.Int64  // number of operations left to count
	after time.Duration // time between the last counted operation and the kill
	kill  func()
}

func newKillAfter(p *ops.Process, random *rand.Rand, kill func()) *killAfter {
	w := &killAfter{Process: p, kill: kill}
	upTo := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	n := 0
	switch p := random.IntN(100); {
	case p < 10: // kill the process while it opens the store
		time.AfterFunc(upTo(20*time.Millisecond), kill)
	case p < 40:
		w.kinds, n, w.after = "vacuum backup erase import", 1+random.IntN(3), upTo(8*time.Millisecond)
	case p < 50:
		n, w.after = 1+random.IntN(1000), upTo(time.Millisecond)
	default:
		n, w.after = 1+random.IntN(200), upTo(3*time.Millisecond)
	}
	w.left.Store(int64(n))
	return w
}

func (w *killAfter) Call(o ops.Op) ops.Reply {
	if w.kinds != "" && strings.Contains(w.kinds, string(o.Kind)) {
		w.countDown()
	}
	r := w.Process.Call(o)
	if w.kinds == "" {
		w.countDown()
	}
	return r
}

func (w *killAfter) countDown() {
	if w.left.Add(-1) == 0 {
		time.AfterFunc(w.after, w.kill)
	}
}
