package extractive

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// line is what is told of one invocation, or of a step of it, or a line of a summary:
// details, of which the first is always shown if the line is.
type line struct {
	source  int  // which of several summaries it comes from
	asked   bool // it begins with what the user asked
	kept    bool // it is to be kept in mind
	details []*detail

	news int // how many words it has that no line before has
	rank int // lines of lesser ranks get room first
}

// detail is one thing told in a line.
type detail struct {
	kind  detailKind
	label string
	body  body
	shown string // what is shown of it; "" if nothing is
	width int    // of what is shown, in runes
	task  bool   // it is what the session began with
}

// body is what can be told at several lengths.
type body interface {
	width() int           // of the whole, in runes
	cut(width int) string // at most so many runes of it, or nothing
}

// detailKind says what a detail tells.
type detailKind int

const (
	headDetail detailKind = iota // what a line begins with
	saidDetail
	callsDetail
	errorDetail
)

// stages are how wide details get, kind by kind: all lines get their first words before
// any gets more.
var stages = [][4]int{
	{headDetail: 48, saidDetail: 48},
	{headDetail: 96, saidDetail: 64, callsDetail: 48, errorDetail: 64},
	{headDetail: 192, saidDetail: 192, callsDetail: 96, errorDetail: 128},
	{headDetail: 1 << 20, saidDetail: 1 << 20, callsDetail: 1 << 20, errorDetail: 1 << 20},
}

// Widths in runes.
const (
	keptWidth = 80  // what a line gets before all others that is to be kept in mind
	lineWidth = 400 // what is enough for a line
	leastTold = 48  // what is told before any fact, if there is room
)

// add adds a detail, unless it says nothing.
func (l *line) add(kind detailKind, label string, b body) {
	switch {
	case b.width() == 0:
		return
	case len(l.details) == 0 && kind != headDetail:
		kind, label = headDetail, bullet+label
	case kind != headDetail:
		label = arrow + label
	}
	l.details = append(l.details, &detail{kind: kind, label: label, body: b})
}

// takes is how many runes the detail takes if its body has a width; a line's first one
// takes a newline too.
func (d *detail) takes(width int) int {
	if width == 0 {
		return 0
	}
	if d.kind == headDetail {
		width++
	}
	return utf8.RuneCountInString(d.label) + width
}

// grow shows the detail at most so wide, if there is room for it, and returns how many
// runes more it takes now.
func (d *detail) grow(width, room int) int {
	before := d.takes(d.width)
	width = min(width, d.body.width(), room+before-d.takes(1)+1)
	if width <= d.width {
		return 0
	}
	text := d.body.cut(width)
	n := utf8.RuneCountInString(text)
	if n <= d.width || n < minPassage && n < d.body.width() && !d.task {
		return 0
	}
	d.shown, d.width = text, n
	return d.takes(n) - before
}

// fitLines shows of the lines what goes into so many runes: first those that are to be
// kept in mind, under their heading.
func fitLines(lines []*line, room int) string {
	order := byRank(lines)
	if len(order) == 0 || room <= 0 {
		return ""
	}
	room++ // the last line has no newline
	if slices.ContainsFunc(order, func(l *line) bool { return l.kept }) {
		room -= len(keptHeading) + 1
		if slices.ContainsFunc(order, func(l *line) bool { return !l.kept }) {
			room -= len(toldHeading) + 1
		}
	}
	// The task comes before everything else, if need be in all of the room.
	order[0].details[0].task = true
	room -= order[0].details[0].grow(max(room/2, stages[0][headDetail]), room)
	for _, l := range order {
		if l.kept {
			room -= l.details[0].grow(keptWidth, room)
		}
	}
	for _, widths := range stages {
		for _, l := range order {
			for _, d := range l.details {
				if d.kind == headDetail || l.details[0].shown != "" {
					room -= d.grow(widths[d.kind], room)
				}
			}
		}
	}
	kept, others := shown(lines, true), shown(lines, false)
	if kept != "" {
		kept = keptHeading + "\n" + kept
		if others != "" {
			others = toldHeading + "\n" + others
		}
	}
	return joined(kept, others)
}

// shown is what is shown of the lines that are to be kept in mind, or of the others.
func shown(lines []*line, kept bool) string {
	var b strings.Builder
	for _, l := range lines {
		if l.kept != kept || len(l.details) == 0 || l.details[0].shown == "" {
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

// keptRoom is how many runes the lines take that are to be kept in mind.
func keptRoom(lines []*line) int {
	n := 0
	for _, l := range lines {
		if l.kept && len(l.details) > 0 {
			n += l.details[0].takes(min(keptWidth, l.details[0].body.width()))
		}
	}
	if n > 0 {
		n += len(keptHeading) + len(toldHeading) + 2
	}
	return n
}

// byRank returns the lines that say something in the order in which they are kept: the task,
// what is to be kept in mind, the newest, then the line of each source with the most
// news, the second of each, and so on; last what says nothing new.
func byRank(lines []*line) []*line {
	var all []*line
	for _, l := range lines {
		if len(l.details) > 0 {
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil
	}
	countNews(all)
	bySource := make(map[int][]*line)
	for _, l := range all {
		bySource[l.source] = append(bySource[l.source], l)
	}
	for _, of := range bySource {
		slices.SortStableFunc(of, func(a, b *line) int { return cmp.Compare(b.news, a.news) })
		for i, l := range of {
			l.rank = i + 1
			if l.news == 0 {
				l.rank += len(all)
			}
		}
	}
	all[len(all)-1].rank = 0
	for _, l := range all {
		if l.kept {
			l.rank = -1
		}
	}
	all[task(all)].rank = -2
	if all[0].source != all[len(all)-1].source {
		all = slices.DeleteFunc(all, func(l *line) bool { return l.rank > 0 && l.news == 0 })
	}
	slices.SortStableFunc(all, func(a, b *line) int { return cmp.Compare(a.rank, b.rank) })
	return all
}

// task is the index of the line with the first request: in the first source, the first
// line with what a user asked, or else the first.
func task(lines []*line) int {
	for i, l := range lines {
		if l.source != lines[0].source {
			break
		}
		if l.asked {
			return i
		}
	}
	return 0
}

// maxNews is how many words of its own make a line worth the most.
const maxNews = 8

// countNews counts the words of each line that none before has. A line without says what
// others say, perhaps of other things, which the ledger has.
func countNews(lines []*line) {
	known := make(map[string]bool)
	for _, l := range lines {
		l.news = 0
		for _, d := range l.details {
			p, ok := d.body.(*passage)
			if !ok {
				continue
			}
			for w := range strings.FieldsFuncSeq(p.text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
				if w = strings.ToLower(w); !known[w] && !hasDigit(w) {
					known[w] = true
					l.news++
				}
			}
		}
		l.news = min(l.news, maxNews)
	}
}
