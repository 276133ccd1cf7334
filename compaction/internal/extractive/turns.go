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
	isOtherSummary bool // whether the turn is a summary by another writer
	userUnits      []*unit
	calls          []*call
	callUnits      []*unit // calls; many calls of a tool are one unit
	states         []*unit // last states of files, checks and errors
	agentUnits     []*unit // sentences of the agent
	lastMessage    int     // index in agentUnits where the agent's last message begins
}

// state is the last known state of a thing, such as a file or a check.
type state struct {
	unit  *unit
	text  string
	count int
}

// Kinds of units. The units of kind earlierCalls are calls that are listed if there is room. The other kinds are
// kinds of states.
const (
	earlierCalls = "before"
	changed      = "changed"
	checked      = "checked"
	failed       = "failed"
)

// reader converts events to turns.
type reader struct {
	turns []*turn

	earlierIDs    *identifiers.Index // identifiers of earlier summaries
	sourceIDs     *identifiers.Index // identifiers of all events
	waitingCalls  map[string][]*call // key: call id, or function name for a call without id
	states        map[string]state   // key: kind and thing
	seenSentences map[string]bool    // sentences of agent messages that are not the last message of their turn
	calls         []*call
	rows          *rows
	ids           *ids
	openCalls     string // list of the calls without an answer
	fallbackText  string // used only if the summary would otherwise be empty
}

// addEvent reads an event. A user message begins a turn.
func (s *reader) addEvent(e *patch.Event) {
	if _, ok := summaries.CompactionOf(e); ok {
		s.addOtherSummary(e)
		return
	}
	user := e.Author() == "user"
	begun := false // whether a text part of the event was read; all of them are one message
	for _, p := range e.Parts() {
		switch p.Kind {
		case patch.PartText:
			text := strings.TrimSpace(p.Text)
			switch {
			case text == "" || isControlWord(text):
			case user:
				if !begun {
					s.turns = append(s.turns, &turn{})
				}
				begun = true
				s.addUserText(text)
				s.fallbackText = userLabel + oneLine(text)
			case e.Role() == "user": // instructions and notifications by the program
				s.fallbackText = "The program: " + oneLine(text)
			default:
				s.addAgentText(s.currentTurn(), text, !begun)
				begun = true
				s.fallbackText = agentLabel + oneLine(text)
			}
		case patch.PartData, patch.PartFile:
			text := oneLine(fmt.Sprintf("[%s %s%s]", p.MIMEType, p.Name, p.URI))
			if t := s.currentTurn(); user {
				t.userUnits = append(t.userUnits, &unit{text: text})
			} else if e.Role() != "user" {
				t.agentUnits = append(t.agentUnits, &unit{text: text})
			}
		case patch.PartCall:
			s.addCall(e, p)
		case patch.PartCode:
			s.addCall(e, patch.Part{Name: "code", Args: p.Value})
			s.ids.addText(p.Text, used)
		case patch.PartResponse:
			s.addResponse(p, user)
			s.fallbackText = functionName(p.Name) + " returned: " + oneLine(identifiers.Values(records.JSON(p.Response)))
		case patch.PartCodeResult, patch.PartOther:
			s.fallbackText = fmt.Sprintf("%s: %s", p.Kind, oneLine(identifiers.Values(records.JSON(p.Value))))
		}
	}
	if text, ok := e.Field("errorMessage"); ok && messageOf(text) != "" && messageOf(text) != "null" {
		s.setState(failed, "", truncate(oneLine(messageOf(text)), maxOutcomeSize))
	} else if e.Role() == "model" { // the model continued, so its last error no longer matters
		s.setState(failed, "", "")
	}
}

func (s *reader) currentTurn() *turn {
	if len(s.turns) == 0 || s.turns[len(s.turns)-1].isOtherSummary {
		s.turns = append(s.turns, &turn{})
	}
	return s.turns[len(s.turns)-1]
}

func (s *reader) addUserText(text string) {
	t := s.currentTurn()
	t.userUnits = appendNew(t.userUnits, splitUnits(text, false))
	s.ids.addText(text, used)
}

