package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkFork forks a session, in steps: on bbolt, and in memory as the baseline. Time
// should grow with the events.
func BenchmarkFork(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{10_000, 40_000} {
		for _, on := range []string{"bolt", "memory"} {
			b.Run(fmt.Sprintf("events=%d/on=%s", n, on), func(b *testing.B) {
				var st *store.Store
				var err error
				if on == "bolt" {
					st, err = store.Open(filepath.Join(b.TempDir(), "s.db"), store.Options{Durability: store.Relaxed})
				} else {
					st, err = store.OpenMemory(store.Options{})
				}
				if err != nil {
					b.Fatal(err)
				}
				defer st.Close()
				key := store.Key{App: "a", User: "u", Session: "s"}
				if _, err := st.Create(ctx, key, nil); err != nil {
					b.Fatal(err)
				}
				if _, err := st.AppendEvents(ctx, key, store.AppendOptions{}, testlog.Turns(0, n)...); err != nil {
					b.Fatal(err)
				}
				forks := 0
				for b.Loop() {
					forks++
					to := store.Key{App: "a", User: "u", Session: fmt.Sprint("fork", forks)}
					if _, err := st.Fork(ctx, key, to, store.ForkOptions{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
