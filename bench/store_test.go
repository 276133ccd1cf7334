package bench_test

import (
	"fmt"
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

func create(b *testing.B, s *store.Store, i int) {
	b.Helper()
	testlog.Must(s.Create(b.Context(), sessionKey(i), nil, store.CreateOptions{}))(b)
}

func appendEvents(b *testing.B, s *store.Store, i int, events ...*patch.Event) store.Committed {
	b.Helper()
	return testlog.Must(s.AppendEvents(b.Context(), sessionKey(i), events, store.AppendOptions{}))(b)
}

// fill appends the events with the numbers from, from+1 … to-1 to session 0, in large batches. Each has about 512
// bytes.
func fill(b *testing.B, s *store.Store, from, to int) {
	b.Helper()
	text := strings.Repeat("x", 280)
	var batch []*patch.Event
	for i := from; i < to; i++ {
		batch = append(batch, testlog.New(patch.Fields{
			ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), InvocationID: fmt.Sprint("inv", i/4), Author: "agent",
			Content: patch.Text("model", text),
			Actions: patch.Actions{StateDelta: map[string]any{fmt.Sprint("key", i%20): i}},
		}))
		if len(batch) == 1000 || i == to-1 {
			appendEvents(b, s, 0, batch...)
			batch = nil
		}
	}
}

// applyPatches applies patches to session 0.
func applyPatches(b *testing.B, s *store.Store, patches ...*patch.PatchEvent) store.Committed {
	b.Helper()
	return testlog.Must(s.ApplyPatch(b.Context(), sessionKey(0), patches, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(b)
}

// inParallel calls do b.N times in total from several goroutines, and reports events/s.
func inParallel(b *testing.B, writers int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range writers {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if err := do(i - 1); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