// addAgentText reads text of the agent. The argument begins is true if the text begins a message, and false if it
// continues one.
func (s *reader) addAgentText(t *turn, text string, begins bool) {
	if begins { // join the sentences of the previous message into one unit, because a sentence on its own would be a fragment
		t.lastMessage = min(t.lastMessage, len(t.agentUnits))
		message := t.agentUnits[t.lastMessage:]
		for len(message) > 0 && isLeadIn(message[len(message)-1]) { // omit sentences that only introduce a call
			message = message[:len(message)-1]
		}
		message = slices.DeleteFunc(message, func(u *unit) bool {
			seen := s.seenSentences[u.text]
			s.seenSentences[u.text] = true
			return seen
		})
		t.agentUnits = t.agentUnits[:t.lastMessage]
		keepAndJoin(endUnits(message, int(levelFactor*maxMessageRunes)))
		if text := joinKept(message); text != "" {
			t.agentUnits = append(t.agentUnits, &unit{text: text, startsLine: true})
		}
		t.lastMessage = len(t.agentUnits)
	}
	t.agentUnits = appendNew(t.agentUnits, splitUnits(text, true))
	s.ids.addText(text, used)
}

// appendNew appends units, except a unit with the same text as the unit before it.
func appendNew(units, more []*unit) []*unit {
	for _, u := range more {
		if len(units) == 0 || units[len(units)-1].text != u.text {
			units = append(units, u)
		}
	}
	return units
}

// addOtherSummary reads a summary that another summarizer or a user wrote.
func (s *reader) addOtherSummary(e *patch.Event) {
	t := &turn{isOtherSummary: true}
	for _, p := range e.Parts() {
		if p.Kind == patch.PartText {
			s.addAgentText(t, strings.ReplaceAll(p.Text, otherSummaryLabel, ""), false)
		}
	}
	s.turns = append(s.turns, t)
}

// finish adds the calls to their turns, and lists the unanswered calls.
func (s *reader) finish() {
	for i, t := range s.turns {
		t.listCalls(i >= len(s.turns)-latestTurns)
	}
	counts := map[string]int{}
	var open []string
	for _, c := range s.calls {
		if !c.answered {
			if counts[c.name]++; counts[c.name] == 1 {
				open = append(open, c.name)
			}
		}
	}
	for i, name := range open {
		open[i] += repeatMark(counts[name])
	}
	if len(open) > 0 {
		s.openCalls = truncate(waitingCall+strings.Join(open, ", "), maxOutcomeSize)
	}
}

// isControlWord reports whether a text is a control word of a program, such as a word that ends a conversation.
func isControlWord(text string) bool {
	return len(text) > 4 && strings.HasPrefix(text, "##") && strings.HasSuffix(text, "##") && !strings.Contains(text, " ")
}

type call struct {
	name           string
	args           string // arguments as the summary shows them
	count          int    // number of identical calls in the turn
	action         action
	answeredByUser bool // whether the user must answer, because the tool's own response is a placeholder
	answered       bool
}

const (
	maxNameRunes   = 128
	maxArgsSize    = 40 * tokens.Token // maximum size of the arguments of a call
	maxOutcomeSize = 32 * tokens.Token // maximum size of the outcome of a check, or of an error
	maxLeaves      = 64                // maximum number of values of a call
	maxCount       = 999               // largest count shown, so that a count is not mistaken for a fact
)

func (s *reader) addCall(e *patch.Event, p patch.Part) {
	t := s.currentTurn()
	args := records.JSON(p.Args)
	c := &call{name: functionName(p.Name), args: argsText(args), count: 1, action: actionOf(args), answered: p.ID == "" && p.Name == "code"}
	c.answeredByUser = p.ID != "" && records.IsLongRunning(e, p.ID)
	if identifiers.Invents(c.args, s.sourceIDs) {
		c.args = ""
	}
	s.ids.addJSON(args, used)
	key := callKey(p)
	s.waitingCalls[key] = append(s.waitingCalls[key], c)
	s.calls = append(s.calls, c)
	for _, file := range c.action.files {
		s.setState(changed, file, file)
	}
	for i, same := range t.calls {
		if same.name == c.name && same.args == c.args {
			c.count += same.count
			t.calls = append(t.calls[:i], t.calls[i+1:]...)
			break
		}
	}
	if len(c.action.files) == 0 || c.action.shell { // a call that changes a file is listed as a state instead
		t.calls = append(t.calls, c)
	}
}

