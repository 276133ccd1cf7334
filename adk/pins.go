package adk

import (
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// pins returns the ids of the visible events from which ADK decides which agent continues, and with what input.
// Compaction never summarises these events:
//
//   - The newest event of each agent. The runner passes a message to the author of the newest event that is not the
//     user's. If that agent cannot receive messages, the runner tries the authors of earlier events.
//   - From each invocation that waits for the user, and from the newest invocation if it has asked the user: the
//     request, the call that the request is about, the responses of that call, the user's messages, and the outputs of
//     workflow nodes. ADK rebuilds a resumed run from these events. If ADK found the user's confirmation of a call but
//     not the response, ADK would execute the call again.
//   - From the newest invocation, even if it has not asked the user yet: the outputs of workflow nodes.
//   - For each isolation scope, the event that ended its task. Without this event, later messages would go to the ended
//     task. If the task is open, the call that began the task is pinned, because this call is the first input of the
//     task's agent.
//
// The number of these events is bounded by the numbers of agents and scopes, and by MaxWaitingCalls.
func pins(v fold.View, cfg compaction.Config) []string {
	p := pinner{view: v, pinned: map[int]bool{}}
	p.pinAgents()
	p.pinRequests(compaction.WaitingCalls(v, cfg, compaction.Run{}))
	p.pinConfirmedCalls()
	p.pinScopes()
	var ids []string
	for i, e := range v.Events() {
		if p.pinned[i] {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

type pinner struct {
	view   fold.View
	pinned map[int]bool // the indices of the pinned visible events
}

const userAuthor = storage.UserAuthor

func (p pinner) pinAgents() {
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

func (p pinner) pinRequests(waiting []fold.Call) {
	waitingInvocations := map[string]bool{} // ids of the waiting invocations
	for _, c := range waiting {
		waitingInvocations[p.view.At(c.Index).InvocationID()] = true
	}
	newest, askedUser := "", map[string]bool{} // askedUser contains the ids of the invocations that asked the user
	for _, e := range p.view.Entries() {
		if id := e.Event.InvocationID(); !e.Summary && id != "" {
			newest = id // assigned for each event, because another invocation may come between a request and its answer
			askedUser[id] = askedUser[id] || len(e.Event.LongRunningToolIDs()) > 0
		}
	}
	for i, e := range p.view.Entries() {
		id := e.Event.InvocationID()
		switch {
		case e.Summary || id == "":
		case waitingInvocations[id] || id == newest && askedUser[id]:
			p.pinned[i] = p.pinned[i] || e.Event.Author() == userAuthor || len(e.Event.LongRunningToolIDs()) > 0 || isOutput(e.Event)
		case id == newest:
			p.pinned[i] = p.pinned[i] || isOutput(e.Event) // the invocation may still ask the user
		}
	}
}

// pinConfirmedCalls pins the calls that pinned requests for confirmation are about. Compaction keeps the responses of
// these calls too.
func (p pinner) pinConfirmedCalls() {
	callIndex := map[string]int{} // maps the id of each call so far to the index of the newest event with the call
	for _, c := range p.view.Calls() {
		if c.Name == toolconfirmation.FunctionCallName && p.pinned[c.Index] {
			if i, ok := callIndex[confirmedCallID(p.view.At(c.Index), c.Part)]; ok {
				p.pinned[i] = true
			}
		}
		if c.ID != "" {
			callIndex[c.ID] = c.Index
		}
	}
}

// confirmedCallID returns the id of the call that a request for confirmation is about. It returns "" if there is none.
func confirmedCallID(e *patch.Event, part int) string {
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

// isOutput reports whether the event contains the output of a workflow node.
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

func (p pinner) pinScopes() {
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

// endsTask reports whether ADK treats the event as the end of a task. This is the case if the event's first response
// of finish_task reports success.
func endsTask(e *patch.Event) bool {
	const name, success = "finish_task", "Task completed."
	for _, p := range e.Parts() {
		if p.Kind == patch.PartResponse && p.Name == name {
			return p.Response.Members()["result"].Any() == success
		}
	}
	return false
}
