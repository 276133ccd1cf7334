package fold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// meaning is the version of the form, and of what records mean to the fold. It changes when a log
// can fold to another view than before, as when a patch type becomes known. A view that was made
// under another meaning is not to be trusted.
const meaning = 1

// Kinds of runs, which the nodes are written in.
const (
	runEvents = 0 // regular events of consecutive records: first seq, count
	runNode   = 1 // one node: seq, index, flags, pos, what it carries
)

// Flags of a run of one node.
const (
	flagSummary = 1 << iota
	flagCarries
	flagPinned
	flagMarker
	flagKeep   // the patch that made it kept the state
	flagRevert // a revert made it
)

const flagUnknown = 1 // of the view

// AppendBinary appends the view's binary form, which [ParseSaved] reads: all but its
// initial state and the bodies of its events. Its first byte is the version of what records
// mean. It has two parts: what is visible, and what patches did, which is decoded only when it is
// needed. A stretch of events that no patch touched takes a few bytes in either. The error matches
// [patch.ErrInvalid] if a state key is not UTF-8.
func (v View) AppendBinary(b []byte) ([]byte, error) {
	nodes := v.nodeRefs()
	w := writer(append(b, meaning))
	w.text(v.creation)
	w.uint(v.seq)
	w.uint(v.patchSeq)
	w.text(v.invocation)
	w.uint(flagIf(flagUnknown, v.unknown))
	w.uint(uint64(v.skipped.count()))
	w.uint(uint64(len(nodes)))
	for i := range nodes {
		if err := w.node(&nodes[i]); err != nil {
			return nil, err
		}
	}
	if v.saved != nil { // no patch has been applied since
		w.text(string(v.saved.form))
		return w, nil
	}
	var p writer
	err := p.patches(v)
	w.text(string(p))
	return w, err
}

func flagIf(flag uint64, set bool) uint64 {
	if set {
		return flag
	}
	return 0
}

type writer []byte

func (w *writer) uint(u uint64) { *w = binary.AppendUvarint(*w, u) }

func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *writer) node(n *nodeRef) error {
	if n.plain() {
		w.uint(runEvents)
		w.uint(n.seq)
		w.uint(n.more + 1)
		return nil
	}
	w.uint(runNode)
	w.uint(n.seq)
	w.uint(uint64(n.index))
	w.uint(flagIf(flagSummary, n.summary) | flagIf(flagCarries, len(n.carries) > 0) | flagIf(flagPinned, n.pinned) |
		flagIf(flagMarker, n.marker) | flagIf(flagKeep, n.keep) | flagIf(flagRevert, n.revert))
	w.uint(n.pos)
	return w.changes(n.carries)
}

// changes writes what a node carries, if it carries anything.
func (w *writer) changes(d delta) error {
	if len(d) == 0 {
		return nil
	}
	members := make(map[string]patch.Value, len(d))
	for _, c := range d {
		members[c.Key] = c.Value
	}
	object, err := patch.NewObject(members)
	if err != nil {
		return err
	}
	form, err := object.MarshalBinary()
	w.text(string(form))
	return err
}

// ParseSaved reads the binary form of a view. Whatever the bytes say, they cost time and
// memory linear in their number. The error matches [ErrOutdated] if records meant something
// else to the program that wrote the form, and [patch.ErrCorrupt] if no view has it.
func ParseSaved(data []byte) (Saved, error) {
	if len(data) == 0 {
		return Saved{}, fmt.Errorf("%w: %w", patch.ErrCorrupt, errShort)
	}
	if data[0] != meaning {
		return Saved{}, fmt.Errorf("%w: meaning %d; this program makes %d", ErrOutdated, data[0], meaning)
	}
	r := reader{rest: data[1:]}
	s := r.saved()
	if r.err != nil {
		return Saved{}, fmt.Errorf("%w: %w", patch.ErrCorrupt, r.err)
	}
	return s, nil
}

// reader reads what a writer wrote. After its first error it reads zeros.
type reader struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends too early")

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) uint() uint64 {
	if r.err != nil {
		return 0
	}
	u, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.err = errShort
		return 0
	}
	r.rest = r.rest[n:]
	return u
}

func (r *reader) text() string {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.err = errShort
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) saved() Saved {
	s := Saved{creation: r.text(), seq: r.uint(), patchSeq: r.uint(), invocation: r.text()}
	s.unknown = r.uint()&flagUnknown != 0
	skips := r.uint()
	if s.patchSeq > s.seq || skips > min(s.seq, math.MaxInt) || skips > 0 && s.patchSeq == 0 {
		r.fail("it stands at record %d with %d skipped patches and a patch %d", s.seq, skips, s.patchSeq)
	}
	s.skips = int(skips)
	pos := uint64(0) // of the last node before
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		ref := r.node()
		if !s.has(&ref) || ref.pos < pos {
			r.fail("at record %d it has a node of record %d and %d more, place %d", s.seq, ref.seq, ref.more, ref.pos)
		}
		pos = ref.pos + ref.more
		s.nodes = append(s.nodes, ref)
	}
	s.patches = []byte(r.text())
	if len(r.rest) > 0 {
		r.fail("%d bytes behind it", len(r.rest))
	}
	return s
}

// has reports whether a node of the view can be such a one.
func (s *Saved) has(n *nodeRef) bool {
	switch {
	case n.seq > s.seq || n.pos > s.seq || n.more > s.seq-n.seq:
		return false
	case n.plain():
		return true
	}
	return s.patchSeq > 0 && !(n.pinned && n.marker) && !(n.marker && n.pos == n.seq)
}

func (r *reader) node() nodeRef {
	kind := r.uint()
	n := nodeRef{seq: r.uint()}
	if n.seq == 0 {
		r.fail("a node of record 0")
	}
	switch kind {
	case runEvents:
		count := r.uint()
		if count == 0 {
			r.fail("a range of no events")
		}
		n.pos, n.more = n.seq, count-1
		return n
	case runNode:
	default:
		r.fail("a run of unknown kind %d", kind)
	}
	n.index = r.index()
	flags := r.uint()
	n.summary, n.pinned, n.marker = flags&flagSummary != 0, flags&flagPinned != 0, flags&flagMarker != 0
	n.keep, n.revert = flags&flagKeep != 0, flags&flagRevert != 0
	n.pos = r.uint()
	if flags&flagCarries != 0 {
		n.carries = r.changes()
	}
	return n
}

// index reads the place of a node among those that a record made.
func (r *reader) index() int32 {
	index := r.uint()
	if index > math.MaxInt32 {
		r.fail("a node with the index %d", index)
	}
	return int32(index)
}

// changes reads what a node carries.
func (r *reader) changes() delta {
	var object patch.Value
	if err := object.UnmarshalBinary([]byte(r.text())); err != nil {
		r.fail("what a node carries: %w", err)
	}
	members := object.Members()
	if len(members) == 0 {
		r.fail("a node carries no changes where it says that it does")
	}
	var changes delta
	for _, key := range slices.Sorted(maps.Keys(members)) {
		changes = append(changes, patch.Change{Key: key, Value: members[key]})
	}
	return changes
}
