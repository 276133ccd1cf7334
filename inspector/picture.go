package inspector

import (
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
)

// Sizes in the picture's own units, of which it is pictureWidth wide on any screen.
const (
	pictureWidth = 1376.0
	cellWidth    = 2.2 // cells that are narrower are merged with their neighbours
	funnelWidth  = 1.5 // so are funnels
	turnGap      = 34  // between the numbers of turns
	turnGapPhone = 130
)

// picture is the raw log as a film, one cell for each event, as wide as its tokens; below it what the model sees; and
// between them a funnel from each hidden stretch to what stands for it.
type picture struct {
	Label   string
	Film    []cell // the raw log
	Seen    []cell // the visible log
	Funnels []funnel
	Turns   []turnTick
	Now     float64 // where the session is shown as it stood
	SeenEnd float64 // in percent
	Margin  float64 // beside the visible log, in percent
	Tokens  string
}

// cell is an event, or neighbouring events that are too narrow for cells of their own.
type cell struct {
	X, Width      float64
	Kind          string
	Hidden, Later bool
	Seq           uint64 // of the newest record in it
	Title         string

	events, tokens, hidden int
	first, last            int // turns
	kinds                  map[string]float64
}

// Narrow reports whether there is no room for a gap beside the cell.
func (c cell) Narrow() bool { return c.Width < 7 }

// funnel leads from a stretch of the film to the cell of what stands for it, or to a notch between cells if nothing does.
type funnel struct {
	Kind, Path string
	from, to   float64
	at, end    float64
}

// turnTick is the number of a turn above its first cell.
type turnTick struct {
	Turn  int
	X     float64 // in percent
	Minor bool    // it has no room on a phone
}

// pictureKind is the colour of a kind of entry.
func pictureKind(k present.Kind) string {
	switch k {
	case present.Call, present.Response:
		return "tool"
	}
	return string(k)
}

// newPicture draws the log as it stood after the view's record; targets says what stands for its events.
func newPicture(t *timeline, v fold.View, targets []target) *picture {
	if t.last() == 0 {
		return nil
	}
	now := t.at(v.Seq())
	p := &picture{Tokens: short(now.Visible) + " tokens"}
	p.Label = fmt.Sprintf("The raw log of %s, and below it what the model sees of it after record %d: %s, %s of %s tokens.",
		present.Counted(t.last(), "record"), v.Seq(), present.Counted(v.Len(), "event"), present.Grouped(now.Visible), present.Grouped(now.Raw))
	seen := p.drawSeen(t, v)
	p.drawFilm(t, v, targets, seen)
	return p
}

// strip lays cells out, from the left.
type strip struct {
	x, scale, least float64
	cells           []cell
}

// newStrip returns a strip of a width for n events with so many tokens. An event without tokens is not invisible.
func newStrip(x, width float64, n, tokens int) *strip {
	if n == 0 {
		return &strip{x: x}
	}
	least := math.Min(3, width/4/float64(n)) // for each, and the rest by tokens
	rest := width - least*float64(n)
	return &strip{x: x, least: least, scale: rest / math.Max(float64(tokens), 1)}
}

