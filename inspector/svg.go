package inspector

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// drawing is HTML with SVG in it that is being written. Every value is escaped.
type drawing struct{ strings.Builder }

// put writes a format, which is markup, with values: text as one printable line, numbers with as
// few decimals as a drawing needs, and what another drawing has written as it is.
func (d *drawing) put(format string, values ...any) {
	for i, v := range values {
		switch v := v.(type) {
		case template.HTML, int, uint64:
		case template.URL:
			values[i] = html.EscapeString(string(v))
		case float64:
			values[i] = decimal(v)
		default:
			values[i] = html.EscapeString(present.Printable(fmt.Sprint(v)))
		}
	}
	fmt.Fprintf(d, format, values...)
}

func (d *drawing) html() template.HTML { return template.HTML(d.String()) }

// decimal is a number with up to two decimals.
func decimal(x float64) string {
	return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64)
}

// percentOf is where a part of a whole lies, as an SVG length.
func percentOf(part, whole float64) string { return decimal(100*part/max(whole, 1)) + "%" }

// glyph draws a small mark that is not stretched with what is around it: a path around 0, 0.
func (d *drawing) glyph(x, y, class, path string) {
	d.put(`<svg x="%s" y="%s" overflow="visible"><path class="%s" d="%s"/></svg>`, x, y, class, path)
}

// pointing says where a session is shown as it stood after a record.
type pointing func(seq uint64) template.URL

// points are the pages of a session.
func points(key store.Key) pointing {
	return func(seq uint64) template.URL {
		url, _ := query("session", "key", key, "at", seq) // it fails for an odd number of values alone
		return url
	}
}

// linksWithin is how many links to points of a session of so many records have room in so many
// bytes, with so many more for each of them; at most most.
func linksWithin(bytes, each, most int, point pointing, last uint64) int {
	return min(most, bytes/(len(html.EscapeString(string(point(last))))+each))
}

// roundStep is the least of 1, 2, 5, 10, 20 … of which about so many make up a span, and at least 1.
func roundStep(span float64, about int) float64 {
	step := 1.0
	for _, factor := 0, []float64{2, 2.5, 2}; step*float64(about) < span; factor = append(factor[1:], factor[0]) {
		step *= factor[0]
	}
	return step
}

// recordAxis labels the places of records below a drawing, of which the middle of record n is at
// n - back.
func (d *drawing) recordAxis(last uint64, back, y float64) {
	all := float64(last)
	step := roundStep(all, 7)
	d.put(`<g class="axis"><text x="0" y="%v">record</text>`, y)
	for n := step; n <= all; n += step {
		anchor := "middle"
		switch share := n / all; {
		case share < 0.15:
			continue // the word is there
		case share > 0.93:
			anchor = "end"
		}
		d.put(`<text x="%s" y="%v" text-anchor="%s">%s</text>`, percentOf(n-back, all), y, anchor, present.Grouped(uint64(n)))
	}
	d.put(`</g>`)
}
