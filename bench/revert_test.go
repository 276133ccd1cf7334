package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkRevert reverts a cut in a view in memory. The time must depend only on the number of restored events. The
// baseline folds the log without the cut.
func BenchmarkRevert(b *testing.B) {
	const n, run = 100_000, 1_000
	records := recordsOf(events(n))
	cut, err := viewOf(b, records).Apply(patch.Record{Seq: n + 1, Patch: patch.NewSplice(n/2-run/2, run).WithID("p")})
	testlog.NoError(b, err)
	back := patch.Record{Seq: n + 2, Patch: patch.NewRevert("p")}
	b.Run(fmt.Sprintf("events=%d/run=%d/how=revert", n, run), func(b *testing.B) {
		for b.Loop() {
			v, err := cut.WithRecords(records).Apply(back)
			if err != nil || v.Len() != n {
				b.Fatal(v.Len(), err)
			}
		}
	})
	b.Run(fmt.Sprintf("events=%d/run=%d/how=refold", n, run), func(b *testing.B) {
		for b.Loop() {
			viewOf(b, records)
		}
	})
}

// BenchmarkRevertStored reverts a cut of 100 events in a store. The store must read these events from the log. Writes
// are not synced.
func BenchmarkRevertStored(b *testing.B) {
	const n = 100_000
	b.Run(fmt.Sprintf("events=%d/how=revert", n), func(b *testing.B) {
		s := openStore(b, store.Options{NoSync: true, Snapshots: snapshot.Policy{Every: -1}})
		create(b, s, 0)
		fill(b, s, 0, n)
		for b.Loop() {
			b.StopTimer()
			cut := applyPatches(b, s, patch.NewSplice(n/2, 100))
			b.StartTimer()
			testlog.Must(s.Revert(b.Context(), sessionKey(0), cut.Records[0].ID(), store.UndoOptions{AllowOrphans: true}))(b)
		}
	})
}

// BenchmarkRevertCold reverts a cut of 100 events in a session that was just loaded from a snapshot.
func BenchmarkRevertCold(b *testing.B) {
	const n = 100_000
	b.Run(fmt.Sprintf("events=%d/how=cold", n), func(b *testing.B) {
		made := filepath.Join(b.TempDir(), "made.db")
		opts := store.Options{NoSync: true}
		s := testlog.Must(store.Open(made, opts))(b)
		create(b, s, 0)
		fill(b, s, 0, n)
		patches := []*patch.PatchEvent{patch.NewSplice(0, n-300).WithState(patch.Keep), patch.NewSplice(0, 100).WithID("p")}
		for i := range snapshot.DefaultEvery { // enough events to trigger a snapshot
			patches = append(patches, patch.NewSplice(100+i%100, 1, testlog.New(patch.Fields{Author: "agent"})))
		}
		applyPatches(b, s, patches...)
		testlog.NoError(b, s.Close())
		data := testlog.Must(os.ReadFile(made))(b)
		path := filepath.Join(b.TempDir(), "bench.db")
		for b.Loop() {
			b.StopTimer()
			testlog.NoError(b, os.WriteFile(path, data, 0o600))
			s := testlog.Must(store.Open(path, opts))(b)
			if v, err := s.View(b.Context(), sessionKey(0)); err != nil || v.Len() != 200 {
				b.Fatal(v.Len(), err)
			}
			b.StartTimer()
			done, err := s.Revert(b.Context(), sessionKey(0), "p", store.UndoOptions{AllowOrphans: true})
			b.StopTimer()
			if err != nil || done.View.Len() != 300 {
				b.Fatal(err)
			}
			testlog.NoError(b, s.Close())
			b.StartTimer()
		}
	})
}

// BenchmarkHotMemory measures the memory of a session with 200 visible events of about 512 bytes. The baseline has no
// hidden events. In the other case, 1,000 patches hide 100,000 events. Half of the patches are cuts that keep the
// state, and half are summaries. Only the memory is meaningful, not the time.
func BenchmarkHotMemory(b *testing.B) {
	for _, hidden := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("visible=200/hidden=%d", hidden), func(b *testing.B) {
			for b.Loop() {
				s := openStore(b, store.Options{NoSync: true, Snapshots: snapshot.Policy{Every: -1}})
				before := heap()
				create(b, s, 0)
				fill(b, s, 0, 1) // the first summary replaces this event
				for from := 1; from < hidden; from += 200 {
					fill(b, s, from, from+100)
					applyPatches(b, s, patch.NewSplice(1, 100).WithState(patch.Keep))
					fill(b, s, from+100, from+200)
					applyPatches(b, s, patch.NewSummarise(0, 101, testlog.Text("", "", "agent", "a summary")))
				}
				fill(b, s, hidden+1, hidden+200)
				session, err := s.Get(b.Context(), sessionKey(0))
				if err != nil || session.View.Len() != 200 {
					b.Fatal(session.View.Len(), err)
				}
				b.ReportMetric(float64(heap()-before)/1024, "KiB")
				runtime.KeepAlive(s)
			}
		})
	}
}

// heap returns the number of heap bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
