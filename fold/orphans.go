package fold

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Orphan is a function call or response that a patch would leave in a state that model APIs refuse.
type Orphan struct {
	EventID  string // id of the event that contains the call or response
	Index    int    // index of this event in the visible log before the patch; -1 if the patch adds the event
	CallID   string // may be empty
	Name     string // name of the function
	Response bool   // whether this is a response, not a call
	Problem  string // what would be wrong
}

func (o Orphan) String() string {
	kind := "call"
	if o.Response {
		kind = "response"
	}
	at := fmt.Sprintf("visible event %d (id %q)", o.Index, o.EventID)
	if o.Index < 0 {
		at = fmt.Sprintf("new event (id %q)", o.EventID)
	}
	return fmt.Sprintf("%s %q of function %q in %s %s", kind, o.CallID, o.Name, at, o.Problem)
}

// OrphanError lists function calls and responses that a patch would orphan. Model APIs would refuse the visible
// log, or a later resume would fail. If possible, the error suggests a wider span for the patch. It matches
// [ErrOrphanedCall].
type OrphanError struct {
	Orphans []Orphan

	// Suggested says whether there is a wider span with which the patch would be accepted. For a splice or
	// summarise, the smallest such span is [Start, Start+Count). For a truncate_before, EventID is the id of the
	// nearest earlier event before which the patch may truncate.
	Suggested bool
	Start     int
	Count     int
	EventID   string

	fixed bool // whether the span cannot be widened, because the patch is a revert or one of several patches
}

func (e *OrphanError) Error() string {
	const limit = 5
	var b strings.Builder
	b.WriteString("orphaned function call: ")
	for i, o := range e.Orphans {
		if i == limit {
			fmt.Fprintf(&b, "; and %d more", len(e.Orphans)-limit)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(o.String())
	}
	switch {
	case e.fixed:
	case !e.Suggested:
		b.WriteString("; no wider span is accepted")
	case e.EventID != "":
		fmt.Fprintf(&b, "; the nearest earlier event that is accepted is %q", e.EventID)
	default:
		fmt.Fprintf(&b, "; the smallest accepted span around it is start %d, count %d", e.Start, e.Count)
	}
	return b.String()
}

// Is reports whether target is [ErrOrphanedCall].
func (e *OrphanError) Is(target error) bool { return target == ErrOrphanedCall }

// Values of [Orphan.Problem].
const (
	problemUnpaired  = "would answer no call"
	problemOtherCall = "would answer another call"
	problemNoAnswer  = "would lose its response"
	problemOpen      = "is still open and would be hidden"
	problemFirst     = "would come first, where a model's API accepts no function call"
	problemAfter     = "would come directly after a summary of role model, where a model's API accepts no function call"
)

// span is a range of a view's visible log, with the events that replace it.
type span struct {
	view       View
	pairs      pairing
	first, end int
	added      []node // if several patches made the change, added may include events of the range
	fixed      bool   // whether the span cannot be widened, because it belongs to a revert or to several patches

	opts CheckOptions // rules for suggested spans
}

// changeSpan returns the span of v that differs in the view after. Several patches together made this change.
func (v View) changeSpan(after View, opts CheckOptions) span {
	oldNodes, newNodes := v.visibleNodes(), after.visibleNodes()
	// Several patches are treated as one change. The common prefix and suffix are not part of the span. An
	// event inside the span may still be in both views, so span.after compares nodes.
	first := 0
	for first < min(len(oldNodes), len(newNodes)) && oldNodes[first].id() == newNodes[first].id() {
		first++
	}
	for len(oldNodes) > first && len(newNodes) > first && oldNodes[len(oldNodes)-1].id() == newNodes[len(newNodes)-1].id() {
		oldNodes, newNodes = oldNodes[:len(oldNodes)-1], newNodes[:len(newNodes)-1]
	}
	s := span{view: v, pairs: v.pairing(), first: first, end: len(oldNodes), fixed: true, opts: opts}
	for _, n := range newNodes[first:] {
		s.added = append(s.added, *n)
	}
	return s
}

func (v View) checkOrphans(e edit, opts CheckOptions) error {
	s := span{v, v.pairing(), e.first, e.end, e.added(), e.target != nil, opts}
	err := s.check()
	switch {
	case err == nil:
		return nil
	case s.fixed:
	case e.patch.Type() == patch.TruncateBefore:
		if i, ok := s.nearestEarlier(); ok {
			err.Suggested, err.EventID = true, v.At(i).ID()
		}
	default:
		if wider, ok := s.smallestAccepted(); ok {
			err.Suggested, err.Start, err.Count = true, wider.first, wider.end-wider.first
		}
	}
	return err
}

// check returns an error if replacing the span leaves orphans.
func (s span) check() *OrphanError {
	if orphans := s.orphans(); len(orphans) > 0 {
		return &OrphanError{Orphans: orphans, fixed: s.fixed}
	}
	return nil
}

// orphans lists the calls and responses that would be orphaned, hidden or misplaced, by position.
func (s span) orphans() []Orphan {
	var out []Orphan
	for _, key := range sortedKeys(s.touchedKeys()) {
		out = append(out, s.orphansOf(key)...)
	}
	out = append(out, s.misplacedCalls()...)
	sortOrphans(out)
	return out
}

func sortOrphans(orphans []Orphan) {
	slices.SortStableFunc(orphans, func(a, b Orphan) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return strings.Compare(a.CallID, b.CallID)
	})
}

