package compaction

import "slices"

// chain is a sequence of summaries of one branch and isolation scope, with no raw event between them.
type chain struct {
	indices []int
	lineage []Lineage

	// levels are the levels of the summaries, each raised to the highest level after it. So levels never rise along the
	// chain. In the log, a lower level can precede a higher level if an open call between the two summaries was
	// summarised late.
	levels []int
}

// chains returns the chains of the visible log, the oldest first.
func (s *planner) chains() []*chain {
	var all []*chain
	var current map[group]*chain
	for i, entry := range s.entries {
		e := entry.Event
		if !entry.Summary || s.pinned[e.ID()] || isADKRecord(e) {
			current = nil
			continue
		}
		if current == nil {
			current = map[group]*chain{}
		}
		key := groupOf(e)
		c := current[key]
		if c == nil {
			c = &chain{}
			current[key] = c
			all = append(all, c)
		}
		c.indices = append(c.indices, i)
		c.lineage = append(c.lineage, LineageOf(e))
	}
	return all
}

func (c *chain) setLevels(k int) {
	c.levels = make([]int, len(c.indices))
	highest := 0
	for i := len(c.indices) - 1; i >= 0; i-- {
		highest = max(highest, levelOf(c.lineage[i].Windows, k))
		c.levels[i] = highest
	}
}

// runs yields the ranges [from, to) of summaries with equal level, the lowest level first.
func (c *chain) runs(yield func(from, to int) bool) {
	to := len(c.levels)
	for to > 0 {
		from := to - 1
		for from > 0 && c.levels[from-1] == c.levels[to-1] {
			from--
		}
		if !yield(from, to) {
			return
		}
		to = from
	}
}

// tierMerge finds the lowest level with at least k adjacent summaries, and returns a window over the oldest k of
// them. It returns nil if there is no such level.
func (s *planner) tierMerge(chains []*chain, k int) *Window {
	var best *chain
	var at int
	for _, c := range chains {
		c.setLevels(k)
		for from, to := range c.runs {
			if to-from >= k && (best == nil || c.levels[from] < best.levels[at]) {
				best, at = c, from
			}
		}
	}
	if best == nil {
		return nil
	}
	return s.mergeWindow(ByTiers, best.indices[at:at+k])
}

// forcedMerge returns a window over fewer than k summaries. It selects the adjacent summaries of the lowest level
// that has at least two. If there is no such level, it selects the last two summaries of a chain. It returns nil if
// no merge would bring the prompt below the threshold, and none would save enough for a call of the summarizer.
func (s *planner) forcedMerge(chains []*chain, k, threshold int) *Window {
	var best []int
	lowest := 0
	offer := func(level int, indices []int) {
		saved := s.tokensAt(indices)
		saved -= maxMergedTokens(saved) // saves at least this much, because a longer answer is refused
		worth := s.prompt-saved < threshold || saved >= minSavings(threshold)
		if worth && (best == nil || level < lowest) {
			best, lowest = indices, level
		}
	}
	for _, c := range chains {
		c.setLevels(k)
		for from, to := range c.runs {
			if to-from >= 2 {
				offer(c.levels[from], c.indices[from:to])
			}
		}
	}
	if best == nil {
		for _, c := range chains {
			if n := len(c.indices); n >= 2 {
				offer(c.levels[n-2], c.indices[n-2:])
			}
		}
	}
	if best == nil {
		return nil
	}
	return s.mergeWindow(ByTokens, best)
}

// mergeWindow returns the window over the summaries at the given indices, which belong to one chain.
func (s *planner) mergeWindow(by Trigger, indices []int) *Window {
	spans := spansOf(indices)
	last := len(spans) - 1
	w := &Window{Trigger: by, Span: spans[last], EarlierSpans: spans[:last], Merge: true}
	s.fillWindow(w, slices.Clone(indices))
	return w
}
