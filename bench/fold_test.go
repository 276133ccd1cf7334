// Package bench_test contains patchlog's benchmarks. Each benchmark runs together with its baseline. docs/BENCHMARKS.md
// explains the figures.
package bench_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// events returns n decoded events. Every third event sets one of ten state keys.
func events(n int) []*patch.Event {
	out := make([]*patch.Event, n)
	for i := range out {
		f := patch.Fields{ID: "e" + strconv.Itoa(i), InvocationID: "inv" + strconv.Itoa(i/4), Author: "user"}
		if i%3 == 0 {
			f.Actions.StateDelta = map[string]any{"key" + strconv.Itoa(i%10): i}
		}
		out[i] = testlog.New(f)
	}
	return out
}

// plainSlice is the baseline of BenchmarkSplices. It represents a visible log as a slice of events, which each splice
// copies. It has neither state nor markers, and does not keep removed events.
type plainSlice []*patch.Event

func (s plainSlice) splice(start, count int, replacement ...*patch.Event) plainSlice {
	return slices.Replace(s, start, start+count, replacement...)
}

// randomSplices returns splices for a log with the given number of visible events. They alternately replace up to
// four events with one event, and insert events. So the length of the log stays about constant.
func randomSplices(n, visible int) []*patch.PatchEvent {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]*patch.PatchEvent, n)
	for i := range out {
		e := testlog.New(patch.Fields{ID: "r" + strconv.Itoa(i), Author: "agent"})
		if i%2 == 0 {
			out[i] = patch.NewSplice(rng.IntN(visible-1), 2, e)
			visible--
		} else {
			out[i] = patch.NewSplice(rng.IntN(visible), 0, e)
			visible++
		}
	}
	return out
}

// BenchmarkSplices applies random splices one by one. Each splice returns a new view.
func BenchmarkSplices(b *testing.B) {
	const splices = 100_000
	for _, n := range []int{1_000, 100_000} {
		records := recordsOf(events(n))
		patches := randomSplices(splices, n)
		b.Run(fmt.Sprintf("events=%d/splices=%d/how=view", n, splices), func(b *testing.B) {
			start := viewOf(b, records)
			for b.Loop() {
				v, err := start, error(nil)
				for i, p := range patches {
					if v, err = v.Apply(patch.Record{Seq: uint64(n + i + 1), Patch: p}); err != nil {
						b.Fatal(err)
					}
				}
				if v.SkippedCount() > 0 {
					b.Fatal("a splice was skipped")
				}
			}
		})
		b.Run(fmt.Sprintf("events=%d/splices=%d/how=slice", n, splices), func(b *testing.B) {
			for b.Loop() {
				s := make(plainSlice, n, n+16)
				for i, r := range records {
					s[i] = r.Event
				}
				for _, p := range patches {
					s = s.splice(p.Start(), p.Count(), p.NewEvents()...)
				}
			}
		})
	}
}

func viewOf(b *testing.B, records []patch.Record) fold.View {
	b.Helper()
	return testlog.Must(fold.View{}.Apply(records...))(b)
}

func recordsOf(events []*patch.Event) []patch.Record {
	records := make([]patch.Record, len(events))
	for i, e := range events {
		records[i] = patch.Record{Seq: uint64(i + 1), Event: e}
	}
	return records
}

// BenchmarkFold folds a log of decoded records. Every eleventh record is a splice that removes, inserts or replaces
// events.
func BenchmarkFold(b *testing.B) {
	const nEvents, nPatches = 10_000, 1_000
	all := events(nEvents)
	rng := rand.New(rand.NewPCG(3, 4))
	var records []patch.Record
	visible, next := 0, 0
	add := func(r patch.Record) {
		r.Seq = uint64(len(records) + 1)
		records = append(records, r)
	}
	for i := range nPatches {
		for range nEvents / nPatches {
			add(patch.Record{Event: all[next]})
			next++
			visible++
		}
		start := rng.IntN(visible - 4)
		switch i % 3 {
		case 0:
			add(patch.Record{Patch: patch.NewSplice(start, 4)})
			visible -= 4
		case 1:
			add(patch.Record{Patch: patch.NewSplice(start, 2, testlog.New(patch.Fields{ID: fmt.Sprint("r", i)})).WithState(patch.Keep)})
			visible--
		case 2:
			add(patch.Record{Patch: patch.NewSplice(start, 0, testlog.New(patch.Fields{ID: fmt.Sprint("r", i)}))})
			visible++
		}
	}
	b.Run(fmt.Sprintf("events=%d/patches=%d/how=fold", nEvents, nPatches), func(b *testing.B) {
		for b.Loop() {
			if v := viewOf(b, records); v.Len() != visible {
				b.Fatal(v.Len(), visible)
			}
		}
	})
	b.Run(fmt.Sprintf("events=%d/patches=%d/how=slice", nEvents, nPatches), func(b *testing.B) {
		for b.Loop() {
			var s plainSlice
			for _, r := range records {
				if r.Event != nil {
					s = append(s, r.Event)
				} else {
					s = s.splice(r.Patch.Start(), r.Patch.Count(), r.Patch.NewEvents()...)
				}
			}
			if len(s) != visible {
				b.Fatal(len(s))
			}
		}
	})
}

// BenchmarkApply appends one event to a view. The baseline appends it to a copy of a slice.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		v := viewOf(b, recordsOf(events(n)))
		e := testlog.New(patch.Fields{ID: "new"})
		b.Run(fmt.Sprintf("events=%d/how=view", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := v.Apply(patch.Record{Seq: v.Seq() + 1, Event: e}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("events=%d/how=slice", n), func(b *testing.B) {
			s := plainSlice(events(n))
			for b.Loop() {
				_ = append(slices.Clone(s), e)
			}
		})
	}
}
