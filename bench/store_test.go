package bench_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// eventOf returns an event whose JSON has about size bytes.
func eventOf(size int) *patch.Event {
	text := strings.Repeat("x", max(size-230, 1))
	return testlog.New(patch.Fields{
		ID: uuid.NewString(), InvocationID: "e-" + uuid.NewString(), Author: "agent", Timestamp: time.Now(),
		Content: patch.Text("model", text),
	})
}

func openStore(tb testing.TB, opts store.Options) *store.Store {
	s, _ := teststore.File(tb, opts)
	return s
}

func sessionKey(i int) store.Key { return store.Key{App: "app", User: "user", Session: fmt.Sprint(i)} }

// inParallel makes b.N calls from several goroutines and reports events/s and the 99th percentile.
func inParallel(b *testing.B, writers int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	times := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	for range writers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				start := time.Now()
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
				times[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(times[b.N*99/100].Microseconds()), "p99-µs")
}
