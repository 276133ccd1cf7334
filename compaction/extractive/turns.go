package extractive

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Beginnings of lines, and of what follows in them.
const (
	bullet          = "- "
	userLabel       = "- User: "
	userTurn        = "user: " // as a transcript has it
	agentLabel      = "- Agent: "
	arrow           = " → "
	didLabel        = "did: "
	errorLabel      = "error: "
	saidLabel       = "said: "
	questionLabel   = "the agent asks: "
	unansweredLabel = "unanswered: "
)

// turn is what is known of one invocation.
type turn struct {
	asked     []string
	calls     callList
	failures  int
	lastError string
	outcome   string
	open      []*openCall // in order, the answered ones too
}

// openCall is a call that waits for its response.
type openCall struct {
	name     string
	user     bool // it waits for the user's side: what the tool returns is a placeholder
	answered bool
}

// addEvents takes in raw events by invocation. One without an id belongs to the
// invocation before; by the user, it begins one.
func (p *parts) addEvents(events []*patch.Event) {
	var turns []*turn
	byID := make(map[string]*turn)
	waiting := make(map[string][]*openCall) // by call id, or name
	var now *turn
	flush := func() {
		for i, t := range turns {
			p.addTurn(t, i == len(turns)-1)
		}
		turns, now = nil, nil
		clear(byID)
	}
	for i, e := range events {
		if _, ok := record.Of(e); ok {
			flush()
			p.addSummary(e, i)
			continue
		}
		switch id := e.InvocationID(); {
		case id != "" && byID[id] != nil:
			now = byID[id]
		case id != "" || now == nil || e.Author() == "user":
			now = new(turn)
			turns = append(turns, now)
			if id != "" {
				byID[id] = now
			}
		}
		if now.outcome != "" && e.Author() != "user" && says(e) {
			now = new(turn)
			turns = append(turns, now)
			if id := e.InvocationID(); id != "" {
				byID[id] = now
			}
		}
		now.add(e, waiting, p.facts)
	}
	flush()
}

// says reports whether an event has a text.
func says(e *patch.Event) bool {
	for _, p := range e.Content().Parts() {
		if p.Kind == patch.PartText && strings.TrimSpace(p.Text) != "" {
			return true
		}
	}
	return false
}

// add takes in an event of the turn's.
func (t *turn) add(e *patch.Event, waiting map[string][]*openCall, facts *ledger) {
	user := e.Author() == "user"
	var said []string
	for _, p := range e.Content().Parts() {
		switch p.Kind {
		case patch.PartText:
			said = append(said, p.Text)
		case patch.PartCall:
			name := functionName(p.Name)
			t.calls.add(name, argsText(records.JSON(p.Args)))
			facts.add(fact{key: calledKey, value: name, form: common, named: true}, used)
			facts.addAll(factsOfArgs(name, records.JSON(p.Args)), used)
			call := &openCall{name: name, user: p.ID != "" && records.IsLongRunning(e, p.ID)}
			t.open = append(t.open, call)
			key := callKey(p.ID, p.Name)
			waiting[key] = append(waiting[key], call)
		case patch.PartResponse:
			key := callKey(p.ID, p.Name)
			if open := waiting[key]; len(open) > 0 && (user || !open[len(open)-1].user) {
				open[len(open)-1].answered = true
				waiting[key] = open[:len(open)-1]
			}
			facts.addAll(factsOfResult(records.JSON(p.Response)), returned)
			t.addFailure(functionName(p.Name), records.JSON(p.Response))
		case patch.PartCode:
			t.calls.add("code", newPassage(p.Text).cut(maxValueWidth))
			facts.addAll(factsSaid(p.Text, false), used)
		case patch.PartData:
			said = append(said, fmt.Sprintf("[%s %s]", p.MIMEType, p.Name))
		case patch.PartFile:
			said = append(said, fmt.Sprintf("[%s %s]", p.MIMEType, p.URI))
		}
	}
	if text := strings.Join(said, " "); strings.TrimSpace(text) != "" {
		facts.addAll(factsSaid(text, user), used)
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

// addFailure takes in what a function returned, if something went wrong.
func (t *turn) addFailure(name string, response json.RawMessage) {
	if text, failed := failure(response); failed && text != "" {
		t.failures++
		t.lastError = text + " (" + name + ")"
	}
}

// functionName is a function's name, if it can be shown.
func functionName(name string) string {
	if name = oneLine(name); name == "" || utf8.RuneCountInString(name) > maxNameWidth {
		return "a function"
	}
	return name
}

// callKey is what a response has in common with its call.
func callKey(id, name string) string {
	if id != "" {
		return "id " + id
	}
	return "name " + name
}

// addTurn tells a turn in a line; what the newest one ends with may be open.
func (p *parts) addTurn(t *turn, newest bool) {
	l := &line{asked: len(t.asked) > 0}
	outcome, question := t.outcome, ""
	if newest {
		outcome, question = cutQuestion(outcome)
	}
	if l.asked {
		l.add(headDetail, userLabel, newPassage(strings.Join(t.asked, " / ")))
	} else {
		l.add(headDetail, agentLabel, newPassage(outcome))
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
			text = fmt.Sprintf("(last of %s) %s", counted(t.failures), text)
		}
		l.add(errorDetail, errorLabel, newPassage(text))
	}
	if l.asked {
		l.add(saidDetail, saidLabel, newPassage(outcome))
	}
	if names := t.unanswered(); names != "" {
		p.open = append(p.open, unansweredLabel+newPassage(names).cut(maxQuestion))
	}
	if question != "" {
		p.open = append(p.open, questionLabel+question)
	}
	if len(l.details) > 0 {
		p.lines = append(p.lines, l)
	}
}

func (t *turn) unanswered() string {
	var names []string
	for _, call := range t.open {
		if !call.answered {
			names = append(names, call.name)
		}
	}
	return strings.Join(names, ", ")
}
