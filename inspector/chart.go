package inspector

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
)

// What a chart has at most, so that it stays small however long the log is.
const (
	chartPoints = 600
	chartDots   = 200
	chartPasses = 120
	chartRows   = 50
	chartBytes  = 90_000 // of links, each in the drawing and in the table
)

// chart draws over all records what the log and its visible part came to, and what that cost, with
// a line at one record.
func chart(t *timeline, at uint64, point pointing) template.HTML {
	if t.last() == 0 {
		return ""
	}
	c := logChart{timeline: t, point: point, now: at}
	for _, s := range t.steps {
		switch {
		case s.Patch == nil:
		case s.Patch.Pass != nil:
			c.passes = append(c.passes, s)
		default:
			c.patches = append(c.patches, s)
		}
	}
	var d drawing
	c.sizes(&d)
	c.costs(&d)
	c.table(&d)
	return d.html()
}

// logChart is a log that is drawn.
type logChart struct {
	*timeline
	point   pointing
	now     uint64 // the record that is shown
	passes  []step // patches that say what a pass of compaction did
	patches []step // others
}

// point is a figure after a record.
type point struct {
	seq   uint64
	value float64
}

// points are a figure after each record, and 0 before the first.
func (c *logChart) points(figure func(step) float64) []point {
	points := []point{{}}
	for _, s := range c.steps {
		points = append(points, point{s.Seq, figure(s)})
	}
	return points
}

// thinned are so many points at most: of each of equally long stretches the least and the
// greatest, and the first and the last of all.
func thinned(points []point, most int) []point {
	if len(points) <= most {
		return points
	}
	byValue := func(a, b point) int { return cmp.Compare(a.value, b.value) }
	stretches := most/2 - 1
	out := points[:1:1]
	inner := points[1 : len(points)-1]
	for i := range stretches {
		some := inner[len(inner)*i/stretches : len(inner)*(i+1)/stretches]
		low, high := slices.MinFunc(some, byValue), slices.MaxFunc(some, byValue)
		switch {
		case low == high:
			out = append(out, low)
		case low.seq < high.seq:
			out = append(out, low, high)
		default:
			out = append(out, high, low)
		}
	}
	return append(out, points[len(points)-1])
}

// plot is a coordinate system of records and figures that is being drawn.
type plot struct {
	*drawing
	c      *logChart
	height float64 // in pixels
	top    float64 // the figure at the upper edge
	step   float64 // between the lines of the scale
}

// Pixels above and below the figures of a plot.
const (
	plotHead = 14
	plotFoot = 24
)

// begin draws the scale of a plot.
func (c *logChart) begin(d *drawing, height, most float64, label string) plot {
	p := plot{d, c, height, max(most*1.02, 1), roundStep(most, 5)}
	d.put(`<svg class="chart" width="100%%" height="%v" overflow="visible" role="group" aria-label="%s"><g class="axis">`, plotHead+height+plotFoot, label)
	for value := 0.0; value <= p.top; value += p.step {
		y := plotHead + p.y(value)
		d.put(`<line x1="0" x2="100%%" y1="%v" y2="%v"/>`, y, y)
	}
	d.put(`</g><svg y="%d" viewBox="0 0 %d %v" preserveAspectRatio="none" width="100%%" height="%v">`, plotHead, c.last(), height, height)
	return p
}

// end draws what stands over the figures: the line at the record that is shown, passes that lead
// to how it stood after them, and words.
func (p plot) end(unit string, passes []step) {
	c := p.c
	p.put(`<line class="at" x1="%d" x2="%d" y1="0" y2="%v"/></svg>`, c.now, c.now, p.height)
	for _, s := range passes {
		x, name := percentOf(float64(s.Seq), float64(c.last())), c.passText(s)
		p.put(`<a class="pass" href="%s" aria-label="%s"><title>%s</title><line class="reach" x1="%s" x2="%s" y1="0" y2="%v"/><line x1="%s" x2="%s" y1="%d" y2="%v"/>`,
			c.point(s.Seq), name, name, x, x, plotHead+p.height, x, x, plotHead, plotHead+p.height)
		p.glyph(x, "8", "tip", "M-5-5H5L0 5z")
		p.put(`</a>`)
	}
	p.put(`<g class="axis">`)
	for value := p.step; value <= p.top; value += p.step {
		text := present.Grouped(uint64(value))
		if value+p.step > p.top {
			text += " " + unit
		}
		p.put(`<text x="2" y="%v">%s</text>`, plotHead+p.y(value)-3, text)
	}
	p.put(`</g>`)
	p.recordAxis(c.last(), 0, plotHead+p.height+17)
	p.put(`</svg>`)
}

