// Package extractive picks from events what a summary of them should keep, and writes
// nothing of its own. It needs no model and understands no language in particular. The
// same events give the same summary, in time linear in their size.
package extractive

import (
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction/internal/oneline"
	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/patch"
)

// Summary returns a summary of raw events of one branch, or, if merge is set, of
// summaries, in at most so many runes. It is empty if the events say nothing or there is
// room for nothing. No event may be nil.
//
// Raw events become one line an invocation: what the user asked, which functions were
// called with what arguments, the last error, the last thing that the agent said, and
// the ids that results brought; in the last line, also what the agent asks. Summaries are
// merged line by line.
//
// What does not fit is cut at the end of a word, and then the ids, numbers, dates, paths,
// addresses and names of the rest follow, none of them ever cut. Every line gets its first
// words before any gets more; if there are too many lines, those with the least of such
// facts go first. The first request of the session is what is left in the end.
func Summary(events []*patch.Event, merge bool, maxRunes int) string {
	if merge {
		return fitLines(mergedLines(events), maxRunes)
	}
	return fitLines(invocationLines(events), maxRunes)
}

// Beginnings of lines, and of what follows in them.
const (
	userLabel       = "- User: "
	agentLabel      = "- Agent: "
	otherLabel      = "- "
	arrow           = " → "
	didLabel        = "did: "
	errorLabel      = "error: "
	unansweredLabel = "unanswered: "
	outcomeLabel    = "outcome: "
	questionLabel   = "asks: "
	idsLabel        = "; ids: "
)

// extractTurn is what is known of one invocation.
type extractTurn struct {
	asked     []string
	calls     callList
	failures  int
	lastError string
	outcome   string
	ids       []string
	knownIDs  map[string]bool
	open      []*openCall // in order, the answered ones too
	summary   []string    // lines of a summary that stands among raw events
}

// openCall is a call that waits for its response.
type openCall struct {
	name     string
	user     bool // it waits for the user's side: what the tool returns is a placeholder
	answered bool
}

// invocationLines groups events by invocation. One without an id belongs to the
// invocation before; by the user, it begins one.
func invocationLines(events []*patch.Event) []*extractLine {
	var turns []*extractTurn
	byID := make(map[string]*extractTurn)
	waiting := make(map[string][]*openCall) // by call id, or name
	var turn *extractTurn
	begin := func() {
		turn = &extractTurn{knownIDs: make(map[string]bool)}
		turns = append(turns, turn)
	}
	for _, e := range events {
		if _, ok := record.Of(e); ok {
			turns = append(turns, &extractTurn{summary: textLines(e)})
			continue
		}
		switch id := e.InvocationID(); {
		case id != "" && byID[id] != nil:
			turn = byID[id]
		case id != "" || turn == nil || e.Author() == "user":
			begin()
			if id != "" {
				byID[id] = turn
			}
		}
		turn.add(e, waiting)
	}
	var lines []*extractLine
	for i, turn := range turns {
		lines = append(lines, turn.lines(i == len(turns)-1)...)
	}
	return lines
}

// add takes in an event of the turn's.
func (t *extractTurn) add(e *patch.Event, waiting map[string][]*openCall) {
	user := e.Author() == "user"
	var said []string
	for _, p := range e.Content().Parts() {
		switch p.Kind() {
		case patch.PartText:
			said = append(said, p.Text())
		case patch.PartCall:
			name := functionName(p.Name())
			t.calls.add(name, argsText(p.Args()))
			call := &openCall{name: name, user: p.ID() != "" && e.IsLongRunning(p.ID())}
			t.open = append(t.open, call)
			key := callKey(p.ID(), p.Name())
			waiting[key] = append(waiting[key], call)
		case patch.PartResponse:
			key := callKey(p.ID(), p.Name())
			if open := waiting[key]; len(open) > 0 && (user || !open[len(open)-1].user) {
				open[len(open)-1].answered = true
				waiting[key] = open[:len(open)-1]
			}
			t.addResult(functionName(p.Name()), p.Response())
		case patch.PartCode:
			t.calls.add("code", newPassage(p.Text()).cut(maxValueWidth))
		case patch.PartData:
			said = append(said, fmt.Sprintf("[%s %s]", p.MIMEType(), p.Name()))
		case patch.PartFile:
			said = append(said, fmt.Sprintf("[%s %s]", p.MIMEType(), p.URI()))
		}
	}
	if text := strings.Join(said, " "); strings.TrimSpace(text) != "" {
		if user {
			t.asked = append(t.asked, text)
		} else {
			t.outcome = text
		}
	}
	var message string
	if text, ok := e.Field("errorMessage"); ok {
		message = stringIn(text)
	}
	if message != "" && message != "null" {
		t.failures++
		t.lastError = message
	}
}

// addResult takes in what a function returned: what went wrong, or else the ids.
func (t *extractTurn) addResult(name string, response []byte) {
	if text, failed := failure(response); failed {
		if text != "" {
			t.failures++
			t.lastError = text + " (" + name + ")"
		}
		return
	}
	for _, l := range leavesOf(response) {
		if len(t.ids) < maxResultIDs && l.isID() && !t.knownIDs[l.value] {
			t.knownIDs[l.value] = true
			t.ids = append(t.ids, l.String())
		}
	}
}

