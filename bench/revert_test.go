package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkRevert takes a cut back in a view that is in memory: what that costs must
// depend on the run that comes back, not on the session. The baseline folds the log
// without the cut.
func BenchmarkRevert(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		for _, run := range []int{10, 1_000} {
			if run == n {
				continue
			}
			records := recordsOf(events(b, n))
			whole, err := fold.View{}.Apply(records...)
			if err != nil {
				b.Fatal(err)
			}
			cut, err := whole.Apply(patch.Record{Seq: uint64(n + 1), Patch: patch.NewSplice(n/2-run/2, run).WithID("p")})
			if err != nil {
				b.Fatal(err)
			}
			back := patch.Record{Seq: uint64(n + 2), Patch: patch.NewRevert("p")}
			b.Run(fmt.Sprintf("events=%d/run=%d/how=revert", n, run), func(b *testing.B) {
				for b.Loop() {
					v, err := cut.With(records).Apply(back)
					if err != nil || v.Len() != n {
						b.Fatal(v.Len(), err)
					}
				}
			})
			b.Run(fmt.Sprintf("events=%d/run=%d/how=refold", n, run), func(b *testing.B) {
				for b.Loop() {
					v, err := fold.View{}.Apply(records...)
					if err != nil || v.Len() != n {
						b.Fatal(v.Len(), err)
					}
				}
			})
		}
	}
}

// BenchmarkRevertStored takes a cut of 100 events back in a store, which reads them from
// the log again. Writes are not synced. The baseline appends an event in the same way.
func BenchmarkRevertStored(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1_000, 100_000} {
		open := func(b *testing.B) (*store.Store, store.Key) {
			s := openStore(b, store.Options{Durability: store.Relaxed, Snapshots: snapshot.Policy{Every: -1}})
			key := sessionKey(0)
			if _, err := s.Create(ctx, key, nil); err != nil {
				b.Fatal(err)
			}
			fill(b, s, key, n)
			return s, key
		}
		b.Run(fmt.Sprintf("events=%d/how=revert", n), func(b *testing.B) {
			s, key := open(b)
			for b.Loop() {
				b.StopTimer()
				cut, err := s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patch.NewSplice(n/2, 100))
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if _, err := s.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, cut.Records[0].ID()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("events=%d/how=append", n), func(b *testing.B) {
			s, key := open(b)
			e := testlog.New(patch.Fields{Author: "agent"})
			for b.Loop() {
				if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRevertCold takes a cut of 100 events back in a session that was just read from a
// snapshot. The baseline takes it back after a preview, which has decoded what patches did.
func BenchmarkRevertCold(b *testing.B) {
	ctx := context.Background()
	opts := store.Options{Durability: store.Relaxed}
	for _, n := range []int{1_000, 10_000, 100_000} {
		made := filepath.Join(b.TempDir(), "made.db")
		s, err := store.Open(made, opts)
		if err != nil {
			b.Fatal(err)
		}
		key := sessionKey(0)
		if _, err := s.Create(ctx, key, nil); err != nil {
			b.Fatal(err)
		}
		fill(b, s, key, n)
		patches := []*patch.PatchEvent{patch.NewSplice(0, n-300).WithState(patch.Keep), patch.NewSplice(0, 100).WithID("p")}
		for i := range snapshot.DefaultEvery { // so that a snapshot is due
			patches = append(patches, patch.NewSplice(100+i%100, 1, testlog.New(patch.Fields{Author: "agent"})))
		}
		if _, err := s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patches...); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		data, err := os.ReadFile(made)
		if err != nil {
			b.Fatal(err)
		}
		for _, how := range []string{"cold", "previewed"} {
			b.Run(fmt.Sprintf("events=%d/how=%s", n, how), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "bench.db")
				for b.Loop() {
					b.StopTimer()
					if err := os.WriteFile(path, data, 0o600); err != nil {
						b.Fatal(err)
					}
					s, err := store.Open(path, opts)
					if err != nil {
						b.Fatal(err)
					}
					v, err := s.View(ctx, key)
					if err != nil || v.Len() != 200 {
						b.Fatal(v.Len(), err)
					}
					if how == "previewed" {
						if _, err := s.PreviewRevert(ctx, key, store.UndoOptions{}, "p"); err != nil {
							b.Fatal(err)
						}
					}
					b.StartTimer()
					done, err := s.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, "p")
					b.StopTimer()
					if err != nil || done.View.Len() != 300 {
						b.Fatal(err)
					}
					if err := s.Close(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkHotMemory measures what a session in memory takes that shows 200 events of
// about 512 bytes: with nothing hidden, which is the baseline, and with 100,000 events
// hidden by 1,000 cuts that keep the state and summaries, in turn. It is not about time.
func BenchmarkHotMemory(b *testing.B) {
	ctx := context.Background()
	for _, hidden := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("visible=200/hidden=%d", hidden), func(b *testing.B) {
			for b.Loop() {
				s := openStore(b, store.Options{Durability: store.Relaxed, Snapshots: snapshot.Policy{Every: -1}})
				before := heap()
				key := sessionKey(0)
				if _, err := s.Create(ctx, key, nil); err != nil {
					b.Fatal(err)
				}
				for i := range hidden / 100 {
					fillFrom(b, s, key, i*100, 100)
					p := patch.NewSplice(0, 100).WithState(patch.Keep)
					if i%2 == 1 {
						p = patch.NewSummarise(0, 100, testlog.New(patch.Fields{Content: textContent("a summary")}))
						if i > 1 {
							p = patch.NewSummarise(0, 101, testlog.New(patch.Fields{Content: textContent("a summary of more")}))
						}
					}
					if i%2 == 0 && i > 0 {
						p = patch.NewSplice(1, 100).WithState(patch.Keep)
					}
					if _, err := s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, p); err != nil {
						b.Fatal(err)
					}
				}
				fillFrom(b, s, key, hidden, 200)
				session, err := s.Get(ctx, key)
				if err != nil || session.View.Len() > 201 {
					b.Fatal(session.View.Len(), err)
				}
				b.ReportMetric(float64(heap()-before)/1024, "KiB")
				runtime.KeepAlive(s)
			}
		})
	}
}

// heap returns how much memory is in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
