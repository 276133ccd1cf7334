package compaction

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/ties"
	"github.com/patchlog-dev/patchlog/patch"
)

// Run has information that a session's log does not have. In the zero Run no invocation is running.
type Run struct {
	// Invocation is the id of the invocation that is running, or "". The user's newest message in it stays visible, and
	// the interval trigger does not summarise its events.
	Invocation string

	// Pinned are ids of events that stay raw.
	Pinned []string

	// Focus says in a few words what summaries should keep above all. Summarizers get the first 1,000 runes, in the prompt and as
	// [Request.Focus]. [Extractive] and [Plan] ignore it.
	Focus string

	// Force compacts the session even if a pass costs more than it saves, or the session has not grown since a failure.
	// No window is skipped.
	Force bool
}

// group is a branch, without the suffixes of its runs, and an isolation scope. A summary covers one group.
type group struct {
	branch string
	scope  string
}

func groupOf(e *patch.Event) group {
	return group{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// key returns the group of the events and of their summary.
func (g Group) key() group { return group{records.BranchWithoutRuns(g.Branch), g.Scope} }

// shape is a visible log with the sums that planning needs for every trigger. It is immutable. All slices are by
// visible index.
type shape struct {
	view     fold.View
	entries  []fold.Entry
	tokens   []int // total tokens of the events before each index; the last element counts all
	prompt   int   // tokens that the prompt takes, measured or estimated
	measured bool
	pinned   map[string]bool // by event id
	run      Run

	// invocation numbers the invocations in the order of their first events. An event without invocation id belongs to
	// the invocation before it, except that a message of the user begins a new invocation. Summaries have noInvocation.
	invocation []int32
	running    int32 // the number of the running invocation, or noInvocation
	newest     int32 // the number of the last raw event's invocation
}

const noInvocation = -1

func newShape(v fold.View, run Run) *shape {
	n := v.Len()
	s := &shape{
		view: v, entries: make([]fold.Entry, 0, n), tokens: make([]int, 1, n+1), pinned: map[string]bool{}, run: run,
		invocation: make([]int32, 0, n), running: noInvocation, newest: noInvocation,
	}
	s.run.Focus = focusOf(run.Focus)
	for _, id := range run.Pinned {
		s.pinned[id] = true
	}
	numbers, count := map[string]int32{}, int32(0)
	current, name := int32(noInvocation), ""
	for i, e := range v.Entries() {
		s.entries = append(s.entries, e)
		s.tokens = append(s.tokens, s.tokens[i]+e.Event.EstimatedTokens())
		if e.Pinned {
			s.pinned[e.Event.ID()] = true
		}
		switch id := e.Event.InvocationID(); {
		case e.Summary:
			current, name = noInvocation, ""
			s.invocation = append(s.invocation, noInvocation)
			continue
		case id != "" && id == name:
		case id != "":
			number, known := numbers[id]
			if !known {
				number = count
				numbers[id] = number
				count++
			}
			current, name = number, id
		case e.Event.Author() == "user" || current == noInvocation:
			current, name = count, ""
			count++
		}
		s.invocation, s.newest = append(s.invocation, current), current
	}
	if number, ok := numbers[run.Invocation]; ok {
		s.running = number
	}
	s.prompt, s.measured = promptTokens(s.entries, v.PatchSeq())
	return s
}

// raw reports whether the event is not a summary.
func (s *shape) raw(i int) bool { return !s.entries[i].Summary }

// inRunning reports whether the event belongs to the running invocation.
func (s *shape) inRunning(i int) bool {
	return s.running != noInvocation && s.invocation[i] == s.running
}

// between returns the number of tokens of the events in [from, to).
func (s *shape) between(from, to int) int { return s.tokens[to] - s.tokens[from] }

// sum returns the number of tokens of the events for which counts is true.
func (s *shape) sum(counts func(i int) bool) (n int) {
	for i := range s.entries {
		if counts(i) {
			n += s.between(i, i+1)
		}
	}
	return n
}

// at returns the number of tokens of the events with the given indices.
func (s *shape) at(indices []int) (n int) {
	for _, i := range indices {
		n += s.between(i, i+1)
	}
	return n
}

// tail returns the index of the n-th raw event with content, counted from the end.
func (s *shape) tail(n int) int {
	i := len(s.entries)
	for i > 0 && n > 0 {
		i--
		if s.raw(i) && s.entries[i].Event.SaysSomething() {
			n--
		}
	}
	return i
}

// retained reports whether an event stays because of [Config.RetainInvocations]. These invocations stay whole if they
// have at most the given tokens. Otherwise, over is true, and the user's last question stays, with the last events up
// to that many tokens.
func (s *shape) retained(cfg Config, most int) (holds func(i int) bool, over bool) {
	newest, question := map[int32]bool{}, -1
	for i := len(s.entries) - 1; i >= 0; i-- {
		number, e := s.invocation[i], s.entries[i].Event
		if s.raw(i) && !newest[number] && len(newest) < cfg.RetainInvocations && e.SaysSomething() {
			newest[number] = true
		}
		if newest[number] && question < 0 && isQuestion(e) {
			question = i
		}
	}
	holds = func(i int) bool { return newest[s.invocation[i]] }
	if s.sum(holds) <= most {
		return holds, false
	}
	n := len(s.entries)
	tail := n
	for tail > 0 && s.between(tail-1, n) <= most {
		tail--
	}
	return func(i int) bool { return newest[s.invocation[i]] && (i >= tail || i == question) }, true
}

// liveQuestion returns the index of the running invocation's newest message of the user, function responses aside, or -1.
func (s *shape) liveQuestion() int {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.inRunning(i) && isQuestion(s.entries[i].Event) {
			return i
		}
	}
	return -1
}

// selection is the part of a shape that one trigger may cover. It is immutable.
type selection struct {
	*shape

	// stays are the events that no summary may cover.
	stays []bool

	// last is, for each event, the last event tied to it by calls and responses, mostly itself. Tied events are covered
	// together or not at all.
	last []int32

	// attached reports, for each event, that an event that stays lies between it and its last. An attached event is
	// outside a window's span; it is removed together with its last. attachedTo has the attached events by their last.
	attached   []bool
	attachedTo map[int][]int
}

// selection selects the raw events that a summary may cover. holds reports which events the trigger excludes.
func (s *shape) selection(cfg Config, holds func(i int) bool) *selection {
	calls := s.view.Calls()
	stays, _ := s.openCalls(calls, cfg)
	question := s.liveQuestion()
	for i, e := range s.entries {
		stays[i] = stays[i] || e.Summary || i == question || holds(i) || len(s.pinned) > 0 && s.pinned[e.Event.ID()] || isRecord(e.Event)
	}
	return s.tied(stays, ties.Last(len(s.entries), calls))
}

// tied returns the selection without the events that stay, and without the events tied to these.
func (s *shape) tied(stays []bool, last []int32) *selection {
	for i, of := range last {
		stays[of] = stays[of] || stays[i]
	}
	for i, of := range last {
		stays[i] = stays[i] || stays[of]
	}
	x := &selection{shape: s, stays: stays, last: last, attached: make([]bool, len(stays)), attachedTo: map[int][]int{}}
	// From the end: an attached event splits the span, which may attach earlier events tied to later ones.
	end := len(stays)
	for i := end - 1; i >= 0; i-- {
		if stays[i] {
			end = i
		} else if of := int(last[i]); of >= end {
			x.attached[i] = true
			x.attachedTo[of] = append(x.attachedTo[of], i)
			end = i
		}
	}
	return x
}

// covers reports whether a window may hold the event.
func (x *selection) covers(i int) bool { return !x.stays[i] }

// held returns the number of tokens of the raw events that stay. No pass removes them, so they do not justify a pass
// that does not pay.
func (x *selection) held() int { return x.sum(func(i int) bool { return x.stays[i] && x.raw(i) }) }

// isRecord reports whether the event is a compaction record of a foreign log, whose text no model sees. It stays as it is
// until it is adopted.
func isRecord(e *patch.Event) bool {
	if e.SaysSomething() {
		return false
	}
	_, ok := summaries.CompactionOf(e)
	return ok
}

// isQuestion reports whether the event is a message of the user that has more than function responses.
func isQuestion(e *patch.Event) bool {
	return e.Author() == "user" && e.SaysSomething() && !onlyResponses(e)
}

func onlyResponses(e *patch.Event) (only bool) {
	for _, p := range e.Parts() {
		if p.Kind != patch.PartResponse {
			return false
		}
		only = true
	}
	return only
}
