package fold

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// Restore gives the view that a binary form was made of by [View.AppendBinary]. Creation and initial
// state are those of empty, the session's view without records ([New]); last is its log's last seq. The
// records that hold the visible events must be at hand in empty ([View.With]): a *[NeedError] names them
// if some are not, and the view with it shows nothing, and says where it stands. The error matches
// [ErrOutdated] if records meant something else to the program that wrote the form, and [patch.ErrCorrupt]
// if the bytes are no form, or that of another session or a longer log. That a form is as it was written is for
// a checksum beside it to say; of other bytes Restore may make a view that no log has, but it never panics, and
// they cost time and memory linear in their number and that of the log's records.
func Restore(empty View, form []byte, last uint64) (View, error) {
	if len(form) == 0 {
		return View{}, fmt.Errorf("%w: %w", patch.ErrCorrupt, errShort)
	}
	if form[0] != meaning {
		return View{}, fmt.Errorf("%w: meaning %d; this program makes %d", ErrOutdated, form[0], meaning)
	}
	r := reader{rest: form[1:], cuts: map[uint64]*cut{}}
	v, nodes := r.view()
	switch {
	case r.err != nil:
	case v.creation != empty.creation:
		r.fail("it is of another session, created as %q", v.creation)
	case v.seq > last:
		r.fail("it stands at record %d, but the log ends at %d", v.seq, last)
	}
	if r.err != nil {
		return View{}, fmt.Errorf("%w: %w", patch.ErrCorrupt, r.err)
	}
	v.edition, v.initial, v.outline = empty.edition, empty.initial, empty.outline
	v.held = len(v.saved.form)
	var needs []uint64
	lacks := false
	f := folding{}
	for n := range nodes.each {
		if !n.isMarker() {
			var err error
			if n.event, err = empty.hand.event(n.seq, n.index); err != nil {
				return View{}, err
			}
			needs, lacks = append(needs, n.seq), lacks || n.event == nil
			n.event = v.kept(n.event)
		}
		if c := n.carries(); len(c) > 0 {
			v.held += cutBytes + changesFootprint(c)
		}
		f.pending = append(f.pending, n)
	}
	if lacks {
		slices.Sort(needs)
		return v, &NeedError{Seqs: slices.Compact(needs)}
	}
	f.flush()
	v.nodes = f.view.nodes
	return v.fresh(), nil
}

// view reads the first part: a view without nodes, and these.
func (r *reader) view() (v View, nodes run) {
	v.creation, v.seq, v.patchSeq, v.invocation = r.text(), r.uint(), r.uint(), r.text()
	v.unknown = r.uint()&1 != 0
	if skips := r.uint(); skips > 0 {
		v.skipped = &skipList{len: int(min(skips, v.seq))} // until they are loaded
	}
	r.each(func() { r.cut(r.uint()) })
	nodes = r.run(v.seq + 1)
	place := uint64(0)
	for _, p := range nodes.pieces {
		if p.pos() < place {
			r.fail("a node of record %d at place %d, behind place %d", p.seq, p.pos(), place)
		}
		place = p.pos() + uint64(max(p.events, 1)-1)
	}
	v.pins = pins{}
	r.each(func() { v.pins[r.id(v.seq+1)] = struct{}{} })
	v.saved = &savedPatches{form: []byte(r.text()), seq: v.seq, skips: v.skipped.count(), cuts: r.cuts}
	return v, nodes
}

// savedPatches is what the patches of a restored view did, in its binary form until
// an answer needs it. Views that were made from the restored one, and no patch since, share it.
type savedPatches struct {
	form  []byte
	seq   uint64          // that the view stands at
	skips int             // how many patches were skipped
	cuts  map[uint64]*cut // those whose nodes stand; the form has the rest of them

	once    sync.Once
	loaded  View // its patches, skipped and held
	failure error
}

// load makes known to the view what all patches did. The error matches [patch.ErrCorrupt].
func (v *View) load() error {
	if v.saved == nil {
		return nil
	}
	p := v.saved
	p.once.Do(func() {
		r := reader{rest: p.form, cuts: p.cuts}
		p.loaded = p.read(&r)
		if r.err == nil && p.loaded.skipped.count() != p.skips {
			r.fail("%d skipped patches of %d", p.loaded.skipped.count(), p.skips)
		}
		if r.err != nil {
			p.failure = fmt.Errorf("%w: what patches did: %w", patch.ErrCorrupt, r.err)
		}
	})
	if p.failure != nil {
		return p.failure
	}
	v.patches, v.skipped, v.held = p.loaded.patches, p.loaded.skipped, p.loaded.held
	v.saved = nil
	return nil
}

// read reads what [writer.patches] wrote.
func (p *savedPatches) read(r *reader) (loaded View) {
	var all []*cut
	r.each(func() {
		seq := r.uint()
		c := p.cuts[seq]
		if c == nil {
			c = r.cut(seq)
		}
		if seq > p.seq || len(all) > 0 && all[len(all)-1].seq >= seq {
			r.fail("a patch at record %d", seq)
		}
		c.id, c.group = r.text(), r.text()
		if c.revert {
			target := r.uint()
			if target >= uint64(len(all)) {
				r.fail("a revert at record %d of patch %d of %d", seq, target, len(all))
				return
			}
			c.target = all[target]
		}
		if c.pin != nil {
			c.pin.node = r.id(seq)
		} else {
			c.made = int32(min(r.uint(), math.MaxInt32))
			c.out = r.run(seq)
			r.each(func() {
				of := r.uint()
				c.standIns = append(c.standIns, standIn{index: int32(of >> 1), copied: of&1 != 0, lane: lane{r.text(), r.text()}})
			})
		}
		all = append(all, c)
		loaded.patches = c.after(loaded.patches)
		loaded.held += c.footprint()
	})
	r.each(func() {
		loaded.skipped = &skipList{patch.Skip{Seq: r.uint(), Reason: patch.Flaw(r.text())}, loaded.skipped, loaded.skipped.count() + 1}
	})
	return loaded
}
