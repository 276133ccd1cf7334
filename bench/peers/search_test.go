package peers

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/patchlog-dev/patchlog/bench/locomo"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

type searched interface {
	// add adds events. They must be newer than all events in the index.
	add(tb testing.TB, records []patch.Record)

	// find returns the seqs of the events that best match a question, best first. It returns at most [locomo.Best]
	// seqs.
	find(tb testing.TB, question string) (seqs []uint64)

	close(tb testing.TB)
}

// recallIndex is a [recall.Index] that implements searched.
type recallIndex struct{ index recall.Index }

func (x *recallIndex) add(_ testing.TB, records []patch.Record) {
	for _, r := range records {
		x.index.Add(r)
	}
}

func (x *recallIndex) find(_ testing.TB, question string) []uint64 {
	return locomo.Find(&x.index, question)
}

func (x *recallIndex) close(testing.TB) {}

// searcher is a kind of search index to measure.
type searcher struct {
	name string
	open func(tb testing.TB) searched
}

var recallSearcher = searcher{"index=recall", func(testing.TB) searched { return new(recallIndex) }}

func bleveSearcher(o bleveOptions) searcher {
	return searcher{fmt.Sprintf("index=bleve/store=%s/fields=%s", o.store, o.fields), func(tb testing.TB) searched { return openBleve(tb, o) }}
}

// searchers are the indexes that are measured on a long log.
var searchers = []searcher{
	recallSearcher,
	bleveSearcher(bleveOptions{inMemory, exact}),
	bleveSearcher(bleveOptions{inFile, exact}),
}

// each runs a sub-benchmark for each of some searchers.
func each(b *testing.B, some []searcher, run func(b *testing.B, s searcher)) {
	for _, s := range some {
		b.Run(s.name, func(b *testing.B) {
			run(b, s)
		})
	}
}

// fill returns an index of a log. It adds 1,000 events at a time.
func (s searcher) fill(tb testing.TB, log []patch.Record) searched {
	tb.Helper()
	x := s.open(tb)
	for some := range slices.Chunk(log, 1000) {
		x.add(tb, some)
	}
	return x
}

const longLog = 100_000 // events

// BenchmarkSearchBuild indexes a log of 100,000 events. It reports the heap that the index uses. It also reports
// processor time, as cpu, because bleve and the garbage collector use additional goroutines.
func BenchmarkSearchBuild(b *testing.B) {
	log := recorded.Log(b, longLog)
	each(b, searchers, func(b *testing.B, s searcher) {
		var x searched
		var before int64
		var cpu float64
		for b.Loop() {
			if x != nil {
				x.close(b)
				x = nil
			}
			before = heap()
			start := ownCPU(b)
			x = s.fill(b, log)
			cpu += ownCPU(b) - start
		}
		b.ReportMetric(cpu/float64(b.N), "cpu-s/op")
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB-heap")
		x.close(b)
		runtime.KeepAlive(log)
	})
}

// ownCPU returns the process's processor time in seconds.
func ownCPU(tb testing.TB) float64 {
	tb.Helper()
	var used unix.Rusage
	no(tb, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

type question struct{ name, text string }

// questions returns queries for words of some events, and a query for an identifier of the last event.
func questions(log []patch.Record) []question {
	ids := slices.Collect(identifiers.FindAll(recall.Text(log[len(log)-1].Event)))
	return []question{
		{"words", "what did the customer say about the refund for the cancelled flight"},
		{"identifier", "when was " + ids[len(ids)-1] + " booked"},
	}
}

// BenchmarkSearchQuery queries an index of 100,000 events.
func BenchmarkSearchQuery(b *testing.B) {
	log := recorded.Log(b, longLog)
	each(b, searchers, func(b *testing.B, s searcher) {
		x := s.fill(b, log)
		defer x.close(b)
		for _, q := range questions(log) {
			b.Run("query="+q.name, func(b *testing.B) {
				start := ownCPU(b)
				for b.Loop() {
					if len(x.find(b, q.text)) == 0 {
						b.Fatal("nothing was found")
					}
				}
				b.ReportMetric((ownCPU(b)-start)*1e6/float64(b.N), "cpu-µs/op")
			})
		}
	})
}

// BenchmarkSearchLoCoMo reports the [locomo.Hits] of searches in LoCoMo's conversations. Each conversation is added
// in one batch. One operation indexes the ten conversations and asks all questions.
func BenchmarkSearchLoCoMo(b *testing.B) {
	conversations := locomo.Read(b)
	each(b, []searcher{
		recallSearcher,
		bleveSearcher(bleveOptions{inMemory, words}),
		bleveSearcher(bleveOptions{inMemory, beside}),
	}, func(b *testing.B, s searcher) {
		var hits locomo.Hits
		for b.Loop() {
			hits = locomo.Measure(conversations, func(turns []patch.Record) func(string) []uint64 {
				x := s.fill(b, turns)
				b.Cleanup(func() { x.close(b) })
				return func(question string) []uint64 { return x.find(b, question) }
			})
		}
		hits.Report(b)
	})
}

// In each index, a search for an identifier finds its event, and a search for words finds ten events.
func TestSearchers(t *testing.T) {
	log := recorded.Log(t, 1000)
	for _, s := range searchers {
		t.Run(s.name, func(t *testing.T) {
			x := s.fill(t, log)
			defer x.close(t)
			for _, q := range questions(log) {
				found := x.find(t, q.text)
				if q.name == "identifier" && !slices.Contains(found, log[len(log)-1].Seq) || q.name == "words" && len(found) != locomo.Best {
					t.Errorf("%s finds %v", q.text, found)
				}
			}
		})
	}
}
