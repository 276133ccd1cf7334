package compaction

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/ties"
	"github.com/patchlog-dev/patchlog/patch"
)

// Run says of a session what its log does not. The zero Run is a session in which no
// invocation is under way.
type Run struct {
	// Invocation is the id of the invocation that is running, or "". Its newest message
	// of the user stays visible, and the interval trigger leaves its events alone.
	Invocation string

	// Pinned are ids of events that stay raw.
	Pinned []string

	// Focus says what summaries should keep above all, in a few words. Summarizers are told
	// the first 1,000 runes, in the prompt and as [Request.Focus]; [Extractive] keeps to
	// its rules. It means nothing to [Plan].
	Focus string

	// Force says that a person asks for it: the session is compacted even if a pass does not
	// pay yet, or it has not grown since a failure, and no window is skipped.
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

// visible is what planning knows of the events of a visible log. All slices are by
// visible index.
type visible struct {
	view      fold.View
	entries   []fold.Entry
	pinned    map[string]bool // by event id
	runningID string          // the running invocation's
	focus     string          // what summaries should keep above all
	force     bool            // a person asks for it

	// invocation numbers the invocations in the order in which they are first seen. That
	// of a summary is noInvocation. See number.
	invocation []int32
	count      int32 // of invocations
	running    int32 // the one that is running; noInvocation if none is
	newest     int32 // that of the last raw event

	// stays are the events that no summary may cover.
	stays []bool

	// last is, for each event, the last event that is tied to it by calls and responses:
	// itself for most. Tied events are covered together or not at all.
	last []int32

	// attached are the events whose last stands behind an event that stays. They are not
	// part of a window's span; they go when their last goes.
	attached []bool

	// originals are events with cleared results as they were logged, once a pass has looked.
	originals map[int]logged
}

const noInvocation = -1

// newVisible reads the visible log. What invocations there are is for number to find out,
// what stays for markKept.
func newVisible(v fold.View, run Run) *visible {
	s := &visible{view: v, entries: make([]fold.Entry, 0, v.Len()), pinned: make(map[string]bool, len(run.Pinned))}
	for _, e := range v.Entries() {
		s.entries = append(s.entries, e)
		if e.Pinned {
			s.pinned[e.Event.ID()] = true
		}
	}
	for _, id := range run.Pinned {
		s.pinned[id] = true
	}
	s.runningID = run.Invocation
	s.focus, s.force = focusOf(run.Focus), run.Force
	return s
}

// number finds out which invocation each event belongs to: the one that it names, else
// that of the event before it; one of the user without begins one.
func (s *visible) number() {
	if s.invocation != nil {
		return
	}
	s.invocation = make([]int32, len(s.entries))
	s.running, s.newest = noInvocation, noInvocation
	numbers := make(map[string]int32, len(s.entries)/3)
	current, name := int32(noInvocation), ""
	begin := func() {
		current = s.count
		s.count++
	}
	for i, e := range s.entries {
		if e.Summary {
			s.invocation[i], current, name = noInvocation, noInvocation, ""
			continue
		}
		switch id := e.Event.InvocationID(); {
		case id != "" && id == name:
		case id != "":
			number, known := numbers[id]
			if known {
				current = number
			} else {
				begin()
				numbers[id] = current
			}
			name = id
		case e.Event.Author() == "user" || current == noInvocation:
			begin()
			name = ""
		}
		s.invocation[i], s.newest = current, current
	}
	if number, ok := numbers[s.runningID]; ok && s.runningID != "" {
		s.running = number
	}
}

// raw reports whether the event is one that no summary stands for yet.
func (s *visible) raw(i int) bool { return !s.entries[i].Summary }

// markKept finds out what stays and what is tied together. holds says which raw events
// the trigger leaves alone.
func (s *visible) markKept(cfg Config, holds func(i int) bool) {
	s.number()
	n := len(s.entries)
	s.stays, s.attached = make([]bool, n), make([]bool, n)
	calls := s.view.Calls()
	s.holdOpenCalls(calls, cfg)
	for i, e := range s.entries {
		s.stays[i] = s.stays[i] || e.Summary || holds(i) || len(s.pinned) > 0 && s.pinned[e.Event.ID()] || isRecord(e.Event)
	}
	if i := s.liveQuestion(); i >= 0 {
		s.stays[i] = true
	}
	s.tie(calls)
	s.attach()
}

// attach fills attached.
func (s *visible) attach() {
	clear(s.attached)
	// From the end, for an attached event divides the run that it stands in, and what was
	// tied over it is then attached too.
	end := int32(len(s.entries))
	for i := len(s.entries) - 1; i >= 0; i-- {
		switch {
		case s.stays[i]:
			end = int32(i)
		case s.last[i] >= end:
			s.attached[i] = true
			end = int32(i)
		}
	}
}

// isRecord reports whether the event is a compaction record of a foreign log that holds
// its text where no model sees it. It stays as it is until it is adopted.
func isRecord(e *patch.Event) bool {
	if e.SaysSomething() {
		return false
	}
	_, ok := summaries.CompactionOf(e)
	return ok
}

// tie fills last, and lets all that is tied to an event that stays stay too.
func (s *visible) tie(calls []fold.Call) {
	s.last = ties.Last(len(s.entries), calls)
	for i, last := range s.last {
		s.stays[last] = s.stays[last] || s.stays[i]
	}
	for i, last := range s.last {
		s.stays[i] = s.stays[i] || s.stays[last]
	}
}

// liveQuestion returns the index of what the running invocation was last asked: its
// newest message of the user that says more than what a function returned.
func (s *visible) liveQuestion() int {
	if s.running == noInvocation {
		return -1
	}
	for i := len(s.entries) - 1; i >= 0; i-- {
		e := s.entries[i].Event
		if s.raw(i) && s.invocation[i] == s.running && isQuestion(e) {
			return i
		}
	}
	return -1
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
