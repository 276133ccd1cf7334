// Package extractive picks from events what a summary of them should keep, and writes
// nothing of its own. It needs no model and understands no language in particular. The
// same events give the same summary, in time nearly linear in their size.
package extractive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/patch"
)

// Length limits the length of a summary, in tokens.
type Length struct {
	Aim int // a target, for What happened and for facts whose values are common words or numbers
	Max int // a bound, for the whole summary
}

// Summarise returns a summary of raw events of one branch, or, if merge is set, of
// summaries, in at most length.Max tokens. It is empty if the events say nothing or there is
// room for nothing. No event may be nil. Of before, which stands before the events, only the
// summaries count: what they tell is not told again.
//
// A summary has sections, each with a budget of its own, so that none takes another's room:
//
//   - Keep in mind: sentences of the user, word for word, a line for each message.
//   - What happened: calls with their last arguments, the last error, and sentences of the
//     agent, a line for each step.
//   - Open: what the agent or the user asked last, and calls without an answer.
//   - Rows: objects that tools returned, with an id or else a date, and their short values, under a header.
//   - Facts and Returned: ids, paths, addresses, numbers and names that stand in no section
//     above, with what they name: used ones, and those that only tools returned.
//
// Sentences are picked by the new and rare words that they tell for their size. The user's
// first message comes before all others. Rows in their last state and facts are kept sooner
// if they were used, then if they are new. Merging pools the sections of summaries, of any
// author, and picks again.
func Summarise(events, before []*patch.Event, merge bool, length Length) string {
	s := newSummary()
	for _, e := range before {
		if _, ok := summaries.CompactionOf(e); ok {
			s.addBefore(e)
		}
	}
	if merge {
		for _, e := range events {
			s.addSummary(e)
		}
	} else {
		s.addEvents(events)
	}
	covered := 0
	for _, e := range events {
		covered += e.EstimatedTokens()
	}
	return s.write(s.budgetsOf(length, covered, merge))
}

// Headings of a summary. What stands before the first happened.
const (
	keptHeading  = "Keep in mind:"
	toldHeading  = "What happened:"
	openHeading  = "Open:"
	usedHeading  = "Facts:"
	otherHeading = "Returned:"
)

// summary is what a summary may say.
type summary struct {
	asked  []*line // of the user
	told   []*line // what happened
	open   []string
	rows   rows
	facts  *ledger
	latest map[string]*unit // by kind and text, of what may come again
	first  bool             // nothing stands before

	before     map[string]bool // the lines, facts and words of summaries before
	picker     *picker
	keptBefore tokens.Size // in the section of the user's words
}

// line is one of a section.
type line struct{ units []*unit }

func newSummary() *summary {
	return &summary{facts: newLedger(), latest: make(map[string]*unit), first: true, before: make(map[string]bool), picker: newPicker()}
}

// budgets are what sections should have at most.
type budgets struct{ all, aim, least, asked, rows tokens.Size }

// Budgets, as parts of what a summary stands for, as parts of its room, and in tokens.
const (
	askedShare, askedFloor         = 0.1, 240 // for a session
	askedMost                      = 0.9      // of what facts leave free
	rowsShare, rowsFloor, rowsMost = 0.25, 100, 0.5
	mergedRowsMost, rowsCap        = 0.4, 1200
	toldLeast, toldMost, toldFree  = 0.15, 0.6, 0.2
	toldExtra                      = 0.3 // of the aim, where there is room
	briefFree                      = 0.7 // of a room without headings
	openMost                       = 0.2
	leastFree                      = 0.45      // even if facts need more
	tinyFree, tinyRoom             = 0.85, 120 // the same of small rooms
)

func part(of tokens.Size, share float64) tokens.Size { return tokens.Size(share * float64(of)) }

// budgetsOf gives the user's words and rows what they should have. Of summaries that are merged they
// may keep all.
func (s *summary) budgetsOf(length Length, covered int, merge bool) budgets {
	b := budgets{all: tokensOf(length.Max), aim: tokensOf(min(length.Aim, length.Max))}
	b.least = part(b.all, leastFree)
	if length.Max*3 > covered { // there is no need to be brief
		b.least = max(b.least, min(part(b.all, tinyFree), tokensOf(tinyRoom)))
	}
	b.asked, b.rows = b.all, part(b.all, mergedRowsMost)
	if !merge {
		b.asked = max(part(tokensOf(covered), askedShare), tokensOf(askedFloor)-s.keptBefore)
		b.rows = min(part(b.all, rowsMost), max(part(tokensOf(covered), rowsShare), tokensOf(rowsFloor)))
	}
	b.rows = min(b.rows, tokensOf(rowsCap))
	if b.all < leastHeadings {
		b.rows = 0
	}
	return b
}

// tokensOf converts tokens to a size, with an upper bound against overflow.
func tokensOf(n int) tokens.Size { return tokens.Size(min(max(n, 0), 1<<24)) * tokens.Token }

// leastHeadings is the room from which on lines stand under headings.
const leastHeadings = 50 * tokens.Token

