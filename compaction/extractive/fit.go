package extractive

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// extractLine is what is told of one invocation, or a line of a summary: details, of
// which the first is always shown if the line is.
type extractLine struct {
	source  int  // which of several summaries it comes from
	asked   bool // it begins with what the user asked
	details []*extractDetail
}

// extractDetail is one thing told in a line.
type extractDetail struct {
	kind  detailKind
	label string
	body  detailBody
	full  int    // the body's width
	shown string // what is shown of it; "" if nothing is
	width int    // of what is shown
}

// detailBody is what can be told at several lengths.
type detailBody interface {
	width() int           // of the whole, in runes
	cut(width int) string // at most so many runes of it, or nothing
	least() int           // the least width at which it says something
	worth() int           // more if more facts are in it
}

// detailKind says what a detail tells. Those of lesser kinds get room first.
type detailKind int

const (
	headDetail detailKind = iota // what a line begins with
	callsDetail
	questionDetail
	outcomeDetail
	errorDetail
	idsDetail
)

// kindWidths is how wide a detail of each kind gets before those of the next have a
// turn. There are several rounds, each with more.
var (
	kindWidths  = [...]int{headDetail: 64, callsDetail: 64, questionDetail: 96, outcomeDetail: 64, errorDetail: 64, idsDetail: 48}
	widthRounds = [...]int{1, 2, 4, 16, 1 << 20}
)

// Widths in runes.
const (
	minHead = 32 // below it, a line that has more to say is left out
	minTask = 64 // what the first request gets before all others
)

// add adds a detail, unless it says nothing. The first of a line gets the line's mark.
func (l *extractLine) add(kind detailKind, label string, body detailBody) {
	full := body.width()
	if full == 0 {
		return
	}
	switch {
	case len(l.details) == 0 && (kind == outcomeDetail || kind == questionDetail):
		kind, label = headDetail, agentLabel
	case len(l.details) == 0 && kind != headDetail:
		kind, label = headDetail, otherLabel+strings.TrimPrefix(label, "; ")
	case kind != idsDetail && kind != headDetail:
		label = arrow + label
	}
	l.details = append(l.details, &extractDetail{kind: kind, label: label, body: body, full: full})
}

// least is the least width that the detail is shown with.
func (d *extractDetail) least() int {
	if d.kind == headDetail {
		return min(d.full, minHead)
	}
	return min(d.full, d.body.least())
}

// cost is how many runes the detail takes if its body gets up to width; a line's first
// one takes a newline too.
func (d *extractDetail) cost(width int) int {
	width = min(width, d.full)
	if width < d.least() {
		return 0
	}
	return d.takes(width)
}

func (d *extractDetail) takes(width int) int {
	if width == 0 {
		return 0
	}
	if d.kind == headDetail {
		width++
	}
	return utf8.RuneCountInString(d.label) + width
}

// show shows the detail at most so wide, and returns how many runes more it takes now.
func (d *extractDetail) show(width int) int {
	before := d.takes(d.width)
	if d.width == d.full || width <= d.width {
		return 0
	}
	text := d.body.cut(width)
	if n := utf8.RuneCountInString(text); n > d.width {
		d.shown, d.width = text, n
	}
	return d.takes(d.width) - before
}

// fitLines shows of the lines what goes into so many runes.
func fitLines(lines []*extractLine, room int) string {
	lines = slices.DeleteFunc(lines, func(l *extractLine) bool { return len(l.details) == 0 })
	if len(lines) == 0 || room <= 0 {
		return ""
	}
	room++ // the last line has no newline
	order := byWorth(lines)
	// The task comes before everything else, if need be in all of the room.
	head := order[0].details[0]
	label := head.takes(1) - 1
	room -= head.show(max(min(head.full, room/2-label), min(minTask, room-label)))
	order = keepLines(order, room)
	room -= share(detailsOf(order, headDetail), minHead, room)
	for _, d := range detailsOf(order, callsDetail) {
		if least := d.least(); d.takes(least) <= room {
			room -= d.show(least)
		}
	}
	for _, round := range widthRounds {
		for kind, width := range kindWidths {
			room -= share(detailsOf(order, detailKind(kind)), width*round, room)
		}
	}
	var b strings.Builder
	for _, l := range lines {
		if l.details[0].shown == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		for _, d := range l.details {
			if d.shown != "" {
				b.WriteString(d.label)
				b.WriteString(d.shown)
			}
		}
	}
	return b.String()
}

