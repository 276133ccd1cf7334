package fold

import (
	"slices"
	"strings"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// delta is a set of changes, in key order and one for each key.
type delta []patch.Change

func byKey(a, b patch.Change) int { return strings.Compare(a.Key, b.Key) }

// netOf returns the net of changes that were made in the given order.
func netOf(changes []patch.Change) delta {
	slices.SortStableFunc(changes, byKey)
	out := changes[:0]
	for i, c := range changes {
		if i+1 < len(changes) && changes[i+1].Key == c.Key {
			continue // a later change of the key follows
		}
		out = append(out, c)
	}
	return slices.Clone(delta(out))
}

// then returns the net of d and a later delta.
func (d delta) then(later delta) delta {
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

// netBetween returns what the nodes from lo up to hi carry and set.
func (t *tree) netBetween(lo, hi int) delta {
	var changes []patch.Change
	t.walk(lo, hi, func(n *node) bool {
		changes = append(changes, n.carries()...)
		if n.event != nil {
			changes = slices.AppendSeq(changes, n.event.Changes())
		}
		return true
	})
	return netOf(changes)
}

// netDelta returns what all nodes below carry and set. It is computed once.
func (t *tree) netDelta() delta {
	if t == nil {
		return nil
	}
	if known := t.net.Load(); known != nil {
		return *known
	}
	var net delta
	if t.kids == nil {
		net = t.netBetween(0, len(t.nodes))
	} else {
		var changes []patch.Change
		for _, k := range t.kids {
			changes = append(changes, k.netDelta()...)
		}
		net = netOf(changes)
	}
	t.net.Store(&net)
	return net
}

// stateCache holds a view's state once it has been asked for. A view that only
// appended to another one computes it from the other's.
type stateCache struct {
	mu     sync.Mutex
	known  bool
	state  delta
	before *stateCache // state before last, or nil to start from the tree
	last   *patch.Event
	hops   int // caches reachable over before
}

// So many appends are applied to an older state one by one; after more, the state is
// computed from the tree.
const maxHops = 64

// appended returns the cache of a view that has e appended.
func (c *stateCache) appended(e *patch.Event) *stateCache {
	if !hasChanges(e) {
		return c
	}
	c.mu.Lock()
	hops := c.hops
	c.mu.Unlock()
	if hops >= maxHops {
		return &stateCache{}
	}
	return &stateCache{before: c, last: e, hops: hops + 1}
}

func hasChanges(e *patch.Event) bool {
	for range e.Changes() {
		return true
	}
	return false
}

// get returns the state of the view that has this cache.
func (c *stateCache) get(initial delta, root *tree) delta {
	if state, ok := c.peek(); ok {
		return state
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.learn(initial.then(root.netDelta()))
	}
	return c.state
}

// peek returns the state if it is known, or can be had from a known one before.
func (c *stateCache) peek() (delta, bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		earlier, ok := c.before.peek()
		if !ok {
			return nil, false
		}
		c.learn(earlier.then(slices.Collect(c.last.Changes())))
	}
	return c.state, true
}

func (c *stateCache) learn(state delta) {
	c.state, c.known = state, true
	c.before, c.last, c.hops = nil, nil, 0
}
