package inspector

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

// What a drawing has at most, so that it stays small however long the log is.
const (
	drawnCells  = 1000
	drawnArcs   = 100
	drawnTicks  = 600
	drawnPoints = 500
	drawnBytes  = 80_000 // of links
)

// Where things are in a drawing, in pixels from its top.
const (
	arcFeet  = 80 // arcs stand here
	cellTop  = 82 // cells of what the model sees begin here,
	cellLow  = 100
	cellEnd  = 118 // and all end here
	sizeTop  = 146 // curves of sizes are between here
	sizeFoot = 216
)

// cellKinds are the kinds of cells, in the order of their legend.
var cellKinds = []present.Kind{present.User, present.Model, present.Call, present.Response, present.Summary, present.Patch}

// drawing is a log that is drawn, from its first record at the left to its last: an arc from each patch to the
// records that it hid, a cell for each record or for several, and below them how large the log and its visible part
// were. It has the state after one record; what came later is faint.
type drawing struct {
	Label     string
	Last, Now uint64
	Cells     []drawnCell
	Arcs      []drawnPatch
	Ticks     string // a path of the other patches
	Left      int    // the number of patches in Ticks
	Per       int    // records that a cell stands for
	Raw       string // paths of sizes in tokens
	Visible   string
	Most      string // the size at the upper edge
	Legend    []legendEntry
}

// drawnCell is a path of all cells of a kind and a state.
type drawnCell struct {
	Kind  present.Kind
	State string // "seen" if the model sees an event of its records, "gone" if it sees none, "later" if none was logged yet
	Path  string
}

// drawnPatch is a patch that is drawn as an arc.
type drawnPatch struct {
	Class, Name string
	URL         template.URL
	Path        string
}

type legendEntry struct {
	Kind present.Kind
	N    int
}

// newDrawing draws the log as it stood after the view's record. point says where a patch leads to.
func newDrawing(t *timeline, v fold.View, point func(seq uint64) template.URL) *drawing {
	if t.last() == 0 {
		return nil
	}
	d := &drawing{Last: t.last(), Now: v.Seq(), Per: int((t.last() + drawnCells - 1) / drawnCells)}
	d.Label = fmt.Sprintf("The raw log: %s. After record %d, of %s the model sees %s.",
		present.Counted(d.Last, "record"), d.Now, present.Counted(d.Now, "record"), present.Counted(v.Len(), "event"))
	seen := make([]bool, d.Last)
	for _, e := range v.Entries() {
		seen[e.Seq-1] = true
	}
	d.drawCells(t, seen)
	d.drawPatches(t, point)
	d.drawSizes(t)
	return d
}

// kindOfCell is the kind of a record's cell: a patch of compaction, or one that put in a summary, stands for one.
func kindOfCell(s step) present.Kind {
	if p := s.Patch; p != nil && p.Applied && (p.Type == patch.Summarise || p.Pass != nil) {
		return present.Summary
	}
	return s.Kind
}

func (d *drawing) drawCells(t *timeline, seen []bool) {
	paths := map[drawnCell]*strings.Builder{}
	for from := 0; from < len(t.steps); {
		c, to := d.cell(t, seen, from), from
		for to < len(t.steps) && d.cell(t, seen, to) == c {
			if to += d.Per; d.Last <= 200 {
				break // cells that are wide enough stand apart
			}
		}
		to = min(to, len(t.steps))
		top := cellLow
		if c.State == "seen" {
			top = cellTop
		}
		if paths[c] == nil {
			paths[c] = &strings.Builder{}
		}
		fmt.Fprintf(paths[c], "M%d %dH%sV%dH%dz", from, top, decimal(float64(to)-map[bool]float64{true: 0.1}[d.Last <= 200]), cellEnd, from)
		from = to
	}
	counts := map[present.Kind]int{}
	for _, s := range t.steps {
		counts[kindOfCell(s)]++
	}
	for _, kind := range cellKinds {
		for _, state := range []string{"seen", "gone", "later"} {
			if path := paths[drawnCell{Kind: kind, State: state}]; path != nil {
				d.Cells = append(d.Cells, drawnCell{kind, state, path.String()})
			}
		}
		if n := counts[kind]; n > 0 {
			d.Legend = append(d.Legend, legendEntry{kind, n})
		}
	}
}

// cell returns what the cell of the records from one on looks like. Its kind is what most of them are, or, if
// some are visible, most of those.
func (d *drawing) cell(t *timeline, seen []bool, from int) drawnCell {
	to := min(from+d.Per, len(t.steps))
	c := drawnCell{State: "later"}
	if from < int(d.Now) {
		c.State = "gone"
	}
	if slices.Contains(seen[from:to], true) {
		c.State = "seen"
	}
	counts := map[present.Kind]int{}
	for n := from; n < to; n++ {
		if c.State != "seen" || seen[n] {
			counts[kindOfCell(t.steps[n])]++
		}
	}
	c.Kind = slices.MaxFunc(cellKinds, func(a, b present.Kind) int { return cmp.Compare(counts[a], counts[b]) })
	return c
}

