package inspector

import (
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
)

// Sizes in units of the picture.
const (
	pictureWidth = 1376.0
	cellWidth    = 2.2 // minimum width of a cell; narrower cells are merged
	funnelWidth  = 1.5 // minimum width of a funnel; narrow adjacent funnels are merged
	turnGap      = 34  // minimum distance between the numbers of turns
	turnGapPhone = 130
)

// picture shows the raw log above the visible log. Each event is a cell whose width grows with its tokens.
// Funnels lead from hidden events of the raw log to the visible events that represent them.
type picture struct {
	Label      string
	RawLog     []cell // cells of the raw log
	Visible    []cell // cells of the visible log
	Funnels    []funnel
	Turns      []turnTick
	Now        float64 // position of the shown record
	VisibleEnd float64 // right end of the visible log, in percent
	Margin     float64 // space right of the visible log, in percent
	Tokens     string
}

// cell is an event, or adjacent events that are too narrow for separate cells.
type cell struct {
	X, Width      float64
	Kind          string
	Hidden, Later bool
	Seq           uint64 // seq of the newest record in the cell
	Title         string

	events, tokens, hidden int
	first, last            int // turns of the first and the last event
	kinds                  map[string]float64
}

// Narrow reports whether the cell is too narrow for a gap beside it.
func (c cell) Narrow() bool { return c.Width < 7 }

// funnel leads from adjacent hidden events of the raw log to the visible event that represents them. If no
// visible event represents them, the funnel leads to a point between visible events.
type funnel struct {
	Kind, Path              string
	topLeft, topRight       float64
	bottomLeft, bottomRight float64
}

// turnTick is the number of a turn above its first cell.
type turnTick struct {
	Turn  int
	X     float64 // in percent
	Minor bool    // not shown on a phone
}

// pictureKind returns the CSS class of a kind of entry.
func pictureKind(k present.Kind) string {
	switch k {
	case present.Call, present.Response:
		return "tool"
	}
	return string(k)
}

// newPicture draws the raw log and the view v, given the targets that [findTargets] returns.
func newPicture(t *timeline, v fold.View, targets []target) *picture {
	if t.last() == 0 {
		return nil
	}
	now := t.at(v.Seq())
	p := &picture{Tokens: shortTokens(now.Visible) + " tokens"}
	p.Label = fmt.Sprintf("The raw log of %s, and below it what the model sees after record %d: %s, %s of %s tokens.",
		present.Counted(t.last(), "record"), v.Seq(), present.Counted(v.Len(), "event"), present.Grouped(now.Visible), present.Grouped(now.Raw))
	seen := p.drawVisible(t, v)
	p.drawRawLog(t, v, targets, seen)
	return p
}

// strip lays out cells from left to right.
type strip struct {
	x, scale, minWidth float64
	cells              []cell
}

// newStrip returns a strip for n events with a total number of tokens. Each event gets a minimum width.
func newStrip(x, width float64, n, tokens int) *strip {
	if n == 0 {
		return &strip{x: x}
	}
	minWidth := math.Min(3, width/4/float64(n)) // the rest of the width is shared by tokens
	rest := width - minWidth*float64(n)
	return &strip{x: x, minWidth: minWidth, scale: rest / math.Max(float64(tokens), 1)}
}

// add adds an event and returns its left and right end.
func (s *strip) add(kind string, tokens, turn int, seq uint64, hidden, later bool) (from, to float64) {
	from, to = s.x, s.x+s.minWidth+float64(tokens)*s.scale
	s.x = to
	n := len(s.cells) - 1
	if n < 0 || s.cells[n].Width >= cellWidth && (to-from >= cellWidth || s.cells[n].Width >= 2*cellWidth ||
		s.cells[n].Kind != kind || s.cells[n].Hidden != hidden || s.cells[n].last != turn) || s.cells[n].Later != later {
		s.cells = append(s.cells, cell{X: from, Kind: kind, Hidden: hidden, Later: later, first: turn, kinds: map[string]float64{}})
		n++
	}
	c := &s.cells[n]
	c.Width, c.Seq, c.last = to-c.X, seq, turn
	c.events, c.tokens = c.events+1, c.tokens+tokens
	if hidden {
		c.hidden++
	}
	if c.kinds[kind] += to - from; c.kinds[kind] > c.kinds[c.Kind] {
		c.Kind = kind
	}
	return from, to
}

