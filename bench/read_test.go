package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// fill appends n events of about 512 bytes, in large batches.
func fill(b *testing.B, s *store.Store, key store.Key, n int) {
	b.Helper()
	for from := 0; from < n; from += 1000 {
		fillFrom(b, s, key, from, min(1000, n-from))
	}
}

// fillFrom appends n such events in one batch, numbered from from.
func fillFrom(b *testing.B, s *store.Store, key store.Key, from, n int) {
	b.Helper()
	text := strings.Repeat("x", 280)
	var batch []*patch.Event
	for i := from; i < from+n; i++ {
		batch = append(batch, testlog.New(patch.Fields{
			ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), InvocationID: fmt.Sprint("inv", i/4), Author: "agent",
			Content: textContent(text),
			Actions: patch.Actions{StateDelta: map[string]any{fmt.Sprint("key", i%20): i}},
		}))
	}
	if _, err := s.AppendEvents(context.Background(), key, store.AppendOptions{}, batch...); err != nil {
		b.Fatal(err)
	}
}

func textContent(text string) patch.Value { return patch.Text("model", text) }

// BenchmarkGetAfterAppend appends one event, which is not timed, and gets the session and a state key. The time
// should not depend on the length of the session.
func BenchmarkGetAfterAppend(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			s := openStore(b, store.Options{Durability: store.Relaxed, CacheBytes: 1 << 40})
			key := sessionKey(0)
			if _, err := s.Create(ctx, key, nil); err != nil {
				b.Fatal(err)
			}
			fill(b, s, key, n)
			e := testlog.New(patch.Fields{Author: "agent", Actions: patch.Actions{StateDelta: map[string]any{"key1": 1}}})
			// The state of a session just filled is computed once.
			if session, err := s.Get(ctx, key); err != nil || len(session.State()) == 0 {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, e); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				session, err := s.Get(ctx, key)
				if err != nil {
					b.Fatal(err)
				}
				if _, ok := session.Value("key1"); !ok || session.View.Len() <= n {
					b.Fatal("an event is missing")
				}
			}
		})
	}
}

// BenchmarkGetAfterOpen opens a file and gets a session with 200 visible events. 100,000 records should cost
// about as much as 200; without snapshots they cost a fold of the log.
func BenchmarkGetAfterOpen(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		raw       int
		snapshots bool
	}{{200, true}, {100_000, true}, {100_000, false}} {
		b.Run(fmt.Sprintf("records=%d/visible=200/snapshots=%v", c.raw, c.snapshots), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "bench.db")
			opts := store.Options{Durability: store.Relaxed}
			if !c.snapshots {
				opts.Snapshots = snapshot.Policy{Every: -1}
			}
			s, err := store.Open(path, opts)
			if err != nil {
				b.Fatal(err)
			}
			key := sessionKey(0)
			if _, err := s.Create(ctx, key, nil); err != nil {
				b.Fatal(err)
			}
			fill(b, s, key, c.raw)
			// Every tenth of the last 2,000 stays, so that the visible events are not adjacent.
			if c.raw > 2000 {
				fillWithCuts(b, s, key, c.raw)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s, err := store.Open(path, opts)
				if err != nil {
					b.Fatal(err)
				}
				session, err := s.Get(ctx, key)
				if err != nil || session.View.Len() != 200 {
					b.Fatal(err, session.View.Len())
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// fillWithCuts hides all of n events except 200 that are not adjacent.
func fillWithCuts(b *testing.B, s *store.Store, key store.Key, n int) {
	b.Helper()
	patches := []*patch.PatchEvent{patch.NewSplice(0, n-2000).WithState(patch.Keep)}
	for i := range 200 {
		patches = append(patches, patch.NewSplice(i, 9))
	}
	opts := store.PatchOptions{AsOfNow: true, AllowOrphans: true}
	if _, err := s.ApplyPatch(context.Background(), key, opts, patches...); err != nil {
		b.Fatal(err)
	}
	// One record more than the policy requires triggers a snapshot.
	more := make([]*patch.PatchEvent, 0, snapshot.DefaultEvery+1)
	for i := range snapshot.DefaultEvery + 1 {
		more = append(more, patch.NewSplice(i%200, 1, testlog.New(patch.Fields{Author: "agent"})))
	}
	if _, err := s.ApplyPatch(context.Background(), key, opts, more...); err != nil {
		b.Fatal(err)
	}
}