// drawPatches draws those that hid most, and those nearest to the record that is shown, as arcs, and the others as
// ticks.
func (d *drawing) drawPatches(t *timeline, point func(seq uint64) template.URL) {
	undone := t.undone(d.Now)
	var arcs, ticks []step
	for _, s := range t.steps {
		switch {
		case s.Patch == nil:
		case s.Patch.Type != patch.Revert && len(s.Patch.Over) > 0:
			arcs = append(arcs, s)
		default:
			ticks = append(ticks, s)
		}
	}
	each := len(template.HTMLEscapeString(string(point(d.Last)))) + 400
	arcs, left := d.some(arcs, min(drawnArcs, drawnBytes/each))
	ticks = append(ticks, left...)
	for _, s := range arcs {
		p := d.patch(s, undone, point)
		foot := float64(s.Seq) - 0.5
		low, high := s.Patch.Over[0].From, s.Patch.Over[0].To
		for _, o := range s.Patch.Over {
			low, high = min(low, o.From), max(high, o.To)
		}
		// A curve reaches three quarters of the height of its control points.
		height := 4. / 3 * (arcFeet - 4) * math.Sqrt((foot-float64(low)+1)/float64(d.Last))
		inner := height * math.Sqrt(max(foot-float64(high), 0)/(foot-float64(low)+1))
		p.Path = fmt.Sprintf("M%[1]s %[2]dC%[1]s %[3]s %[4]d %[3]s %[4]d %[2]dH%[5]dC%[5]d %[6]s %[1]s %[6]s %[1]s %[2]dz",
			decimal(foot), arcFeet, decimal(arcFeet-height), low-1, high, decimal(arcFeet-inner))
		d.Arcs = append(d.Arcs, p)
	}
	drawn := map[uint64]bool{}
	var path strings.Builder
	for _, s := range ticks {
		if place := s.Seq * drawnTicks / d.Last; !drawn[place] {
			fmt.Fprintf(&path, "M%d %dv6", s.Seq, cellEnd+2)
			drawn[place] = true
		}
	}
	d.Ticks, d.Left = path.String(), len(ticks)
}

// some returns n patches at most, half of them those that hid most, and the others; both in the order of the log.
func (d *drawing) some(patches []step, n int) (chosen, others []step) {
	if len(patches) <= n {
		return patches, nil
	}
	bySeq := func(a, b step) int { return cmp.Compare(a.Seq, b.Seq) }
	distance := func(s step) uint64 { return max(s.Seq, d.Now) - min(s.Seq, d.Now) }
	slices.SortStableFunc(patches, func(a, b step) int { return cmp.Compare(b.Patch.Hid, a.Patch.Hid) })
	slices.SortStableFunc(patches[n/2:], func(a, b step) int { return cmp.Compare(distance(a), distance(b)) })
	slices.SortFunc(patches[:n], bySeq)
	slices.SortFunc(patches[n:], bySeq)
	return patches[:n], patches[n:]
}

// patch is a patch with what it has become at the record that is shown.
func (d *drawing) patch(s step, undone map[uint64]bool, point func(seq uint64) template.URL) drawnPatch {
	state := "stands"
	switch {
	case s.Seq > d.Now:
		state = "later"
	case undone[s.Seq]:
		state = "undone"
	}
	return drawnPatch{Class: string(kindOfCell(s)) + " " + state, Name: s.Patch.name(s.Seq, state == "undone"), URL: point(s.Seq)}
}

// name says in a line what a patch is and did.
func (p *patchStep) name(seq uint64, undone bool) string {
	text := fmt.Sprintf("record %d, %s", seq, present.PrintableUpTo(string(p.Type), 40))
	if p.Pass != nil {
		text = fmt.Sprintf("record %d, compaction by %s", seq, present.PrintableUpTo(string(p.Pass.Trigger), 40))
	}
	if p.Target != "" {
		text += " of " + clip(p.Target, 60)
	}
	if !p.Applied {
		return text + ": skipped, " + string(p.Reason)
	}
	var did []string
	if p.Hid > 0 {
		did = append(did, "hid "+present.Counted(p.Hid, "event"))
	}
	if p.Added > 0 {
		verb := "put in "
		if p.Type == patch.Revert {
			verb = "brought back "
		}
		did = append(did, verb+present.Counted(p.Added, "event"))
	}
	if len(did) > 0 {
		text += ": " + strings.Join(did, "; ")
	}
	if undone {
		text += "; taken back since"
	}
	return text
}

// drawSizes draws the tokens that were logged, and those that are visible, after each record.
func (d *drawing) drawSizes(t *timeline) {
	most := 1
	for _, s := range t.steps {
		most = max(most, s.Raw, s.Visible)
	}
	d.Most = present.Grouped(most)
	curve := func(size func(step) int) string {
		var path strings.Builder
		y := func(size int) string {
			return decimal(sizeFoot - (sizeFoot-sizeTop)*float64(size)/float64(most))
		}
		fmt.Fprintf(&path, "M0 %d", sizeFoot)
		per := max(1, 2*len(t.steps)/drawnPoints)
		for some := range slices.Chunk(t.steps, per) { // of each stretch the least and the greatest, in order
			bySize := func(a, b step) int { return cmp.Compare(size(a), size(b)) }
			one, other := slices.MinFunc(some, bySize), slices.MaxFunc(some, bySize)
			if one.Seq > other.Seq {
				one, other = other, one
			}
			fmt.Fprintf(&path, "L%d %s", one.Seq, y(size(one)))
			if other.Seq != one.Seq {
				fmt.Fprintf(&path, "L%d %s", other.Seq, y(size(other)))
			}
		}
		end := t.steps[len(t.steps)-1]
		fmt.Fprintf(&path, "L%d %s", end.Seq, y(size(end)))
		return path.String()
	}
	d.Raw, d.Visible = curve(func(s step) int { return s.Raw }), curve(func(s step) int { return s.Visible })
}

// decimal is a number with up to two decimals.
func decimal(x float64) string { return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) }