// touchedKeys returns the keys of the parts that the span removes or adds. Parts with other keys keep their
// partners.
func (s span) touchedKeys() map[callKey]struct{} {
	keys := map[callKey]struct{}{}
	add := func(e *patch.Event) {
		for p := range e.FunctionParts() {
			keys[keyOf(p)] = struct{}{}
		}
	}
	for _, n := range s.view.visible(s.first, s.end) {
		add(n.event)
	}
	for _, n := range s.added {
		add(n.event)
	}
	return keys
}

// partsAfter returns the parts of a key after the change. For each part, the result oldIndices contains the part's index
// before the change, or unpaired if the part is new. A part is not new if its event stays. It is also not new
// if the change replaces an event with its cleared copy, or a cleared copy with its original. The result kept
// contains the indices of the parts whose events stay.
func (s span) partsAfter(key callKey, before []part) (parts []part, oldIndices []int, kept map[int]bool) {
	// Clearing a response replaces its event with a copy. Reverting this patch replaces the copy with the
	// original. If the response in the copy counted as new, each clearing would look like the loss of a
	// response. Parts are therefore compared by node first, and then by the id of the original.
	i := 0
	for ; i < len(before) && before[i].pos < s.first; i++ {
		parts, oldIndices = append(parts, before[i]), append(oldIndices, i)
	}
	var removed map[partID]int
	for _, n := range s.added {
		for p := range n.event.FunctionParts() {
			if keyOf(p) != key {
				continue
			}
			if removed == nil {
				removed, kept = s.removed(before), map[int]bool{}
			}
			origin, _ := n.event.Origin()
			next, old := part{FunctionPart: p, pos: -1, event: n.event}, unpaired
			for _, id := range []partID{{node: n.id(), FunctionPart: p}, {event: origin.ID, FunctionPart: p}, {origin: n.event.ID(), FunctionPart: p}} {
				if at, ok := removed[id]; ok {
					old = at
					if id.node == before[at].node {
						next.pos, kept[at] = before[at].pos, true
					}
					break
				}
			}
			parts, oldIndices = append(parts, next), append(oldIndices, old)
		}
	}
	for ; i < len(before); i++ {
		if before[i].pos >= s.end {
			parts, oldIndices = append(parts, before[i]), append(oldIndices, i)
		}
	}
	return parts, oldIndices, kept
}

// partID identifies a removed function part by its node, by its event's id, or, in a cleared copy, by the
// original's id.
type partID struct {
	node          nodeID
	event, origin string
	patch.FunctionPart
}

// removed returns the indices of the parts in the span.
func (s span) removed(parts []part) map[partID]int {
	at := map[partID]int{}
	add := func(id partID, i int) {
		if _, taken := at[id]; !taken && id != (partID{FunctionPart: id.FunctionPart}) {
			at[id] = i
		}
	}
	for i, p := range parts {
		if p.pos >= s.first && p.pos < s.end {
			original, _ := p.event.Origin()
			add(partID{node: p.node, FunctionPart: p.FunctionPart}, i)
			add(partID{event: p.event.ID(), FunctionPart: p.FunctionPart}, i)
			add(partID{origin: original.ID, FunctionPart: p.FunctionPart}, i)
		}
	}
	return at
}