func (p plot) y(value float64) float64 { return p.height * (1 - value/p.top) }

// curve draws a figure as a line, and the area below it if fill says so.
func (p plot) curve(class string, points []point, fill bool) {
	var path strings.Builder
	for i, at := range thinned(points, chartPoints) {
		fmt.Fprintf(&path, "%c%d %s", "ML"[min(i, 1)], at.seq, decimal(p.y(at.value)))
	}
	if fill {
		p.put(`<path class="%s area" d="%sV%vH0z"/>`, class, path.String(), p.height)
	}
	p.put(`<path class="%s" d="%s"/>`, class, path.String())
}

// dots draws figures of some records.
func (p plot) dots(class string, points []point) {
	if len(points) == 0 {
		return
	}
	var path strings.Builder
	for _, at := range thinned(points, chartDots) {
		fmt.Fprintf(&path, "M%d %sh0", at.seq, decimal(p.y(at.value)))
	}
	p.put(`<path class="%s" d="%s"/>`, class, path.String())
}

// sizes draws tokens.
func (c *logChart) sizes(d *drawing) {
	end := c.at(c.now)
	raw := c.points(func(s step) float64 { return float64(s.Raw) })
	visible := c.points(func(s step) float64 { return float64(s.Visible) })
	var prompts []point
	for _, s := range c.steps {
		if s.Prompt > 0 {
			prompts = append(prompts, point{s.Seq, float64(s.Prompt)})
		}
	}
	most := max(greatest(raw), greatest(visible), greatest(prompts))
	label := fmt.Sprintf("Tokens over the records. After record %d, about %s were logged and about %s are visible.",
		c.now, present.Grouped(end.Raw), present.Grouped(end.Visible))
	passes := c.nearest(c.passes, linksWithin(chartBytes/2, 500, chartPasses, c.point, c.last()))

	d.put(`<figure class="drawing">`)
	p := c.begin(d, 180, most, label)
	p.curve("visible", visible, true)
	p.curve("raw", raw, false)
	p.dots("prompts", prompts)
	p.ticks(c.patches)
	p.end("tokens", passes)
	d.put(`<figcaption><ul class="legend">`)
	sample := func(class, path, text string) {
		d.put(`<li><svg class="chart" width="24" height="12" aria-hidden="true"><path class="%s" d="%s"/></svg> %s</li>`, class, path, text)
	}
	sample("raw", "M0 6H24", "logged, about")
	sample("visible", "M0 6H24", "visible, about")
	if len(prompts) > 0 {
		sample("prompts", "M12 6h0", "prompt, as its model counted it")
	}
	if len(c.passes) > 0 {
		sample("tip", "M7 1H17L12 11z", fmt.Sprintf("compaction (%d)", len(c.passes)))
	}
	if len(c.patches) > 0 {
		sample("ticks", "M12 2V10", "other patches")
	}
	d.put(`</ul>`)
	if left := len(c.passes) - len(passes); left > 0 {
		d.put(`<p class="hint">The %d passes nearest to this point are drawn; %d are left out.</p>`, len(passes), left)
	}
	d.put(`</figcaption></figure>`)
}

// ticks marks records at the foot of a plot.
func (p plot) ticks(steps []step) {
	var path strings.Builder
	drawn := uint64(0)
	for _, s := range steps {
		if place := s.Seq * chartPoints / p.c.last(); path.Len() == 0 || place > drawn {
			fmt.Fprintf(&path, "M%d %vv-7", s.Seq, p.height)
			drawn = place
		}
	}
	if path.Len() > 0 {
		p.put(`<path class="ticks" d="%s"/>`, path.String())
	}
}

