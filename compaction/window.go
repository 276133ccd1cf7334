package compaction

import (
	"cmp"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// countInvocations returns the number of invocations with at least one raw event for which counts returns true.
func (s *planner) countInvocations(counts func(i int) bool) int {
	seen := map[int32]bool{}
	for i, number := range s.invocation {
		if s.isRaw(i) && !seen[number] && counts(i) {
			seen[number] = true
		}
	}
	return len(seen)
}

// oldestWindow returns the oldest window within the input limit of the summarizer, or nil. It also returns a smaller
// selection, without the events that cannot be covered.
func (x *selection) oldestWindow(by Trigger, cfg Config) (*Window, *selection) {
	for {
		oldest, refused := x.scanWindows(by, cfg)
		if len(refused) == 0 {
			return oldest, x
		}
		excluded := slices.Clone(x.excluded)
		for _, i := range refused {
			excluded[i] = true
		}
		x = x.newSelection(excluded, x.lastTied)
	}
}

// scanWindows returns the oldest window, and the events that cannot be covered. An event cannot be covered if a model's
// API would refuse the log after its removal.
func (x *selection) scanWindows(by Trigger, cfg Config) (oldest *Window, refused []int) {
	for start := 0; start < len(x.entries); {
		if x.excluded[start] || x.attached[start] {
			start++
			continue
		}
		end, attachedEnd := start, start // only events before index end can have attached events
		for ; end < len(x.entries) && !x.excluded[end] && !x.attached[end]; end++ {
			if x.attachedTo[end] != nil {
				attachedEnd = end + 1
			}
		}
		// After the oldest window, only two kinds of windows can be refused: windows with attached events, and windows
		// after a summary of role model. The loop skips all other windows, because they are expensive to build.
		for start < end && (oldest == nil || start < attachedEnd || x.isModelSummary(start-1)) {
			windowEnd := x.fittingEnd(start, end, cfg.limits.InputTokens)
			if by == ByInterval {
				windowEnd = x.intervalEnd(start, windowEnd, end, cfg.CompactionInterval)
			}
			w, removed := x.newWindow(by, start, windowEnd)
			switch {
			case !x.isAcceptedByAPI(w, removed):
				for _, span := range removed {
					refused = append(refused, span.Start)
				}
			case oldest == nil:
				oldest = w
			}
			start = windowEnd
		}
		start = end
	}
	return oldest, refused
}

// fittingEnd returns the end of a window that begins at the index start. The window takes as many events as fit within
// the limit. It never separates tied events, and takes at least one event. If the window does not reach the index end,
// it stops after its last whole invocation, if it has one.
func (x *selection) fittingEnd(start, end int, limit int) int {
	tokens, fitEnd, invocationEnd := 0, start, start
	tiedEnd := int32(start)
	for i := start; i < end; i++ {
		tokens += transcriptTokens(x.entries[i].Event)
		for _, a := range x.attachedTo[i] {
			tokens += transcriptTokens(x.entries[a].Event)
		}
		tiedEnd = max(tiedEnd, x.lastTied[i])
		if int(tiedEnd) > i {
			continue // a response to a call in the window follows
		}
		if tokens > limit && fitEnd > start {
			if invocationEnd > start {
				return invocationEnd
			}
			return fitEnd
		}
		fitEnd = i + 1
		if i+1 == end || x.invocation[i+1] != x.invocation[i] {
			invocationEnd = i + 1
		}
	}
	return end
}

// intervalEnd returns the end of a window that the input limit has cut. If fewer than interval invocations would
// remain after the window, it ends at an earlier boundary between invocations, the last one that leaves enough
// invocations.
func (x *selection) intervalEnd(start, to, end, interval int) int {
	left := map[int32]bool{}
	for i := end - 1; i > start && to < end; i-- {
		left[x.invocation[i]] = true
		if i <= to && len(left) >= interval && x.invocation[i] != x.invocation[i-1] && slices.Max(x.lastTied[start:i]) < int32(i) {
			return i
		}
	}
	return to
}

// transcriptTokens estimates the size of an event in a transcript: its content, and the author and call id of each
// line.
func transcriptTokens(e *patch.Event) int {
	runes := len(e.Author()) + len(": \n")
	for p := range e.FunctionParts() {
		runes += len(e.Author()) + len(p.ID) + len(" returns () to : (never answered)\n")
	}
	return records.LoggedTokens(e) + (runes+patch.RunesPerToken-1)/patch.RunesPerToken
}

// newWindow returns the window over the events [start, end) and the events attached to them. The result removed has
// the spans that the pass removes without inserting a summary there.
func (x *selection) newWindow(by Trigger, start, end int) (w *Window, removed []Span) {
	w = &Window{Trigger: by, Span: Span{start, end - start}}
	var indices []int
	for i := start; i < end; i++ {
		indices = append(indices, x.attachedTo[i]...)
	}
	slices.Sort(indices)
	w.EarlierSpans = spansOf(indices)
	for i := start; i < end; i++ {
		indices = append(indices, i)
	}
	x.fillWindow(w, indices)
	removed = w.EarlierSpans
	if len(w.Groups) == 0 {
		removed = append(slices.Clone(removed), w.Span)
	}
	return w, removed
}

// fillWindow sets the groups, invocations and tokens of a window. The argument indices has the window's events in
// ascending order.
func (s *planner) fillWindow(w *Window, indices []int) {
	var groups []Group
	at := map[group]int{}
	g := -1
	named := map[int32]bool{}
	last := int32(noInvocation)
	for _, i := range indices {
		e := s.entries[i].Event
		w.Tokens += s.tokensBetween(i, i+1)
		if number := s.invocation[i]; number != last && !named[number] && e.InvocationID() != "" && s.isRaw(i) {
			named[number], last = true, number
			w.Invocations = append(w.Invocations, e.InvocationID())
		}
		if g < 0 || groups[g].Branch != e.Branch() || groups[g].Scope != e.IsolationScope() {
			key := groupOf(e)
			known := false
			if g, known = at[key]; !known {
				g = len(groups)
				at[key] = g
				groups = append(groups, Group{Branch: e.Branch(), Scope: e.IsolationScope()})
			} else if groups[g].Branch != e.Branch() {
				groups[g].Branch = key.branch
			}
		}
		groups[g].Indices = append(groups[g].Indices, i)
	}
	// A group without text gets no summary.
	w.Groups = slices.DeleteFunc(groups, func(g Group) bool {
		return !slices.ContainsFunc(g.Indices, func(i int) bool { return transcript.HasLine(s.entries[i].Event) })
	})
	slices.SortFunc(w.Groups, func(a, b Group) int {
		return cmp.Compare(a.Indices[len(a.Indices)-1], b.Indices[len(b.Indices)-1])
	})
}

// isAcceptedByAPI reports whether a model's API accepts the log after the given spans are removed. The API would refuse
// a function call that comes first, or directly after a summary of role model.
func (s *planner) isAcceptedByAPI(w *Window, spans []Span) bool {
	if len(spans) == 0 {
		return true
	}
	removed := make([]bool, len(s.entries))
	for _, g := range spans {
		for i := g.Start; i < g.Start+g.Count; i++ {
			removed[i] = true
		}
	}
	// The summaries that replace this window have role user.
	summarised := func(i int) bool { return len(w.Groups) > 0 && i >= w.Start && i < w.Start+w.Count }
	for _, g := range spans {
		before, after := g.Start-1, g.Start+g.Count
		hasContent := func(i int) bool { return s.entries[i].Event.SaysSomething() }
		for before >= 0 && (removed[before] || !hasContent(before)) {
			before--
		}
		for after < len(s.entries) && (removed[after] || !hasContent(after)) {
			after++
		}
		if after == len(s.entries) || summarised(after) || !hasFunctionPart(s.entries[after].Event, false) {
			continue
		}
		if before < 0 || !summarised(before) && s.isModelSummary(before) {
			return false
		}
	}
	return true
}

func (s *planner) isModelSummary(i int) bool {
	return s.entries[i].Summary && s.entries[i].Event.Role() == "model"
}

// hasFunctionPart reports whether an event has a function response if response is true, or a function call otherwise.
// It does not decode the content.
func hasFunctionPart(e *patch.Event, response bool) bool {
	for p := range e.FunctionParts() {
		if p.Response == response {
			return true
		}
	}
	return false
}

// spansOf returns the spans of adjacent indices. The argument indices must be in ascending order.
func spansOf(indices []int) []Span {
	var spans []Span
	for _, i := range indices {
		if last := len(spans) - 1; last >= 0 && spans[last].Start+spans[last].Count == i {
			spans[last].Count++
			continue
		}
		spans = append(spans, Span{i, 1})
	}
	return spans
}
