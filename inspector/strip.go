package inspector

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

// What a strip has at most, so that it stays small however long the log is.
const (
	stripCells   = 1000
	stripArcs    = 120
	stripMarks   = 80
	stripRegions = 60
	stripSpans   = 8       // of records, below one arc
	stripBytes   = 110_000 // of links
)

// Where things are in a strip, in pixels from its top.
const (
	stripFeet  = 88 // arcs stand here
	stripCell  = 90 // cells begin here,
	stripLow   = 108
	stripEnd   = 126 // and end here
	stripMark  = 137
	stripAxis  = 160
	stripLevel = 80 // the highest arc
)

// stripKinds are the kinds of cells, in the order of their legend.
var stripKinds = []present.Kind{present.User, present.Model, present.Call, present.Response, present.Summary, present.Patch}

// strip draws the log as it stood after a record, which is that of the view: a row of cells, one
// for each record or for several, and above them an arc from each patch to the records that it
// hid. What came after the record is faint.
func strip(t *timeline, v fold.View, point pointing) template.HTML {
	if t.last() == 0 {
		return ""
	}
	s := newLogStrip(t, v, point)
	arcs, marks, left := s.chosen()
	var d drawing
	d.put(`<figure class="drawing"><svg class="strip" width="100%%" height="%d" overflow="visible" role="group" aria-label="%s">`, stripAxis+6, s.label())
	d.put(`<svg viewBox="0 0 %d %d" preserveAspectRatio="none" width="100%%" height="%d">`, s.last, stripEnd, stripEnd)
	per := s.cells(&d)
	regions := s.regions(&d)
	levels := s.levels()
	for _, p := range arcs {
		s.arc(&d, p, levels[p.Seq])
	}
	d.put(`<line class="at" x1="%d" x2="%d" y1="0" y2="%d"/></svg>`, s.now, s.now, stripEnd)
	for _, p := range marks {
		s.mark(&d, p)
	}
	d.recordAxis(s.last, 0.5, stripAxis)
	d.put(`</svg><figcaption>`)
	s.legend(&d, per, marks)
	d.put(`<p class="hint">Tall cells are what the model sees, low ones it does not. `)
	if per > 1 {
		d.put("A cell stands for %d records: it is tall if the model sees any of them, and has the colour of most of these. ", per)
	}
	if left > 0 {
		d.put("Of the patches %d are drawn, those nearest to this point and those that hid most; %d are left out. ", len(arcs)+len(marks), left)
	}
	if regions > 0 {
		d.put("Each arc, mark and cell leads to how it stood then.")
	}
	d.put(`</p></figcaption></figure>`)
	return d.html()
}

// logStrip is a log that is drawn.
type logStrip struct {
	*timeline
	point  pointing
	last   uint64
	now    uint64          // the record after which it is shown
	seen   []bool          // by seq - 1, whether an event of the record is visible
	events int             // visible ones
	undone map[uint64]bool // patches that are taken back, by seq
}

func newLogStrip(t *timeline, v fold.View, point pointing) *logStrip {
	s := &logStrip{t, point, t.last(), v.Seq(), make([]bool, t.last()), v.Len(), t.undone(v.Seq())}
	for _, e := range v.Entries() {
		s.seen[e.Seq-1] = true
	}
	return s
}

func (s *logStrip) label() string {
	return fmt.Sprintf("The raw log: %s. After record %d, of %s the model sees %s.",
		present.Counted(s.last, "record"), s.now, present.Counted(s.now, "record"), present.Counted(s.events, "event"))
}

// kindOfCell is the kind of a record's cell: a patch that put in a summary stands for it.
func kindOfCell(s step) present.Kind {
	if s.Patch != nil && s.Patch.Applied && s.Patch.Type == patch.Summarise {
		return present.Summary
	}
	return s.Kind
}

