package fold

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
)

// delta is a list of changes in key order, with one change per key.
type delta []patch.Change

func byKey(a, b patch.Change) int { return strings.Compare(a.Key, b.Key) }

// netOf returns the net effect of changes that were made in the given order.
func netOf(changes []patch.Change) delta {
	slices.SortStableFunc(changes, byKey)
	out := changes[:0]
	for i, c := range changes {
		if i+1 < len(changes) && changes[i+1].Key == c.Key {
			continue // the next change has the same key and is later
		}
		out = append(out, c)
	}
	return slices.Clone(delta(out))
}

// followedBy returns the net effect of d followed by later.
func (d delta) followedBy(later delta) delta {
	if len(d) == 0 {
		return later
	}
	if len(later) == 0 {
		return d
	}
	out := make(delta, 0, len(d)+len(later))
	for len(d) > 0 && len(later) > 0 {
		switch c := byKey(d[0], later[0]); {
		case c < 0:
			out, d = append(out, d[0]), d[1:]
		case c > 0:
			out, later = append(out, later[0]), later[1:]
		default:
			out, d, later = append(out, later[0]), d[1:], later[1:]
		}
	}
	return append(append(out, d...), later...)
}

func (d delta) find(key string) (patch.Value, bool) {
	i, ok := slices.BinarySearchFunc(d, key, func(c patch.Change, key string) int { return strings.Compare(c.Key, key) })
	if !ok {
		return patch.Value{}, false
	}
	return d[i].Value, true
}

// netBetween returns the net changes of the nodes in [lo, hi). It copies the values of events, because an
// uncopied value would keep the JSON of its whole event in memory.
func (s *sequence) netBetween(lo, hi int) delta {
	type change struct {
		patch.Change
		ofEvent bool
	}
	last := map[string]change{}
	s.walk(lo, hi, func(n *node) bool {
		for _, c := range n.carriedDelta() {
			last[c.Key] = change{c, false}
		}
		if n.event != nil {
			for c := range n.event.Changes() {
				last[c.Key] = change{c, true}
			}
		}
		return true
	})
	net := make(delta, 0, len(last))
	for _, key := range slices.Sorted(maps.Keys(last)) {
		c := last[key]
		if c.ofEvent {
			c.Key, c.Value = strings.Clone(key), c.Value.Clone()
		}
		net = append(net, c.Change)
	}
	return net
}

// appendChanges appends the delta that the node carries, then the changes of its event.
func (n *node) appendChanges(changes []patch.Change) []patch.Change {
	changes = append(changes, n.carriedDelta()...)
	if n.event != nil {
		changes = slices.AppendSeq(changes, n.event.Changes())
	}
	return changes
}

// netDelta returns the net changes of all nodes. Each subtree caches its result. After a splice, only the
// subtrees on the path to the changed nodes are computed again.
func (s *sequence) netDelta() delta {
	if s == nil {
		return nil
	}
	if cached := s.net.Load(); cached != nil {
		return *cached
	}
	var changes []patch.Change
	for i := range s.nodes {
		changes = s.nodes[i].appendChanges(changes)
	}
	for _, k := range s.kids {
		changes = append(changes, k.tree.netDelta()...)
	}
	net := netOf(changes)
	s.net.Store(&net)
	return net
}

// maxHops is the maximum number of appended events that are applied one by one to an older state. If there are
// more, the state is computed from the nodes.
const maxHops = 64

// state is the state of a view. It is computed on first use, either from the previous state and an appended
// event, or from the view's nodes.
type state struct {
	initial delta
	nodes   *sequence

	before *state       // previous state; if nil, the state is computed from the nodes
	event  *patch.Event // appended event
	hops   int          // number of appended events since the last state that is computed or has no previous state

	once     sync.Once
	net      delta
	computed atomic.Bool
}

// value returns the net state. It starts with the initial state. For each node in order, it applies the delta
// that the node carries, then the changes of the node's event.
func (s *state) value() delta {
	s.once.Do(func() {
		if s.before == nil {
			s.net = s.initial.followedBy(s.nodes.netDelta())
		} else {
			s.net = s.before.value().followedBy(slices.Collect(s.event.Changes()))
			s.before, s.event = nil, nil // release the memory of older states
		}
		s.computed.Store(true)
	})
	return s.net
}

// withState returns the view with a state that will be computed from its nodes.
func (v View) withState() View {
	v.state = &state{initial: v.initial, nodes: v.nodes}
	return v
}

// withEvent returns the state after an appended event. If the state should be computed from the nodes, ok is false.
func (s *state) withEvent(e *patch.Event) (next *state, ok bool) {
	changesState := false
	for range e.Changes() {
		changesState = true
		break
	}
	switch {
	case !changesState:
		return s, s != nil
	case s == nil:
		return nil, false
	}
	// Reading this state computes all uncomputed states before it. If a session grows and its state is never
	// read, this chain would become as long as its log. The chain is therefore limited to maxHops.
	hops := 1
	if !s.computed.Load() {
		hops += s.hops
	}
	return &state{before: s, event: e, hops: hops}, hops <= maxHops
}
