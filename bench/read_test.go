package bench_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkGetAfterAppend gets a session and reads a state key after each append of one event. It does not time the
// append. The time of a get should not depend on the length of the session.
func BenchmarkGetAfterAppend(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			s := openStore(b, store.Options{NoSync: true, CacheBytes: 1 << 40})
			create(b, s, 0)
			fill(b, s, 0, n)
			e := testlog.New(patch.Fields{Author: "agent", Actions: patch.Actions{StateDelta: map[string]any{"key1": 1}}})
			// The first read computes the state of the session, so it is made before the measurement.
			if session, err := s.Get(b.Context(), sessionKey(0)); err != nil || len(session.State()) == 0 {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				appendEvents(b, s, 0, e)
				b.StartTimer()
				session, err := s.Get(b.Context(), sessionKey(0))
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

// BenchmarkGetAfterOpen opens a file and gets a session with 100,000 records and 200 visible events. Without a
// snapshot, the store must fold the whole log.
func BenchmarkGetAfterOpen(b *testing.B) {
	const records, visible = 100_000, 200
	for _, every := range []int{snapshot.DefaultEvery, -1} {
		b.Run(fmt.Sprintf("records=%d/visible=%d/snapshots=%v", records, visible, every > 0), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "bench.db")
			opts := store.Options{NoSync: true, Snapshots: snapshot.Policy{Every: every}}
			s := testlog.Must(store.Open(path, opts))(b)
			create(b, s, 0)
			fill(b, s, 0, records)
			// Of the last 2,000 events, every tenth stays visible. So the visible events are not adjacent in the log.
			patches := []*patch.PatchEvent{patch.NewSplice(0, records-10*visible).WithState(patch.Keep)}
			for i := range visible {
				patches = append(patches, patch.NewSplice(i, 9))
			}
			applyPatches(b, s, patches...)
			// The store writes a snapshot after more records than the policy requires.
			more := make([]*patch.PatchEvent, snapshot.DefaultEvery+1)
			for i := range more {
				more[i] = patch.NewSplice(i%visible, 1, testlog.New(patch.Fields{Author: "agent"}))
			}
			applyPatches(b, s, more...)
			testlog.NoError(b, s.Close())
			for b.Loop() {
				s := testlog.Must(store.Open(path, opts))(b)
				session, err := s.Get(b.Context(), sessionKey(0))
				if err != nil || session.View.Len() != visible {
					b.Fatal(err, session.View.Len())
				}
				testlog.NoError(b, s.Close())
			}
		})
	}
}
