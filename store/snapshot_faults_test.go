package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// A snapshot that can be neither read nor written fails no call.
func TestFailingSnapshots(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, w *warnings) {
		for i, failure := range []error{
			storetest.ErrInjected, backend.ErrDamaged, &backend.UnknownError{Cause: storetest.ErrInjected},
		} {
			whole := e.backend.Backend
			e.backend.Backend = &watched{Backend: whole, err: failure}
			e.open()
			e.create(nil)
			e.append(says("a", 5)...)
			e.apply(patch.NewSplice(0, 1).WithID("p"))
			e.append(say("b"))
			e.must(e.store.ViewAt(ctx, key, 6))
			e.no(e.store.Close())
			if len(w.take()) == 0 {
				e.Errorf("failure %d was not logged", i)
			}
			if e.path != "" {
				whole = openBoltAt(e.T, e.path)
				e.backend.Backend.(*watched).Backend = whole
			}
			e.open()
			e.same("visible", ids(e.view()), "a2 a3 a4 a5 b")
			e.no(e.store.Delete(ctx, key))
			e.no(e.store.Close())
			w.take()
			if e.path != "" {
				whole = openBoltAt(e.T, e.path)
			}
			e.backend.Backend = whole
			e.open()
		}
	})
}

// Close waits for a snapshot that is being written, and for those that wait.
func TestCloseWritesSnapshots(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		whole := e.backend.Backend
		goOn := make(chan struct{})
		e.backend.Backend = &watched{Backend: whole, afterPut: func() { <-goOn }}
		keys := []store.Key{key, {App: "a", User: "u", Session: "1"}, {App: "a", User: "u", Session: "2"}}
		for _, k := range keys {
			e.must(e.store.Create(ctx, k, nil))
			e.must(e.store.AppendEvents(ctx, k, store.AppendOptions{}, says("a", 3)...))
		}
		closed := make(chan error)
		go func() { closed <- e.store.Close() }()
		select {
		case err := <-closed:
			e.Fatalf("it did not wait (%v)", err)
		case <-time.After(20 * time.Millisecond):
		}
		close(goOn)
		e.no(<-closed)
		e.backend.Backend = whole
		e.reopen()
		n := 0
		listed, err := e.backend.List(ctx, "", "", 9)
		e.no(err)
		for _, l := range listed {
			kept, err := e.backend.Snapshot(ctx, l.Session, l.Creation)
			e.no(err)
			if kept.Data != nil {
				n++
			}
		}
		if n != len(keys) {
			e.Errorf("%d snapshots were written, want %d", n, len(keys))
		}
	})
}

// Closing while others write panics nowhere and logs nothing: no snapshot becomes due
// once closing has begun.
func TestCloseWhileSnapshotsBecomeDue(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	w := &warnings{Handler: slog.DiscardHandler}
	for range rounds {
		s, err := store.OpenMemory(store.Options{Snapshots: eager, Logger: slog.New(w)})
		no(t, err)
		must(t)(s.Create(ctx, key, nil))
		together(4, func(i int) {
			if i == 0 {
				time.Sleep(200 * time.Microsecond)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			for {
				if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, new(patch.Event)); err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	if lines := w.take(); len(lines) > 0 {
		t.Errorf("warnings: %q", lines[:min(len(lines), 3)])
	}
}

// While others write and delete, and snapshots come and go, no reader takes one for
// damaged, and Verify finds nothing.
func TestSnapshotsWhileOthersWrite(t *testing.T) {
	writes := 200
	if testing.Short() {
		writes = 60
	}
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		e.create(nil)
		brief := store.Key{App: "a", User: "u", Session: "brief"}
		done := make(chan struct{})
		var wg sync.WaitGroup
		reader := func(read func() error) {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := read(); err != nil && !errors.Is(err, store.ErrNotFound) {
						e.Error(err)
						return
					}
				}
			})
		}
		for _, k := range []store.Key{key, brief} {
			reader(func() error {
				_, err := e.store.ViewAt(ctx, k, 1)
				return err
			})
		}
		reader(func() error {
			for p, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
				if err != nil {
					return err
				}
				return fmt.Errorf("verify: %s", p)
			}
			return nil
		})
		for i := range writes {
			if i%10 == 0 {
				must(e)(e.store.Create(ctx, brief, nil))
			}
			for _, k := range []store.Key{key, brief} {
				must(e)(e.store.AppendEvents(ctx, k, store.AppendOptions{}, say(fmt.Sprint(i))))
			}
			if i%10 == 9 {
				e.no(e.store.Delete(ctx, brief))
			}
			if i%20 == 19 {
				e.must(e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 15)))
			}
		}
		close(done)
		wg.Wait()
	})
}

// warnings counts what a store warns of.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	w.lines = append(w.lines, text)
	return nil
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// watched is a backend that tells which records were read, and may fail or stall where
// snapshots are concerned.
type watched struct {
	backend.Backend
	afterPut func()

	mu   sync.Mutex
	err  error
	seqs []uint64
}

func (b *watched) note(records []backend.Record, err error) ([]backend.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		b.seqs = append(b.seqs, r.Seq)
	}
	return records, err
}

// take returns the seqs of the records that were read since the last call.
func (b *watched) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.seqs)
	text := fmt.Sprint(slices.Compact(b.seqs))
	b.seqs = nil
	return text
}

func (b *watched) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	return b.note(b.Backend.Read(ctx, session, creation, seqs, maxBytes))
}

func (b *watched) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	if b.err != nil {
		return backend.Snapshot{}, b.err
	}
	return b.Backend.Snapshot(ctx, session, creation)
}

func (b *watched) PutSnapshot(ctx context.Context, session, creation string, kept backend.Snapshot) error {
	if b.err != nil {
		return b.err
	}
	err := b.Backend.PutSnapshot(ctx, session, creation, kept)
	if b.afterPut != nil {
		b.afterPut()
	}
	return err
}