// addResponse reads a function's response.
func (s *reader) addResponse(p patch.Part, user bool) {
	response := records.JSON(p.Response)
	s.rows.addValue(jsonvalue.NewCursor(response), cell{})
	s.ids.addJSON(response, returned)
	key := callKey(p)
	c := &call{name: functionName(p.Name)}
	if open := s.waitingCalls[key]; len(open) > 0 && (user || !open[0].answeredByUser) {
		c, s.waitingCalls[key] = open[0], open[1:]
		c.answered = true
	}
	text, hasFailed := outcome(response)
	text = truncate(oneLine(text), maxOutcomeSize)
	subject, source := c.name+" "+c.action.key, c.name
	switch {
	case c.action.shell && c.action.key != "":
		source = c.action.key
	case len(c.action.files) > 0: // a later call of another tool may correct the file
		subject, source = c.action.files[0], c.name+" "+path.Base(c.action.files[0])
	}
	switch check := c.action.check; {
	case check != "":
		if text == "" {
			text = "done"
		}
		if !hasFailed { // after a successful check, earlier errors no longer matter
			for subject := range s.states {
				if subject, ok := strings.CutPrefix(subject, failed+" "); ok {
					s.setState(failed, subject, "")
				}
			}
		}
		s.setState(checked, c.action.key, check+" → "+text)
	case hasFailed && text != "":
		s.setState(failed, subject, fmt.Sprintf("%s (%s)", text, source))
	case !hasFailed:
		s.setState(failed, subject, "")
	}
}

// setState records the last state of a thing in the current turn. An empty text removes it.
func (s *reader) setState(kind, subject, text string) {
	subject = kind + " " + subject
	if identifiers.Invents(text, s.sourceIDs) { // the events do not contain the text, because it comes from JSON inside JSON
		return
	}
	next := state{text: text, count: 1}
	if old, known := s.states[subject]; known {
		if old.text == text {
			next.count += old.count
		}
		old.unit.text = ""
	}
	if text == "" {
		delete(s.states, subject)
		return
	}
	next.unit = &unit{kind: kind, text: text + repeatMark(next.count)}
	s.states[subject] = next
	t := s.currentTurn()
	t.states = append(t.states, next.unit)
}

const (
	maxSingleCalls = 2 // maximum number of calls of one tool that a turn lists one by one

	// maxLatestItems is the maximum number of further calls that one of the latest turns lists if there is room. It is
	// also the maximum number of states of a turn that have full weight.
	maxLatestItems = 8
)

// listCalls lists the calls of a turn. If a tool has many calls, listCalls lists their number and the last call.
func (t *turn) listCalls(isLatest bool) {
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
		if len(calls) > maxSingleCalls {
			text := name + repeatMark(n)
			if last := calls[len(calls)-1]; last.args != "" {
				text += ", last: " + last.args
			}
			t.callUnits = append(t.callUnits, &unit{text: text})
			continue
		}
		for _, c := range calls {
			t.callUnits = append(t.callUnits, &unit{text: c.text()})
		}
	}
	if !isLatest {
		return
	}
	var earlier []*unit
	seen := map[string]bool{} // key: tool and the thing that the call affects
	for _, c := range slices.Backward(t.calls) {
		calls, subject := byName[c.name], c.name+" "+cmp.Or(c.action.key, c.args)
		if len(calls) > maxSingleCalls && c != calls[len(calls)-1] && !seen[subject] && !c.action.isReadOnly && c.action.check == "" && len(c.action.files) == 0 && len(earlier) < maxLatestItems {
			earlier = append(earlier, &unit{text: c.text(), kind: earlierCalls})
		}
		seen[subject] = true
	}
	slices.Reverse(earlier)
	t.callUnits = append(t.callUnits, earlier...)
}

// text returns the name of the call's function and the arguments.
func (c *call) text() string {
	if c.args == "" {
		return c.name + repeatMark(c.count)
	}
	return c.name + "(" + c.args + ")" + repeatMark(c.count)
}

// repeatMark returns " ×n" for n repetitions, or "" if n is 1.
func repeatMark(n int) string {
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
