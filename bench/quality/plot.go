package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The plots show these policies; all of the tables' would hide one another.
var plotted = []struct{ policy, colour string }{
	{"none", "#444444"},
	{"truncated to 4000", "#d55e00"},
	{"cleared by 5000", "#cc79a7"},
	{"rolling summary, 4k", "#e69f00"},
	{"default", "#0072b2"},
	{"interval 2, tokens 4k", "#56b4e9"},
	{"tokens 16k", "#009e73"},
}

// Sizes in pixels.
const (
	plotWidth, plotHeight = 760, 480
	left, right           = 70, 190
	top, bottom           = 40, 90
)

// canvas is a plot in the making: both axes run from 0 to 1.
type canvas struct{ strings.Builder }

func newCanvas(title, x, y, caption string) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	c.text(plotWidth/2, 22, "middle", title, `font-size="15"`)
	c.text((left+plotWidth-right)/2, plotHeight-bottom+40, "middle", x, "")
	fmt.Fprintf(c, `<text transform="translate(18,%d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+plotHeight-bottom)/2, html.EscapeString(y))
	c.text(plotWidth/2, plotHeight-14, "middle", caption, `fill="#555" font-size="11"`)
	fmt.Fprintf(c, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", left, top, plotHeight-bottom, plotWidth-right)
	return c
}

func (c *canvas) text(x, y int, anchor, text, more string) {
	fmt.Fprintf(c, `<text x="%d" y="%d" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(text))
}

func (c *canvas) at(x, y float64) (float64, float64) {
	return left + x*float64(plotWidth-right-left), plotHeight - bottom - y*float64(plotHeight-bottom-top)
}

// tickX and tickY mark a place on an axis.
func (c *canvas) tickX(x float64, label string) {
	px, py := c.at(x, 0)
	fmt.Fprintf(c, `<path d="M%.1f %.1fv5" stroke="black"/>`+"\n", px, py)
	c.text(int(px), int(py)+18, "middle", label, "")
}

func (c *canvas) tickY(y float64, label string) {
	px, py := c.at(0, y)
	fmt.Fprintf(c, `<path d="M%.1f %.1fh-5M%.1f %.1fH%d" stroke="#ccc"/>`+"\n", px, py, px, py, plotWidth-right)
	c.text(int(px)-8, int(py)+4, "end", label, "")
}

func (c *canvas) dot(x, y float64, colour, title string) {
	px, py := c.at(x, min(y, 1))
	fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s" fill-opacity="0.7"><title>%s</title></circle>`+"\n", px, py, colour, html.EscapeString(title))
}

func (c *canvas) legend() {
	for i, p := range plotted {
		y := top + 12 + 20*i
		fmt.Fprintf(c, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`+"\n", plotWidth-right+16, y-4, p.colour)
		c.text(plotWidth-right+28, y, "start", p.policy, "")
	}
}

func (c *canvas) done() string {
	c.WriteString("</svg>\n")
	return c.String()
}

// caption says what a plot was made of, and how.
func (r results) caption() string {
	return fmt.Sprintf("%s; go run ./bench/quality -svg docs", r.set.name)
}

// The lower end of the axis, as a share of the needed identifiers.
const leastSeen = 0.7

// seenPlot plots the seen against the visible share, a dot for each family.
func (r results) seenPlot() string {
	c := newCanvas("What later calls needed and still saw", "visible tokens, of the raw ones (%)", "identifiers seen, of those needed (%)", r.caption())
	for i := range 6 {
		c.tickX(float64(i)/5, fmt.Sprint(20*i))
	}
	for i := range 7 {
		c.tickY(float64(i)/6, fmt.Sprintf("%.0f", 100*(leastSeen+(1-leastSeen)*float64(i)/6)))
	}
	for _, p := range plotted {
		for _, f := range r.set.families {
			g := r.figures[[2]string{p.policy, f.name}]
			if g.Needed == 0 {
				continue
			}
			title := fmt.Sprintf("%s, %s: %.1f %% seen at %.1f %%", p.policy, f.name, 100*g.SeenShare(), 100*g.VisibleShare())
			c.dot(g.VisibleShare(), max(0, (g.SeenShare()-leastSeen)/(1-leastSeen)), p.colour, title)
		}
	}
	c.legend()
	return c.done()
}

// The cost plot's axes: tokens of a session from 10^3 to 10^6, and cost up to one and a half
// times that of a session which is left as it is.
const (
	leastExponent, mostExponent = 2, 6
	mostCost                    = 1.5
)

// costPlot plots what sessions cost against their length, a dot for each.
func (r results) costPlot() string {
	c := newCanvas("What prompts and summaries cost", "raw tokens of the session", "cost, of that without a policy (%)", r.caption())
	for e := leastExponent; e <= mostExponent; e++ {
		c.tickX(float64(e-leastExponent)/(mostExponent-leastExponent), fmt.Sprintf("%d", int(math.Pow10(e))))
	}
	for i := range 7 {
		c.tickY(float64(i)/6, fmt.Sprintf("%.0f", 100*mostCost*float64(i)/6))
	}
	for _, p := range plotted[1:] {
		for _, f := range r.set.families {
			none := r.lone[[2]string{r.policies[0], f.name}]
			for i, s := range r.lone[[2]string{p.policy, f.name}] {
				if none[i].cost == 0 || s.rawTokens == 0 {
					continue
				}
				x := (math.Log10(float64(s.rawTokens)) - leastExponent) / (mostExponent - leastExponent)
				title := fmt.Sprintf("%s, %s: %d tokens, %.0f %%", p.policy, f.name, s.rawTokens, 100*s.cost/none[i].cost)
				c.dot(max(0, x), s.cost/none[i].cost/mostCost, p.colour, title)
			}
		}
	}
	c.legend()
	return c.done()
}