func (s span) orphansOf(key callKey) []Orphan {
	before := s.pairs.byKey[key]
	c := pairChange{before: before, partnersBefore: pair(before)}
	var kept map[int]bool
	c.after, c.oldIndex, kept = s.partsAfter(key, before)
	c.partnersAfter = pair(c.after)
	out := c.orphans()
	for i, p := range before {
		if !p.Response && p.pos >= s.first && p.pos < s.end && !kept[i] && s.view.mustStay(before, c.partnersBefore, i, s.opts) {
			out = append(out, p.orphan(problemOpen))
		}
	}
	return out
}

// pairChange contains the parts of a key before and after a change, with their partners.
type pairChange struct {
	before, after                 []part
	oldIndex                      []int // for each part in after, its index in before, or unpaired if the part is new
	partnersBefore, partnersAfter []int
}

// orphans lists the responses that would answer no call or another call, and the calls that would lose their
// response. A part that was unpaired before the change does not count.
func (c pairChange) orphans() []Orphan {
	var out []Orphan
	for i, p := range c.after {
		// If a part was already unpaired, the patch did not cause this. A new call may be open, because its
		// response may follow. A new response must answer a call.
		old := c.oldIndex[i]
		wasPaired := old != unpaired && c.partnersBefore[old] != unpaired
		switch {
		case p.Response && c.partnersAfter[i] == unpaired && (old == unpaired || wasPaired):
			out = append(out, p.orphan(problemUnpaired))
		case p.Response && wasPaired && c.oldIndex[c.partnersAfter[i]] != unpaired && c.oldIndex[c.partnersAfter[i]] != c.partnersBefore[old]:
			out = append(out, p.orphan(problemOtherCall))
		case !p.Response && wasPaired && c.partnersAfter[i] == unpaired:
			out = append(out, p.orphan(problemNoAnswer))
		}
	}
	return out
}

// mustStay reports whether the part is a call that no patch may hide. This is an open call that belongs to the
// newest invocation or is long-running. A long-running call is open until author "user" responds, because the
// result of the tool itself is only a placeholder.
func (v View) mustStay(parts []part, partner []int, i int, opts CheckOptions) bool {
	// An agent waits for the response to an open call of the newest invocation, and needs the call when the
	// response arrives. In earlier invocations, only long-running calls are still answered, possibly days
	// later.
	call := parts[i]
	switch {
	case call.Response:
		return false
	case !isLongRunning(call.event, call.ID):
		return partner[i] == unpaired && v.isNewest(call.pos)
	}
	for j, p := range parts {
		if p.Response && partner[j] == i && p.event.Author() == "user" {
			return false
		}
	}
	return !opts.AllowWaiting || v.isNewest(call.pos)
}

func isLongRunning(e *patch.Event, callID string) bool {
	return callID != "" && records.IsLongRunning(e, callID)
}

func (v View) isNewest(pos int) bool {
	return v.invocation != "" && v.invocationAt(pos) == v.invocation
}

// invocationAt returns the invocation of a visible event. If the event names none, it belongs to the invocation
// of the event before it.
func (v View) invocationAt(pos int) string {
	for ; pos >= 0; pos-- {
		if id := v.At(pos).InvocationID(); id != "" {
			return id
		}
	}
	return ""
}

// misplacedCalls lists function calls that would move to a position where model APIs refuse calls. A model does
// not see events without text or data, so they are ignored. In "state, user, call", cutting the user's event
// makes the call the first event.
func (s span) misplacedCalls() (out []Orphan) {
	// A revert, or several patches together, can add events that were visible before. If such a call already
	// had the problem, it is not reported.
	oldIndex := map[nodeID]int{}
	if len(s.added) > 0 && s.fixed {
		for i := s.first; i < s.end; i++ {
			oldIndex[s.view.node(i).id()] = i
		}
	}
	problem := s.callProblemAt(s.first)
	add := func(n *node, old int) {
		if problem != "" && (old < 0 || s.callProblemAt(old) == "") {
			out = append(out, callsOf(n.event, old, problem)...)
		}
		if n.event.SaysSomething() {
			problem = callProblemAfter(n)
		}
	}
	for i := range s.added {
		old, existed := oldIndex[s.added[i].id()]
		if !existed {
			old = -1
		}
		add(&s.added[i], old)
	}
	// After the span, only the first event with text or data gets another predecessor.
	if k, _ := slices.BinarySearch(s.pairs.withContent, s.end); k < len(s.pairs.withContent) {
		add(s.view.node(s.pairs.withContent[k]), s.pairs.withContent[k])
	}
	return out
}

