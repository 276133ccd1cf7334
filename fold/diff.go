package fold

// Difference describes how two views of a session differ.
type Difference struct {
	Before, After View

	FirstChanged int     // first index at which the events differ; a model provider's prompt cache stays valid up to this index
	Removed      []Entry // visible events of Before that are not visible in After, in order
	Added        []Entry // visible events of After that are not visible in Before, in order

	StateChanged []string // keys whose values differ, and keys that only one view has; in key order
	TokensSaved  int      // estimated tokens that After saves in a model's prompt, compared with Before
}

// Diff returns the difference between v and another view of the same session. It takes time linear in the
// number of visible events of both views. Events that are visible in both views have the same order in both.
func (v View) Diff(other View) Difference {
	d := Difference{Before: v, After: other}
	before, after := v.visibleNodes(), other.visibleNodes()
	for d.FirstChanged < min(len(before), len(after)) && before[d.FirstChanged].id() == after[d.FirstChanged].id() {
		d.FirstChanged++
	}
	d.Removed = v.entriesNotIn(before, after)
	d.Added = other.entriesNotIn(after, before)
	d.StateChanged = v.net().changedKeys(other.net())
	d.TokensSaved = totalTokens(d.Removed) - totalTokens(d.Added)
	return d
}

func (v View) visibleNodes() []*node {
	nodes := make([]*node, 0, v.Len())
	for _, n := range v.visible(0, v.Len()) {
		nodes = append(nodes, n)
	}
	return nodes
}

// entriesNotIn returns the entries of the nodes that are not in others.
func (v View) entriesNotIn(nodes, others []*node) []Entry {
	present := make(map[nodeID]bool, len(others))
	for _, n := range others {
		present[n.id()] = true
	}
	var out []Entry
	for i, n := range nodes {
		if !present[n.id()] {
			out = append(out, v.entry(i, n))
		}
	}
	return out
}

// changedKeys returns the keys whose values differ between the deltas, in order.
func (d delta) changedKeys(other delta) []string {
	var keys []string
	for len(d) > 0 || len(other) > 0 {
		switch {
		case len(other) == 0 || len(d) > 0 && d[0].Key < other[0].Key:
			keys, d = append(keys, d[0].Key), d[1:]
		case len(d) == 0 || other[0].Key < d[0].Key:
			keys, other = append(keys, other[0].Key), other[1:]
		default:
			if !d[0].Value.Equal(other[0].Value) {
				keys = append(keys, d[0].Key)
			}
			d, other = d[1:], other[1:]
		}
	}
	return keys
}

func totalTokens(events []Entry) int {
	n := 0
	for _, e := range events {
		n += e.Event.EstimatedTokens()
	}
	return n
}
