package store_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/store"
)

// What an append waits for while nothing else happens, while the whole file is backed up again
// and again, and while it is vacuumed: 16 writers in a file of about 300 MB. Beside
// the latencies it says what the file has grown by.
func BenchmarkAppendDuring(b *testing.B) {
	for _, during := range []struct {
		name string
		do   func(s *store.Store) error
	}{
		{"nothing", func(*store.Store) error { time.Sleep(5 * time.Second); return nil }},
		{"backup", func(s *store.Store) error { return s.Backup(ctx, io.Discard) }},
		{"verify", func(s *store.Store) error {
			for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
				if err != nil {
					return err
				}
				return errors.New(p.String())
			}
			return nil
		}},
		{"vacuum", func(s *store.Store) error { return s.Vacuum(ctx) }},
	} {
		b.Run(during.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "log.db")
			s := openStore(b, path, store.Options{})
			fillLarge(b, s, 300, 1000)
			size := func() int64 {
				info, err := os.Stat(path)
				no(b, err)
				return info.Size()
			}
			before, rounds := size(), 0
			var stop atomic.Bool
			var mu sync.Mutex
			var all []time.Duration
			var writers sync.WaitGroup
			for w := range 16 {
				writers.Go(func() {
					var own []time.Duration
					for n := 0; !stop.Load(); n++ {
						start := time.Now()
						_, err := s.AppendEvents(ctx, largeKey(w*7), store.AppendOptions{}, event(`{"id":"w%d-%d-%d","content":{"parts":[{"text":"%0400d"}]}}`, b.N, w, n, n))
						own = append(own, time.Since(start))
						if err != nil {
							b.Error(err)
							return
						}
					}
					mu.Lock()
					defer mu.Unlock()
					all = append(all, own...)
				})
			}
			start := time.Now()
			for b.Loop() {
				if err := during.do(s); err != nil {
					b.Error(err)
				}
				rounds++
			}
			took := time.Since(start)
			stop.Store(true)
			writers.Wait()
			slices.Sort(all)
			at := func(p float64) float64 { return float64(all[int(p*float64(len(all)-1))].Microseconds()) / 1000 }
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(at(1), "max-ms")
			b.ReportMetric(float64(len(all))/took.Seconds(), "appends/s")
			b.ReportMetric(float64(size())/(1<<20), "file-MiB")
			b.ReportMetric(float64(size()-before)/(1<<20)/float64(rounds), "growth-MiB/op")
			no(b, s.Close())
		})
	}
}

func largeKey(i int) store.Key {
	return store.Key{App: "app", User: "user", Session: fmt.Sprintf("large-%06d", i)}
}

// fillLarge creates sessions with so many events of half a kilobyte.
func fillLarge(tb testing.TB, s *store.Store, sessions, events int) {
	tb.Helper()
	var failed error
	var mu sync.Mutex
	together(8, func(w int) {
		for i := w; i < sessions; i += 8 {
			_, err := s.Create(ctx, largeKey(i), map[string]any{"user:k": i})
			for at := 0; err == nil && at < events; at += 250 {
				batch := says(fmt.Sprintf("%0400d-%d-", i, at), min(250, events-at))
				_, err = s.AppendEvents(ctx, largeKey(i), store.AppendOptions{}, batch...)
			}
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		}
	})
	if failed != nil {
		tb.Fatal(failed)
	}
}
