// Package extractive picks from events what a summary of them should keep, and writes
// nothing of its own. It needs no model and understands no language in particular. The
// same events give the same summary, in time linear in their size.
//
// A summary has lines that tell what happened, one for each invocation, then what is open,
// then a ledger: the ids, dates, amounts, paths, addresses and names that are of use only
// word for word, each once, with what it names. Ledgers are united when summaries are
// merged.
package extractive

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/patch"
)

// Room is how long a summary may be, in runes.
type Room struct {
	Aim  int // for all that is told in sentences, and for what may as well be missing
	Most int // for the ids, dates, paths and the like besides
}

// Summary returns a summary of raw events of one branch, or, if merge is set, of
// summaries, in at most room.Most runes. It is empty if the events say nothing or there is
// room for nothing. No event may be nil. Of before, which stands before the events, only the
// summaries count: a fact that a tool has returned is not told again that one of them has.
//
// Raw events become a line for each invocation and each step of it that begins with a text of
// the agent's: what was asked, what was said in the end, which functions were called with
// what arguments, the last error. What the user says in the first lines of a session is to be
// kept in mind. What the agent asks last, and calls that nobody answered, are open. Facts that no
// line tells follow in a ledger, with what they name: those that somebody used, then those
// that a tool has returned. Summaries are merged line by line and fact by fact, whoever
// wrote them; what stands under no heading tells what happened.
//
// Lines are cut at the end of a word. Each gets its first words before any gets more; of
// too many lines, those go first that have the fewest words of their own, and the first
// request of the session last. No fact is ever cut. Of too many, those go first that may be
// met by chance, such as short numbers and words; then, of the keys with the most values, the
// oldest, and sooner those that nobody has used.
func Summary(events, before []*patch.Event, merge bool, room Room) string {
	room.Aim = min(room.Aim, room.Most)
	p := parts{facts: newLedger(), known: make(map[string]bool), before: make(map[string]bool)}
	linesBefore := 0
	for _, e := range before {
		if _, ok := record.Of(e); ok {
			linesBefore += p.addBefore(e)
		}
	}
	if merge {
		for i, e := range events {
			p.addSummary(e, i)
		}
		return p.fit(room)
	}
	p.addEvents(events)
	for i, l := range p.lines {
		l.kept = l.kept || l.asked && linesBefore+i < startLines
	}
	return p.fit(room)
}

// What the user says in so many lines from the start of a session is to be kept in mind: who
// it is, what it is about, what must be and must not.
const startLines = 10

// parts is what a summary has to say.
type parts struct {
	lines  []*line
	open   []string
	facts  *ledger
	known  map[string]bool // the lines of summaries
	before map[string]bool // what is told in summaries that stand before
}

// leastHeadings is the room from which on lines stand under headings, in runes.
const leastHeadings = 200

// fit writes what goes into the room.
func (p *parts) fit(room Room) string {
	if room.Most < leastHeadings {
		for _, l := range p.lines {
			l.kept = false
		}
	}
	toldRoom := max(room.Aim-p.facts.width(room.Aim/commonPart), room.Aim*3/10, min(room.Aim*2/3, leastTold))
	toldRoom = min(toldRoom, lineWidth*len(p.lines))
	toldRoom = max(toldRoom, min(keptRoom(p.lines), room.Most*9/10))
	open := fitOpen(p.open, min(toldRoom, room.Most/4))
	n := utf8.RuneCountInString(open)
	toldRoom = min(toldRoom-n/2, room.Most-n-p.facts.calledWidth(room.Most/commonPart)-2)
	text := joined(fitLines(p.lines, toldRoom), open)
	told := make(map[string]bool)
	tellAll(told, text)
	if n = utf8.RuneCountInString(text); n > 0 {
		n++
	}
	p.facts.favour(p.lines)
	return joined(text, p.facts.write(told, p.before, room.Aim-n, room.Most-n))
}

// addBefore takes in a summary that stands before, and returns how many lines of it tell
// what happened.
func (p *parts) addBefore(e *patch.Event) (lines int) {
	heading := ""
	for _, text := range textLines(e) {
		if h, ok := headingOf(text); ok {
			heading = h
			continue
		}
		tellAll(p.before, text)
		if heading == "" || heading == keptHeading || heading == toldHeading {
			lines++
		}
	}
	return lines
}

