package bench_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkHistory reads what people see of a session of which a model sees summaries of a
// hundred events each, and, as the baseline, its audit log.
func BenchmarkHistory(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1_000, 10_000} {
		s := openStore(b, store.Options{Durability: store.Relaxed})
		key := sessionKey(0)
		if _, err := s.Create(ctx, key, nil); err != nil {
			b.Fatal(err)
		}
		fill(b, s, key, n)
		var view fold.View
		for i := range n / 100 {
			summary := testlog.New(patch.Fields{ID: fmt.Sprint("summary", i), Author: "user", Content: patch.Text("user", "in short")})
			done, err := s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patch.NewSummarise(i, 100, summary))
			if err != nil {
				b.Fatal(err)
			}
			view = done.View
		}
		b.Run(fmt.Sprintf("how=history/events=%d", n), func(b *testing.B) {
			for b.Loop() {
				history, err := s.History(ctx, key, view)
				if err != nil || len(history) != n {
					b.Fatal(len(history), err)
				}
			}
		})
		b.Run(fmt.Sprintf("how=audit/events=%d", n), func(b *testing.B) {
			for b.Loop() {
				records := 0
				for _, err := range s.RawEvents(ctx, key, 1) {
					if err != nil {
						b.Fatal(err)
					}
					records++
				}
				if records != n+n/100 {
					b.Fatal(records)
				}
			}
		})
	}
}
