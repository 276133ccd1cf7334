package extractive

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/patch"
)

// turn is a user message and the events up to the next user message.
type turn struct {
	told   bool // the turn is a summary by another writer
	asked  []*unit
	calls  []*call
	did    []*unit // calls, or one unit for many calls of a tool
	states []*unit // last states of files, checks and errors
	said   []*unit // the agent's sentences
	last   int     // index in said where the agent's last message begins
}

// state is the last known state of a thing, such as a file or a check.
type state struct {
	of    *unit
	text  string
	count int
}

// before is the kind of calls that are listed if there is room. The other constants are kinds of states.
const (
	before  = "before"
	changed = "changed"
	checked = "checked"
	failed  = "failed"
)

// reader converts events to turns.
type reader struct {
	turns []*turn

	known   *identifiers.Index // identifiers of earlier summaries
	source  *identifiers.Index // identifiers of all events
	waiting map[string][]*call // by call id, or by function name
	states  map[string]state   // by kind and thing
	said    map[string]bool    // sentences of agent messages that are not the last of their turn
	calls   []*call
	rows    *rows
	ids     *ids
	open    string // the calls without an answer
	other   string // used only if the summary would otherwise be empty
}

// add reads an event. A user message begins a turn.
func (s *reader) add(e *patch.Event) {
	if _, ok := summaries.CompactionOf(e); ok {
		s.addTold(e)
		return
	}
	user := e.Author() == "user"
	begun := false // the text parts of one event are one message
	for _, p := range e.Parts() {
		switch p.Kind {
		case patch.PartText:
			text := strings.TrimSpace(p.Text)
			switch {
			case text == "" || isMark(text):
			case user:
				if !begun {
					s.turns = append(s.turns, &turn{})
				}
				begun = true
				s.ask(text)
				s.other = askedLabel + oneLine(text)
			case e.Role() == "user": // instructions and notifications
				s.other = "The program: " + oneLine(text)
			default:
				s.say(s.now(), text, !begun)
				begun = true
				s.other = agentLabel + oneLine(text)
			}
		case patch.PartData, patch.PartFile:
			text := oneLine(fmt.Sprintf("[%s %s%s]", p.MIMEType, p.Name, p.URI))
			if t := s.now(); user {
				t.asked = append(t.asked, &unit{text: text})
			} else if e.Role() != "user" {
				t.said = append(t.said, &unit{text: text})
			}
		case patch.PartCall:
			s.call(e, p)
		case patch.PartCode:
			s.call(e, patch.Part{Name: "code", Args: p.Value})
			s.ids.addText(p.Text, used)
		case patch.PartResponse:
			s.answer(p, user)
			s.other = functionName(p.Name) + " returned: " + oneLine(identifiers.Values(records.JSON(p.Response)))
		case patch.PartCodeResult, patch.PartOther:
			s.other = fmt.Sprintf("%s: %s", p.Kind, oneLine(identifiers.Values(records.JSON(p.Value))))
		}
	}
	if text, ok := e.Field("errorMessage"); ok && stringIn(text) != "" && stringIn(text) != "null" {
		s.set(failed, "", cut(oneLine(stringIn(text)), maxOutcome))
	} else if e.Role() == "model" { // the model continues, so its last error no longer matters
		s.set(failed, "", "")
	}
}

func (s *reader) now() *turn {
	if len(s.turns) == 0 || s.turns[len(s.turns)-1].told {
		s.turns = append(s.turns, &turn{})
	}
	return s.turns[len(s.turns)-1]
}

func (s *reader) ask(text string) {
	t := s.now()
	t.asked = appendNew(t.asked, unitsOf(text, false))
	s.ids.addText(text, used)
}