// byWorth returns the lines in the order in which they are kept: the task, then the
// newest, then the most valuable line of each source, the second of each, and so on.
func byWorth(lines []*extractLine) []*extractLine {
	type ranked struct {
		line        *extractLine
		index, rank int
		worth       int
	}
	all := make([]ranked, len(lines))
	for i, l := range lines {
		all[i] = ranked{line: l, index: i, worth: l.details[0].body.worth()}
	}
	// Lines come source by source.
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].line.source == all[start].line.source {
			end++
		}
		slices.SortStableFunc(all[start:end], func(a, b ranked) int { return cmp.Compare(b.worth, a.worth) })
		for i := range all[start:end] {
			all[start+i].rank = i + 1
		}
		start = end
	}
	task, newest := lines[taskOf(lines)], lines[len(lines)-1]
	for i := range all {
		switch all[i].line {
		case task:
			all[i].rank = -1
		case newest:
			all[i].rank = 0
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.index, b.index))
	})
	order := make([]*extractLine, len(all))
	for i, r := range all {
		order[i] = r.line
	}
	return order
}

// taskOf is the index of the line with the first request: in the first source, the first
// line with what a user asked, or else the first with facts, or else the first.
func taskOf(lines []*extractLine) int {
	end := 0
	for end < len(lines) && lines[end].source == lines[0].source {
		end++
	}
	if i := slices.IndexFunc(lines[:end], func(l *extractLine) bool { return l.asked }); i >= 0 {
		return i
	}
	return max(slices.IndexFunc(lines[:end], func(l *extractLine) bool { return l.details[0].body.worth() > 0 }), 0)
}

// keepLines returns as many of the lines, the first of which is shown already, as there
// is room for.
func keepLines(order []*extractLine, room int) []*extractLine {
	for i, l := range order[1:] {
		if room -= l.details[0].takes(l.details[0].least()); room < 0 {
			return order[:i+1]
		}
	}
	return order
}

// detailsOf returns the details of a kind in lines that are shown, or that can be.
func detailsOf(lines []*extractLine, kind detailKind) []*extractDetail {
	var details []*extractDetail
	for _, l := range lines {
		for _, d := range l.details {
			if d.kind == kind && (kind == headDetail || l.details[0].shown != "") {
				details = append(details, d)
			}
		}
	}
	return details
}

// share lets the details grow up to a width, all to the same if there is not room for
// that, and returns how many runes more they take.
func share(details []*extractDetail, width, room int) int {
	taken := 0
	level := fairWidth(details, width, room)
	for _, d := range details {
		if d.cost(level) > 0 {
			taken += d.show(min(level, width))
		}
	}
	// What is left goes to those that show nothing yet, the best lines' first.
	for _, d := range details {
		if d.shown != "" {
			continue
		}
		if left := min(width, room-taken-d.takes(1)+1); min(left, d.full) >= d.least() {
			taken += d.show(left)
		}
	}
	return taken
}

// fairWidth is the greatest width, up to a limit, that all details can have within the
// room.
func fairWidth(details []*extractDetail, limit, room int) int {
	grows := func(width int) int {
		n := 0
		for _, d := range details {
			now := d.takes(d.width)
			n += max(d.cost(width), now) - now
		}
		return n
	}
	low, high := 0, limit
	for low < high {
		middle := (low + high + 1) / 2
		if grows(middle) <= room {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}
