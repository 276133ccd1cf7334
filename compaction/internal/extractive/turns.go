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

// turn is a user message and the events up to the next one.
type turn struct {
	told   bool // it is a summary by another writer
	asked  []*unit
	calls  []*call
	did    []*unit // the calls of a tool each
	states []*unit // the last states of files, checks and errors
	said   []*unit // sentences of the agent's
	last   int     // the index in said from which on its last message stands
}

// state is the last state of something.
type state struct {
	of    *unit
	text  string
	count int
}

// The kinds of calls that are told if there is room, and of states.
const (
	before  = "before"
	changed = "changed"
	checked = "checked"
	failed  = "failed"
)

// reader reads events into turns.
type reader struct {
	turns []*turn

	known   *identifiers.Index // of earlier summaries
	source  *identifiers.Index // of all events
	waiting map[string][]*call // by call id, or name
	states  map[string]state   // by what they are of
	said    map[string]bool    // sentences of messages before the last ones of their turns
	calls   []*call
	rows    *rows
	ids     *ids
	open    string // the calls without an answer
	other   string // what is said only if there is nothing else
}

// add reads an event. A turn begins with a message of the user's.
func (s *reader) add(e *patch.Event) {
	if _, ok := summaries.CompactionOf(e); ok {
		s.addTold(e)
		return
	}
	user := e.Author() == "user"
	begun := false // the user's words are one message, also in several parts
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
			case e.Role() == "user": // instructions, notifications
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
	} else if e.Role() == "model" { // it goes on
		s.set(failed, "", "")
	}
}

// now returns the current turn.
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

// say reads a message of the agent's. begins says that it is not the rest of one.
func (s *reader) say(t *turn, text string, begins bool) {
	if begins { // the message before is one unit: half of one is a fragment
		t.last = min(t.last, len(t.said))
		message := t.said[t.last:]
		for len(message) > 0 && leads(message[len(message)-1]) { // to a call
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

// appendNew appends units, except one that says the same as the one before it.
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

// end adds the calls to their turns, and lists the open ones.
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

// isMark reports whether a text is a mark of a program, such as one that stops a conversation.
func isMark(text string) bool {
	return len(text) > 4 && strings.HasPrefix(text, "##") && strings.HasSuffix(text, "##") && !strings.Contains(text, " ")
}

// call is a function call.
type call struct {
	name     string
	args     string // as they are shown
	count    int    // how often it was made in the turn
	do       action
	user     bool // it waits for the user's side: what the tool returns is a placeholder
	answered bool
}

const (
	maxNameRunes = 128
	maxArgs      = 40 * tokens.Token // of a call
	maxOutcome   = 32 * tokens.Token // of a check or an error
	maxLeaves    = 64                // of the values of one call
	maxCount     = 999               // of what is counted, lest it pass for a fact
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
	if len(c.do.files) == 0 || c.do.shell { // else its state tells it
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
	case len(c.do.files) > 0: // another tool may mend it
		of, by = c.do.files[0], c.name+" "+path.Base(c.do.files[0])
	}
	switch what := c.do.check; {
	case what != "":
		if text == "" {
			text = "done"
		}
		if !bad { // what failed before is mended, or does not matter
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
	if identifiers.Invents(text, s.source) { // it was decoded twice
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
	shownCalls = 2 // of one tool in a turn are told one by one
	lastFew    = 8 // of a latest turn are, of those that its states do not tell, if there is room; as many states weigh most
)

// tellCalls tells the calls of a turn: a tool's, or how many there were and the last.
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
	told := map[string]bool{} // by what they touch
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

// text is a call with its arguments.
func (c *call) text() string {
	if c.args == "" {
		return c.name + times(c.count)
	}
	return c.name + "(" + c.args + ")" + times(c.count)
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
	if name = oneLine(name); name == "" || len([]rune(name)) > maxNameRunes {
		return "a function"
	}
	return name
}

// callKey is what a response has in common with its call.
func callKey(p patch.Part) string {
	if p.ID != "" {
		return "id " + p.ID
	}
	return "name " + p.Name
}