// cells draws the records, and returns how many a cell stands for.
func (s *logStrip) cells(d *drawing) int {
	per := int(max(s.last+stripCells-1, 1) / stripCells)
	inset := 0.0
	if s.last <= 200 {
		inset = 0.08
	}
	paths := map[cell]*strings.Builder{}
	var run cell
	begin := 0
	end := func(next cell, at int) {
		if at > begin {
			path := paths[run]
			if path == nil {
				path = &strings.Builder{}
				paths[run] = path
			}
			top := stripLow
			if run.state == "seen" {
				top = stripCell
			}
			width := decimal(float64(at-begin) - 2*inset)
			fmt.Fprintf(path, "M%s %dh%sV%dh-%sz", decimal(float64(begin)+inset), top, width, stripEnd, width)
		}
		run, begin = next, at
	}
	for from := 0; from < len(s.steps); from += per {
		next := s.cell(from, min(from+per, len(s.steps)))
		if next != run || inset > 0 {
			end(next, from)
		}
	}
	end(cell{}, len(s.steps))
	for _, kind := range stripKinds {
		for _, state := range []string{"seen", "gone", "later"} {
			if path := paths[cell{kind, state}]; path != nil {
				d.put(`<path class="cell %s %s" d="%s"/>`, kind, state, path.String())
			}
		}
	}
	return per
}

// cell is what one looks like.
type cell struct {
	kind  present.Kind
	state string // "seen" if an event of its records is visible, "gone" if none is, "later" if none was logged yet
}

// cell returns that of the records with these indices. Its kind is what most of them are, or, if
// some are visible, most of those.
func (s *logStrip) cell(from, to int) cell {
	c := cell{state: "later"}
	if from < int(s.now) {
		c.state = "gone"
	}
	if slices.Contains(s.seen[from:to], true) {
		c.state = "seen"
	}
	counts := map[present.Kind]int{}
	for i := from; i < to; i++ {
		if c.state != "seen" || s.seen[i] {
			counts[kindOfCell(s.steps[i])]++
		}
	}
	c.kind = slices.MaxFunc(stripKinds, func(a, b present.Kind) int { return cmp.Compare(counts[a], counts[b]) })
	return c
}

// regions makes the cells lead to their records, or stretches of them to their last ones, and
// returns how many there are. They are not stops of the keyboard: the slider is one.
func (s *logStrip) regions(d *drawing) int {
	n := linksWithin(stripBytes/4, 180, stripRegions, s.point, s.last)
	n = int(min(uint64(n), s.last))
	for i := range n {
		from, to := s.last*uint64(i)/uint64(n), s.last*uint64(i+1)/uint64(n)
		d.put(`<a href="%s" tabindex="-1" aria-label="record %d"><title>record %d</title><rect class="region" x="%d" y="%d" width="%d" height="%d"/></a>`,
			s.point(to), to, to, from, stripCell, to-from, stripEnd-stripCell)
	}
	return n
}

// drawsArc reports whether a patch is drawn as an arc. All others are marks.
func drawsArc(p *patchStep) bool { return p.Type != patch.Revert && len(p.Over) > 0 }

// chosen returns the patches to draw, in the order of the log, and how many there are besides.
func (s *logStrip) chosen() (arcs, marks []step, left int) {
	for _, p := range s.steps {
		switch {
		case p.Patch == nil:
		case drawsArc(p.Patch):
			arcs = append(arcs, p)
		default:
			marks = append(marks, p)
		}
	}
	all := len(arcs) + len(marks)
	arcs = s.some(arcs, linksWithin(stripBytes/2, 550, stripArcs, s.point, s.last))
	marks = s.some(marks, linksWithin(stripBytes/4, 450, stripMarks, s.point, s.last))
	return arcs, marks, all - len(arcs) - len(marks)
}

