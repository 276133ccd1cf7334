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

// formVersion is the version of the binary form and of the fold. It changes when the same log can fold to
// another view, for example when a patch type is added. A form of another version is outdated.
const formVersion = 1

// AppendBinary appends the view's binary form, which [Restore] reads. The form does not contain the initial
// state or the events. A series of adjacent events without patches takes a few bytes. If a state key is not
// UTF-8, the error matches [patch.ErrInvalid].
//
// The first byte is the version. Two parts follow. The second part is decoded only when it is needed. The first
// part contains
//
//	creation, seq, seq of the newest patch, invocation, 1 if a patch of unknown type was skipped,
//	the number of skipped patches, the cuts of nodes in the sequence, the nodes, the pinned nodes
//
// The second part contains all applied patches and the skipped patches.
func (v View) AppendBinary(b []byte) ([]byte, error) {
	nodes := v.nodes.runOf(0, v.nodes.len())
	w := writer{form: append(slices.Grow(b, 64), formVersion)}
	w.text(v.creation)
	w.uint(v.seq)
	w.uint(v.patchSeq)
	w.text(v.invocation)
	w.uint(flagIf(1, v.hasUnknownPatch))
	w.uint(uint64(v.skipped.count()))
	w.cuts(nodes)
	w.run(nodes)
	w.uint(uint64(len(v.pins)))
	for _, id := range slices.SortedFunc(maps.Keys(v.pins), nodeID.compare) {
		w.id(id)
	}
	patches := writer{written: w.written}
	if v.unloaded == nil {
		patches.patches(v)
	} else { // no patch was applied after the view was restored
		patches.form = v.unloaded.form
	}
	w.text(string(patches.form))
	return w.form, errors.Join(w.err, patches.err)
}

// writer writes a form. After an error, its output is invalid.
type writer struct {
	form    []byte
	written map[uint64]bool // seqs of the cuts written so far
	err     error
}

func (w *writer) uint(u uint64) { w.form = binary.AppendUvarint(w.form, u) }

func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	w.form = append(w.form, s...)
}

func (w *writer) id(id nodeID) {
	w.uint(id.seq)
	w.uint(uint64(id.index))
}

const (
	flagKeepsState = 1 << iota
	flagAddsEvents
	flagIsSplice
	flagIsRevert
	flagIsCompactionCut
	flagPin    // the patch is a pin, an unpin, or the revert of either
	flagPinned // the event is pinned after the patch
	flagCarriedDelta
)

func flagIf(flag uint64, set bool) uint64 {
	if set {
		return flag
	}
	return 0
}

// cuts writes the cuts of a run's nodes, except cuts that are already written.
func (w *writer) cuts(of run) {
	var cuts []*cut
	for _, p := range of.pieces {
		if p.cut != nil && !w.written[p.seq] {
			if w.written == nil {
				w.written = map[uint64]bool{}
			}
			w.written[p.seq] = true
			cuts = append(cuts, p.cut)
		}
	}
	w.uint(uint64(len(cuts)))
	for _, c := range cuts {
		w.cut(c)
	}
}

// cut writes the fields of a cut that its nodes need.
func (w *writer) cut(c *cut) {
	w.uint(c.seq)
	w.uint(flagIf(flagKeepsState, c.keepsState) | flagIf(flagAddsEvents, c.addsEvents) | flagIf(flagIsSplice, c.isSplice) | flagIf(flagIsRevert, c.isRevert) |
		flagIf(flagIsCompactionCut, c.isCompactionCut) | flagIf(flagPin, c.pin != nil) | flagIf(flagPinned, c.pin != nil && c.pin.pinned) | flagIf(flagCarriedDelta, len(c.carriedDelta) > 0))
	w.uint(c.pos)
	if len(c.carriedDelta) == 0 {
		return
	}
	members := make(map[string]patch.Value, len(c.carriedDelta))
	for _, change := range c.carriedDelta {
		members[change.Key] = change.Value
	}
	object, err := patch.NewValue(members)
	if err == nil {
		var form []byte
		form, err = object.MarshalBinary()
		w.text(string(form))
	}
	w.err = errors.Join(w.err, err)
}

// Kinds of pieces of a run. Each comment lists the fields that follow.
const (
	pieceEvents  = iota // regular events of consecutive records: first seq, count
	pieceEvent          // an event that a patch added: seq, index
	pieceSummary        // a summary event that a summarise added: seq, index
	pieceMarker         // seq
)

