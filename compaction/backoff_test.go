package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
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

// Once the prompt is a fifth over its threshold, the fallback writes the summary that the
// summarizer does not, and this is reported. The summarizer backs off meanwhile, and has the
// first try again later.
func TestFallback(t *testing.T) {
	broken := true
	asked := 0
	fallback := &scripted{}
	cfg := compaction.Config{Enabled: true, TokenThreshold: 1_000, EventRetentionSize: 1, Fallback: fallback}
	cfg.Summarizer = compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		if asked++; broken {
			return compaction.Response{}, errModel
		}
		return says("by the model"), nil
	})
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200 u3*200")
	var seen []compaction.Attempt[store.Key]
	c := s.with(cfg, compaction.Options[store.Key]{Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { seen = append(seen, a) }})
	if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, errModel) || s.view().PatchSeq() != 0 || fallback.calls() != 0 {
		t.Fatalf("at the threshold: %v, the fallback was asked %d times, visible is %s", err, fallback.calls(), s.visible())
	}
	s.append("a3*199")
	if done, err := c.MaybeCompact(t.Context(), key); err == nil || len(done) != 0 {
		t.Fatalf("below a fifth over it: %v, %v", done, err)
	}
	s.append("u4*10")
	done, err := c.MaybeCompact(t.Context(), key)
	if err != nil || len(done) != 1 || !done[0].FellBack || done[0].Model != "scripted" || asked != 2 {
		t.Fatalf("a fifth over it: %+v, %v, the model was asked %d times", done, err, asked)
	}
	if got := c.Stats(); got.FellBack != 1 || got.Failed != 2 || got.Wrote != 1 {
		t.Errorf("counted is %+v", got)
	}
	s.append("a4*600 u5*600 a5*10")
	if done, err = c.MaybeCompact(t.Context(), key); err != nil || len(done) == 0 || asked != 3 {
		t.Fatalf("when it has grown: %+v, %v, the model was asked %d times", done, err, asked)
	}
	if a := seen[len(seen)-1]; a.Outcome != compaction.Wrote || !errors.Is(a.Err, errModel) || !a.Written.FellBack {
		t.Errorf("reported is %+v", a)
	}
	broken = false
	s.append("u6*600 a6*600 u7*10 a7*10 u8*10")
	if done, err = c.MaybeCompact(t.Context(), key); err != nil || len(done) == 0 || done[0].FellBack || done[0].Model == "" {
		t.Errorf("when the model answers again: %+v, %v", done, err)
	}
}

// A window for which neither answer can be used is skipped until the session has grown by 64
// records, while those behind it are summarised.
func TestSkippedUntilGrownBy64(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	var tried []uint64
	others := 0
	cfg := every(2, 0, compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		if r.Events[0].ID() == "e0" {
			return compaction.Response{}, nil
		}
		others++
		return says("told"), nil
	}))
	cfg.TokenThreshold = 100
	cfg.Fallback = compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		tried = append(tried, s.view().Seq())
		return compaction.Response{}, nil
	})
	c := s.compactor(cfg)
	for len(tried) < 2 && s.words < 400 {
		s.run(c)
		s.append(fmt.Sprintf("u%d*200", s.words))
	}
	if len(tried) < 2 || tried[1] < tried[0]+64 || tried[1] > tried[0]+68 {
		t.Fatalf("it was tried at %d, want 64 records between", tried)
	}
	if others == 0 {
		t.Error("nothing behind it was summarised")
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
