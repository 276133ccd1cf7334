package extractive

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/patch"
)

// Bounds on what is kept of calls and errors.
const (
	maxNameWidth = 128               // runes of a function's name
	maxCall      = 40 * tokens.Token // of a call with its arguments
	maxError     = 40 * tokens.Token
	maxLeaves    = 64  // values of one call
	maxCount     = 999 // of what is counted, lest it pass for a fact
)

// turn is what is known of one invocation, or of a step of it.
type turn struct {
	said  *line // with calls and errors
	asked *line
	calls map[string]*called // by function
	ended bool               // the agent has said something
}

// called are the calls of one function in a turn.
type called struct {
	unit  *unit
	count int
}

// openCall is a call that waits for its response.
type openCall struct {
	name     string
	user     bool // it waits for the user's side: what the tool returns is a placeholder
	answered bool
}

// addEvents takes in raw events by invocation. One without an id belongs to the
// invocation before; by the user, it begins one.
func (s *summary) addEvents(events []*patch.Event) {
	byID := make(map[string]*turn)
	waiting := make(map[string][]*openCall) // by call id, or name
	var calls []*openCall
	var now *turn
	begin := func(id string) {
		now = &turn{said: new(line), asked: new(line), calls: make(map[string]*called)}
		s.asked, s.told = append(s.asked, now.asked), append(s.told, now.said)
		if id != "" {
			byID[id] = now
		}
	}
	for _, e := range events {
		if _, ok := summaries.CompactionOf(e); ok {
			s.addSummary(e)
			now = nil
			clear(byID)
			continue
		}
		user := e.Author() == "user"
		switch id := e.InvocationID(); {
		case id != "" && byID[id] != nil:
			now = byID[id]
		case id != "" || now == nil || user:
			begin(id)
		}
		if now.ended && !user && says(e) {
			begin(e.InvocationID())
		}
		calls = append(calls, s.addEvent(now, e, user, waiting)...)
	}
	var names []string
	for _, call := range calls {
		if !call.answered {
			names = append(names, call.name)
		}
	}
	if len(names) > 0 {
		s.open = append(s.open, cut("unanswered: "+strings.Join(names, ", "), longSentence))
	}
	if now != nil {
		s.askOpen(now)
	}
}

// askOpen says that the question is open that the newest turn ends with.
func (s *summary) askOpen(t *turn) {
	of, who := t.said, agentAsks
	if !t.ended {
		of, who = t.asked, userAsks
	}
	if n := len(of.units) - 1; n >= 0 && of.units[n].kind == saidUnit && isQuestion(of.units[n].text) {
		s.open = append(s.open, who+of.units[n].text)
		if t.ended {
			of.units = of.units[:n]
		}
	}
}

// says reports whether an event has a text.
func says(e *patch.Event) bool {
	for _, p := range e.Parts() {
		if p.Kind == patch.PartText && strings.TrimSpace(p.Text) != "" {
			return true
		}
	}
	return false
}

// addEvent takes in an event of a turn, and returns the calls in it.
func (s *summary) addEvent(t *turn, e *patch.Event, user bool, waiting map[string][]*openCall) (calls []*openCall) {
	say := func(text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		s.facts.addAll(findFacts(text), used)
		if user {
			s.addTexts(t.asked, sentences(text), true)
		} else {
			t.ended = true
			s.addTexts(t.said, sentences(text), false)
		}
	}
	for _, p := range e.Parts() {
		switch p.Kind {
		case patch.PartText:
			say(p.Text)
		case patch.PartCall:
			name := functionName(p.Name)
			s.addCall(t, name, argsText(records.JSON(p.Args)))
			s.facts.add(fact{key: calledKey, value: name, form: common, named: true}, used)
			s.facts.addAll(factsOfArgs(name, records.JSON(p.Args)), used)
			call := &openCall{name: name, user: p.ID != "" && records.IsLongRunning(e, p.ID)}
			calls = append(calls, call)
			key := callKey(p.ID, p.Name)
			waiting[key] = append(waiting[key], call)
		case patch.PartResponse:
			key := callKey(p.ID, p.Name)
			if open := waiting[key]; len(open) > 0 && (user || !open[len(open)-1].user) {
				open[len(open)-1].answered = true
				waiting[key] = open[:len(open)-1]
			}
			response := records.JSON(p.Response)
			s.rows.add(jsonvalue.NewCursor(response))
			s.facts.addAll(factsOfLeaves(response, false), returned)
			if text, failed := failure(response); failed && text != "" {
				s.addError(t, functionName(p.Name), text)
			}
		case patch.PartCode:
			s.addCall(t, "code", oneLine(p.Text))
			s.facts.addAll(findFacts(p.Text), used)
		case patch.PartData:
			say(fmt.Sprintf("[%s %s]", p.MIMEType, p.Name))
		case patch.PartFile:
			say(fmt.Sprintf("[%s %s]", p.MIMEType, p.URI))
		}
	}
	if text, ok := e.Field("errorMessage"); ok {
		if message := stringIn(text); message != "" && message != "null" {
			s.addError(t, "", message)
		}
	}
	return calls
}

