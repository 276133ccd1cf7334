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
	// maxMessageRunes is the number of runes of a user's message that are kept, half from each end, since the task can
	// be at either end. With 600 runes from the beginning, 60 % of the probes are answered. With 1,000 runes from both
	// ends, 66 % are answered. Of the agent's last message, the latest turns keep the same length, and other turns keep
	// levelFactor*maxMessageRunes from each end.
	maxMessageRunes = 1_000

	// latestTurns is the number of newest turns that keep more of the agent's actions and words. With these turns, 94 %
	// of the probes are answered. Without them, 66 % are answered.
	latestTurns = 3

	// wordsShare is the budget for words as a fraction of the covered tokens. Two amounts are added to the budget: the
	// same fraction of the user's words, and minWordsBudget. Without the fraction of the user's words, 67 instead of 91
	// % of stated preferences remain in sessions that consist almost entirely of the user's messages.
	wordsShare = 0.0375

	// dataShare is the maximum size of rows and identifiers as a fraction of the covered tokens. They also take at
	// most half of the summary. Identifiers that only tools returned take at most levelFactor*dataShare of the summary,
	// because they made up half of the text of coding sessions. With 0.25, 79 instead of 84 % of the related values in
	// tau-bench are on one line.
	dataShare = 0.35

	// levelFactor is the factor between levels of importance. The user's words and the last states have the highest
	// level. The closing words and calls of the latest turns have the second level, and everything else has the third.
	// The weight of a word that is already in the summary, or of a request that was answered, is also multiplied by
	// levelFactor. With levelFactor 0.2, the share of visible facts falls from 72 to 71 % in tau-bench, and from 93 to
	// 89 % in a long coding session.
	levelFactor = 0.3

	// emphasis is the factor for a sentence with a word of a limit, a preference or a correction. It is also the value
	// of a word that is a name or has a digit. With 1, 61 instead of 72 % of the facts of tau-bench are visible.
	emphasis = 1.5
)

// minWordsBudget is the minimum budget for words: about one user message.
const minWordsBudget = maxMessageRunes * 3 / 10 * tokens.Token

// Input is the input of a summary.
type Input struct {
	Events           []*patch.Event // events of one branch, in order
	OtherSummaries   []*patch.Event // summaries by other writers, which may cover some of Events, or earlier events
	EarlierSummaries []*patch.Event // earlier summaries, whose facts are not repeated
	MaxTokens        int            // maximum tokens of the summary
}

// Headings of the sections, and labels of the lines of a turn.
const (
	turnsHeading = "Summary of earlier turns:"
	openHeading  = "Open:"
	rowsHeading  = "Rows:"
	usedHeading  = "Identifiers:"
	alsoHeading  = "Also:"
	seenHeading  = "Seen:"

	userLabel         = "User: "
	callsLabel        = "Did: "
	stateLabel        = "State: "
	agentLabel        = "Agent: "
	otherSummaryLabel = "Earlier: "
	bullet            = "- "
	indent            = "  "
	gap               = " […] " // stands for omitted sentences of a message
	messageSeparator  = " / "   // separates messages on one line
	waitingCall       = "unanswered: "
)

// minHeadingsRoom is the room below which a summary has no headings.
const minHeadingsRoom = 60 * tokens.Token

// Summarise returns a summary of at most in.MaxTokens tokens. It returns "" if the events have no text or the room is
// too small. No event may be nil.
//
// A summary has one budget for words, and one for rows and identifiers. The words belong to turns. A turn has the
// user's message, the calls and states, and the agent's closing words. If the words exceed the budget, older turns are
// cut first. First, they lose the closing words, then the actions, and last the less valuable of the user's sentences.
// The rest of the budget is used for other sentences of the agent.
func Summarise(in Input) string { return in.read().write(in) }

// read reads the events of the input.
func (in Input) read() *reader {
	s := &reader{
		earlierIDs: identifiers.NewIndex(identifiers.Text(in.EarlierSummaries...)), sourceIDs: identifiers.NewIndex(identifiers.Text(slices.Concat(in.Events, in.OtherSummaries)...)),
		waitingCalls: map[string][]*call{}, states: map[string]state{}, seenSentences: map[string]bool{}, rows: newRows(), ids: newIDs(),
	}
	for _, e := range in.OtherSummaries {
		s.addOtherSummary(e)
	}
	for _, e := range in.Events {
		s.addEvent(e)
	}
	s.finish()
	return s
}

func sizeOfTokens(n int) tokens.Size { return tokens.Size(min(max(n, 0), 1<<24)) * tokens.Token }