func functionName(name string) string {
	return oneline.Cut(newPassage(name).text, maxNameWidth)
}

// callKey is what a response has in common with its call.
func callKey(id, name string) string {
	if id != "" {
		return "id " + id
	}
	return "name " + name
}

// lines tells the turn, the newest one with the question that the agent asked last.
func (t *extractTurn) lines(newest bool) []*extractLine {
	if t.summary != nil {
		return splitLines(t.summary, 0)
	}
	l := new(extractLine)
	if len(t.asked) > 0 {
		l.asked = true
		l.add(headDetail, userLabel, newPassage(strings.Join(t.asked, " / ")))
	}
	if len(t.calls.groups) > 0 {
		l.add(callsDetail, didLabel, &t.calls)
	}
	if t.lastError != "" {
		text := t.lastError
		if len(text) > len(errorLabel) && strings.EqualFold(text[:len(errorLabel)], errorLabel) {
			text = text[len(errorLabel):]
		}
		if t.failures > 1 {
			text = fmt.Sprintf("(last of %d) %s", t.failures, text)
		}
		l.add(errorDetail, errorLabel, newPassage(text))
	}
	if names := t.unanswered(); names != "" {
		l.add(errorDetail, unansweredLabel, newPassage(names))
	}
	outcome, question := t.outcome, ""
	if newest {
		outcome, question = cutQuestion(outcome)
	}
	l.add(outcomeDetail, outcomeLabel, newPassage(outcome))
	l.add(questionDetail, questionLabel, newPassage(question))
	if ids := t.newIDs(); ids != "" {
		l.add(idsDetail, idsLabel, newPassage(ids))
	}
	if len(l.details) == 0 {
		return nil
	}
	return []*extractLine{l}
}

func (t *extractTurn) unanswered() string {
	var names []string
	for _, call := range t.open {
		if !call.answered {
			names = append(names, call.name)
		}
	}
	return strings.Join(names, ", ")
}

// newIDs are the ids of results that neither the user nor the agent said.
func (t *extractTurn) newIDs() string {
	parts := append([]string{t.outcome}, t.asked...)
	for _, g := range t.calls.groups {
		parts = append(parts, g.args...)
	}
	said := strings.Join(parts, " ")
	var ids []string
	for _, id := range t.ids {
		_, value, ok := strings.Cut(id, "=")
		if !ok {
			value = id
		}
		if !strings.Contains(said, value) {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, ", ")
}

// mergedLines takes summaries apart. A line that was there before is left out.
func mergedLines(summaries []*patch.Event) []*extractLine {
	var lines []*extractLine
	known := make(map[string]bool)
	for i, e := range summaries {
		var fresh []string
		for _, text := range textLines(e) {
			if !known[text] {
				known[text] = true
				fresh = append(fresh, text)
			}
		}
		lines = append(lines, splitLines(fresh, i)...)
	}
	return lines
}

// textLines are the lines of an event's texts.
func textLines(e *patch.Event) []string {
	lines := []string{}
	for _, p := range e.Content().Parts() {
		if p.Kind() != patch.PartText {
			continue
		}
		for line := range strings.Lines(p.Text()) {
			if line = newPassage(line).text; line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// splitLines makes lines of their texts, each detail apart if an Extractive wrote them.
func splitLines(texts []string, source int) []*extractLine {
	var lines []*extractLine
	for _, text := range texts {
		l := &extractLine{source: source}
		label := ""
		for _, begin := range []string{userLabel, agentLabel, otherLabel} {
			if rest, ok := strings.CutPrefix(text, begin); ok {
				l.asked = begin == userLabel
				label, text = begin, rest
				break
			}
		}
		text, ids := cutIDs(text)
		for i, part := range strings.Split(text, arrow) {
			kind := headDetail
			if i > 0 {
				kind, label, part = detailOf(part)
			}
			l.add(kind, label, newPassage(part))
		}
		if ids != "" {
			l.add(idsDetail, idsLabel, newPassage(ids))
		}
		lines = append(lines, l)
	}
	return lines
}

// cutIDs takes the ids from the end of a line.
func cutIDs(text string) (rest, ids string) {
	i := strings.LastIndex(text, idsLabel)
	if i <= 0 || strings.Contains(text[i:], arrow) {
		return text, ""
	}
	return text[:i], text[i+len(idsLabel):]
}

// detailOf takes the label from a detail. A question of former times is not urgent.
func detailOf(text string) (kind detailKind, label, rest string) {
	for _, known := range []struct {
		kind  detailKind
		label string
	}{
		{callsDetail, didLabel}, {errorDetail, errorLabel}, {errorDetail, unansweredLabel},
		{errorDetail, questionLabel}, {outcomeDetail, outcomeLabel},
	} {
		if rest, ok := strings.CutPrefix(text, known.label); ok && rest != "" {
			return known.kind, known.label, rest
		}
	}
	return outcomeDetail, "", text
}
