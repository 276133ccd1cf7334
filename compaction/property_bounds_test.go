package compaction_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// judgeEnd holds a log that is compacted as far as it goes against the bounds.
func judgeEnd(t *rapid.T, v fold.View, cfg compaction.Config, run compaction.Run) {
	d, err := compaction.Plan(v, cfg, run)
	if err != nil || d.Window != nil {
		t.Fatalf("something is left to do: %+v, %v", d, err)
	}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\n%s\n%+v\n%+v: %s", fmt.Sprintf(format, args...), words(v), cfg, run, d.Reason)
	}
	// With the interval trigger, what could be covered is of fewer invocations than the
	// interval.
	if cfg.CompactionInterval > 0 && !strings.Contains(d.Reason, "pay") { // else it may not pay yet
		waiting := map[string]bool{}
		owner := owners(v)
		for _, i := range coverable(v, cfg, run, false) {
			waiting[owner[i]] = true
		}
		if len(waiting) >= cfg.CompactionInterval {
			fail("interval %d, but there are %v", cfg.CompactionInterval, sortedIDs(waiting))
		}
	}
	// Within a stretch of summaries, a branch has fewer than K of each level, and levels
	// are as many as K goes into the windows.
	chains := summaryChains(v, run)
	for _, c := range chains {
		levels, windows := 1, 0
		for _, i := range c {
			windows = max(windows, compaction.LineageOf(v.At(i)).Windows)
		}
		for ; windows >= cfg.Limits().Summaries; windows /= cfg.Limits().Summaries {
			levels++
		}
		if len(c) > (cfg.Limits().Summaries-1)*levels {
			fail("%d summaries side by side", len(c))
		}
	}
	// With the token trigger, the prompt is under the threshold, or what could be covered
	// is not worth it, and neither is merging two summaries.
	if cfg.TokenThreshold == 0 || strings.Contains(d.Reason, "pay") {
		return
	}
	if size, _ := compaction.PromptTokens(v); size >= cfg.TokenThreshold {
		tokens := 0
		for _, i := range coverable(v, cfg, run, true) {
			tokens += v.At(i).EstimatedTokens()
		}
		least := 16
		if tokens*least >= cfg.TokenThreshold {
			fail("the prompt takes %d tokens, and %d could be covered, of %v", size, tokens, coverable(v, cfg, run, true))
		}
		for _, c := range chains {
			if n := len(c); n > 1 {
				saved := v.At(c[n-1]).EstimatedTokens() + v.At(c[n-2]).EstimatedTokens()
				switch { // of little, little can be left out
				case saved < 32:
					saved = 0
				case saved < 256:
					saved -= saved * 3 / 4
				default:
					saved /= 2
				}
				if size-saved < cfg.TokenThreshold || saved*least >= cfg.TokenThreshold {
					fail("the prompt takes %d tokens, and merging two summaries would save %d", size, saved)
				}
			}
		}
	}
}

// coverable returns the events that nothing keeps from being summarised, by the contract
// alone.
func coverable(v fold.View, cfg compaction.Config, run compaction.Run, byTokens bool) []int {
	stays := make([]bool, v.Len())
	pending, waiting, dead, _, asking := openCalls(v, run)
	newest := append(dead[max(0, len(dead)-cfg.Limits().OpenCalls):], waiting[max(0, len(waiting)-cfg.Limits().WaitingCalls):]...)
	for _, i := range append(pending, newest...) {
		stays[i] = true
	}
	if q := liveQuestion(v, run); q >= 0 {
		stays[q] = true
	}
	owner, raw := owners(v), 0
	for i := v.Len() - 1; i >= 0; i-- {
		if !v.Entry(i).Summary {
			raw++
		}
		if v.Entry(i).Summary || slices.Contains(run.Pinned, v.At(i).ID()) || byTokens && raw <= cfg.EventRetentionSize ||
			!byTokens && run.Invocation != "" && owner[i] == run.Invocation {
			stays[i] = true
		}
	}
	calls := v.Calls()
	for changed := true; changed; {
		changed = false
		for _, a := range asking {
			changed = changed || stays[a[1]] && !stays[a[0]]
			stays[a[0]] = stays[a[0]] || stays[a[1]]
		}
		for _, c := range calls {
			tied := append(c.Responses, c.Index)
			if any := slices.ContainsFunc(tied, func(i int) bool { return stays[i] }); !any {
				continue
			}
			for _, i := range tied {
				changed = changed || !stays[i]
				stays[i] = true
			}
		}
		changed = changed || keepAround(v, stays)
	}
	var out []int
	for i, s := range stays {
		// What needs no summary does not go where it keeps a call from coming first.
		if !s && transcript.Of([]*patch.Event{v.At(i)}, 0) != "" {
			out = append(out, i)
		}
	}
	return out
}

// keepAround lets what is tied over a call that stays stay too: where such a call would
// then come first, or after a summary of role model, it may not go.
func keepAround(v fold.View, stays []bool) (changed bool) {
	last := lastOfTied(v)
	for _, c := range v.Calls() {
		for i := range c.Index {
			if stays[c.Index] && !stays[i] && last[i] > c.Index {
				stays[i], changed = true, true
			}
		}
	}
	return changed
}

// lastOfTied returns for each event the last that calls and responses tie it to.
func lastOfTied(v fold.View) []int {
	last := make([]int, v.Len())
	for i := range last {
		last[i] = i
	}
	calls := v.Calls()
	for changed := true; changed; {
		changed = false
		for _, c := range calls {
			greatest := last[c.Index]
			for _, r := range c.Responses {
				greatest = max(greatest, last[r])
			}
			for _, i := range append(c.Responses, c.Index) {
				changed = changed || last[i] < greatest
				last[i] = greatest
			}
		}
	}
	return last
}

// summaryChains returns, for each stretch of summaries and each branch in it, their
// indices.
func summaryChains(v fold.View, run compaction.Run) [][]int {
	var chains [][]int
	current := map[string]int{}
	for i, e := range v.Events() {
		if !v.Entry(i).Summary || slices.Contains(run.Pinned, e.ID()) {
			clear(current)
			continue
		}
		at, known := current[groupName(e)]
		if !known {
			at = len(chains)
			current[groupName(e)] = at
			chains = append(chains, nil)
		}
		chains[at] = append(chains[at], i)
	}
	return chains
}
