package compaction

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Result is what a function returned, in a visible log.
type Result struct {
	Index int // of the event
	Part  int // of the event's content
}

// results returns the results of visible calls, in order.
func (s *visible) results() []Result {
	unpaired := unpairedResponses(s.view)
	var results []Result
	for i, e := range s.entries {
		if e.Summary || unpaired[i] != nil { // a patch may not put in what answers no call
			continue
		}
		for p := range e.Event.FunctionParts() {
			if p.Response {
				results = append(results, Result{i, p.Index})
			}
		}
	}
	return results
}

// clearing returns the window over the results that can be cleared, if that saves at least
// [Config.ClearAfter] tokens, and how many it saves.
func (s *visible) clearing(cfg Config) (*Window, int) {
	there := 0
	for i, e := range s.entries {
		if s.raw(i) {
			there += e.Event.EstimatedTokens()
		}
	}
	if there < cfg.ClearAfter { // to find out more is the dearer part
		return nil, 0
	}
	results := s.results()
	results = results[:max(0, len(results)-cfg.ClearKeep)]
	saved, tokens := 0, s.clears(results, cfg)
	results = slices.DeleteFunc(results, func(r Result) bool {
		saved += tokens[r]
		return tokens[r] == 0
	})
	if saved < cfg.ClearAfter {
		return nil, saved
	}
	cfg.MaxWaitingCalls = math.MaxInt
	s.settle(cfg, func(int) bool { return false })
	results = slices.DeleteFunc(results, func(r Result) bool {
		if s.stays[r.Index] {
			saved -= tokens[r]
		}
		return s.stays[r.Index]
	})
	if saved < cfg.ClearAfter {
		return nil, saved
	}
	w := &Window{Trigger: ByClearing, Results: results}
	var indices []int
	for _, r := range results {
		if len(indices) == 0 || indices[len(indices)-1] != r.Index {
			indices = append(indices, r.Index)
			w.Tokens += s.entries[r.Index].Event.EstimatedTokens()
			w.Also = append(w.Also, Span{r.Index, 1})
		}
	}
	last := len(w.Also) - 1
	w.Span, w.Also = w.Also[last], w.Also[:last]
	return w, saved
}

// clears returns about how many tokens it saves to clear each of the results, which are in order; 0
// of one that is not to be cleared. What the user's side has answered is not.
func (s *visible) clears(results []Result, cfg Config) map[Result]int {
	saves := make(map[Result]int, len(results))
	for len(results) > 0 {
		index := results[0].Index
		e := s.entries[index].Event
		for i, p := range e.Content().Parts() { // an event can have very many
			if len(results) == 0 || results[0] != (Result{index, i}) {
				continue
			}
			results = results[1:]
			if response := records.JSON(p.Response); e.Author() != "user" && p.Kind == patch.PartResponse && !isShort(response) && cfg.clears(p.Name) {
				saves[Result{index, i}] = max(0, utf8.RuneCount(response)-len(placeholder)) / patch.RunesPerToken
			}
		}
		for len(results) > 0 && results[0].Index == index {
			results = results[1:]
		}
	}
	return saves
}

// clears reports whether results of the tool may be cleared.
func (c Config) clears(tool string) bool {
	return !slices.Contains(c.KeepTools, tool) && (len(c.ClearTools) == 0 || slices.Contains(c.ClearTools, tool))
}

// clear clears the results of a window.
func (c *Compactor[K]) clear(ctx context.Context, key K, by *settings, s *visible, w *Window, out Written, start time.Time) (Written, fold.View, error) {
	v := s.view
	patches, err := s.clear(w.Results, c.opts.NewID)
	if err != nil {
		return out, v, err
	}
	out.Level = 0 // nothing is summarised
	out.EventsAfter = len(patches)
	for _, p := range patches {
		out.TokensAfter += p.NewEvents()[0].EstimatedTokens()
	}
	out.Ratio = float64(out.TokensAfter) / float64(out.TokensBefore)
	// The pass is told of by the patch that w.Span is of, as those of other triggers are.
	slices.Reverse(patches)
	if len(patches) > 1 {
		for i, p := range patches {
			patches[i] = p.WithGroup(out.PatchID)
		}
	}
	about := patchMetadata{Written: out, DurationMs: time.Since(start).Milliseconds()}
	first, err := patches[0].WithID(out.PatchID).WithCustomMetadata(map[string]any{record.OwnKey: about.metadata()})
	if err != nil {
		return out, v, fmt.Errorf("patch: %w", err)
	}
	patches[0] = first
	next, err := c.write(ctx, key, by, draftOf(key, s, w, nil, patches, out), patches)
	return out, next, err
}

// toTell is how many tokens a group's summary stands for: those that are visible. Where few
// are because results were cleared, a summarizer is to tell of these.
func (s *visible) toTell(g Group) int {
	visible, logged := 0, 0
	for _, i := range g.Indices {
		visible += s.entries[i].Event.EstimatedTokens()
		logged += s.shown(i).event.EstimatedTokens()
	}
	if logged > visible && logged >= briefTokens {
		return max(visible, briefTokens)
	}
	return visible
}
