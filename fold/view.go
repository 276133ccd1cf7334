package fold

import (
	"fmt"
	"iter"

	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
)

// View is an immutable value that describes a session after one of its records: the visible log, the state, and
// the skipped patches. Callers may copy a view. Goroutines may share it while other views are made from it. The
// zero View is an empty session without initial state.
type View struct {
	creation        string
	edition         uint64
	initial         delta
	nodes           *sequence
	state           *state
	pairs           *pairingCache
	seq             uint64
	patchSeq        uint64
	invocation      string // invocation id of the newest event that has one
	skipped         *skipList
	hasUnknownPatch bool // whether a patch of unknown type was skipped
	patches         *cut // applied patches, newest first
	pins            pins
	unloaded        *unloadedPatches // encoded effects of a restored view's patches, until [View.load] decodes them
	initialBytes    int              // approximate memory of the initial state
	patchBytes      int              // approximate memory used for removed nodes
	supplied        suppliedRecords
	missing         *missingRecords // set while several patches are planned; see [View.withEvents]
}

// New returns the view of a session without records. Keys of the initial state with the prefix "app:", "user:"
// or "temp:" are ignored, because they are not part of the session's own state. The argument creation is the
// session's creation id. It may be empty.
func New(creation string, initial map[string]patch.Value) View {
	v := View{creation: creation}
	for key, value := range initial {
		if statekey.ScopeOf(key) == statekey.Session {
			v.initial = append(v.initial, patch.Change{Key: key, Value: value})
		}
	}
	v.initial = netOf(v.initial)
	v.initialBytes = changesFootprint(v.initial)
	return v.withNewCaches()
}

func (v View) withNewCaches() View {
	v.pairs, v.supplied = &pairingCache{}, nil
	return v.withState()
}

// Creation returns the session's creation id, as given to [New].
func (v View) Creation() string { return v.creation }

// Edition returns the edition of the log from which the view was made. Each commit of an erasure to the log
// increments the edition. Views with the same seq but different editions may differ.
func (v View) Edition() uint64 { return v.edition }

// WithEdition returns the view with the given edition. Views made from the result have the same edition.
func (v View) WithEdition(n uint64) View {
	v.edition = n
	return v
}

// Seq returns the seq of the view's last record, or 0 if there is none.
func (v View) Seq() uint64 { return v.seq }

// PatchSeq returns the seq of the newest patch, or 0 if there is none. Skipped patches count. A patch made from
// this view has this seq as its base.
func (v View) PatchSeq() uint64 { return v.patchSeq }

// Len returns the number of visible events.
func (v View) Len() int { return v.nodes.visibleLen() }

// At returns the visible event with index i. It panics if i is out of range.
func (v View) At(i int) *patch.Event { return v.node(i).event }

// node returns the visible node with index i. It panics if i is out of range.
func (v View) node(i int) *node {
	if i < 0 || i >= v.Len() {
		panic(fmt.Sprintf("fold: index %d is out of range for %d visible events", i, v.Len()))
	}
	n, _ := v.nodes.visibleAt(i)
	return n
}

// Events yields the visible events in order, each with its index.
func (v View) Events() iter.Seq2[int, *patch.Event] {
	return func(yield func(int, *patch.Event) bool) {
		for i, n := range v.visible(0, v.Len()) {
			if !yield(i, n.event) {
				return
			}
		}
	}
}

// visible yields the visible nodes with indices in [first, end).
func (v View) visible(first, end int) iter.Seq2[int, *node] {
	return func(yield func(int, *node) bool) {
		if first >= end {
			return
		}
		i := first
		_, rank := v.nodes.visibleAt(i)
		v.nodes.walk(rank, v.nodes.len(), func(n *node) bool {
			if n.event == nil {
				return true
			}
			i++
			return yield(i-1, n) && i < end
		})
	}
}

// Entry is a visible event with its properties in the view.
type Entry struct {
	Index   int // index in the visible log
	Event   *patch.Event
	Seq     uint64 // seq of the record that contains the event
	Summary bool   // whether a summarise added the event, or the event has actions.compaction
	Pinned  bool   // whether the newest active pin or unpin of the event is a pin
}

// Entries yields the visible events in order, with their properties.
func (v View) Entries() iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) {
		for i, n := range v.visible(0, v.Len()) {
			if !yield(i, v.entry(i, n)) {
				return
			}
		}
	}
}

// Entry returns the visible event with index i and its properties. It panics if i is out of range.
func (v View) Entry(i int) Entry { return v.entry(i, v.node(i)) }

func (v View) entry(i int, n *node) Entry {
	return Entry{i, n.event, n.seq, n.isSummary(), len(v.pins) > 0 && v.pins.has(n.id())}
}

// Find returns the index of the first visible event with the given id. It takes time linear in the number of
// visible events.
func (v View) Find(eventID string) (index int, ok bool) {
	for i, n := range v.visible(0, v.Len()) {
		if n.event.ID() == eventID {
			return i, true
		}
	}
	return 0, false
}

func (n *node) isSummary() bool { return n.summary || n.event.IsSummary() }

// net returns the state as one change per key.
func (v View) net() delta {
	if v.state == nil { // the zero View
		return v.withState().state.value()
	}
	return v.state.value()
}

// State returns a copy of the session's own state. Keys with the prefix "app:", "user:" or "temp:" are not part
// of this state. [patch.Value.Any] defines the types of the values.
func (v View) State() map[string]any {
	state := map[string]any{}
	for _, c := range v.net() {
		state[c.Key] = c.Value.Any()
	}
	return state
}

// Values yields the session's own state in key order.
func (v View) Values() iter.Seq2[string, patch.Value] {
	return func(yield func(string, patch.Value) bool) {
		for _, c := range v.net() {
			if !yield(c.Key, c.Value) {
				return
			}
		}
	}
}

// Value returns the value of a state key. If the key is not set, ok is false.
func (v View) Value(key string) (value patch.Value, ok bool) {
	return v.net().find(key)
}

// skipList lists the skipped patches, newest first. Views share its tail.
type skipList struct {
	skip  patch.Skip
	older *skipList
	len   int
}

func (l *skipList) count() int {
	if l == nil {
		return 0
	}
	return l.len
}

func (l *skipList) ascending() []patch.Skip {
	out := make([]patch.Skip, l.count())
	for ; l != nil; l = l.older {
		out[l.len-1] = l.skip
	}
	return out
}

// SkippedCount returns the number of patches that could not be applied.
func (v View) SkippedCount() int { return v.skipped.count() }

// Skipped returns the patches that could not be applied, in seq order. If the view was restored from damaged
// bytes, the error matches [patch.ErrCorrupt].
func (v View) Skipped() ([]patch.Skip, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	return v.skipped.ascending(), nil
}
