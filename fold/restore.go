package fold

import (
	"fmt"
	"math"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// Restore returns the view of a binary form that [View.AppendBinary] wrote. The argument empty is the result
// of [New] for the session's creation id and initial state. The argument last is the last seq of the log.
//
// The caller must supply the records of the visible events, by calling [View.WithRecords] on the argument
// empty. If some of these records are missing, the error is a *[MissingRecordsError] that names all of them.
// The resulting view then has the correct Seq but no events. If the form has another version, the error
// matches [ErrOutdated]. If the form is malformed, or belongs to another session or to a longer log, the error
// matches [patch.ErrCorrupt].
//
// The caller must protect the form with a checksum, because Restore may make a wrong view from changed bytes.
// Restore never panics. It takes time and memory linear in the size of the form and in the number of the log's
// records.
func Restore(empty View, form []byte, last uint64) (View, error) {
	if len(form) == 0 {
		return View{}, fmt.Errorf("%w: %w", patch.ErrCorrupt, errTruncated)
	}
	if form[0] != formVersion {
		return View{}, fmt.Errorf("%w: version %d; this program supports version %d", ErrOutdated, form[0], formVersion)
	}
	r := reader{rest: form[1:], cuts: map[uint64]*cut{}}
	v, nodes := r.view()
	switch {
	case r.err != nil:
	case v.creation != empty.creation:
		r.fail("the view belongs to another session, with creation id %q", v.creation)
	case v.seq > last:
		r.fail("the view ends at record %d, but the log ends at record %d", v.seq, last)
	}
	if r.err != nil {
		return View{}, fmt.Errorf("%w: %w", patch.ErrCorrupt, r.err)
	}
	v.edition, v.initial, v.initialBytes = empty.edition, empty.initial, empty.initialBytes
	v.patchBytes = len(v.unloaded.form)
	var missing missingRecords
	f := applier{}
	for n := range nodes.each {
		if !n.isMarker() {
			var err error
			if n.event, err = missing.event(empty.supplied, n.id()); err != nil {
				return View{}, err
			}
		}
		if c := n.carriedDelta(); len(c) > 0 {
			v.patchBytes += cutBytes + changesFootprint(c)
		}
		f.pending = append(f.pending, n)
	}
	if err := missing.errorUpTo(v.seq); err != nil {
		return v, err
	}
	f.flush()
	v.nodes = f.view.nodes
	return v.withNewCaches(), nil
}

// view reads the first part of the form: the view without its nodes, and the nodes.
func (r *reader) view() (v View, nodes run) {
	v.creation, v.seq, v.patchSeq, v.invocation = r.text(), r.uint(), r.uint(), r.text()
	v.hasUnknownPatch = r.uint()&1 != 0
	if skips := r.uint(); skips > 0 {
		v.skipped = &skipList{len: int(min(skips, v.seq))} // only the count, until [View.load]
	}
	r.repeat(func() { r.cut(r.uint()) })
	nodes = r.run(v.seq + 1)
	lastPos := uint64(0)
	for _, p := range nodes.pieces {
		if p.pos() < lastPos {
			r.fail("invalid node of record %d: its position %d is before the previous position %d", p.seq, p.pos(), lastPos)
		}
		lastPos = p.pos() + uint64(max(p.events, 1)-1)
	}
	v.pins = pins{}
	r.repeat(func() { v.pins[r.id(v.seq+1)] = struct{}{} })
	v.unloaded = &unloadedPatches{form: []byte(r.text()), seq: v.seq, skips: v.skipped.count(), cuts: r.cuts}
	return v, nodes
}

// unloadedPatches contains the effects of a restored view's patches in binary form, until they are needed.
// Views that are made by appending events share it.
type unloadedPatches struct {
	form  []byte
	seq   uint64          // seq of the restored view
	skips int             // number of skipped patches
	cuts  map[uint64]*cut // cuts with nodes in the sequence; form contains their other fields

	once   sync.Once
	loaded View // only patches, skipped and patchBytes are set
	err    error
}

// load decodes the effects of all patches. The error matches [patch.ErrCorrupt].
func (v *View) load() error {
	if v.unloaded == nil {
		return nil
	}
	p := v.unloaded
	p.once.Do(func() {
		r := reader{rest: p.form, cuts: p.cuts}
		p.loaded = p.read(&r)
		if r.err == nil && p.loaded.skipped.count() != p.skips {
			r.fail("%d skipped patches, want %d", p.loaded.skipped.count(), p.skips)
		}
		if r.err != nil {
			p.err = fmt.Errorf("%w: effects of patches: %w", patch.ErrCorrupt, r.err)
		}
	})
	if p.err != nil {
		return p.err
	}
	v.patches, v.skipped, v.patchBytes = p.loaded.patches, p.loaded.skipped, p.loaded.patchBytes
	v.unloaded = nil
	return nil
}

// read reads the output of [writer.patches].
func (p *unloadedPatches) read(r *reader) (loaded View) {
	var all []*cut
	r.repeat(func() {
		seq := r.uint()
		c := p.cuts[seq]
		if c == nil {
			c = r.cut(seq)
		}
		if seq > p.seq || len(all) > 0 && all[len(all)-1].seq >= seq {
			r.fail("patches out of order at record %d", seq)
		}
		c.id, c.group = r.text(), r.text()
		if c.isRevert {
			target := r.uint()
			if target >= uint64(len(all)) {
				r.fail("the revert at record %d has target %d of %d patches", seq, target, len(all))
				return
			}
			c.target = all[target]
		}
		if c.pin != nil {
			c.pin.node = r.id(seq)
		} else {
			c.nodeCount = int32(min(r.uint(), math.MaxInt32))
			c.removed = r.run(seq)
			r.repeat(func() {
				packed := r.uint()
				c.standIns = append(c.standIns, standIn{index: int32(packed >> 1), copied: packed&1 != 0, lane: lane{r.text(), r.text()}})
			})
		}
		all = append(all, c)
		loaded.patches = c.prependTo(loaded.patches)
		loaded.patchBytes += c.footprint()
	})
	r.repeat(func() {
		loaded.skipped = &skipList{patch.Skip{Seq: r.uint(), Reason: patch.Flaw(r.text())}, loaded.skipped, loaded.skipped.count() + 1}
	})
	return loaded
}