// add adds an event, and returns where it begins and ends.
func (s *strip) add(kind string, tokens, turn int, seq uint64, hidden, later bool) (from, to float64) {
	from, to = s.x, s.x+s.least+float64(tokens)*s.scale
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

// finish says what cells are.
func (s *strip) finish() []cell {
	for n := range s.cells {
		c := &s.cells[n]
		if c.first == c.last {
			c.Title = fmt.Sprintf("turn %d", c.first)
		} else {
			c.Title = fmt.Sprintf("turns %d–%d", c.first, c.last)
		}
		if c.events == 1 {
			c.Title += " · " + c.Kind
		} else {
			c.Title += fmt.Sprintf(" · %d events", c.events)
		}
		c.Title += fmt.Sprintf(" · %s tokens", present.Grouped(c.tokens))
		if c.Hidden = 2*c.hidden > c.events; c.Hidden {
			c.Title += " · hidden"
		}
		c.kinds = nil
	}
	return s.cells
}

// drawSeen draws the visible log, and returns where each of its events begins and ends. It is wider than in proportion,
// so that little is still to be seen.
func (p *picture) drawSeen(t *timeline, v fold.View) (at [][2]float64) {
	now := t.at(v.Seq())
	width := pictureWidth * math.Max(0.12, math.Sqrt(float64(now.Visible)/math.Max(float64(now.Raw), 1)))
	width = math.Min(width, pictureWidth)
	s := newStrip((pictureWidth-width)/2, width, v.Len(), now.Visible)
	for _, e := range v.Entries() {
		kind := pictureKind(present.KindOf(e))
		if !e.Summary && standsIn(e.Event) {
			kind = "note"
		}
		from, to := s.add(kind, e.Event.EstimatedTokens(), t.at(e.Seq).Turn, e.Seq, false, false)
		at = append(at, [2]float64{from, to})
	}
	p.Seen = s.finish()
	p.SeenEnd = 100 * s.x / pictureWidth
	p.Margin = 100 - p.SeenEnd
	return at
}

func (p *picture) drawFilm(t *timeline, v fold.View, targets []target, seen [][2]float64) {
	events := 0
	for _, s := range t.steps {
		if s.Patch == nil {
			events++
		}
	}
	s := newStrip(0, pictureWidth, events, t.at(t.last()).Raw)
	turn, cut := 0, pictureWidth/2 // where what is cut out next would stand
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
			p.funnel(string(to.kind), from, end, seen[to.Index][0], seen[to.Index][1])
		default:
			p.funnel("cut", from, end, cut, cut)
		}
		if step.Seq <= v.Seq() {
			p.Now = end
		}
		if step.Turn != turn {
			turn = step.Turn
			p.tick(turn, from)
		}
	}
	p.Film = s.finish()
	for n := range p.Funnels {
		f := &p.Funnels[n]
		middle := (filmEnd + seenTop) / 2
		f.Path = fmt.Sprintf("M%.1f %dH%.1fC%.1f %d %.1f %d %.1f %dH%.1fC%.1f %d %.1f %d %.1f %dz",
			f.from, filmEnd, f.to, f.to, middle+6, f.end, middle-6, f.end, seenTop, f.at, f.at, middle-6, f.from, middle+6, f.from, filmEnd)
	}
}

// Where the film ends and the visible log begins, from the top.
const (
	filmEnd = 56
	seenTop = 104
)

// funnel adds a funnel, or widens the last one if it leads to the same place, or if both are narrow and neighbours.
func (p *picture) funnel(kind string, from, to, at, end float64) {
	if n := len(p.Funnels) - 1; n >= 0 {
		last := &p.Funnels[n]
		same := last.at == at && last.end == end && from-last.to < 0.01
		near := from-last.to < 2*funnelWidth && at >= last.at && end-last.at < 4*funnelWidth && to-last.from < 40*funnelWidth && last.Kind == kind
		if same || near {
			last.to, last.end = to, math.Max(last.end, end)
			return
		}
	}
	p.Funnels = append(p.Funnels, funnel{Kind: kind, from: from, to: to, at: at, end: end})
}

// tick numbers a turn, if there is room since the one before.
func (p *picture) tick(turn int, x float64) {
	if n := len(p.Turns); n > 0 && x-p.Turns[n-1].X*pictureWidth/100 < turnGap {
		return
	}
	major := slices.IndexFunc(p.Turns, func(t turnTick) bool { return !t.Minor && x-t.X*pictureWidth/100 < turnGapPhone }) < 0
	p.Turns = append(p.Turns, turnTick{turn, 100 * x / pictureWidth, !major})
}

// target is what stands for an event of the log: itself, with By 0, or the visible event at an index, for one that the
// patch By hides; -1 if nothing does.
type target struct {
	Index int
	By    uint64
	kind  string // of the visible event
}

// hidden reports whether it is not the event itself that a model sees.
func (t target) hidden() bool { return t.By > 0 || t.Index < 0 }

// targetsOf returns what stands for each record's event after the view's record. Those of patches have no meaning.
func targetsOf(t *timeline, v fold.View) ([]target, error) {
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
	byPatch := map[uint64]target{} // what stands for what the patch hides
	var of func(by uint64, depth int) target
	of = func(by uint64, depth int) target {
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
			to = of(place.HiddenBySeq, depth-1)
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
		out[n] = of(place.HiddenBySeq, int(v.Seq()))
	}
	return out, nil
}