// write writes what goes into the budgets.
func (s *summary) write(b budgets) string {
	s.picker.count(unitsOf(s.asked), unitsOf(s.told))
	s.facts.favour(s.asked)
	rows := s.rows.write(s.facts.isUsed, s.before, b.rows)
	tellAll(s.before, rows)
	need := s.facts.size(b.aim/commonPart, s.before)
	left := max(b.all-need-tokens.Of(rows+"\n"), b.least)
	left = min(left, b.all-tokens.Of(rows+"\n"))
	open := s.writeOpen(part(left, openMost))
	left -= tokens.Of(open+"\n") + tokens.Of(keptHeading+"\n"+toldHeading+"\n")
	if b.all < leastHeadings {
		left = part(b.all, briefFree)
	}
	asked := min(b.asked, part(left, askedMost))
	taken := s.pickAsked(asked)
	told := s.picker.pick(unitsOf(s.told), min(max(part(b.aim, toldMost)-need, part(b.aim, toldLeast)), left-taken, part(left, toldFree)))
	// What the facts do not need is for words too.
	text := s.compose(b, open, rows)
	if rest := min(b.all-tokens.Of(text)-perUnit, b.asked-taken); rest > 0 && s.picker.pick(unitsOf(s.asked), rest) > 0 {
		text = s.compose(b, open, rows)
	}
	if rest := min(b.all-tokens.Of(text)-perUnit, part(b.aim, toldExtra)-told); rest > 0 && s.picker.pick(unitsOf(s.told), rest) > 0 {
		text = s.compose(b, open, rows)
	}
	units := append(unitsOf(s.asked), unitsOf(s.told)...)
	if text == "" { // all is courtesy, or too long
		text = s.composeFirst(units, b, open, rows)
	}
	// The size of a text may differ a little from the sum of its parts.
	for i := len(units) - 1; i >= 0 && tokens.Of(text) > b.all; i-- {
		units[i].keep = false
		text = s.compose(b, open, rows)
	}
	return text
}

// composeFirst is compose with the first of the units of which something fits.
func (s *summary) composeFirst(units []*unit, b budgets, open, rows string) string {
	for _, u := range units {
		whole := u.text
		for room := b.all - perUnit - tokens.Of(label(u.kind)); room > 0; room -= tokens.Token {
			if u.text = cut(whole, room); u.text == "" {
				break
			}
			u.keep = true
			if text := s.compose(b, open, rows); tokens.Of(text) <= b.all {
				return text
			}
		}
		u.keep = false
	}
	return s.compose(b, open, rows)
}

func unitsOf(lines []*line) (units []*unit) {
	for _, l := range lines {
		units = append(units, l.units...)
	}
	return units
}

// pickAsked picks of what the user said. At the start of a session it keeps the first sentence that
// tells the most, if need be cut, and in a part of the room others of the first message.
func (s *summary) pickAsked(room tokens.Size) (taken tokens.Size) {
	all := unitsOf(s.asked)
	if s.first && len(all) > 0 {
		task := s.asked[slices.IndexFunc(s.asked, func(l *line) bool { return len(l.units) > 0 })].units
		first := slices.MaxFunc(task, func(a, b *unit) int { return cmp.Compare(s.picker.worth(a), s.picker.worth(b)) })
		if first.text = cut(first.text, room-perUnit); first.text != "" {
			s.picker.keep(first)
			taken = first.size()
			taken += s.picker.pick(task, (room-taken)/3)
		}
	}
	return taken + s.picker.pick(all, room-taken)
}

// compose writes the sections that were picked, and the facts in what they leave.
func (s *summary) compose(b budgets, open, rows string) string {
	asked, told := s.section(s.asked, keptHeading), s.section(s.told, toldHeading)
	if b.all < leastHeadings || asked == "" {
		told = strings.TrimPrefix(told, toldHeading+"\n")
	}
	if b.all < leastHeadings {
		asked = strings.TrimPrefix(asked, keptHeading+"\n")
	}
	known := make(map[string]bool)
	var text []string
	for _, section := range []string{asked, told, open, rows} {
		if section != "" {
			text = append(text, section)
		}
		if section != rows {
			tellAll(known, section)
		}
	}
	taken := tokens.Of(strings.Join(text, "\n") + "\n")
	if facts := s.facts.write(known, s.before, b.aim-taken, b.all-taken); facts != "" {
		text = append(text, facts)
	}
	return strings.Join(text, "\n")
}

// section writes the lines of which something is kept.
func (s *summary) section(lines []*line, heading string) string {
	text := []string{heading}
	for _, l := range lines {
		if line := l.write(); line != "" {
			text = append(text, bullet+line)
		}
	}
	if len(text) == 1 {
		return ""
	}
	return strings.Join(text, "\n")
}

// Beginnings of lines, and of what follows in them.
const (
	bullet     = "- "
	arrow      = " → "
	didLabel   = "did: "
	errorLabel = "error: "
	gap        = " [...] " // where a part of a sentence is left out
	agentAsks  = "the agent asks: "
	userAsks   = "the user asks: "
)