// callProblemAt returns the problem of a function call at an index, or "".
func (s span) callProblemAt(i int) string {
	k, _ := slices.BinarySearch(s.pairs.withContent, i)
	if k == 0 {
		return problemFirst
	}
	return callProblemAfter(s.view.node(s.pairs.withContent[k-1]))
}

// callProblemAfter returns the problem of a function call directly after an event, or "".
func callProblemAfter(n *node) string {
	if n.event.Role() == "model" && n.isSummary() {
		return problemAfter
	}
	return ""
}

func callsOf(e *patch.Event, pos int, problem string) []Orphan {
	var out []Orphan
	for p := range e.FunctionParts() {
		if !p.Response {
			out = append(out, part{FunctionPart: p, pos: pos, event: e}.orphan(problem))
		}
	}
	return out
}

func (p part) orphan(problem string) Orphan {
	return Orphan{EventID: p.event.ID(), Index: p.pos, CallID: p.ID, Name: p.Name, Response: p.Response, Problem: problem}
}

// sortedKeys returns the keys in a deterministic order.
func sortedKeys(m map[callKey]struct{}) []callKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b callKey) int { return strings.Compare(a.text, b.text) })
}

// checkGroupOrphans checks for orphans after several patches together have changed v to the view after. It accepts
// the removal of a call and its response by different patches. The error is an *[OrphanError] without a
// suggestion. The check takes time linear in the number of visible events of both views.
func (v View) checkGroupOrphans(after View, opts CheckOptions) error {
	if opts.AllowOrphans {
		return nil
	}
	if err := v.changeSpan(after, opts).check(); err != nil {
		return err
	}
	return nil
}

// searchBudget limits how many function parts the search for a wider span may read. A refusal is therefore fast
// even if thousands of calls have the same key.
const searchBudget = 1 << 18

// smallestAccepted returns the smallest span around s that passes the check. If several spans have the same
// size, it returns the first. If it finds no span within the budget, ok is false.
func (s span) smallestAccepted() (wider span, ok bool) {
	// Most spans need not be tried. In "call a, x, response a", each span with the call must also contain the
	// response. The search starts with the smallest span that contains all such events.
	budget := searchBudget
	s, ok = s.withRequired(&budget)
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

// hidesPinned reports whether the span would hide a pinned event without permission.
func (s span) hidesPinned() bool {
	return !s.opts.AllowPinned && len(s.view.pinnedIn(s.first, s.end)) > 0
}

// cost estimates how many function parts the check of the span reads.
func (s span) cost() int {
	n := 1 + s.end - s.first
	for key := range s.touchedKeys() {
		n += len(s.pairs.byKey[key])
	}
	return n
}

// withRequired adds to the span the events that every accepted wider span contains. Such an event has a response whose
// only call is removed, or a call whose only responses are removed. If the span hides a call that must stay, no
// wider span is accepted, and withRequired returns false.
func (s span) withRequired(budget *int) (span, bool) {
	// Each added event may require others, so the loop continues until nothing is added. In "call a; response a
	// and call b; response b", cutting the first event requires cutting the second, which requires cutting the
	// third.
	for {
		wider := s
		for key := range s.touchedKeys() {
			parts := s.pairs.byKey[key]
			if *budget -= 1 + len(parts); *budget < 0 {
				return s, false
			}
			partner := pair(parts)
			inside := func(p part) bool { return p.pos >= s.first && p.pos < s.end }
			calls, responses := s.countAdded(key)
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
				// An added call or response could pair with this part, so the part's event is not required.
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

// countAdded counts the calls and responses of a key in the added events.
func (s span) countAdded(key callKey) (calls, responses int) {
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

// allOthersInside reports whether the span contains all calls, if response is true. If response is false, it
// reports whether the span contains all responses.
func allOthersInside(parts []part, response bool, inside func(part) bool) bool {
	for _, p := range parts {
		if p.Response != response && !inside(p) {
			return false
		}
	}
	return true
}

// nearestEarlier returns the index of the nearest visible event before the patch's event at which a
// truncate_before passes the check.
func (s span) nearestEarlier() (index int, ok bool) {
	budget := searchBudget
	for s.end--; s.end >= 0; s.end-- {
		if budget -= s.cost(); budget < 0 {
			return 0, false
		}
		if len(s.orphans()) > 0 || s.hidesPinned() {
			continue
		}
		// If an id occurs twice, a truncate_before finds only the first event.
		if first, _ := s.view.Find(s.view.At(s.end).ID()); first == s.end {
			return s.end, true
		}
	}
	return 0, false
}