// say reads text of the agent. The argument begins is true if the text begins a message, and false if it
// continues one.
func (s *reader) say(t *turn, text string, begins bool) {
	if begins { // join the previous message to one unit, because half a message is a fragment
		t.last = min(t.last, len(t.said))
		message := t.said[t.last:]
		for len(message) > 0 && leads(message[len(message)-1]) { // sentences that only introduce a call
			message = message[:len(message)-1]
		}
		message = slices.DeleteFunc(message, func(u *unit) bool {
			again := s.said[u.text]
			s.said[u.text] = true
			return again
		})
		t.said = t.said[:t.last]
		joinAll(ends(message, int(step*askedRunes)))
		if text := join(message); text != "" {
			t.said = append(t.said, &unit{text: text, lined: true})
		}
		t.last = len(t.said)
	}
	t.said = appendNew(t.said, unitsOf(text, true))
	s.ids.addText(text, used)
}

// appendNew appends units. It skips a unit with the same text as the previous one.
func appendNew(units, more []*unit) []*unit {
	for _, u := range more {
		if len(units) == 0 || units[len(units)-1].text != u.text {
			units = append(units, u)
		}
	}
	return units
}

// addTold reads a summary by another writer.
func (s *reader) addTold(e *patch.Event) {
	t := &turn{told: true}
	for _, p := range e.Parts() {
		if p.Kind == patch.PartText {
			s.say(t, strings.ReplaceAll(p.Text, toldLabel, ""), false)
		}
	}
	s.turns = append(s.turns, t)
}

// end adds the calls to their turns, and lists the unanswered calls.
func (s *reader) end() {
	for i, t := range s.turns {
		t.tellCalls(i >= len(s.turns)-latest)
	}
	waiting := map[string]int{}
	var open []string
	for _, c := range s.calls {
		if !c.answered {
			if waiting[c.name]++; waiting[c.name] == 1 {
				open = append(open, c.name)
			}
		}
	}
	for i, name := range open {
		open[i] += times(waiting[name])
	}
	if len(open) > 0 {
		s.open = cut(waitingCall+strings.Join(open, ", "), maxOutcome)
	}
}

// isMark reports whether a text is a program's control word, such as one that ends a conversation.
func isMark(text string) bool {
	return len(text) > 4 && strings.HasPrefix(text, "##") && strings.HasSuffix(text, "##") && !strings.Contains(text, " ")
}

type call struct {
	name     string
	args     string // as shown in the summary
	count    int    // number of identical calls in the turn
	do       action
	user     bool // the user must answer: the tool's own response is a placeholder
	answered bool
}

const (
	maxNameRunes = 128
	maxArgs      = 40 * tokens.Token // size of a call's arguments
	maxOutcome   = 32 * tokens.Token // size of the outcome of a check, or of an error
	maxLeaves    = 64                // number of values of a call
	maxCount     = 999               // largest count that is shown, so that a count is not mistaken for a fact
)

func (s *reader) call(e *patch.Event, p patch.Part) {
	t := s.now()
	args := records.JSON(p.Args)
	c := &call{name: functionName(p.Name), args: argsText(args), count: 1, do: actionOf(args), answered: p.ID == "" && p.Name == "code"}
	c.user = p.ID != "" && records.IsLongRunning(e, p.ID)
	if identifiers.Invents(c.args, s.source) {
		c.args = ""
	}
	s.ids.addLeaves(args, used)
	key := callKey(p)
	s.waiting[key] = append(s.waiting[key], c)
	s.calls = append(s.calls, c)
	for _, file := range c.do.files {
		s.set(changed, file, file)
	}
	for i, same := range t.calls {
		if same.name == c.name && same.args == c.args {
			c.count += same.count
			t.calls = append(t.calls[:i], t.calls[i+1:]...)
			break
		}
	}
	if len(c.do.files) == 0 || c.do.shell { // a change of a file is listed as a state instead
		t.calls = append(t.calls, c)
	}
}