// finish sets the titles of the cells and returns the cells.
func (s *strip) finish() []cell {
	for n := range s.cells {
		c := &s.cells[n]
		c.Title = turnsText(c.first, c.last)
		if c.events == 1 {
			c.Title += c.Kind
		} else {
			c.Title += fmt.Sprintf("%d events", c.events)
		}
		c.Title += fmt.Sprintf(" · %s tokens", present.Grouped(c.tokens))
		if c.Hidden = 2*c.hidden > c.events; c.Hidden {
			c.Title += " · hidden"
		}
		c.kinds = nil
	}
	return s.cells
}

// turnsText names the turns first to last at the start of a title. It returns "" if both are 0, that is, for
// events before the first turn.
func turnsText(first, last int) string {
	switch {
	case first == 0 && last == 0:
		return ""
	case first == 0:
		return fmt.Sprintf("up to turn %d · ", last)
	case first == last:
		return fmt.Sprintf("turn %d · ", first)
	}
	return fmt.Sprintf("turns %d–%d · ", first, last)
}

// drawVisible draws the visible log and returns the left and right end of each event. A small visible log is drawn
// wider than its share of the tokens, so that it can be seen.
func (p *picture) drawVisible(t *timeline, v fold.View) (at [][2]float64) {
	now := t.at(v.Seq())
	width := pictureWidth * math.Max(0.12, math.Sqrt(float64(now.Visible)/math.Max(float64(now.Raw), 1)))
	width = math.Min(width, pictureWidth)
	s := newStrip((pictureWidth-width)/2, width, v.Len(), now.Visible)
	for _, e := range v.Entries() {
		kind := pictureKind(present.KindOf(e))
		if !e.Summary && isClearedCopy(e.Event) {
			kind = "note"
		}
		from, to := s.add(kind, e.Event.EstimatedTokens(), t.at(e.Seq).Turn, e.Seq, false, false)
		at = append(at, [2]float64{from, to})
	}
	p.Visible = s.finish()
	p.VisibleEnd = 100 * s.x / pictureWidth
	p.Margin = 100 - p.VisibleEnd
	return at
}

func (p *picture) drawRawLog(t *timeline, v fold.View, targets []target, seen [][2]float64) {
	events := 0
	for _, s := range t.steps {
		if s.Patch == nil {
			events++
		}
	}
	s := newStrip(0, pictureWidth, events, t.at(t.last()).Raw)
	turn, cut := 0, pictureWidth/2 // cut is the position where funnels of removed events end
	if len(seen) > 0 {
		cut = seen[0][0]
	}
	for n, step := range t.steps {
		if step.Patch != nil {
			if step.Seq == v.Seq() {
				p.Now = s.x
			}
			continue
		}
		later, to := step.Seq > v.Seq(), target{Index: -1}
		if !later {
			to = targets[n]
		}
		from, end := s.add(pictureKind(step.Kind), step.Tokens, step.Turn, step.Seq, !later && to.hidden(), later)
		if to.Index >= 0 && to.Index < len(seen) {
			cut = seen[to.Index][1]
		}
		switch {
		case later || !to.hidden():
		case to.Index >= 0:
			p.addFunnel(string(to.kind), from, end, seen[to.Index][0], seen[to.Index][1])
		default:
			p.addFunnel("cut", from, end, cut, cut)
		}
		if step.Seq <= v.Seq() {
			p.Now = end
		}
		if step.Turn != turn {
			turn = step.Turn
			p.addTick(turn, from)
		}
	}
	p.RawLog = s.finish()
	for n := range p.Funnels {
		f := &p.Funnels[n]
		middle := (rawLogBottom + visibleTop) / 2
		f.Path = fmt.Sprintf("M%.1f %dH%.1fC%.1f %d %.1f %d %.1f %dH%.1fC%.1f %d %.1f %d %.1f %dz",
			f.topLeft, rawLogBottom, f.topRight, f.topRight, middle+6, f.bottomRight, middle-6, f.bottomRight, visibleTop, f.bottomLeft, f.bottomLeft, middle-6, f.topLeft, middle+6, f.topLeft, rawLogBottom)
	}
}