// some returns n patches at most: those that hid most, up to half of n, and those nearest to the
// point that is shown.
func (s *logStrip) some(patches []step, n int) []step {
	if len(patches) <= n {
		return patches
	}
	patches = slices.Clone(patches)
	slices.SortStableFunc(patches, func(a, b step) int { return cmp.Compare(b.Patch.Hid, a.Patch.Hid) })
	rest := patches[n/2:]
	slices.SortStableFunc(rest, func(a, b step) int { return cmp.Compare(distance(a.Seq, s.now), distance(b.Seq, s.now)) })
	patches = patches[:n]
	slices.SortFunc(patches, func(a, b step) int { return cmp.Compare(a.Seq, b.Seq) })
	return patches
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// levels are how high the arcs of patches stand, by seq, as parts of the whole height: those that
// hid what another one had put in above that, and then wide ones above narrow ones.
func (s *logStrip) levels() map[uint64]float64 {
	var patches []step
	depths := map[uint64]int{}
	deepest := 1
	for _, p := range s.steps {
		if p.Patch == nil || !drawsArc(p.Patch) {
			continue
		}
		depth := 1
		for _, over := range p.Patch.Over {
			i, _ := slices.BinarySearchFunc(patches, over.From, func(p step, seq uint64) int { return cmp.Compare(p.Seq, seq) })
			for ; i < len(patches) && patches[i].Seq <= over.To; i++ {
				depth = max(depth, 1+depths[patches[i].Seq])
			}
		}
		patches, depths[p.Seq] = append(patches, p), depth
		deepest = max(deepest, depth)
	}
	levels := map[uint64]float64{}
	lanes := float64(min(deepest, 6))
	for _, p := range patches {
		lane := math.Ceil(float64(depths[p.Seq]) * lanes / float64(deepest))
		width := float64(p.Seq-leftmost(p.Patch.Over)) / float64(s.last)
		levels[p.Seq] = (lane - 1 + 0.4 + 0.6*math.Sqrt(width)) / lanes
	}
	return levels
}

func leftmost(over []span) uint64 {
	return slices.MinFunc(over, func(a, b span) int { return cmp.Compare(a.From, b.From) }).From
}

// arc draws a patch as a ribbon from its own record over each stretch of records that it hid.
func (s *logStrip) arc(d *drawing, p step, level float64) {
	kind := present.Patch
	if kindOfCell(p) == present.Summary {
		kind = present.Summary
	}
	over := p.Patch.Over
	if len(over) > stripSpans {
		over = slices.Clone(over)
		slices.SortFunc(over, func(a, b span) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
		over = over[:stripSpans]
	}
	foot := float64(p.Seq) - 0.5
	first := float64(leftmost(over) - 1)
	var path strings.Builder
	for _, o := range over {
		left, right := float64(o.From-1), float64(o.To)
		// A curve reaches three quarters of the height of its control points.
		outer := stripFeet - 4./3*stripLevel*level*math.Sqrt((foot-left)/(foot-first))
		inner := stripFeet - (stripFeet-outer)*math.Sqrt((foot-right)/(foot-left))
		fmt.Fprintf(&path, "M%[1]s %[2]dC%[1]s %[3]s %[4]s %[3]s %[4]s %[2]dH%[5]sC%[5]s %[6]s %[1]s %[6]s %[1]s %[2]dz",
			decimal(foot), stripFeet, decimal(outer), decimal(left), decimal(right), decimal(inner))
	}
	name := s.name(p)
	d.put(`<a class="arc %s %s" href="%s" aria-label="%s"><title>%s</title><path d="%s"/></a>`, kind, s.state(p), s.point(p.Seq), name, name, path.String())
}

// state is what a patch has become at the point that is shown, as a class.
func (s *logStrip) state(p step) string {
	switch {
	case p.Seq > s.now:
		return "later"
	case s.undone[p.Seq]:
		return "undone"
	}
	return "stands"
}

// glyphs are how patches are drawn that are no arcs, by their names in the legend.
var glyphs = []struct{ name, class, path string }{
	{"skipped", "skipped", "M-4-4L4 4M4-4L-4 4"},
	{"revert", "revert", "M3.5-4.5V4.5L-5 0z"},
	{"pin", "pin", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"},
	{"unpin", "unpin", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"},
	{"other patch", "other", "M0-5L5 0L0 5L-5 0z"},
}

// glyphOf is the index of the glyph that a patch is drawn with.
func glyphOf(p *patchStep) int {
	switch {
	case !p.Applied:
		return 0
	case p.Type == patch.Revert:
		return 1
	case p.Type == patch.Pin:
		return 2
	case p.Type == patch.Unpin:
		return 3
	}
	return 4
}

func (s *logStrip) mark(d *drawing, p step) {
	name := s.name(p)
	g := glyphs[glyphOf(p.Patch)]
	d.put(`<a class="mark %s" href="%s" aria-label="%s"><title>%s</title>`, s.state(p), s.point(p.Seq), name, name)
	d.glyph(percentOf(float64(p.Seq)-0.5, float64(s.last)), decimal(stripMark), g.class, g.path)
	d.put(`</a>`)
}

// name says in a line what a patch is and did.
func (s *logStrip) name(p step) string {
	text := fmt.Sprintf("record %d, %s", p.Seq, present.PrintableUpTo(string(p.Patch.Type), 40))
	if p.Patch.Target != "" {
		text += " of " + clip(p.Patch.Target, 60)
	}
	if !p.Patch.Applied {
		return text + ": skipped, " + string(p.Patch.Reason)
	}
	var did []string
	if p.Patch.Hid > 0 {
		did = append(did, fmt.Sprintf("hid %s, %s", present.Counted(p.Patch.Hid, "event"), spansText(p.Patch.Over)))
	}
	if p.Patch.Added > 0 {
		verb := "put in "
		if p.Patch.Type == patch.Revert {
			verb = "brought back "
		}
		did = append(did, verb+present.Counted(p.Patch.Added, "event"))
	}
	if len(did) > 0 {
		text += ": " + strings.Join(did, "; ")
	}
	if p.Seq <= s.now && s.undone[p.Seq] {
		text += "; taken back since"
	}
	return text
}

// spansText says which records spans are, the first of them at least.
func spansText(over []span) string {
	var texts []string
	for i, o := range over {
		switch {
		case i == 3:
			return "records " + strings.Join(texts, ", ") + " and " + fmt.Sprint(len(over)-i) + " more stretches"
		case o.From == o.To:
			texts = append(texts, fmt.Sprint(o.From))
		default:
			texts = append(texts, fmt.Sprintf("%d to %d", o.From, o.To))
		}
	}
	noun := "records "
	if len(over) == 1 && over[0].From == over[0].To {
		noun = "record "
	}
	return noun + strings.Join(texts, ", ")
}

// legend says which kinds there are, how many records are of each, and what marks mean.
func (s *logStrip) legend(d *drawing, per int, marks []step) {
	counts := map[present.Kind]int{}
	for _, p := range s.steps {
		counts[kindOfCell(p)]++
	}
	d.put(`<ul class="legend">`)
	for _, kind := range stripKinds {
		if n := counts[kind]; n > 0 {
			d.put(`<li><svg width="12" height="12" aria-hidden="true"><rect class="cell %s" width="12" height="12"/></svg> %s <span class="soft">%d</span></li>`, kind, kind, n)
		}
	}
	for i, g := range glyphs {
		if slices.ContainsFunc(marks, func(p step) bool { return glyphOf(p.Patch) == i }) {
			d.put(`<li><svg class="mark" width="12" height="12" aria-hidden="true">`)
			d.glyph("6", "6", g.class, g.path)
			d.put(`</svg> %s</li>`, g.name)
		}
	}
	if len(s.undone) > 0 {
		d.put(`<li><svg class="undone" width="20" height="12" aria-hidden="true"><path class="sample" d="M1 11C1-3 19-3 19 11"/></svg> taken back</li>`)
	}
	d.put(`</ul>`)
}
