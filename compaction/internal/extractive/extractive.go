// Package extractive writes a summary of events without a model: it picks from what they say, in whole
// sentences, and understands no language in particular. The same events give the same summary, in time nearly linear
// in their size.
package extractive

import (
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/internal/words"
	"github.com/patchlog-dev/patchlog/patch"
)

// The constants of a summary. Figures are of 82 probes of ten coding sessions, and of the sessions of bench/quality.
const (
	// askedRunes is how much of a user's message is kept, from both of its ends: the task stands at either. With 600
	// from the beginning alone, 60 % of the probes are answered, with 1,000 from both ends 66 %. As much is kept of the
	// agent's last message in the latest turns, and step of it from each end in others.
	askedRunes = 1_000

	// latest turns tell more of what the agent did and said: 94 instead of 66 % of the probes.
	latest = 3

	// wordsShare is the part of the covered tokens that the budget of words is, and the part of the user's words besides,
	// and besides leastWords. Without the user's part, 67 instead of 91 % of told preferences are left in sessions that
	// are nearly all by the user.
	wordsShare = 0.0375

	// thingsShare is the part of the covered tokens that rows and identifiers have at most, and half of the summary; step
	// of it is for identifiers that only tools returned and nothing used, which were half of the text of coding sessions.
	// With 0.25, 79 instead of 84 % of the rows of tau-bench are on one line.
	thingsShare = 0.35

	// step is what each step in importance takes off: from the user's words and the last states to the closing words and
	// calls of the latest turns, to all else; and from a word to one that is told already, a request to one that was
	// answered. With 0.2, 71 instead of 72 % of the facts of tau-bench and 89 instead of 93 % in a long coding session are visible.
	step = 0.3

	// emphasis is what a sentence counts with a word of a limit, a preference or a correction, and a word that is a name
	// or has a digit. With 1, 61 instead of 72 % of the facts of tau-bench are visible.
	emphasis = 1.5
)

// leastWords is what the words of a session may take at least: as much as one message.
const leastWords = askedRunes * 3 / 10 * tokens.Token

// Input is what is to be summarised.
type Input struct {
	Events []*patch.Event // of one branch, in order
	Told   []*patch.Event // summaries by others that stand for some of Events, or for what is not there
	Before []*patch.Event // earlier summaries: what these have is not told again
	Max    int            // tokens that the summary may take
}

// Headings of the sections, and labels of the lines of a turn.
const (
	turnsHeading = "Turns:"
	openHeading  = "Open:"
	rowsHeading  = "Rows:"
	usedHeading  = "Identifiers:"
	alsoHeading  = "Also:"
	seenHeading  = "Seen:"

	askedLabel  = "User: "
	didLabel    = "Did: "
	stateLabel  = "State: "
	agentLabel  = "Agent: "
	toldLabel   = "Earlier: "
	bullet      = "- "
	indent      = "  "
	gap         = " […] " // where sentences of a message are left out
	apart       = " / "   // between messages on one line
	waitingCall = "unanswered: "
)

// leastHeadings is the room from which on sections have headings.
const leastHeadings = 60 * tokens.Token

// Summarise returns a summary in at most in.Max tokens; it is empty if the events say nothing, or there is room for
// nothing. No event may be nil.
//
// A summary has a budget for words and one for rows and identifiers. Words are of turns: a user's message, the calls and
// states of the turn, and the agent's closing words. If not all of it
// fits, older turns shrink first: they lose their closing words, then their actions, then all of the user's
// words but the sentences of the most worth. The rest of the budget goes to other sentences of the agent.
func Summarise(in Input) string { return in.read().write(in) }

// read reads the events.
func (in Input) read() *reader {
	s := &reader{
		known: identifiers.NewIndex(identifiers.Text(in.Before...)), source: identifiers.NewIndex(identifiers.Text(slices.Concat(in.Events, in.Told)...)),
		waiting: map[string][]*call{}, states: map[string]state{}, said: map[string]bool{}, rows: newRows(), ids: newIDs(),
	}
	for _, e := range in.Told {
		s.addTold(e)
	}
	for _, e := range in.Events {
		s.add(e)
	}
	s.end()
	return s
}