// addUnit adds a unit to a line. One that says the same as an earlier one, but for what it counts, takes
// its place: of repeated attempts the last state counts.
func (s *summary) addUnit(l *line, kind unitKind, text, of string) *unit {
	u := &unit{kind: kind, text: text}
	key := fmt.Sprint(kind, of)
	if old := s.latest[key]; old != nil {
		old.text = ""
	}
	s.latest[key] = u
	l.units = append(l.units, u)
	return u
}

// addTexts adds sentences to a line. Of what the user says again the first counts, for there
// it was new; of what the agent says again the last.
func (s *summary) addTexts(l *line, texts []string, user bool) {
	for _, text := range texts {
		text = unmarked.Replace(text)
		if user && s.latest["user "+text] != nil {
			continue
		}
		if isMark(text) || !user && strings.HasSuffix(strings.TrimRight(text, "*_ "), ":") {
			continue
		}
		u := s.addUnit(l, saidUnit, text, fmt.Sprint(user, text))
		u.answered = !user && isQuestion(text)
		if user {
			s.latest["user "+text] = u
		}
	}
}

// unmarked writes what separates the parts of a line in another way.
var unmarked = strings.NewReplacer(strings.TrimSpace(arrow), "->", strings.TrimSpace(gap), "...")

// isMark reports whether a text is a mark of a program, such as one that stops a conversation.
func isMark(text string) bool {
	return len(text) > 4 && strings.HasPrefix(text, "##") && strings.HasSuffix(text, "##")
}

// addCall adds a call to a turn, in place of an earlier one of the same function.
func (s *summary) addCall(t *turn, name, args string) {
	c := t.calls[name]
	if c == nil {
		c = &called{unit: s.addUnit(t.said, callUnit, "", fmt.Sprintf("%p %s", t, name))}
		t.calls[name] = c
	}
	c.count++
	name, args = unmarked.Replace(name), unmarked.Replace(args)
	c.unit.text = name
	if args = cut(args, maxCall-tokens.Of(name)); args != "" {
		c.unit.text += "(" + args + ")"
	}
	c.unit.text += times(c.count)
}

// addError adds what went wrong to a turn, with how often it did.
func (s *summary) addError(t *turn, name, text string) {
	if len(text) > len(errorLabel) && strings.EqualFold(text[:len(errorLabel)], errorLabel) {
		text = text[len(errorLabel):]
	}
	text = cut(unmarked.Replace(oneLine(text)), maxError)
	if name != "" {
		text += " (" + name + ")"
	}
	key := "errors " + text
	count := s.facts.counts[key] + 1
	s.facts.counts[key] = count
	s.addUnit(t.said, errorUnit, text+times(count), text)
}

// times says how often something was, if more than once.
func times(n int) string {
	switch {
	case n <= 1:
		return ""
	case n > maxCount:
		return fmt.Sprintf(" ×%d+", maxCount)
	}
	return fmt.Sprintf(" ×%d", n)
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

// argsText is a call's arguments.
func argsText(args json.RawMessage) string {
	var all []string
	for l := range leaves(args) {
		if l.value != "" {
			all = append(all, l.String())
		}
		if len(all) == maxLeaves {
			break
		}
	}
	return strings.Join(all, ", ")
}