// tellAll says of the facts and words of a text that they are told.
func tellAll(told map[string]bool, text string) {
	for _, f := range findFacts(text) {
		tell(told, f.value)
	}
	for _, w := range words(text) {
		tell(told, text[w.start:w.end])
	}
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// fitOpen lists what is open, the newest first to be kept.
func fitOpen(open []string, room int) string {
	room -= utf8.RuneCountInString(openHeading)
	from := len(open)
	for from > 0 {
		if room -= utf8.RuneCountInString(open[from-1]) + 1 + len(bullet); room < 0 {
			break
		}
		from--
	}
	if from == len(open) {
		return ""
	}
	return openHeading + "\n" + bullet + strings.Join(open[from:], "\n"+bullet)
}

// addSummary takes a summary apart, the n-th of several.
func (p *parts) addSummary(e *patch.Event, n int) {
	heading := ""
	var told, open []string
	var mind []string
	ledgers := make(map[string][]string)
	for _, line := range textLines(e) {
		if h, ok := headingOf(line); ok {
			heading = h
			continue
		}
		switch heading {
		case keptHeading:
			mind = append(mind, line)
		case openHeading:
			open = append(open, unlisted(line))
		case usedHeading, otherHeading:
			ledgers[heading] = append(ledgers[heading], unlisted(line))
		default:
			told = append(told, line)
		}
	}
	for _, line := range ledgers[otherHeading] {
		p.facts.parse(line, returned)
	}
	for _, line := range ledgers[usedHeading] {
		p.facts.parse(line, used)
	}
	for _, line := range slices.Concat(mind, told, open) {
		p.facts.addAll(findFacts(line), used)
	}
	// What was asked before what follows has been answered, or has not: it is no longer what
	// the conversation waits for.
	for _, line := range p.open {
		if question, ok := strings.CutPrefix(line, questionLabel); ok {
			told = append([]string{agentLabel + question}, told...)
		}
	}
	p.open = slices.DeleteFunc(p.open, func(line string) bool { return strings.HasPrefix(line, questionLabel) })
	p.addLines(mind, n, true)
	p.addLines(told, n, false)
	for _, line := range open {
		if !slices.Contains(p.open, line) {
			p.open = append(p.open, line)
		}
	}
}

// addLines adds lines of a summary that are not there yet.
func (p *parts) addLines(texts []string, source int, kept bool) {
	fresh := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		known := p.known[text]
		p.known[text] = true
		return known
	})
	for _, l := range splitLines(fresh, source) {
		l.kept = kept
		p.lines = append(p.lines, l)
	}
}

// headingOf returns the heading that a line is, as a model may write it.
func headingOf(line string) (string, bool) {
	if len(line) > 40 {
		return "", false
	}
	name := strings.Trim(line, "#*_: ")
	for _, h := range []string{keptHeading, toldHeading, openHeading, usedHeading, otherHeading} {
		if strings.EqualFold(name, strings.TrimSuffix(h, ":")) {
			return h, true
		}
	}
	return "", false
}

// unlisted is a line of a list without what begins it, as a model may write it.
func unlisted(line string) string {
	for _, begin := range []string{bullet, "* ", "• "} {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return rest
		}
	}
	return line
}

// textLines are the lines of an event's texts.
func textLines(e *patch.Event) []string {
	var lines []string
	for _, p := range e.Content().Parts() {
		if p.Kind != patch.PartText {
			continue
		}
		for line := range strings.Lines(p.Text) {
			if line = oneLine(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// splitLines makes lines of their texts, each detail apart if an Extractive wrote them.
func splitLines(texts []string, source int) []*line {
	var lines []*line
	for _, text := range texts {
		l := &line{source: source}
		label := ""
		for _, begin := range [][2]string{{userLabel, userLabel}, {userTurn, userLabel}, {agentLabel, agentLabel}, {bullet, bullet}} {
			if rest, ok := strings.CutPrefix(text, begin[0]); ok {
				l.asked = begin[1] == userLabel
				label, text = begin[1], rest
				break
			}
		}
		for i, part := range strings.Split(text, arrow) {
			kind := headDetail
			if i > 0 {
				kind, label, part = detailOf(part)
			}
			l.add(kind, label, newPassage(part))
		}
		lines = append(lines, l)
	}
	return lines
}

// detailOf takes the label from a detail.
func detailOf(text string) (kind detailKind, label, rest string) {
	for _, known := range []struct {
		kind  detailKind
		label string
	}{{callsDetail, didLabel}, {errorDetail, errorLabel}, {saidDetail, saidLabel}} {
		if rest, ok := strings.CutPrefix(text, known.label); ok && rest != "" {
			return known.kind, known.label, rest
		}
	}
	return saidDetail, "", text
}
