package main

import (
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// series is a line of a plot. The field pattern is the name of the benchmarks, with %d for the size.
type series struct{ label, pattern string }

// Sizes of a plot in pixels.
const (
	width, height = 700, 400
	left, right   = 70, 180
	top, bottom   = 40, 70
)

// colours are the colours of lines, which colour-blind readers can distinguish (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// points returns the time of each size in a series.
func (r results) points(s series) (map[int]float64, error) {
	before, after, ok := strings.Cut(s.pattern, "%d")
	if !ok {
		return nil, fmt.Errorf("plot: %q has no %%d", s.pattern)
	}
	points := map[int]float64{}
	for name := range r {
		rest, ok := strings.CutPrefix(name, before)
		if !ok || !strings.HasSuffix(rest, after) {
			continue
		}
		if size, err := strconv.Atoi(strings.TrimSuffix(rest, after)); err == nil {
			if points[size], err = r.median(name, "ns/op"); err != nil {
				return nil, err
			}
		}
	}
	if len(points) < 2 {
		return nil, fmt.Errorf("plot: %d benchmarks match %s, want 2 at least", len(points), s.pattern)
	}
	return points, nil
}

// plot draws times against sizes on logarithmic axes.
func (r results) plot(title, x, command string, lines []series) (string, error) {
	all := make([]map[int]float64, len(lines))
	least, most := math.Inf(1), 0.0
	small, large := math.MaxInt, 0
	for i, s := range lines {
		points, err := r.points(s)
		if err != nil {
			return "", err
		}
		all[i] = points
		for size, ns := range points {
			least, most = min(least, ns), max(most, ns)
			small, large = min(small, size), max(large, size)
		}
	}
	// The range of the axis ends at whole powers of ten.
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	at := func(size int, ns float64) (float64, float64) {
		px := math.Log(float64(size)/float64(small)) / math.Log(float64(large)/float64(small))
		py := (math.Log10(ns) - low) / (high - low)
		return left + px*(width-left-right), height - bottom - py*(height-top-bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text := func(px, py float64, anchor, more, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="%s" %s>%s</text>`+"\n", px, py, anchor, more, html.EscapeString(s))
	}
	text(width/2, 22, "middle", `font-size="16"`, title)
	text((left+width-right)/2, height-bottom+38, "middle", "", x)
	text(width/2, height-10, "middle", `font-size="12" fill="#555"`, command)
	for e := low; e <= high; e++ {
		px, py := at(small, math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%.0f %.0fH%d" stroke="#ddd"/>`+"\n", px, py, width-right)
		text(px-8, py+4, "end", "", duration(math.Pow(10, e)))
	}
	for _, size := range slices.Sorted(maps.Keys(ticks(all))) {
		px, py := at(size, math.Pow(10, low))
		fmt.Fprintf(&b, `<path d="M%.0f %.0fv5" stroke="black"/>`+"\n", px, py)
		text(px, py+19, "middle", "", figure(float64(size)))
	}
	for i, points := range all {
		var path []string
		for _, size := range slices.Sorted(maps.Keys(points)) {
			px, py := at(size, points[size])
			path = append(path, fmt.Sprintf("%.1f,%.1f", px, py))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`+"\n", px, py, colours[i],
				html.EscapeString(fmt.Sprintf("%s, %d: %s", lines[i].label, size, duration(points[size]))))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), colours[i])
		y := top + 12 + 22*i
		fmt.Fprintf(&b, `<path d="M%d %dh18" stroke="%s" stroke-width="3"/>`+"\n", width-right+14, y-4, colours[i])
		text(width-right+38, float64(y), "start", "", lines[i].label)
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}

// ticks returns the sizes that occur in any series.
func ticks(all []map[int]float64) map[int]bool {
	sizes := map[int]bool{}
	for _, points := range all {
		for size := range points {
			sizes[size] = true
		}
	}
	return sizes
}
