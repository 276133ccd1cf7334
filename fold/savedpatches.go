package fold

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// savedPatches is what the patches of a restored view did, in its binary form until
// an answer needs it. Views that were made from the restored one, and no patch since, share it.
type savedPatches struct {
	form []byte
	seq  uint64          // that the view stands at
	cuts map[uint64]*cut // by seq; until all are known, those whose nodes stand, which know what these show

	once    sync.Once
	known   View // its patches, skipped, receipts, hidden pins and held
	failure error
}

// load makes known to the view what all patches did. The error matches [patch.ErrCorrupt].
func (v *View) load() error {
	if v.saved == nil {
		return nil
	}
	p := v.saved
	p.once.Do(func() {
		r := reader{rest: p.form}
		p.known = p.read(&r)
		if r.err == nil && (len(r.rest) > 0 || p.known.skipped.count() != v.skipped.count()) {
			r.fail("%d bytes behind %d skipped patches", len(r.rest), p.known.skipped.count())
		}
		if r.err != nil {
			p.failure = fmt.Errorf("%w: what patches did: %w", patch.ErrCorrupt, r.err)
		}
	})
	if p.failure != nil {
		return p.failure
	}
	v.patches, v.skipped, v.receipts, v.held = p.known.patches, p.known.skipped, p.known.receipts, p.known.held
	if len(p.known.pins) > 0 {
		all := maps.Clone(p.known.pins)
		maps.Copy(all, v.pins)
		v.pins = all
	}
	v.saved = nil
	return nil
}

// Flags of a patch.
const (
	cutKeep = 1 << iota
	cutPuts
	cutSplice
	cutRevert
	cutWordless
	cutPin    // of a pin, an unpin, or the revert of one
	cutPinned // and what it is about is pinned then
	cutCarries
)

// Kinds of pieces of a run.
const (
	pieceEvents  = iota // regular events of consecutive records: first seq, count
	pieceEvent          // an event that a patch put in: seq, index
	pieceSummary        // likewise, by a summarise
	pieceMarker         // seq
)

// patches writes what patches did: the patches that were applied, the receipts of erasures, the
// patches that were skipped, and the pinned nodes that do not stand.
func (w *writer) patches(v View) error {
	cuts := v.patches.ascending()
	place := make(map[*cut]int, len(cuts))
	standing := map[nodeID]bool{}
	for n := range v.root.all {
		if n.cut != nil || v.pins.has(n.id()) {
			standing[n.id()] = true
		}
	}
	w.uint(uint64(len(cuts)))
	for i, c := range cuts {
		place[c] = i
		var carries delta
		if !standing[nodeID{c.seq, 0}] {
			carries = c.carries
		}
		w.uint(c.seq)
		w.uint(flagIf(cutKeep, c.keep) | flagIf(cutPuts, c.puts) | flagIf(cutSplice, c.splice) | flagIf(cutRevert, c.revert) |
			flagIf(cutWordless, c.wordless) | flagIf(cutPin, c.pin != nil) | flagIf(cutPinned, c.pin != nil && c.pin.pinned) | flagIf(cutCarries, len(carries) > 0))
		w.text(c.id)
		w.text(c.group)
		if c.revert {
			w.uint(uint64(place[c.target]))
		}
		if c.pin != nil {
			w.id(c.pin.node)
			continue
		}
		w.uint(c.pos)
		w.uint(uint64(c.made))
		w.run(c.out)
		if err := w.changes(carries); err != nil {
			return err
		}
		w.uint(uint64(len(c.standIns)))
		for _, s := range c.standIns {
			w.uint(uint64(s.index)<<1 | flagIf(1, s.copied))
			w.text(s.branch)
			w.text(s.scope)
		}
	}
	w.receipts(v.receipts)
	w.skips(v.skipped)
	var hidden []nodeID
	for id := range v.pins {
		if !standing[id] {
			hidden = append(hidden, id)
		}
	}
	slices.SortFunc(hidden, nodeID.compare)
	w.uint(uint64(len(hidden)))
	for _, id := range hidden {
		w.id(id)
	}
	return nil
}

