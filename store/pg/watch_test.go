package pg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// follower watches a session and collects the results until the watch ends.
type follower struct {
	done chan struct{}

	mu   sync.Mutex
	seqs []string // the seq and the id of each received record
	errs []error
}

func follow(ctx context.Context, s *store.Store, key store.Key, from uint64) *follower {
	f := &follower{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for r, err := range s.Watch(ctx, key, from) {
			f.mu.Lock()
			if err != nil {
				f.errs = append(f.errs, err)
			} else {
				f.seqs = append(f.seqs, fmt.Sprint(r.Seq, " ", r.ID()))
			}
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *follower) wait(t *testing.T, records, errs int) {
	t.Helper()
	for range 30_000 {
		f.mu.Lock()
		r, e := len(f.seqs), len(f.errs)
		f.mu.Unlock()
		if r >= records && e >= errs {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d records and errors %v after five minutes, want %d and %d", len(f.seqs), f.errs, records, errs)
}

// A watcher receives each record once and in order, even if connections are cut and the server is killed and
// restarted. Several stores write to the session.
func TestWatch(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 40
	server := pgtest.Start(t, pgtest.Options{})
	dsn := server.Database(t)
	proxy, through := newProxy(t, dsn)
	open := func(dsn string) *store.Store {
		s := testlog.Must(pg.Open(ctx, dsn, store.Options{Logger: slog.New(slog.DiscardHandler)}, patient(pg.Options{})))(t)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	stores := []*store.Store{open(dsn), open(through)}
	key := keyOf("watched")
	testlog.NoError(t, testlog.ErrorOf(stores[0].Create(ctx, key, nil, store.CreateOptions{})))
	var followers []*follower
	for i := range 6 {
		followers = append(followers, follow(ctx, stores[i%2], key, uint64(1+i*10)))
	}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			s := stores[i%2]
			for k := range each {
				id := fmt.Sprint(i, ".", k)
				write := func() error {
					return testlog.ErrorOf(s.AppendEvents(ctx, key, []*patch.Event{chaosEvent(id, "")}, store.AppendOptions{}))
				}
				if k%5 == 4 {
					write = func() error {
						return testlog.ErrorOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID(id).WithTimestamp(time.Unix(1, 0))}, store.PatchOptions{AsOfNow: true}))
					}
				}
				for { // repeat until the server has restarted
					err := write()
					if err == nil {
						break
					}
					if outcome := ops.OutcomeOf(err); outcome != ops.Failed && outcome != ops.Unknown {
						t.Errorf("writing %s: %v", id, err)
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		proxy.cut()
	}
	server.Kill()
	for _, f := range followers {
		f.wait(t, 0, 1)
	}
	testlog.NoError(t, server.Start())
	wg.Wait()
	var log []string
	for r, err := range stores[0].RawEvents(ctx, key, 1) {
		testlog.NoError(t, err)
		log = append(log, fmt.Sprint(r.Seq, " ", r.ID()))
	}
	if len(log) != writers*each {
		t.Errorf("%d records, want %d", len(log), writers*each)
	}
	for i, f := range followers {
		f.wait(t, len(log)-i*10, 0)
	}
	testlog.NoError(t, stores[1].Delete(ctx, key))
	testlog.NoError(t, testlog.ErrorOf(stores[1].Create(ctx, key, nil, store.CreateOptions{})))
	for i, f := range followers {
		<-f.done
		if !slices.Equal(f.seqs, log[i*10:]) {
			t.Errorf("watcher %d got\n%s\nof\n%s", i, strings.Join(f.seqs, ", "), strings.Join(log, ", "))
		}
		last := len(f.errs) - 1
		for j, err := range f.errs {
			if errors.Is(err, store.ErrNotFound) != (j == last) {
				t.Errorf("watcher %d: error %d of %d is %v", i, j, last+1, err)
			}
		}
	}
}

// Close does not wait for the answer to the query of a watcher.
func TestWatchClose(t *testing.T) {
	proxy, through := newProxy(t, pgtest.New(t))
	s := testlog.Must(pg.Open(ctx, through, store.Options{}, pg.Options{StatementTimeout: time.Hour}))(t)
	key := keyOf("watched")
	testlog.NoError(t, testlog.ErrorOf(s.Create(ctx, key, nil, store.CreateOptions{})))
	f := follow(ctx, s, key, 1)
	proxy.plan(1, allHalfOpen)
	for proxy.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	testlog.WantNil(t, s.Close())
	<-f.done
	if len(f.errs) != 1 || !errors.Is(f.errs[0], store.ErrClosed) {
		t.Errorf("errors %v", f.errs)
	}
}