// write writes the units of a line that are kept.
func (l *line) write() string {
	var b strings.Builder
	kind := saidUnit
	for i, u := range l.units {
		if !u.keep {
			continue
		}
		switch {
		case b.Len() > 0 && u.kind != kind:
			b.WriteString(arrow + label(u.kind))
		case b.Len() == 0:
			b.WriteString(label(u.kind))
		case u.kind == callUnit:
			b.WriteString(", ")
		case !l.units[i-1].keep && !endsSentence(b.String()):
			b.WriteString(gap)
		default:
			b.WriteByte(' ')
		}
		b.WriteString(u.text)
		kind = u.kind
	}
	return b.String()
}

func endsSentence(text string) bool { return sentenceEnd(text+" X") < len(text)+2 }

func label(kind unitKind) string {
	switch kind {
	case callUnit:
		return didLabel
	case errorUnit:
		return errorLabel
	}
	return ""
}

// writeOpen lists what is open, the newest first to be kept.
func (s *summary) writeOpen(room tokens.Size) string {
	room -= tokens.Of(openHeading)
	from := len(s.open)
	for from > 0 && tokens.Of("\n"+bullet+s.open[from-1]) <= room {
		from--
		room -= tokens.Of("\n" + bullet + s.open[from])
	}
	if from == len(s.open) {
		return ""
	}
	return openHeading + "\n" + bullet + strings.Join(s.open[from:], "\n"+bullet)
}

// tellAll says of the facts and words of a text that they are told.
func tellAll(told map[string]bool, text string) {
	for _, f := range findFacts(text) {
		tell(told, f.value)
	}
	for w := range identifiers.Words(text) {
		tell(told, trimWord(w.Raw))
	}
}

// addBefore takes in a summary that stands before.
func (s *summary) addBefore(e *patch.Event) {
	s.first = false
	heading := ""
	for _, text := range textLines(e) {
		if h, ok := headingOf(text); ok {
			heading = h
			continue
		}
		s.before[text] = true
		tellAll(s.before, text)
		if heading == "" || heading == keptHeading || heading == toldHeading {
			s.picker.know(wordsIn(text))
		}
		if heading == keptHeading {
			s.keptBefore += tokens.Of(text + "\n")
		}
	}
}

// addSummary takes a summary apart.
func (s *summary) addSummary(e *patch.Event) {
	heading, header := "", ""
	ledgers := make(map[string][]string)
	var open, spoken []string
	for _, text := range textLines(e) {
		if h, ok := headingOf(text); ok {
			heading, header = h, ""
			continue
		}
		switch said := unlisted(text); {
		case heading == openHeading:
			open = append(open, said)
		case heading == rowsHeading:
			header = s.rows.read(text, header)
			s.facts.addRow(text, header)
		case heading == usedHeading || heading == otherHeading:
			ledgers[heading] = append(ledgers[heading], said)
		case heading == keptHeading:
			s.asked = append(s.asked, s.lineOf(said, true))
			spoken = append(spoken, said)
		default:
			s.told = append(s.told, s.lineOf(said, false))
			spoken = append(spoken, said)
		}
	}
	for _, line := range ledgers[otherHeading] {
		s.facts.parse(line, returned)
	}
	for _, line := range ledgers[usedHeading] {
		s.facts.parse(line, used)
	}
	for _, line := range spoken {
		s.facts.addAll(findFacts(line), used)
	}
	// The conversation waits only for the answer to its last question: earlier questions are closed.
	s.open = slices.DeleteFunc(s.open, func(line string) bool {
		return strings.HasPrefix(line, agentAsks) || strings.HasPrefix(line, userAsks)
	})
	for _, line := range open {
		s.facts.addAll(findFacts(line), used)
		if !slices.Contains(s.open, line) {
			s.open = append(s.open, line)
		}
	}
}

// lineOf makes units of a line of a summary.
func (s *summary) lineOf(text string, asked bool) *line {
	l := new(line)
	for _, part := range strings.Split(text, arrow) {
		kind := saidUnit
		for _, k := range []unitKind{callUnit, errorUnit} {
			if rest, ok := strings.CutPrefix(part, label(k)); ok {
				kind, part = k, rest
			}
		}
		if kind == saidUnit {
			for i, piece := range strings.Split(part, gap) {
				if i > 0 {
					l.units = append(l.units, &unit{}) // for the sentences left out
				}
				s.addTexts(l, sentences(piece), asked)
			}
			continue
		}
		s.addUnit(l, kind, part, part)
	}
	return l
}

// headingOf returns the heading that a line is, as a model may write it. What stands under those of a
// model that are not known here happened.
func headingOf(line string) (string, bool) {
	if len(line) > 40 {
		return "", false
	}
	name := strings.Trim(line, "#*_: ")
	for _, h := range []string{keptHeading, toldHeading, openHeading, usedHeading, otherHeading, rowsHeading} {
		if strings.EqualFold(name, strings.TrimSuffix(h, ":")) {
			return h, true
		}
	}
	for _, h := range []string{"Errors", "Files", "Now"} {
		if strings.EqualFold(name, h) {
			return toldHeading, true
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
	for _, p := range e.Parts() {
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
