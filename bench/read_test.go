package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
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

// fillFrom appends n such events in one batch, numbered from a number on.
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

// BenchmarkGetAfterAppend appends one event and gets the session with its state's size:
// what that costs must not depend on how long the session is. The append is not timed.
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

// BenchmarkGetAfterOpen opens a file and gets a session of which 200 events are visible.
// One with 100,000 records should cost about what one with 200 records costs; without
// snapshots it costs a fold of the whole log.
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
			// Every tenth of the last 2,000 stays, so that what is visible lies apart.
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

// fillWithCuts hides all of n events but 200 that lie apart.
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
	// One more record than the policy asks for makes a snapshot due.
	fill2 := make([]*patch.PatchEvent, 0, snapshot.DefaultEvery+1)
	for i := range snapshot.DefaultEvery + 1 {
		fill2 = append(fill2, patch.NewSplice(i%200, 1, testlog.New(patch.Fields{Author: "agent"})))
	}
	if _, err := s.ApplyPatch(context.Background(), key, opts, fill2...); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen opens a file of about a gigabyte that is in the page cache, filled in
// bulk, and says how large it is beside the events' JSON.
func BenchmarkOpen(b *testing.B) {
	if testing.Short() {
		b.Skip("it writes a gigabyte")
	}
	path := filepath.Join(b.TempDir(), "large.db")
	s, err := store.Open(path, store.Options{Durability: store.Relaxed, CacheBytes: -1, Snapshots: snapshot.Policy{Every: -1}})
	if err != nil {
		b.Fatal(err)
	}
	const sessions, each = 160, 10_000
	for i := range sessions {
		if _, err := s.Create(context.Background(), sessionKey(i), nil); err != nil {
			b.Fatal(err)
		}
		fill(b, s, sessionKey(i), each)
	}
	text := 0
	for r, err := range s.RawEvents(context.Background(), sessionKey(0), 1) {
		if err != nil {
			b.Fatal(err)
		}
		line, err := r.Event.MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		text += len(line) + 1
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Run(fmt.Sprintf("events=%d", sessions*each), func(b *testing.B) {
		for b.Loop() {
			s, err := store.Open(path, store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(info.Size())/float64(text*sessions), "file-B/JSON-B")
		b.ReportMetric(float64(info.Size())/(1<<20), "file-MiB")
	})
}

// BenchmarkColdRead gets recorded sessions that are not in memory, from a file in the page cache
// and without snapshots, and says what an event takes.
func BenchmarkColdRead(b *testing.B) {
	ctx := context.Background()
	for _, part := range parts(recorded.Sets(b)) {
		if !strings.HasPrefix(part.name, "set=") {
			continue
		}
		b.Run(part.name, func(b *testing.B) {
			s := openStore(b, store.Options{
				Durability: store.Relaxed, CacheBytes: -1, Snapshots: snapshot.Policy{Every: -1},
			})
			var keys []store.Key
			events := 0
			for _, name := range part.files {
				f, err := os.Open(name)
				if err != nil {
					b.Fatal(err)
				}
				key := store.Key{App: "app", User: "user", Session: filepath.Base(name)}
				done, err := s.Import(ctx, key, f, store.ImportOptions{})
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
				keys = append(keys, key)
				events += len(done.Records)
			}
			for b.Loop() {
				for _, key := range keys {
					if _, err := s.Get(ctx, key); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N*events), "µs/event")
		})
	}
}
