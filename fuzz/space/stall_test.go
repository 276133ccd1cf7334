package space_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// stopper stops a call wherever it looks whether to go on, and lets it go on when an append,
// which began then, is done. An append that waits for the call to end never is.
//
// The only such place where the call may have the writer's place is where it looks right after
// it has taken it; there it is not stopped.
type stopper struct {
	context.Context
	name    string // of the call
	store   *store.Store
	patient time.Duration
	taking  bool
	stops   int
	appends int
	err     error
}

func (c *stopper) Done() <-chan struct{} {
	c.stop()
	c.taking = true
	return c.Context.Done()
}

func (c *stopper) Err() error {
	if !c.taking {
		c.stop()
	}
	c.taking = false
	return c.Context.Err()
}

func (c *stopper) stop() {
	if c.err != nil {
		return
	}
	if c.stops++; c.stops > 20 && c.stops%20 != 0 { // more of the same
		return
	}
	n := c.appends
	done := make(chan error, 1) // an append that waits ends after the test has gone on
	if !within(c.patient, func() {
		made, err := c.store.AppendEvents(ctx, keyOf("filled", n%20), store.AppendOptions{}, event(fmt.Sprint(c.name, n), 100))
		if err == nil && made.Records[0].Seq != made.View.Seq() { // it was there
			err = errors.New("nothing was appended")
		}
		done <- err
	}) {
		c.err = fmt.Errorf("an append waits, where the call has been stopped for the %d. time", n+1)
	} else {
		c.err = <-done
	}
	c.appends++
}

// stalls makes a call, stopping it wherever that can be, and says whether an append waited for it.
func stalls(name string, s *store.Store, patient time.Duration) (appends int, err error) {
	c := &stopper{Context: ctx, name: name, store: s, patient: patient}
	err = calls[name](c, s)
	return c.appends, errors.Join(c.err, err)
}

// calls are those that read the whole file.
var calls = map[string]func(ctx context.Context, s *store.Store) error{
	"verify": verify,
	"backup": func(ctx context.Context, s *store.Store) error { return s.Backup(ctx, io.Discard) },
}

// Wherever verify and backup are, an append that begins there ends, though they do not go on.
func TestNobodyWaits(t *testing.T) {
	s, _ := open(t)
	fill(t, s, 20, 300) // more pages than one transaction reads
	for name := range calls {
		n, err := stalls(name, s, longAsItMay)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d appends", name, n)
		if n < 10 {
			t.Errorf("%s was stopped %d times; the test tests nothing", name, n)
		}
	}
	n := 0
	no(t, s.Backup(ctx, writerFunc(func(p []byte) (int, error) { // whoever takes it may be slow
		if n++; n > 3 {
			return len(p), nil
		}
		_, err := s.AppendEvents(ctx, keyOf("filled", 0), store.AppendOptions{}, event(fmt.Sprint("b", n), 100))
		return len(p), err
	})))
	if err := verify(ctx, s); err != nil {
		t.Error(err)
	}
}

// selfish is a backend that keeps writers waiting while it checks or copies itself.
type selfish struct {
	*bolt.Backend
	mu sync.RWMutex
}

func (b *selfish) Append(ctx context.Context, name string, batch backend.Batch) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.Backend.Append(ctx, name, batch)
}

func (b *selfish) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Backend.Check(ctx)
}

func (b *selfish) Copy(ctx context.Context, sum func([]byte) uint32, use func(backend.Backend, io.Reader) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Backend.Copy(ctx, sum, use)
}

// A verify and a backup that have the writer's place are reported.
func TestControlSelfish(t *testing.T) {
	b, err := bolt.Open(filepath.Join(t.TempDir(), "log.db"), bolt.Options{NoSync: true, Logger: quiet()})
	no(t, err)
	s, err := store.New(&selfish{Backend: b}, relaxed())
	no(t, err)
	defer func() { no(t, s.Close()) }()
	fill(t, s, 20, 50)
	for _, name := range []string{"verify", "backup"} {
		if _, err := stalls(name, s, 200*time.Millisecond); err == nil {
			t.Errorf("%s keeps appends waiting, and it is not reported", name)
		}
	}
}

// How long appends take while the file is verified and backed up, beside how long they take
// without: on a machine that others use, all of them are slow at times. Nothing but figures
// comes of it.
func TestWaits(t *testing.T) {
	if !long.Long() {
		t.Skip("figures, of a long run")
	}
	s, err := store.Open(filepath.Join(t.TempDir(), "log.db"), store.Options{Logger: quiet()})
	no(t, err)
	defer func() { no(t, s.Close()) }()
	fill(t, s, 200, 1000)
	events := 0
	for r := range long.Rounds(t, 1) {
		for name, call := range map[string]func(context.Context, *store.Store) error{
			"alone":       func(context.Context, *store.Store) error { time.Sleep(4 * time.Second); return nil },
			"with verify": calls["verify"],
			"with backup": calls["backup"],
		} {
			var stop atomic.Bool
			var writers sync.WaitGroup
			var slow, all atomic.Int64
			for w := range 16 {
				events++
				id := fmt.Sprint("t", r.N, "-", events)
				writers.Go(func() {
					for n := 0; !stop.Load(); n++ {
						began := time.Now()
						if _, err := s.AppendEvents(ctx, keyOf("filled", w), store.AppendOptions{}, event(fmt.Sprint(id, "-", n), 300)); err != nil {
							t.Error(err)
							return
						}
						all.Add(1)
						if time.Since(began) > 100*time.Millisecond {
							slow.Add(1)
						}
					}
				})
			}
			err := call(ctx, s)
			stop.Store(true)
			writers.Wait()
			no(t, err)
			r.Count("appends "+name, int(all.Load()))
			r.Count("appends over 100 ms "+name, int(slow.Load()))
		}
	}
}
