package adk

import (
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// pins returns the ids of the visible events that ADK looks for when it decides which agent continues, and with what.
// Events with these ids are never summarised:
//
//   - the newest event of each agent. The runner hands a message to the author of the
//     newest event that is not the user's, or, where that agent cannot be addressed, of
//     the newest one before it that can.
//   - where the user is being asked something that compaction lets stay, and in the newest invocation, which may be
//     one that goes on after an answer: that request, the call that it is about with its
//     responses, the user's messages and what workflow nodes returned. A run that is
//     resumed is rebuilt from these. Did it see that the user has confirmed a call, but
//     not that the call has returned, it would make the call again.
//   - of each isolation scope the end of its task, lest later messages go to a task that
//     is over; or, while the task is open, the call that began it, which is what its agent
//     is told first.
//
// They are bounded by the number of agents, by MaxWaitingCalls, and by the number of scopes.
func pins(v fold.View, cfg compaction.Config) []string {
	p := pinning{view: v, pinned: map[int]bool{}}
	p.agents()
	p.requests(compaction.WaitingCalls(v, cfg, compaction.Run{}))
	p.confirmed()
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

const userAuthor = storage.UserAuthor

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

func (p pinning) requests(waiting []fold.Call) {
	goesOn := map[string]bool{} // by invocation id
	for _, c := range waiting {
		goesOn[p.view.At(c.Index).InvocationID()] = true
	}
	newest, awaits := "", map[string]bool{} // awaits: the invocations that asked the user's side
	for _, e := range p.view.Entries() {
		if id := e.Event.InvocationID(); !e.Summary && id != "" {
			newest = id // other invocations may come between a question and its answer
			awaits[id] = awaits[id] || len(e.Event.LongRunningToolIDs()) > 0
		}
	}
	for i, e := range p.view.Entries() {
		id := e.Event.InvocationID()
		switch {
		case e.Summary || id == "":
		case goesOn[id] || id == newest && awaits[id]:
			p.pinned[i] = p.pinned[i] || e.Event.Author() == userAuthor || len(e.Event.LongRunningToolIDs()) > 0 || isOutput(e.Event)
		case id == newest:
			p.pinned[i] = p.pinned[i] || isOutput(e.Event) // its invocation may ask later
		}
	}
}

// confirmed pins the calls that pinned requests for confirmation are about. The calls' responses stay with them.
func (p pinning) confirmed() {
	at := map[string]int{} // the newest call of an id so far
	for _, c := range p.view.Calls() {
		if c.Name == toolconfirmation.FunctionCallName && p.pinned[c.Index] {
			if i, ok := at[confirms(p.view.At(c.Index), c.Part)]; ok {
				p.pinned[i] = true
			}
		}
		if c.ID != "" {
			at[c.ID] = c.Index
		}
	}
}

// confirms returns the id of the call that a request for confirmation is about, or "".
func confirms(e *patch.Event, part int) string {
	var content *genai.Content
	if err := e.Decode("content", &content); err != nil || content == nil || part >= len(content.Parts) {
		return ""
	}
	call, err := toolconfirmation.OriginalCallFrom(content.Parts[part].FunctionCall)
	if err != nil || call == nil {
		return ""
	}
	return call.ID
}

// isOutput reports whether the event has the output of a workflow node.
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

// endsTask reports whether ADK takes the event for the end of a task: its first response of finish_task reports
// success.
func endsTask(e *patch.Event) bool {
	const name, success = "finish_task", "Task completed."
	for _, p := range e.Parts() {
		if p.Kind == patch.PartResponse && p.Name == name {
			return p.Response.Members()["result"].Any() == success
		}
	}
	return false
}
