// Package extractive writes summaries of events without a model. It selects whole sentences from the events and needs
// no knowledge of their language. The same events always give the same summary. The running time is nearly linear in
// the events' size.
package extractive

import (
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/internal/words"
	"github.com/patchlog-dev/patchlog/patch"
)

// Constants of a summary. The figures come from 82 probes of ten coding sessions, and from the sessions of
// bench/quality. A probe is a question that the summary should answer.
const (
	// askedRunes is the number of runes of a user's message that are kept, half from each end, since the task can be at
	// either end. With 600 runes from the beginning, 60 % of the probes are answered. With 1,000 runes from both ends,
	// 66 % are answered. Of the agent's last message, the latest turns keep the same length, and other turns keep
	// step*askedRunes from each end.
	askedRunes = 1_000

	// latest is the number of newest turns that keep more of the agent's actions and words. With these turns, 94 % of
	// the probes are answered. Without them, 66 % are answered.
	latest = 3

	// wordsShare is the budget for words as a fraction of the covered tokens. Two amounts are added to the budget: the
	// same fraction of the user's words, and leastWords. Without the fraction of the user's words, 67 instead of 91 %
	// of stated preferences remain in sessions that consist almost entirely of the user's messages.
	wordsShare = 0.0375

	// thingsShare is the maximum size of rows and identifiers as a fraction of the covered tokens. They also take at
	// most half of the summary. Identifiers that only tools returned take at most step*thingsShare of the summary,
	// because they made up half of the text of coding sessions. With 0.25, 79 instead of 84 % of the related values in
	// tau-bench are on one line.
	thingsShare = 0.35

	// step is the factor between levels of importance. The user's words and the last states have the highest level. The
	// closing words and calls of the latest turns have the second level, and everything else has the third. The weight
	// of a word that is already in the summary, or of a request that was answered, is also multiplied by step. With
	// 0.2, 71 instead of 72 % of the facts of tau-bench are visible. Of a long coding session, 89 instead of 93 % of
	// the facts are visible.
	step = 0.3

	// emphasis is the factor for a sentence with a word of a limit, a preference or a correction. It is also the value
	// of a word that is a name or has a digit. With 1, 61 instead of 72 % of the facts of tau-bench are visible.
	emphasis = 1.5
)

// leastWords is the minimum budget for words: about one user message.
const leastWords = askedRunes * 3 / 10 * tokens.Token

// Input is the input of a summary.
type Input struct {
	Events []*patch.Event // events of one branch, in order
	Told   []*patch.Event // summaries by other writers; they may cover some of Events, or earlier events
	Before []*patch.Event // earlier summaries, whose facts are not repeated
	Max    int            // maximum tokens of the summary
}

// Section headings, and labels of the lines of a turn.
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
	gap         = " […] " // replaces left-out sentences of a message
	apart       = " / "   // separates messages on one line
	waitingCall = "unanswered: "
)

// leastHeadings is the minimum room for a summary with headings.
const leastHeadings = 60 * tokens.Token

// Summarise returns a summary of at most in.Max tokens. It returns "" if the events have no text or the room is too
// small. No event may be nil.
//
// A summary has one budget for words, and one for rows and identifiers. The words belong to turns. A turn has the
// user's message, the calls and states, and the agent's closing words. If the words exceed the budget, older turns are
// cut first. First, they lose the closing words, then the actions, and last the less valuable of the user's sentences.
// The rest of the budget is used for other sentences of the agent.
func Summarise(in Input) string { return in.read().write(in) }

// read reads the events of the input.
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
	if len(in.Events) > 0 { // a summary that repeats nearly everything saves nothing
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
		// The size of a text may differ slightly from the sum of its parts.
		if tokens.Of(text) <= room {
			return text
		}
		last := len(p.order) - 1
		if last < 0 {
			return ""
		}
		p.order[last].keep, p.order = false, p.order[:last] // drop the least important unit
	}
}

// Lacking returns the facts that another writer's summary lacks, under a heading. The text has at most in.Max tokens.
// The facts are the user's short limits and wishes, rows with a used id, and used identifiers.
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

// userSize returns the size of the user's messages. Only the two ends of a long message count.
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
