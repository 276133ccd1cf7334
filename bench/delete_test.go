package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkDelete deletes a session and closes the store, which waits until all of it is
// removed. Appending the session's events, in commits of 1,000, is the baseline. Time
// should grow with the events.
func BenchmarkDelete(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{10_000, 80_000} {
		for _, deletes := range []bool{true, false} {
			b.Run(fmt.Sprintf("events=%d/delete=%t", n, deletes), func(b *testing.B) {
				events := testlog.Turns(0, n)
				for b.Loop() {
					b.StopTimer()
					st, err := store.Open(filepath.Join(b.TempDir(), "s.db"), store.Options{Durability: store.Relaxed})
					if err != nil {
						b.Fatal(err)
					}
					key := store.Key{App: "a", User: "u", Session: "s"}
					if _, err := st.Create(ctx, key, nil); err != nil {
						b.Fatal(err)
					}
					if !deletes {
						b.StartTimer()
					}
					for at := 0; at < n; at += 1000 {
						if _, err := st.AppendEvents(ctx, key, store.AppendOptions{}, events[at:at+1000]...); err != nil {
							b.Fatal(err)
						}
					}
					if deletes {
						b.StartTimer()
						if err := st.Delete(ctx, key); err != nil {
							b.Fatal(err)
						}
					}
					if err := st.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
