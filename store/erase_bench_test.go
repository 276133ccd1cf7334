package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// All of a user's 100,000 events are erased, of many sessions or of one, while 16 writers append
// to sessions of their own, and one to a session that is erased. Beside it: the same appends with
// nothing else going on.
func BenchmarkEraseUserBesideAppends(b *testing.B) {
	for _, c := range []struct {
		name            string
		sessions, each  int
		erased, inErase bool
	}{
		{"nothing", 1, 1, false, false}, {"sessions=200", 200, 500, true, true}, {"sessions=1", 1, 100_000, true, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				besideAppends(b, c.sessions, c.each, c.erased, c.inErase)
			}
		})
	}
}

func besideAppends(b *testing.B, sessions, each int, erased, inErase bool) {
	s, err := store.Open(filepath.Join(b.TempDir(), "a.db"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	user := func(i int) store.Key { return store.Key{App: "a", User: "u", Session: fmt.Sprint(i)} }
	for i := range sessions {
		if _, err := s.Create(ctx, user(i), nil); err != nil {
			b.Fatal(err)
		}
		for from := 0; from < each; from += 1000 {
			var events []*patch.Event
			for j := from; j < min(from+1000, each); j++ {
				events = append(events, event(`{"id":"e%d","author":"user","content":{"role":"user","parts":[{"text":"%0400d"}]}}`, j, j))
			}
			if _, err := s.AppendEvents(ctx, user(i), store.AppendOptions{}, events...); err != nil {
				b.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	took := make([][]time.Duration, 17)
	for w := range took {
		key := store.Key{App: "a", User: "writer", Session: fmt.Sprint(w)}
		if w == 16 {
			if !inErase {
				continue
			}
			key = user(0)
		} else if _, err := s.Create(ctx, key, nil); err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				e := event(`{"id":"w%d-%d","author":"agent","content":{"parts":[{"text":"%0200d"}]}}`, w, n, n)
				began := time.Now()
				if _, err := s.AppendEvents(context.Background(), key, store.AppendOptions{}, e); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	if erased {
		if _, err := s.EraseUser(ctx, "a", "u", store.EraseOptions{}); err != nil {
			b.Fatal(err)
		}
	} else {
		time.Sleep(5 * time.Second)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s-erasing")
	runtime.ReadMemStats(&after)
	stop.Store(true)
	wg.Wait()
	all := slices.Concat(took[:16]...)
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms-p99")
		b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "ms-max")
		b.ReportMetric(float64(len(all)), "appends")
	}
	if own := took[16]; len(own) > 0 {
		b.ReportMetric(float64(slices.Max(own).Microseconds())/1000, "ms-max-same-session")
	}
	b.ReportMetric(float64(after.Sys-before.Sys)/(1<<20), "MB-more")
}
