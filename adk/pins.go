package adk

import (
	"google.golang.org/adk/v2/tool/toolconfirmation"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// pins returns the ids of the visible events that ADK looks for in a session when it
// decides who goes on, and with what. A summary is not one of them, so they stay raw:
//
//   - the newest event of each agent. The runner hands a message to the author of the
//     newest event that is not the user's, or, where that agent cannot be addressed, of
//     the newest one before it that can.
//   - where the user is being asked something, and in the newest invocation, which may be
//     one that goes on after an answer: that request, the user's messages and what
//     workflow nodes returned. A run that is resumed is rebuilt from these.
//   - of each isolation scope the end of its task, lest later messages go to a task that
//     is over; or, while the task is open, the call that began it, which is what its agent
//     is told first.
//
// They are bounded by the number of agents, of open requests and of scopes.
func pins(v fold.View) []string {
	p := pinning{view: v, pinned: map[int]bool{}}
	p.agents()
	p.requests()
	p.scopes()
	var ids []string
	for i, e := range v.Events() {
		if p.pinned[i] {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

type pinning struct {
	view   fold.View
	pinned map[int]bool // by visible index
}

// userAuthor is the author of what the user says, and of summaries.
const userAuthor = "user"

func (p pinning) agents() {
	newest := map[string]int{}
	for i, e := range p.view.Entries() {
		if author := e.Event.Author(); !e.Summary && author != userAuthor && author != "" {
			newest[author] = i
		}
	}
	for _, i := range newest {
		p.pinned[i] = true
	}
}

func (p pinning) requests() {
	goesOn := map[string]bool{} // by invocation id
	for _, c := range p.view.Calls() {
		if e := p.view.At(c.Index); asksUser(e, c) && !p.userAnswered(c) {
			goesOn[e.InvocationID()] = true
		}
	}
	newest, asked := "", false
	for _, e := range p.view.Entries() {
		switch id := e.Event.InvocationID(); {
		case e.Summary || id == "":
			continue
		case id != newest:
			newest, asked = id, false
		}
		asked = asked || len(e.Event.LongRunningToolIDs()) > 0
	}
	for i, e := range p.view.Entries() {
		id := e.Event.InvocationID()
		switch {
		case e.Summary || id == "":
		case goesOn[id] || id == newest && asked:
			p.pinned[i] = p.pinned[i] || e.Event.Author() == userAuthor || len(e.Event.LongRunningToolIDs()) > 0 || isOutput(e.Event)
		case id == newest:
			p.pinned[i] = p.pinned[i] || isOutput(e.Event) // it may yet ask
		}
	}
}

// asksUser reports whether a call waits for an answer by the user's side.
func asksUser(e *patch.Event, c fold.Call) bool {
	switch c.Name {
	case toolconfirmation.FunctionCallName, "adk_request_credential", "adk_request_input":
		return true
	}
	return c.ID != "" && e.IsLongRunning(c.ID)
}

func (p pinning) userAnswered(c fold.Call) bool {
	for _, r := range c.Responses {
		if p.view.At(r).Author() == userAuthor {
			return true
		}
	}
	return false
}

// isOutput reports whether the event says what a workflow node returned.
func isOutput(e *patch.Event) bool {
	if _, ok := e.Field("output"); ok {
		return true
	}
	var node struct {
		MessageAsOutput bool `json:"messageAsOutput"`
	}
	if _, ok := e.Field("nodeInfo"); !ok {
		return false
	}
	return e.Decode("nodeInfo", &node) == nil && node.MessageAsOutput
}

func (p pinning) scopes() {
	newest := map[string]int{}
	for i, e := range p.view.Events() {
		if scope := e.IsolationScope(); scope != "" {
			newest[scope] = i
		}
	}
	if len(newest) == 0 {
		return
	}
	open := map[string]bool{}
	for scope, i := range newest {
		if endsTask(p.view.At(i)) {
			p.pinned[i] = true
		} else {
			open[scope] = true
		}
	}
	for _, c := range p.view.Calls() {
		if open[c.ID] {
			p.pinned[c.Index] = true
		}
	}
}

// endsTask reports whether the event is what ADK takes for the end of a task: the first
// response of finish_task in it says that all went well.
func endsTask(e *patch.Event) bool {
	const name, success = "finish_task", "Task completed."
	for _, p := range e.Content().Parts() {
		if p.Kind() == patch.PartResponse && p.Name() == name {
			said, err := patch.ParseValue(p.Response())
			return err == nil && said.Members()["result"].Any() == success
		}
	}
	return false
}
