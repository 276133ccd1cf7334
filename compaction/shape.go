package compaction

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/ties"
	"github.com/patchlog-dev/patchlog/patch"
)

// Run says what a session's log does not. In the zero Run no invocation is running.
type Run struct {
	// Invocation is the id of the invocation that is running, or "". Its newest message
	// of the user stays visible, and the interval trigger leaves its events alone.
	Invocation string

	// Pinned are ids of events that stay raw.
	Pinned []string

	// Focus says in a few words what summaries should keep above all. Summarizers get the first 1,000 runes, in the prompt and as
	// [Request.Focus]. [Extractive] and [Plan] ignore it.
	Focus string

	// Force compacts the session even if a pass does not pay yet, or the session has not grown since a failure. No window is
	// skipped.
	Force bool
}

// group names what must not be mixed in one text: a branch, without the suffixes that
// tell its runs apart, and an isolation scope.
type group struct {
	branch string
	scope  string
}

func groupOf(e *patch.Event) group {
	return group{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// key returns what the group's events and their summaries have in common.
func (g Group) key() group { return group{records.BranchWithoutRuns(g.Branch), g.Scope} }

// shape is what planning knows of a visible log before it asks what a trigger may cover. It is not changed once it is made.
// All slices are by visible index.
type shape struct {
	view     fold.View
	entries  []fold.Entry
	tokens   []int // of the events before each, and of all
	prompt   int   // tokens that the prompt takes, measured or estimated
	measured bool
	pinned   map[string]bool // by event id
	run      Run

	// invocation numbers the invocations in the order in which they are first seen: the one that the event names, else that
	// of the event before it; one of the user without begins one. That of a summary is noInvocation.
	invocation []int32
	running    int32 // the one that is running; noInvocation if none is
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

// raw reports whether the event is one that no summary stands for yet.
func (s *shape) raw(i int) bool { return !s.entries[i].Summary }

// inRunning reports whether the event is of the running invocation.
func (s *shape) inRunning(i int) bool {
	return s.running != noInvocation && s.invocation[i] == s.running
}

// between is how many tokens the events in [from, to) take.
func (s *shape) between(from, to int) int { return s.tokens[to] - s.tokens[from] }

// sum is how many tokens the events take for which counts is true.
func (s *shape) sum(counts func(i int) bool) (n int) {
	for i := range s.entries {
		if counts(i) {
			n += s.between(i, i+1)
		}
	}
	return n
}

// at is how many tokens the events with the given indices take.
func (s *shape) at(indices []int) (n int) {
	for _, i := range indices {
		n += s.between(i, i+1)
	}
	return n
}

// tail returns the index from which on there are n raw events that say something.
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

// retained reports of an event whether it stays as it was said, as a part of the newest invocations that say something:
// all of these if they take at most the given tokens, or else what the user asked last and the last events of as many. over
// reports whether they take more.
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

// liveQuestion returns the index of what the running invocation was last asked: its newest message of the user that says
// more than what a function returned.
func (s *shape) liveQuestion() int {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.inRunning(i) && isQuestion(s.entries[i].Event) {
			return i
		}
	}
	return -1
}

// selection is what one trigger may cover of a shape. It is not changed once it is made.
type selection struct {
	*shape

	// stays are the events that no summary may cover.
	stays []bool

	// last is, for each event, the last event that is tied to it by calls and responses:
	// itself for most. Tied events are covered together or not at all.
	last []int32

	// attached are the events whose last stands behind an event that stays, and attachedTo the same by their last. They are
	// not part of a window's span; they go when their last goes.
	attached   []bool
	attachedTo map[int][]int
}

// selection selects the raw events that may go. holds says which the trigger leaves alone.
func (s *shape) selection(cfg Config, holds func(i int) bool) *selection {
	calls := s.view.Calls()
	stays, _ := s.openCalls(calls, cfg)
	question := s.liveQuestion()
	for i, e := range s.entries {
		stays[i] = stays[i] || e.Summary || i == question || holds(i) || len(s.pinned) > 0 && s.pinned[e.Event.ID()] || isRecord(e.Event)
	}
	return s.tied(stays, ties.Last(len(s.entries), calls))
}

// tied is the selection without events that stay, and what is tied to these.
func (s *shape) tied(stays []bool, last []int32) *selection {
	for i, of := range last {
		stays[of] = stays[of] || stays[i]
	}
	for i, of := range last {
		stays[i] = stays[i] || stays[of]
	}
	x := &selection{shape: s, stays: stays, last: last, attached: make([]bool, len(stays)), attachedTo: map[int][]int{}}
	// From the end: an attached event divides its run, and so attaches earlier events that are tied to later ones.
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

// held is how many tokens the raw events take that stay: no pass makes the prompt smaller by these, so they are no reason for
// one that does not pay.
func (x *selection) held() int { return x.sum(func(i int) bool { return x.stays[i] && x.raw(i) }) }

// isRecord reports whether the event is a compaction record of a foreign log that holds
// its text where no model sees it. It stays as it is until it is adopted.
func isRecord(e *patch.Event) bool {
	if e.SaysSomething() {
		return false
	}
	_, ok := summaries.CompactionOf(e)
	return ok
}

// isQuestion reports whether the user says more than what a function returned.
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
