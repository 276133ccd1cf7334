package compaction_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// An agent that talks with few words, calls what nobody answers, or late, in several
// branches, never makes the visible log longer than docs/COMPACTION.md says, nor costs
// more calls of the summarizer, whatever the trigger and however long the answers are.
func TestPropertyVisibleLogIsBounded(t *testing.T) {
	testlog.OneGoroutine(t)
	rapid.Check(t, func(t *rapid.T) {
		const perTurn = 5 // events, at most
		cfg := compaction.Config{Enabled: true, Fallback: declines{}}
		l := cfg.Limits()
		l.OpenCalls, l.WaitingCalls, l.Summaries = rapid.IntRange(1, 4).Draw(t, "open calls"), rapid.IntRange(1, 3).Draw(t, "waiting calls"), rapid.IntRange(2, 4).Draw(t, "K")
		which := rapid.IntRange(0, 2).Draw(t, "triggers")
		if which != 1 {
			cfg.CompactionInterval, cfg.OverlapSize = rapid.IntRange(1, 5).Draw(t, "interval"), rapid.IntRange(0, 2).Draw(t, "overlap")
		}
		if which != 0 {
			cfg.TokenThreshold, cfg.EventRetentionSize = rapid.SampledFrom([]int{100, 400}).Draw(t, "threshold"), rapid.IntRange(1, 6).Draw(t, "retention")
		}
		answer := rapid.SampledFrom([]int{1, 20, 60, 200}).Draw(t, "tokens of an answer")
		sum := &scripted{reply: func(r compaction.Request) (compaction.Response, error) {
			// A summarizer may be wordy, but what it is to shorten much it does.
			n := min(answer, max(r.MaxTokens, 60))
			return says(strings.Repeat("abcd", n)), nil
		}}
		cfg.Summarizer = sum
		s := openSession(t)
		defer s.store.Close()
		c := s.compactor(cfg)

		turns := rapid.IntRange(20, 60).Draw(t, "turns")
		kinds := rapid.SliceOfN(rapid.IntRange(0, 6), 1, 4).Draw(t, "kinds")
		groups := map[string]bool{}
		var open []string // calls that may be answered late
		for i := range turns {
			var words []string
			words = append(words, fmt.Sprintf("u%d*%d", i, rapid.SampledFrom([]int{1, 10, 40}).Draw(t, "asked")))
			for j := range rapid.IntRange(0, perTurn-1).Draw(t, "events") {
				branch := rapid.SampledFrom([]string{"", "", "A/", "B/"}).Draw(t, "branch")
				size := rapid.SampledFrom([]int{1, 1, 10, 60}).Draw(t, "tokens")
				id := fmt.Sprintf("x%d_%d", i, j)
				switch kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")] {
				case 0, 1:
					words = append(words, fmt.Sprintf("%sa%d*%d", branch, i, size))
				case 2:
					words = append(words, fmt.Sprintf("%sc%d(%s)*%d", branch, i, id, size))
					open = append(open, branch+"r%d("+id+")*1")
				case 3:
					words = append(words, fmt.Sprintf("%sl%d(%s)*%d", branch, i, id, size))
					open = append(open, branch+"R%d("+id+")*1")
				case 4:
					words = append(words, fmt.Sprintf("%sd%d", branch, i))
				case 5:
					words = append(words, fmt.Sprintf("%sa*%d", branch, size))
				case 6:
					if len(open) > 0 {
						at := rapid.IntRange(0, len(open)-1).Draw(t, "answers")
						words = append(words, fmt.Sprintf(open[at], i))
						open = append(open[:at], open[at+1:]...)
					}
				}
			}
			s.append(strings.Join(words, " "))
			s.recall()
			before := sum.calls()
			if _, err := c.MaybeCompact(t.Context(), key); err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			v := s.view()
			for _, e := range v.Events() {
				groups[groupName(e)] = true
			}
			if d, err := compaction.Plan(v, cfg, compaction.Run{}); err != nil || d.Window != nil {
				t.Fatalf("turn %d: something is left to do: %+v, %v", i, d, err)
			}
			if n := sum.calls() - before; n > 4*(perTurn+len(groups))*(1+levelsOf(v, cfg)) {
				t.Fatalf("turn %d: %d calls of the summarizer", i, n)
			}
			checkBound(t, v, cfg, len(groups), perTurn)
		}
		if n := sum.calls(); n > 3*turns*len(groups) {
			t.Fatalf("%d calls of the summarizer in %d turns of %d groups", n, turns, len(groups))
		}
	})
}

// checkBound holds a log in which nothing is left to do against the bound of
// docs/COMPACTION.md, term by term.
func checkBound(t *rapid.T, v fold.View, cfg compaction.Config, groups, perTurn int) {
	raw, stretches, summaries := 0, 0, 0
	inside := false
	for _, e := range v.Entries() {
		if e.Summary {
			summaries++
			if !inside {
				stretches++
			}
		} else {
			raw++
		}
		inside = e.Summary
	}
	// What stays, with what is tied to it: no response here answers two calls.
	const tied = 3 // a call with a placeholder and an answer
	stay := tied * (cfg.Limits().OpenCalls + cfg.Limits().WaitingCalls + perTurn)
	most := stay + perTurn*max(0, cfg.CompactionInterval-1)
	if cfg.CompactionInterval == 0 {
		size := 0
		for _, e := range v.Events() {
			size += e.EstimatedTokens()
		}
		// Each raw event takes a token at least, but for changes of state.
		most = stay + cfg.EventRetentionSize*tied + 2*cfg.TokenThreshold
		if stays := 70 * (stay + cfg.EventRetentionSize*tied); size > cfg.TokenThreshold+cfg.TokenThreshold/16+stays+2*256*groups*stretches {
			t.Fatalf("%d tokens are visible", size)
		}
	}
	if raw > most {
		t.Fatalf("%d raw events are visible, at most %d should be: %s", raw, most, words(v))
	}
	if limit := stretches * groups * (cfg.Limits().Summaries - 1) * levelsOf(v, cfg); summaries > limit || stretches > raw+1 {
		t.Fatalf("%d summaries in %d stretches are visible, at most %d should be: %s", summaries, stretches, limit, words(v))
	}
}

// levelsOf returns how many levels the visible summaries may have.
func levelsOf(v fold.View, cfg compaction.Config) int {
	windows, levels := 0, 1
	for i, e := range v.Events() {
		if v.Entry(i).Summary {
			windows += compaction.LineageOf(e).Windows
		}
	}
	for ; windows >= cfg.Limits().Summaries; windows /= cfg.Limits().Summaries {
		levels++
	}
	return levels
}
