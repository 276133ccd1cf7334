package compaction_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
)

// After each failure in a row a session has to grow by twice as many records as before,
// and by 64 at most, until it is tried again.
func TestBackoffDoublesUpTo64(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	var tried []uint64
	c := s.compactor(every(2, 0, compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		tried = append(tried, s.view().Seq())
		return compaction.Response{}, errModel
	})))
	for range 260 {
		_, _ = c.MaybeCompact(t.Context(), key)
		s.append("a2")
	}
	var grown []uint64
	for i := 1; i < len(tried); i++ {
		grown = append(grown, tried[i]-tried[i-1])
	}
	if want := []uint64{1, 2, 4, 8, 16, 32, 64, 64, 64}; !slices.Equal(grown, want) {
		t.Errorf("between attempts the log grew by %d records, want %d", grown, want)
	}
}

// A window for which no answer can be used is passed over until the session has grown by
// 64 records, while those behind it are summarised. Then it is tried again.
func TestPassedOverUntilGrownBy64(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	var tried []uint64
	others := 0
	cfg := every(2, 0, compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		if r.Events[0].ID() == "e0" {
			tried = append(tried, s.view().Seq())
			return compaction.Response{}, nil
		}
		others++
		return says("told"), nil
	}))
	cfg.FallbackAfter = 1
	c := s.compactor(cfg)
	var before uint64 // of the attempt before the second
	for len(tried) < 2 && s.words < 400 {
		if len(tried) == 1 {
			before = s.view().Seq()
		}
		if _, err := c.MaybeCompact(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		s.append(fmt.Sprintf("u%d*200", s.words))
	}
	if len(tried) < 2 {
		t.Fatalf("it was tried at %d and not again", tried)
	}
	if end := tried[0] + 64; tried[1] < end || before != tried[1] && before >= end {
		t.Errorf("it was tried at record %d and again at %d, but not at %d; want the first attempt from %d on", tried[0], tried[1], before, end)
	}
	if others == 0 {
		t.Error("nothing behind it was summarised")
	}
}

// Where nothing is said of it, the fallback is asked after as many failures as the docs say.
func TestFallbackAfterIsADefault(t *testing.T) {
	fallback := &scripted{}
	failures := 0
	cfg := every(2, 0, compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		failures++
		return compaction.Response{}, errModel
	}))
	cfg.Fallback = fallback
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	c := s.compactor(cfg)
	for fallback.calls() == 0 && s.words < 100 {
		_, _ = c.MaybeCompact(t.Context(), key)
		s.append("a2")
	}
	if failures != compaction.DefaultFallbackAfter || fallback.calls() == 0 {
		t.Errorf("after %d failures the fallback was asked %d times, want after %d", failures, fallback.calls(), compaction.DefaultFallbackAfter)
	}
}

// The counters add up what was written.
func TestStatsAddUp(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	c := s.compactor(every(2, 0, &scripted{}))
	var want compaction.Stats
	for range 3 {
		done, err := c.MaybeCompact(t.Context(), key)
		if err != nil || len(done) == 0 {
			t.Fatalf("%v, %v", done, err)
		}
		for _, w := range done {
			want.Wrote++
			want.EventsCovered += uint64(w.EventsBefore)
			want.TokensBefore += uint64(w.TokensBefore)
			want.TokensAfter += uint64(w.TokensAfter)
			want.Calls += uint64(w.Usage.Calls)
		}
		s.append("u3*200 a4*300")
	}
	if got := c.Stats(); got != want || got.TokensBefore == 0 || got.TokensAfter == 0 {
		t.Errorf("counted is %+v, want %+v", got, want)
	}
}
