package bench_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkAppendWatched appends events of 512 bytes, one a call and one writer, to a session
// that so many watch, each in a loop that does nothing. The baseline is none.
func BenchmarkAppendWatched(b *testing.B) {
	ctx := context.Background()
	for _, engine := range []struct {
		name string
		open func(tb testing.TB) *store.Store
	}{
		{"bolt", func(tb testing.TB) *store.Store { return openStore(tb, store.Options{}) }},
		{"memory", func(tb testing.TB) *store.Store {
			s, err := store.OpenMemory(store.Options{})
			if err != nil {
				tb.Fatal(err)
			}
			return s
		}},
	} {
		for _, watchers := range []int{0, 1, 10} {
			b.Run(fmt.Sprintf("engine=%s/watchers=%d", engine.name, watchers), func(b *testing.B) {
				s := engine.open(b)
				if _, err := s.Create(ctx, sessionKey(0), nil); err != nil {
					b.Fatal(err)
				}
				events := make([]*patch.Event, b.N)
				for i := range events {
					events[i] = eventOf(512)
				}
				var wg sync.WaitGroup
				for range watchers {
					wg.Go(func() {
						for r, err := range s.Watch(ctx, sessionKey(0), 1) {
							if err != nil {
								if !errors.Is(err, store.ErrClosed) {
									b.Error(err)
								}
								return
							}
							if r.Seq == uint64(b.N) {
								return
							}
						}
					})
				}
				inParallel(b, 1, func(i int) error {
					_, err := s.AppendEvents(ctx, sessionKey(0), store.AppendOptions{}, events[i])
					return err
				})
				wg.Wait()
			})
		}
	}
}