// Vertical positions of the lower edge of the raw log and of the upper edge of the visible log.
const (
	rawLogBottom = 56
	visibleTop   = 104
)

// addFunnel adds a funnel. If the last funnel has the same target, or if the last and the new funnel are narrow
// and adjacent, it widens the last one instead.
func (p *picture) addFunnel(kind string, from, to, at, end float64) {
	if n := len(p.Funnels) - 1; n >= 0 {
		last := &p.Funnels[n]
		sameTarget := last.bottomLeft == at && last.bottomRight == end && from-last.topRight < 0.01
		adjacent := from-last.topRight < 2*funnelWidth && at >= last.bottomLeft && end-last.bottomLeft < 4*funnelWidth && to-last.topLeft < 40*funnelWidth && last.Kind == kind
		if sameTarget || adjacent {
			last.topRight, last.bottomRight = to, math.Max(last.bottomRight, end)
			return
		}
	}
	p.Funnels = append(p.Funnels, funnel{Kind: kind, topLeft: from, topRight: to, bottomLeft: at, bottomRight: end})
}

// addTick adds the number of a turn, if there is space.
func (p *picture) addTick(turn int, x float64) {
	if n := len(p.Turns); n > 0 && x-p.Turns[n-1].X*pictureWidth/100 < turnGap {
		return
	}
	major := slices.IndexFunc(p.Turns, func(t turnTick) bool { return !t.Minor && x-t.X*pictureWidth/100 < turnGapPhone }) < 0
	p.Turns = append(p.Turns, turnTick{turn, 100 * x / pictureWidth, !major})
}

// target is what the model sees in place of a logged event.
//
//	By = 0               the event itself, at Index
//	By > 0, Index ≥ 0    the visible event at Index, which represents the event that patch By hides
//	By > 0, Index = -1   nothing: patch By hides the event
type target struct {
	Index int
	By    uint64
	kind  string // kind of the visible event that represents the event
}

// hidden reports whether the model does not see the event itself.
func (t target) hidden() bool { return t.By > 0 || t.Index < 0 }

// findTargets returns the target of each record's event in the view v. Elements for patches are unused.
func findTargets(t *timeline, v fold.View) ([]target, error) {
	places, err := v.Places()
	if err != nil {
		return nil, err
	}
	visible := make(map[uint64]int, v.Len())
	for n, e := range v.Entries() {
		if t.at(e.Seq).Patch == nil {
			visible[e.Seq] = n
		}
	}
	byPatch := map[uint64]target{} // target of the events that a patch hides
	var resolve func(by uint64, depth int) target
	resolve = func(by uint64, depth int) target {
		if to, ok := byPatch[by]; ok {
			return to
		}
		to := target{Index: -1, By: by}
		switch place, ok := places.Of(by, 0); {
		case !ok || depth == 0:
		case place.Index >= 0:
			to.Index, to.kind = place.Index, "note"
			if v.Entry(place.Index).Summary {
				to.kind = "summary"
			}
		case place.HiddenBySeq > 0:
			to = resolve(place.HiddenBySeq, depth-1)
			to.By = by
		}
		byPatch[by] = to
		return to
	}
	out := make([]target, v.Seq())
	for n, step := range t.steps[:v.Seq()] {
		if step.Patch != nil {
			continue
		}
		if index, ok := visible[step.Seq]; ok {
			out[n] = target{Index: index}
			continue
		}
		place, _ := places.Of(step.Seq, 0)
		out[n] = resolve(place.HiddenBySeq, int(v.Seq()))
	}
	return out, nil
}
