package fold

// A search for a span that passes gives up after looking at so many function parts:
// a log in which thousands of calls share one key must not make a refusal slow.
const searchBudget = 1 << 18

// smallestPassing returns the smallest span around s, of equals the one that starts
// first, whose replacement passes. ok is false if there is none, or none was found
// within the budget.
func (s span) smallestPassing() (wider span, ok bool) {
	budget := searchBudget
	s, ok = s.forced(&budget)
	if !ok {
		return s, false
	}
	n := s.view.Len()
	for size := s.end - s.first; size <= n; size++ {
		for first := max(0, s.end-size); first <= min(s.first, n-size); first++ {
			c := s
			c.first, c.end = first, first+size
			if budget -= c.cost(); budget < 0 {
				return s, false
			}
			if len(c.orphans()) == 0 && !c.hidesPinned() {
				return c, true
			}
		}
	}
	return s, false
}

// hidesPinned reports whether a pinned event is in the span, where that matters.
func (s span) hidesPinned() bool {
	return !s.opts.AllowPinned && len(s.view.pinnedIn(s.first, s.end)) > 0
}

// cost is about how many function parts judging the span looks at.
func (s span) cost() int {
	n := 1 + s.end - s.first
	for key := range s.touchedKeys() {
		n += len(s.pairs.byKey[key])
	}
	return n
}

// forced widens the span by what every passing span around it holds: a response whose
// only call goes, a call whose only responses go. ok is false if no span around it can
// pass, since it hides a call that must stay.
func (s span) forced(budget *int) (span, bool) {
	for {
		wider := s
		for key := range s.touchedKeys() {
			parts := s.pairs.byKey[key]
			if *budget -= 1 + len(parts); *budget < 0 {
				return s, false
			}
			partner := pair(parts)
			inside := func(p part) bool { return p.pos >= s.first && p.pos < s.end }
			calls, responses := s.addedOf(key)
			for i, p := range parts {
				if inside(p) {
					if !p.Response && s.view.mustStay(parts, partner, i, s.opts) {
						return s, false
					}
					continue
				}
				if partner[i] == unpaired {
					continue
				}
				if p.Response && calls == 0 || !p.Response && responses == 0 {
					if allOthersInside(parts, p.Response, inside) {
						wider.first, wider.end = min(wider.first, p.pos), max(wider.end, p.pos+1)
					}
				}
			}
		}
		if wider.first == s.first && wider.end == s.end {
			return s, true
		}
		s = wider
	}
}

// addedOf counts the calls and responses of a key among the events that come.
func (s span) addedOf(key callKey) (calls, responses int) {
	for _, n := range s.added {
		for p := range n.event.FunctionParts() {
			switch {
			case keyOf(p) != key:
			case p.Response:
				responses++
			default:
				calls++
			}
		}
	}
	return calls, responses
}

// allOthersInside reports whether all calls (of a response) or all responses (of a
// call) among the parts of a key are inside the span.
func allOthersInside(parts []part, response bool, inside func(part) bool) bool {
	for _, p := range parts {
		if p.Response != response && !inside(p) {
			return false
		}
	}
	return true
}

// nearestEarlier returns the index of the nearest visible event before the one that a
// truncate_before names at which truncating passes.
func (s span) nearestEarlier() (index int, ok bool) {
	budget := searchBudget
	for s.end--; s.end >= 0; s.end-- {
		if budget -= s.cost(); budget < 0 {
			return 0, false
		}
		if len(s.orphans()) > 0 || s.hidesPinned() {
			continue
		}
		// Of a repeated id, a truncate_before would find the first event.
		if first, _ := s.view.Find(s.view.At(s.end).ID()); first == s.end {
			return s.end, true
		}
	}
	return 0, false
}
