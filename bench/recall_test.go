package bench_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkIndex indexes a log of 100,000 events, and searches it.
func BenchmarkIndex(b *testing.B) {
	const events = 100_000
	records := recorded.Log(b, events)
	size := 0
	for _, r := range records {
		size += r.Size()
	}
	b.Run(fmt.Sprintf("build/events=%d", events), func(b *testing.B) {
		var x *recall.Index
		var before, after runtime.MemStats
		for b.Loop() {
			x = nil
			runtime.GC()
			runtime.ReadMemStats(&before)
			x = new(recall.Index)
			for _, r := range records {
				x.Add(r)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
		b.ReportMetric(float64(x.Bytes())/(1<<20), "MiB-said")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-heap")
		b.ReportMetric(float64(size)/(1<<20), "MiB-json")
		runtime.KeepAlive(x)
	})
	x := new(recall.Index)
	for _, r := range records {
		x.Add(r)
	}
	for name, query := range map[string]string{
		"words":      "what did the customer say about the refund for the cancelled flight",
		"identifier": "user_id_4711 reservation",
		"common":     "the of and to in is that it",
	} {
		b.Run("query="+name, func(b *testing.B) {
			for b.Loop() {
				t := recall.Parse(query)
				n := 0
				for range x.Search(t, recall.Filter{}, math.MaxUint64, x.Stats(t, math.MaxUint64, false), nil) {
					if n++; n == 10 {
						break
					}
				}
			}
		})
	}
}

// BenchmarkSearch searches a session of 100,000 events in a store: for the first time, which
// reads its log and indexes it, and again.
func BenchmarkSearch(b *testing.B) {
	ctx := context.Background()
	const events = 100_000
	records := recorded.Log(b, events)
	for _, c := range []struct {
		name  string
		bytes int
	}{{"first", -1}, {"again", 0}} {
		b.Run(fmt.Sprintf("%s/events=%d", c.name, events), func(b *testing.B) {
			s := openStore(b, store.Options{Durability: store.Relaxed, CacheBytes: 1 << 40, SearchBytes: c.bytes})
			key := sessionKey(0)
			if _, err := s.Create(ctx, key, nil); err != nil {
				b.Fatal(err)
			}
			for from := 0; from < events; from += 1000 {
				var batch []*patch.Event
				for _, r := range records[from : from+1000] {
					batch = append(batch, r.Event)
				}
				if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, batch...); err != nil {
					b.Fatal(err)
				}
			}
			search := func() {
				if hits, err := s.Search(ctx, key, recall.Search{Query: "refund for the cancelled flight"}); err != nil || len(hits) == 0 {
					b.Fatal(hits, err)
				}
			}
			search()
			for b.Loop() {
				search()
			}
		})
	}
}