// answer reads a function's response.
func (s *reader) answer(p patch.Part, user bool) {
	response := records.JSON(p.Response)
	s.rows.add(jsonvalue.NewCursor(response), cell{})
	s.ids.addLeaves(response, returned)
	key := callKey(p)
	c := &call{name: functionName(p.Name)}
	if open := s.waiting[key]; len(open) > 0 && (user || !open[0].user) {
		c, s.waiting[key] = open[0], open[1:]
		c.answered = true
	}
	text, bad := outcome(response)
	text = cut(oneLine(text), maxOutcome)
	of, by := c.name+" "+c.do.key, c.name
	switch {
	case c.do.shell && c.do.key != "":
		by = c.do.key
	case len(c.do.files) > 0: // another tool may fix it
		of, by = c.do.files[0], c.name+" "+path.Base(c.do.files[0])
	}
	switch what := c.do.check; {
	case what != "":
		if text == "" {
			text = "done"
		}
		if !bad { // after a successful check, earlier errors no longer matter
			for of := range s.states {
				if of, ok := strings.CutPrefix(of, failed+" "); ok {
					s.set(failed, of, "")
				}
			}
		}
		s.set(checked, c.do.key, what+" → "+text)
	case bad && text != "":
		s.set(failed, of, fmt.Sprintf("%s (%s)", text, by))
	case !bad:
		s.set(failed, of, "")
	}
}

// set records the last state of a thing in the current turn. An empty text removes it.
func (s *reader) set(kind, of, text string) {
	of = kind + " " + of
	if identifiers.Invents(text, s.source) { // the text does not occur in the events, because JSON within JSON was decoded
		return
	}
	n := state{text: text, count: 1}
	if old, known := s.states[of]; known {
		if old.text == text {
			n.count += old.count
		}
		old.of.text = ""
	}
	if text == "" {
		delete(s.states, of)
		return
	}
	n.of = &unit{kind: kind, text: text + times(n.count)}
	s.states[of] = n
	t := s.now()
	t.states = append(t.states, n.of)
}

const (
	shownCalls = 2 // maximum number of calls of one tool that a turn lists singly
	lastFew    = 8 // maximum number of further calls that a latest turn lists if there is room; also the number of states with full weight
)

// tellCalls lists the calls of a turn. If a tool has many calls, tellCalls lists their number and the last call.
func (t *turn) tellCalls(isLatest bool) {
	byName := map[string][]*call{}
	var names []string
	for _, c := range t.calls {
		if byName[c.name] == nil {
			names = append(names, c.name)
		}
		byName[c.name] = append(byName[c.name], c)
	}
	for _, name := range names {
		calls, n := byName[name], 0
		for _, c := range calls {
			n += c.count
		}
		if len(calls) > shownCalls {
			text := name + times(n)
			if last := calls[len(calls)-1]; last.args != "" {
				text += ", last: " + last.args
			}
			t.did = append(t.did, &unit{text: text})
			continue
		}
		for _, c := range calls {
			t.did = append(t.did, &unit{text: c.text()})
		}
	}
	if !isLatest {
		return
	}
	var earlier []*unit
	told := map[string]bool{} // by tool and by the thing that the call touches
	for _, c := range slices.Backward(t.calls) {
		calls, of := byName[c.name], c.name+" "+cmp.Or(c.do.key, c.args)
		if len(calls) > shownCalls && c != calls[len(calls)-1] && !told[of] && !c.do.looks && c.do.check == "" && len(c.do.files) == 0 && len(earlier) < lastFew {
			earlier = append(earlier, &unit{text: c.text(), kind: before})
		}
		told[of] = true
	}
	slices.Reverse(earlier)
	t.did = append(t.did, earlier...)
}

// text returns the call with its arguments.
func (c *call) text() string {
	if c.args == "" {
		return c.name + times(c.count)
	}
	return c.name + "(" + c.args + ")" + times(c.count)
}

// times returns " ×n", or "" if n is 1.
func times(n int) string {
	switch {
	case n <= 1:
		return ""
	case n > maxCount:
		return fmt.Sprintf(" ×%d+", maxCount)
	}
	return fmt.Sprintf(" ×%d", n)
}

// functionName returns a function's name, or "a function" if the name cannot be shown.
func functionName(name string) string {
	if name = oneLine(name); name == "" || len([]rune(name)) > maxNameRunes {
		return "a function"
	}
	return name
}

// callKey returns a key that a call and its response share.
func callKey(p patch.Part) string {
	if p.ID != "" {
		return "id " + p.ID
	}
	return "name " + p.Name
}