func (w *writer) run(r run) {
	w.uint(uint64(len(r.pieces)))
	for _, p := range r.pieces {
		switch {
		case p.events == 0:
			w.uint(pieceMarker)
			w.uint(p.seq)
		case p.cut == nil:
			w.uint(pieceEvents)
			w.uint(p.seq)
			w.uint(uint64(p.events))
		default:
			w.uint(pieceEvent + flagIf(pieceSummary-pieceEvent, p.summary))
			w.id(p.id())
		}
	}
}

// patches writes the second part.
func (w *writer) patches(v View) {
	cuts := v.patches.ascending()
	w.uint(uint64(len(cuts)))
	for _, c := range cuts {
		if w.written[c.seq] {
			w.uint(c.seq)
		} else {
			w.cut(c)
		}
		w.text(c.id)
		w.text(c.group)
		if c.isRevert {
			w.uint(uint64(c.target.count - 1))
		}
		if c.pin != nil {
			w.id(c.pin.node)
			continue
		}
		w.uint(uint64(c.nodeCount))
		w.run(c.removed)
		w.uint(uint64(len(c.standIns)))
		for _, s := range c.standIns {
			w.uint(uint64(s.index)<<1 | flagIf(1, s.copied))
			w.text(s.branch)
			w.text(s.scope)
		}
	}
	w.uint(uint64(v.skipped.count()))
	for _, s := range v.skipped.ascending() {
		w.uint(s.Seq)
		w.text(string(s.Reason))
	}
}

// reader reads the output of a writer. After an error, it returns zero values.
type reader struct {
	rest []byte
	cuts map[uint64]*cut // key: seq
	err  error
}

var errTruncated = errors.New("unexpected end")

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
		r.err = errTruncated
		return 0
	}
	r.rest = r.rest[n:]
	return u
}

func (r *reader) text() string {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.err = errTruncated
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

// id reads the id of a node. It fails unless the seq of the node's record is less than the given seq.
func (r *reader) id(before uint64) nodeID {
	id := nodeID{seq: r.uint()}
	index := r.uint()
	if id.seq == 0 || id.seq >= before || index > math.MaxInt32 {
		r.fail("invalid node %d of record %d, before record %d", index, id.seq, before)
	}
	id.index = int32(index)
	return id
}

// repeat reads a count, and calls read that many times.
func (r *reader) repeat(read func()) {
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		read()
	}
}

// cut reads the cut of the patch with the given seq.
func (r *reader) cut(seq uint64) *cut {
	flags := r.uint()
	has := func(flag uint64) bool { return flags&flag != 0 }
	c := &cut{seq: seq, pos: r.uint(), keepsState: has(flagKeepsState), addsEvents: has(flagAddsEvents), isSplice: has(flagIsSplice), isRevert: has(flagIsRevert), isCompactionCut: has(flagIsCompactionCut)}
	if has(flagPin) {
		c.pin = &pinChange{pinned: has(flagPinned)}
	}
	if c.pos >= seq || r.cuts[seq] != nil {
		r.fail("invalid patch at record %d, with position %d", seq, c.pos)
	}
	r.cuts[seq] = c
	if has(flagCarriedDelta) {
		c.carriedDelta = r.changes()
	}
	return c
}

func (r *reader) changes() (changes delta) {
	var object patch.Value
	if err := object.UnmarshalBinary([]byte(r.text())); err != nil {
		r.fail("delta of a node: %w", err)
	}
	members := object.Members()
	for _, key := range slices.Sorted(maps.Keys(members)) {
		changes = append(changes, patch.Change{Key: key, Value: members[key]})
	}
	return changes
}

// run reads a run. It fails unless the seqs of the nodes' records are less than the given seq.
func (r *reader) run(before uint64) (out run) {
	r.repeat(func() {
		var p piece
		kind := r.uint()
		switch kind {
		case pieceEvents:
			p.seq, p.events = r.uint(), 1
			count := r.uint()
			if count == 0 || p.seq == 0 || p.seq >= before || count > min(before-p.seq, math.MaxInt) {
				r.fail("invalid range of %d events from record %d on, before record %d", count, p.seq, before)
			}
			p.events = int(count)
		case pieceEvent, pieceSummary:
			id := r.id(before)
			p = piece{node: node{seq: id.seq, index: id.index, summary: kind == pieceSummary}, events: 1}
		case pieceMarker:
			p.seq = r.uint()
		default:
			r.fail("piece of unknown kind %d", kind)
		}
		if kind != pieceEvents {
			if p.cut = r.cuts[p.seq]; p.cut == nil || p.cut.addsEvents != (kind != pieceMarker) || p.seq >= before {
				r.fail("invalid node of record %d, before record %d", p.seq, before)
			}
		}
		out.pieces = append(out.pieces, p)
	})
	return out
}
