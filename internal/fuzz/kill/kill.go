// Package kill kills processes while 32 clients use them. The clients' history, followed by a client that repeats the
// in-flight operations, must be linearizable: nothing acknowledged is lost, and each other operation takes effect
// once, whole, or not at all.
//
//	go test ./internal/fuzz/kill -run 'TestKilled$' -timeout 0 -rounds 2000 -v
//
// [Harness] does this for any storage.
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

// AppName is the PGAPPNAME of processes that will be killed.
const AppName = "to be killed"

// Harness tests one kind of storage.
type Harness struct {
	// Open opens the store at a place, with a flaw from [ops.Flaws] unless that is "".
	Open func(place, flaw string) (*store.Store, error)

	// AfterKill, if not nil, waits until the server has no connection with the name [AppName]. In some rounds, the
	// operations of the killed process are repeated before that. nil means that nothing is in flight once the process
	// has ended.
	AfterKill func(t testing.TB, place string)

	// Backups says that the store can vacuum, and that [store.Open] opens its backups.
	Backups bool

	// Cut, if not nil, cuts the power at the end of a round instead of killing the process. Restore is called after
	// the process has ended.
	Cut, Restore func(place string) error
}

// Child never returns in a process that a harness has started. Call it before the tests run, in an init function.
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

// Check runs rounds, each of which kills a process. place creates a new storage, used for perPlace rounds.
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

// Finds runs rounds with a flaw until one reports it, and fails if none does. The number of rounds depends on the
// machine: a kill must hit a moment at which the flaw shows.
func (h Harness) Finds(t *testing.T, flaw, place string) {
	const most = 1000
	p := &Storage{Harness: h, name: place, flaw: flaw}
	for n := range most {
		if err := p.Round(t, n, rand.New(rand.NewPCG(uint64(n), 0)), func(string, int) {}); err != nil {
			t.Logf("round %d: %.900s", n, err.Error())
			return
		}
	}
	t.Errorf("%d rounds found nothing wrong with the flaw %s", most, flaw)
}

// Storage is a storage used by processes that are killed, one after another.
type Storage struct {
	Harness
	name, flaw string
	before     map[store.Key]string // the logs at the end of the last round
}

// clients is the number of clients per process.
const clients = 32

// patience is the time after which a process is killed in any case.
const patience = 10 * time.Second

// Round kills a working process. It checks that acknowledged writes are there, that other writes are there as a whole
// or not at all, that repeated operations take effect once, and that nothing else changed.
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
	l.Callers = []ops.Caller{watch(process, random, end)}
	if p.Backups {
		l.Backups = t.TempDir()
		defer os.RemoveAll(l.Backups) // there may be many
	}
	late := time.AfterFunc(patience, end)
	l.Create()
	l.Work()
	late.Stop()
	end()
	stderr, exited := process.Kill()
	// A process without a disk may end by itself.
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

// Recover reads a store after a crash, repeats the in-flight operations, and reads the store again, all in the load's
// history. It returns the logs of the store, and an error if a log in before has changed or the store is damaged.
func Recover(ctx context.Context, l *linear.Load, local *ops.Local, before map[store.Key]string) (map[store.Key]string, error) {
	l.End(local)
	l.Repeat(local)
	l.End(local)
	now, err := ops.Audit(ctx, local.Store)
	return now, errors.Join(err, ops.Unchanged(before, now))
}

// checkBackup checks that the last complete backup shows the store at a moment between its start and its end.
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

// watched is a process that is killed some time after the n-th operation of a kind has started or ended. It counts
// operations instead of time, since a machine may be busy.
type watched struct {
	*ops.Process
	kinds string // the kinds that count when they start; "": all, when they end
	left  atomic.Int64
	after time.Duration
	kill  func()
}

func watch(p *ops.Process, random *rand.Rand, kill func()) *watched {
	w := &watched{Process: p, kill: kill}
	upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	n := 0
	switch p := random.IntN(100); {
	case p < 10: // while the store is being opened
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

func (w *watched) Call(o ops.Op) ops.Reply {
	if w.kinds != "" && strings.Contains(w.kinds, string(o.Kind)) {
		w.tick()
	}
	r := w.Process.Call(o)
	if w.kinds == "" {
		w.tick()
	}
	return r
}

func (w *watched) tick() {
	if w.left.Add(-1) == 0 {
		time.AfterFunc(w.after, w.kill)
	}
}
