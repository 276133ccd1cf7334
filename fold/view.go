package fold

import (
	"fmt"
	"iter"

	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
)

// View is a session as it stands after a record of its log: the visible log, the
// state, and the patches that were skipped. The zero View is an empty session's without initial
// state. A View is immutable; it may be copied, kept, and read from any number of
// goroutines while others are made from it.
type View struct {
	creation   string
	edition    uint64
	initial    delta
	nodes      *sequence
	state      *state
	pairs      *pairingCache
	seq        uint64
	patchSeq   uint64
	invocation string // of the newest regular event that has one
	skipped    *skipList
	unknown    bool          // a patch of unknown type was skipped
	patches    *cut          // that were applied
	pins       pins          // nodes that are pinned
	saved      *savedPatches // of a restored view: until [View.load], what patches did is not known, nor pins of what they hide
	outline    bool          // no event keeps more than what it does to the state
	held       int           // about how many bytes patches keep in memory of what they took out
	hand       hand
	plan       *needs // of a view inside a plan
}

// New returns the view of a session without records. The initial state's keys that
// belong to a shared scope or to none (prefix app:, user: or temp:) are not the fold's
// and are left out. creation identifies the session's creation; it may be empty.
func New(creation string, initial map[string]patch.Value) View {
	v := View{creation: creation}
	for key, value := range initial {
		if statekey.ScopeOf(key) == statekey.Session {
			v.initial = append(v.initial, patch.Change{Key: key, Value: value})
		}
	}
	v.initial = netOf(v.initial)
	return v.fresh()
}

// fresh gives the view caches of its own.
func (v View) fresh() View {
	v.pairs, v.hand = &pairingCache{}, nil
	return v.withState()
}

// Creation returns the id of the session's creation, as given to [New].
func (v View) Creation() string { return v.creation }

// Edition is how often records of the session's log had been replaced by others that say
// less of the same, or say it anew, when the view was read: what [View.WithEdition] said. Views of one log and
// seq, of different editions, need not be equal.
func (v View) Edition() uint64 { return v.edition }

// WithEdition returns the view as one of the log in the given edition, which all views that
// are made from it are of too.
func (v View) WithEdition(n uint64) View {
	v.edition = n
	return v
}

// Seq returns the seq of the record that the view stands at; 0 before the first.
func (v View) Seq() uint64 { return v.seq }

// PatchSeq returns the seq of the newest patch, skipped ones included; 0 means none.
// A patch made from this view has it as its base.
func (v View) PatchSeq() uint64 { return v.patchSeq }

// Len returns the number of visible events.
func (v View) Len() int { return v.nodes.visibleLen() }

// At returns the visible event with index i. It panics if i is out of range, as
// indexing a slice does.
func (v View) At(i int) *patch.Event { return v.node(i).event }

// node returns the i-th visible node, or panics.
func (v View) node(i int) *node {
	if i < 0 || i >= v.Len() {
		panic(fmt.Sprintf("fold: index %d of a visible log of %d events", i, v.Len()))
	}
	n, _ := v.nodes.at(i)
	return n
}

// Events yields the visible events in order, each with its index.
func (v View) Events() iter.Seq2[int, *patch.Event] { return v.eventsIn(0, v.Len()) }

// eventsIn yields the visible events from index first up to end.
func (v View) eventsIn(first, end int) iter.Seq2[int, *patch.Event] {
	return func(yield func(int, *patch.Event) bool) {
		if first >= end {
			return
		}
		i := first
		_, rank := v.nodes.at(i)
		v.nodes.walk(rank, v.nodes.size, func(n *node) bool {
			if n.event == nil {
				return true
			}
			i++
			return yield(i-1, n.event) && i < end
		})
	}
}

// Entry is an event of a view with what the view knows of it.
type Entry struct {
	Index   int // in the visible log
	Event   *patch.Event
	Seq     uint64 // of the record that put the event into the log
	Summary bool   // a summarise put it in, or it has actions.compaction
	Pinned  bool   // the newest pin or unpin of it that has not been taken back is a pin
}

// Entries yields the visible log with what the view knows of each event.
func (v View) Entries() iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) {
		i := 0
		v.nodes.walk(0, v.nodes.len(), func(n *node) bool {
			if n.event == nil {
				return true
			}
			i++
			return yield(i-1, v.entry(i-1, n))
		})
	}
}

// Entry returns the visible event with index i and what the view knows of it. It panics if i is
// out of range.
func (v View) Entry(i int) Entry { return v.entry(i, v.node(i)) }

func (v View) entry(i int, n *node) Entry {
	return Entry{i, n.event, n.seq, n.isSummary(), len(v.pins) > 0 && v.pins.has(n.id())}
}

// Find returns the index of the first visible event with the given id. It takes time
// linear in the number of visible events. In a view of outlines it finds events of records at
// hand: see [View.Outline].
func (v View) Find(eventID string) (index int, ok bool) {
	for n := range v.nodes.all {
		if n.event == nil {
			continue
		}
		e := n.event
		if v.outline { // whose own events have no ids
			e, _ = v.hand.event(n.seq, n.index)
		}
		if e != nil && e.ID() == eventID {
			return index, true
		}
		index++
	}
	return 0, false
}

func (n *node) isSummary() bool { return n.summary || n.event.IsSummary() }

// net returns the state as net changes of the keys.
func (v View) net() delta {
	if v.state == nil { // the zero View
		return v.withState().state.value()
	}
	return v.state.value()
}

// State returns the replayed state, the caller's own copy; values are as
// [patch.Value.Any] gives them. It holds only keys of the session itself: those with
// the prefix app:, user: or temp: are not part of a fold.
func (v View) State() map[string]any {
	state := map[string]any{}
	for _, c := range v.net() {
		state[c.Key] = c.Value.Any()
	}
	return state
}

// Values yields the replayed state in key order.
func (v View) Values() iter.Seq2[string, patch.Value] {
	return func(yield func(string, patch.Value) bool) {
		for _, c := range v.net() {
			if !yield(c.Key, c.Value) {
				return
			}
		}
	}
}

// Value returns the state's value of a key, and whether the key is there.
func (v View) Value(key string) (value patch.Value, ok bool) {
	return v.net().find(key)
}

// skipList holds the skipped patches, newest first. Views share its tail.
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

// SkippedCount returns how many patches of the log could not be applied.
func (v View) SkippedCount() int { return v.skipped.count() }

// Skipped returns the patches that could not be applied, in seq order. The error matches
// [patch.ErrCorrupt] if the view was restored from bytes that no view has.
func (v View) Skipped() ([]patch.Skip, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	return v.skipped.ascending(), nil
}
