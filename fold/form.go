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

// meaning is the version of what records mean to the fold. It changes when a log can fold
// to another view than before, as when a patch type becomes known. A view that was made
// under another meaning is not to be trusted.
const meaning = 4

// Kinds of runs, which the nodes are written in.
const (
	runEvents = 0 // regular events of consecutive records: first seq, count
	runEvent  = 1 // one event: seq, index, flags, pos, what it carries
	runMarker = 2 // flags, pos, what it carries
)

// Flags of a run of one node.
const (
	flagSummary = 1
	flagCarries = 2
	flagPinned  = 4
)

const flagUnknown = 1 // of the view

// AppendBinary appends the view's binary form, which [ParseSaved] reads: all but its
// initial state and the bodies of its events. Its first byte is the version of what records
// mean. Its size depends on the visible events and on what kept cuts carry, not on what is
// hidden; a stretch of events that no patch touched takes a few bytes. The error matches
// [patch.ErrInvalid] if a state key is not UTF-8.
func (v View) AppendBinary(b []byte) ([]byte, error) {
	s := v.saved()
	w := writer(append(b, meaning))
	w.text(s.creation)
	w.uint(s.seq)
	w.uint(s.patchSeq)
	w.text(s.invocation)
	w.uint(flagIf(flagUnknown, s.unknown))
	w.uint(uint64(s.skips))
	for _, n := range s.nodes {
		if err := w.node(&n); err != nil {
			return nil, err
		}
	}
	return w, nil
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
	switch {
	case n.plain():
		w.uint(runEvents)
		w.uint(n.seq)
		w.uint(n.more + 1)
		return nil
	case n.seq == 0:
		w.uint(runMarker)
	default:
		w.uint(runEvent)
		w.uint(n.seq)
		w.uint(uint64(n.index))
	}
	w.uint(flagIf(flagSummary, n.summary) | flagIf(flagCarries, len(n.carries) > 0) | flagIf(flagPinned, n.pinned))
	w.uint(n.pos)
	if len(n.carries) == 0 {
		return nil
	}
	members := make(map[string]patch.Value, len(n.carries))
	for _, c := range n.carries {
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
	for len(r.rest) > 0 && r.err == nil {
		n := r.node()
		if !s.has(&n) || n.pos < pos {
			r.fail("at record %d it has a node of record %d and %d more, place %d", s.seq, n.seq, n.more, n.pos)
		}
		pos = n.pos + n.more
		s.nodes = append(s.nodes, n)
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
	return s.patchSeq > 0 && !(n.pinned && n.seq == 0)
}

func (r *reader) node() nodeRef {
	var n nodeRef
	kind := r.uint()
	switch kind {
	case runEvents, runEvent:
		if n.seq = r.uint(); n.seq == 0 {
			r.fail("an event of record 0")
		}
	case runMarker:
	default:
		r.fail("a run of unknown kind %d", kind)
	}
	switch kind {
	case runEvents:
		count := r.uint()
		if count == 0 {
			r.fail("a range of no events")
		}
		n.pos, n.more = n.seq, count-1
		return n
	case runEvent:
		index := r.uint()
		if index > math.MaxInt32 {
			r.fail("an event of record %d, index %d", n.seq, index)
		}
		n.index = int32(index)
	}
	flags := r.uint()
	n.summary, n.pinned = flags&flagSummary != 0, flags&flagPinned != 0
	n.pos = r.uint()
	if flags&flagCarries != 0 {
		n.carries = r.changes()
	}
	return n
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