func tokensOf(n int) tokens.Size { return tokens.Size(min(max(n, 0), 1<<24)) * tokens.Token }

func part(of tokens.Size, share float64) tokens.Size { return tokens.Size(share * float64(of)) }

func (s *reader) write(in Input) string {
	room := tokensOf(in.Max)
	if room == 0 {
		return ""
	}
	covered := 0
	for _, e := range slices.Concat(in.Events, in.Told) {
		covered += e.EstimatedTokens()
	}
	if len(in.Events) > 0 { // a summary that says nearly all saves nothing
		room = min(room, max(tokensOf(covered)*3/5, min(room, leastHeadings)))
	}
	things := min(room/2, part(tokensOf(covered), thingsShare))
	most := max(leastWords-tokens.Of(identifiers.Text(in.Before...)), leastHeadings) + part(tokensOf(covered), wordsShare) + part(s.userSize(), wordsShare)
	brief := room < leastHeadings
	open, rows := "", ""
	if brief {
		things, most = 0, room
	} else {
		if open = openHeading + "\n" + bullet + s.open; s.open == "" || tokens.Of(open) > room/5 {
			open = ""
		}
		rows = s.rows.write(s, nil, things*4/5)
	}
	none := identifiers.NewIndex("")
	need := tokens.Of(joined(turnsHeading, open, rows, s.ids.write(none, s, things-tokens.Of(rows+"\n"), part(room, step*thingsShare))) + "\n")
	if brief {
		need = 0
	}
	p := choose(s.turns, identifiers.Text(in.Before...), min(most, room-need))
	for {
		text := p.text()
		if joined(text, open, rows) == "" && s.other != "" {
			text = cut(bullet+s.other, min(room, maxOutcome))
		}
		if !brief && text != "" {
			text = turnsHeading + "\n" + text
		}
		text = joined(text, open, rows)
		text = joined(text, s.ids.write(identifiers.NewIndex(text), s, min(room-tokens.Of(text+"\n"), things-tokens.Of(rows+"\n")), part(room, step*thingsShare)))
		// The size of a text may differ a little from the sum of its parts.
		if tokens.Of(text) <= room {
			return text
		}
		last := len(p.order) - 1
		if last < 0 {
			return ""
		}
		p.order[last].keep, p.order = false, p.order[:last] // the least important
	}
}

// Lacking returns facts that a summary by another writer lacks, under a heading, in at most in.Max tokens: short limits and
// wishes of the user, rows with a used id, and used identifiers.
func Lacking(in Input, summary string) string {
	s := in.read()
	told := identifiers.NewIndex(summary)
	room := tokensOf(in.Max) - tokens.Of(alsoHeading+"\n")
	known := words.Set(strings.Join(words.In(summary), " "))
	lines := ""
	for _, t := range slices.Backward(s.turns) {
		for _, u := range t.asked {
			lacks, limits := 0, false
			all := words.In(u.text)
			for _, w := range all {
				limits = limits || limitWords[w]
				if !known[w] {
					lacks++
				}
			}
			line := bullet + u.text + "\n"
			if limits && lacks*2 > len(all) && tokens.Of(line) <= min(room/2, maxOutcome) {
				room -= tokens.Of(line)
				lines = line + lines
			}
		}
	}
	s.ids.rank(s)
	s.ids.ranked = slices.DeleteFunc(s.ids.ranked, func(e *id) bool { return e.use != used })
	rows := s.rows.write(s, told, room/2)
	ids := s.ids.write(told, s, room-tokens.Of(rows+"\n"), 0)
	if text := joined(strings.TrimSuffix(lines, "\n"), rows, ids); text != "" {
		return alsoHeading + "\n" + text
	}
	return ""
}

// userSize returns the size of the user's messages, of long ones the size of both ends.
func (s *reader) userSize() (n tokens.Size) {
	for _, t := range s.turns {
		for _, u := range ends(t.asked, askedRunes) {
			n += tokens.Of(u.text)
		}
	}
	return n
}

func joined(sections ...string) string {
	return strings.Join(slices.DeleteFunc(sections, func(s string) bool { return s == "" }), "\n")
}