// costs draws what prompts cost.
func (c *logChart) costs(d *drawing) {
	spent := c.points(func(s step) float64 { return s.Cost })
	alone := c.points(func(s step) float64 { return s.Alone })
	d.put(`<h3>Cost</h3><p>%s</p>`, c.costText())
	if greatest(alone) == 0 {
		return
	}
	d.put(`<p class="hint">%s</p><figure class="drawing">`, costRule)
	p := c.begin(d, 120, max(greatest(spent), greatest(alone)), "Cost over the records. "+c.costText())
	p.curve("alone", alone, false)
	p.curve("spent", spent, false)
	p.end("tokens", nil)
	d.put(`<figcaption><ul class="legend"><li><svg class="chart" width="24" height="12" aria-hidden="true"><path class="spent" d="M0 6H24"/></svg> cost</li>` +
		`<li><svg class="chart" width="24" height="12" aria-hidden="true"><path class="alone" d="M0 6H24"/></svg> with nothing patched</li></ul></figcaption></figure>`)
}

// costText says what prompts cost up to the record that is shown.
func (c *logChart) costText() string {
	s := c.at(c.now)
	if s.Alone == 0 {
		return "No model has read a prompt yet, so nothing was spent on one."
	}
	return fmt.Sprintf("Prompts and summaries have cost %s of what the prompts would have cost with nothing patched (in tokens of plain input: %s of %s).",
		present.Percent(s.Cost/s.Alone), present.Grouped(uint64(s.Cost)), present.Grouped(uint64(s.Alone)))
}

// costRule is how cost is reckoned.
var costRule = fmt.Sprintf("Reckoned by estimated tokens: one with which a prompt begins as the prompt before it did costs %v, since it is cached, any other %v; "+
	"one that a summarizer reads %v and one that it writes %v, as far as it measured them.",
	compaction.CachedPrice, compaction.FreshPrice, compaction.ReadPrice, compaction.WrittenPrice)

// table says in figures what the charts draw, at the passes and at the end.
func (c *logChart) table(d *drawing) {
	passes := c.nearest(c.passes, linksWithin(chartBytes/2, 400, chartRows, c.point, c.last()))
	d.put(`<details><summary>The charts in figures</summary>`)
	if left := len(c.passes) - len(passes); left > 0 {
		d.put(`<p>The %d passes nearest to record %d are listed; %d are left out.</p>`, len(passes), c.now, left)
	}
	d.put(`<div class="scroll" tabindex="0" role="region" aria-label="The charts in figures"><table><caption class="hidden">Tokens and cost at the passes of compaction and at the end</caption><thead><tr>`)
	for i, name := range []string{"Record", "What", "Logged", "Visible before", "Visible", "Newest prompt", "Cost", "With nothing patched"} {
		class := ` class="number"`
		if i < 2 {
			class = ""
		}
		d.put(`<th scope="col"%s>%s</th>`, template.HTML(class), name)
	}
	d.put(`</tr></thead><tbody>`)
	for _, s := range passes {
		c.row(d, s, "pass, by "+string(s.Patch.Pass.Trigger))
	}
	c.row(d, c.at(c.last()), "the end")
	d.put(`</tbody></table></div></details>`)
}

func (c *logChart) row(d *drawing, s step, what string) {
	d.put(`<tr><th scope="row"><a href="%s">%d</a></th><td>%s</td>`, c.point(s.Seq), s.Seq, what)
	prompt := "–"
	for n := s.Seq; n > 0; n-- {
		if tokens := c.at(n).Prompt; tokens > 0 {
			prompt = present.Grouped(tokens)
			break
		}
	}
	for _, text := range []string{
		present.Grouped(s.Raw), present.Grouped(c.at(s.Seq - 1).Visible), present.Grouped(s.Visible), prompt,
		present.Grouped(uint64(s.Cost)), present.Grouped(uint64(s.Alone)),
	} {
		d.put(`<td class="number">%s</td>`, text)
	}
	d.put(`</tr>`)
}

// nearest are so many of the steps at most, those nearest to the record that is shown.
func (c *logChart) nearest(steps []step, most int) []step {
	if len(steps) <= most {
		return steps
	}
	i, _ := slices.BinarySearchFunc(steps, c.now, func(s step, at uint64) int { return cmp.Compare(s.Seq, at) })
	from := min(max(i-most/2, 0), len(steps)-most)
	return steps[from : from+most]
}

// passText says in a line what a pass did.
func (c *logChart) passText(s step) string {
	return fmt.Sprintf("record %d, compaction by %s: %s visible tokens became %s", s.Seq, present.PrintableUpTo(string(s.Patch.Pass.Trigger), 40),
		present.Grouped(c.at(s.Seq-1).Visible), present.Grouped(s.Visible))
}

func greatest(points []point) float64 {
	most := 0.0
	for _, p := range points {
		most = max(most, p.value)
	}
	return most
}