func (w *writer) id(id nodeID) {
	w.uint(id.seq)
	w.uint(uint64(id.index))
}

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

func (w *writer) receipts(r *receipt) {
	var ids []string
	for ; r != nil; r = r.older {
		ids = append(ids, r.id)
	}
	w.uint(uint64(len(ids)))
	for _, id := range slices.Backward(ids) {
		w.text(id)
	}
}

func (w *writer) skips(l *skipList) {
	w.uint(uint64(l.count()))
	for _, s := range l.ascending() {
		w.uint(s.Seq)
		w.text(string(s.Reason))
	}
}

// read reads what [writer.patches] wrote.
func (p *savedPatches) read(r *reader) (known View) {
	var cuts []*cut
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		c := p.cut(r, cuts)
		if len(cuts) > 0 && cuts[len(cuts)-1].seq >= c.seq || c.seq > p.seq {
			r.fail("a patch at record %d", c.seq)
		}
		cuts = append(cuts, c)
		known.patches = c.after(known.patches)
		known.held += c.footprint()
	}
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		known.receipts = &receipt{r.text(), known.receipts}
	}
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		known.skipped = &skipList{patch.Skip{Seq: r.uint(), Reason: patch.Flaw(r.text())}, known.skipped, known.skipped.count() + 1}
	}
	known.pins = pins{}
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		known.pins[r.id()] = struct{}{}
	}
	return known
}

func (r *reader) id() nodeID { return nodeID{r.uint(), r.index()} }

// cut reads what a patch did. before are the patches before it.
func (p *savedPatches) cut(r *reader, before []*cut) *cut {
	seq, flags := r.uint(), r.uint()
	c, stands := p.cuts[seq], true
	if c == nil {
		c, stands = &cut{seq: seq, keep: flags&cutKeep != 0, revert: flags&cutRevert != 0}, false
		p.cuts[seq] = c
	}
	c.puts, c.splice, c.wordless = flags&cutPuts != 0, flags&cutSplice != 0, flags&cutWordless != 0
	c.id, c.group = r.text(), r.text()
	if flags&cutRevert != 0 {
		i := r.uint()
		if i >= uint64(len(before)) {
			r.fail("a revert at record %d of patch %d of %d", seq, i, len(before))
			return c
		}
		c.target = before[i]
	}
	if flags&cutPin != 0 {
		c.pin = &pinChange{r.id(), flags&cutPinned != 0}
		return c
	}
	if pos := r.uint(); !stands { // else readers of its nodes look at it
		c.pos = pos
	}
	c.made = r.index()
	c.out = p.run(r, c.seq)
	if flags&cutCarries != 0 {
		if carries := r.changes(); c.keep && c.carries == nil {
			c.carries = carries
		}
	}
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		of := r.uint()
		c.standIns = append(c.standIns, standIn{index: int32(of >> 1), copied: of&1 != 0, lane: lane{r.text(), r.text()}})
	}
	return c
}

// run reads what the patch at a record took out: nodes of records before it.
func (p *savedPatches) run(r *reader, before uint64) run {
	out := run{pieces: []piece{}}
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		kind := r.uint()
		of := piece{node: node{seq: r.uint()}, events: 1}
		switch kind {
		case pieceEvents:
			count := r.uint()
			if count == 0 || of.seq == 0 || of.seq >= before || count > before-of.seq {
				r.fail("%d events from record %d on", count, of.seq)
				return run{}
			}
			of.events = int(min(count, math.MaxInt32))
		case pieceEvent, pieceSummary:
			of.index, of.summary = r.index(), kind == pieceSummary
		case pieceMarker:
			of.events = 0
		default:
			r.fail("a piece of unknown kind %d", kind)
		}
		if kind != pieceEvents {
			if of.cut = p.cuts[of.seq]; of.cut == nil || of.seq >= before {
				r.fail("a node of record %d, which is no patch", of.seq)
			}
		}
		out.pieces = append(out.pieces, of)
	}
	return out
}