func fraction(of tokens.Size, share float64) tokens.Size { return tokens.Size(share * float64(of)) }

func (s *reader) write(in Input) string {
	room := sizeOfTokens(in.MaxTokens)
	if room == 0 {
		return ""
	}
	covered := 0
	for _, e := range slices.Concat(in.Events, in.OtherSummaries) {
		covered += e.EstimatedTokens()
	}
	if len(in.Events) > 0 { // a summary that repeats nearly everything saves nothing
		room = min(room, max(sizeOfTokens(covered)*3/5, min(room, minHeadingsRoom)))
	}
	dataBudget := min(room/2, fraction(sizeOfTokens(covered), dataShare))
	wordsBudget := max(minWordsBudget-tokens.Of(identifiers.Text(in.EarlierSummaries...)), minHeadingsRoom) + fraction(sizeOfTokens(covered), wordsShare) + fraction(s.userSize(), wordsShare)
	brief := room < minHeadingsRoom
	open, rows := "", ""
	if brief {
		dataBudget, wordsBudget = 0, room
	} else {
		if open = openHeading + "\n" + bullet + s.openCalls; s.openCalls == "" || tokens.Of(open) > room/5 {
			open = ""
		}
		rows = s.rows.write(s, nil, dataBudget*4/5)
	}
	noIDs := identifiers.NewIndex("")
	reserved := tokens.Of(joinSections(turnsHeading, open, rows, s.ids.write(noIDs, s, dataBudget-tokens.Of(rows+"\n"), fraction(room, levelFactor*dataShare))) + "\n")
	if brief {
		reserved = 0
	}
	chosen := choose(s.turns, identifiers.Text(in.EarlierSummaries...), min(wordsBudget, room-reserved))
	for {
		text := chosen.text()
		if joinSections(text, open, rows) == "" && s.fallbackText != "" {
			text = truncate(bullet+s.fallbackText, min(room, maxOutcomeSize))
		}
		if !brief && text != "" {
			text = turnsHeading + "\n" + text
		}
		text = joinSections(text, open, rows)
		text = joinSections(text, s.ids.write(identifiers.NewIndex(text), s, min(room-tokens.Of(text+"\n"), dataBudget-tokens.Of(rows+"\n")), fraction(room, levelFactor*dataShare)))
		// The size of a text may differ slightly from the sum of its parts.
		if tokens.Of(text) <= room {
			return text
		}
		last := len(chosen.keptUnits) - 1
		if last < 0 {
			return ""
		}
		chosen.keptUnits[last].kept, chosen.keptUnits = false, chosen.keptUnits[:last] // remove the least important unit
	}
}

// MissingFacts returns the facts that another writer's summary lacks, under a heading. The text has at most
// in.MaxTokens tokens. The facts are the user's short limits and wishes, rows with a used id, and used identifiers.
func MissingFacts(in Input, summary string) string {
	s := in.read()
	summaryIndex := identifiers.NewIndex(summary)
	room := sizeOfTokens(in.MaxTokens) - tokens.Of(alsoHeading+"\n")
	summaryWords := words.Set(strings.Join(words.In(summary), " "))
	lines := ""
	for _, t := range slices.Backward(s.turns) {
		for _, u := range t.userUnits {
			unknown, hasLimitWord := 0, false
			unitWords := words.In(u.text)
			for _, w := range unitWords {
				hasLimitWord = hasLimitWord || limitWords[w]
				if !summaryWords[w] {
					unknown++
				}
			}
			line := bullet + u.text + "\n"
			if hasLimitWord && unknown*2 > len(unitWords) && tokens.Of(line) <= min(room/2, maxOutcomeSize) {
				room -= tokens.Of(line)
				lines = line + lines
			}
		}
	}
	s.ids.rank(s)
	s.ids.ranked = slices.DeleteFunc(s.ids.ranked, func(e *id) bool { return e.use != used })
	rows := s.rows.write(s, summaryIndex, room/2)
	ids := s.ids.write(summaryIndex, s, room-tokens.Of(rows+"\n"), 0)
	if text := joinSections(strings.TrimSuffix(lines, "\n"), rows, ids); text != "" {
		return alsoHeading + "\n" + text
	}
	return ""
}

// userSize returns the size of the user's messages. Of a long message, only the two ends count.
func (s *reader) userSize() (n tokens.Size) {
	for _, t := range s.turns {
		for _, u := range endUnits(t.userUnits, maxMessageRunes) {
			n += tokens.Of(u.text)
		}
	}
	return n
}

func joinSections(sections ...string) string {
	return strings.Join(slices.DeleteFunc(sections, func(s string) bool { return s == "" }), "\n")
}
