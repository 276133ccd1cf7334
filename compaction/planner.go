package compaction

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/ties"
	"github.com/patchlog-dev/patchlog/patch"
)

// Run has information that a session's log does not contain. In the zero Run, no invocation is running.
type Run struct {
	// Invocation is the id of the running invocation, or "". The user's newest message in the running invocation stays
	// visible. The interval trigger does not summarise that invocation's events.
	Invocation string

	// Pinned are the ids of events that are neither summarised nor cleared.
	Pinned []string

	// Focus describes in a few words what summaries should keep above all. Summarizers get its first 1,000 runes, in
	// the prompt and as [Request.Focus]. [Extractive] and [Plan] ignore Focus.
	Focus string

	// Force compacts the session even if a pass does not pay, or if the session has not grown since a failure. No
	// window is skipped.
	Force bool
}

// group is a branch without run numbers (@…), and an isolation scope. A summary covers one group.
type group struct {
	branch string
	scope  string
}

func groupOf(e *patch.Event) group {
	return group{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// key returns the group that the events and their summary belong to.
func (g Group) key() group { return group{records.BranchWithoutRuns(g.Branch), g.Scope} }

// planner is a visible log with values that every trigger needs for planning. It is immutable. Its slices are indexed
// by visible index.
type planner struct {
	view     fold.View
	entries  []fold.Entry
	tokens   []int // total tokens of the events before each index; the last element is the total of all events
	prompt   int   // measured or estimated tokens of the prompt
	measured bool
	pinned   map[string]bool // key: event id
	run      Run

	// invocation numbers the invocations in the order of their first events. An event without invocation id belongs to
	// the previous event's invocation, but a user message without id begins a new one. Summaries have noInvocation.
	invocation []int32
	running    int32 // number of the running invocation, or noInvocation
	newest     int32 // number of the invocation of the last raw event
}

const noInvocation = -1

func newPlanner(v fold.View, run Run) *planner {
	n := v.Len()
	s := &planner{
		view: v, entries: make([]fold.Entry, 0, n), tokens: make([]int, 1, n+1), pinned: map[string]bool{}, run: run,
		invocation: make([]int32, 0, n), running: noInvocation, newest: noInvocation,
	}
	s.run.Focus = cleanFocus(run.Focus)
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

// isRaw reports whether the event is not a summary.
func (s *planner) isRaw(i int) bool { return !s.entries[i].Summary }

// inRunningInvocation reports whether the event belongs to the running invocation.
func (s *planner) inRunningInvocation(i int) bool {
	return s.running != noInvocation && s.invocation[i] == s.running
}

// tokensBetween returns the number of tokens of the events [from, to).
func (s *planner) tokensBetween(from, to int) int { return s.tokens[to] - s.tokens[from] }

// tokensWhere returns the number of tokens of the events for which counts returns true.
func (s *planner) tokensWhere(counts func(i int) bool) (n int) {
	for i := range s.entries {
		if counts(i) {
			n += s.tokensBetween(i, i+1)
		}
	}
	return n
}

// tokensAt returns the number of tokens of the events with the given indices.
func (s *planner) tokensAt(indices []int) (n int) {
	for _, i := range indices {
		n += s.tokensBetween(i, i+1)
	}
	return n
}

// tailStart returns the index of the n-th raw event with content, counting from the end.
func (s *planner) tailStart(n int) int {
	i := len(s.entries)
	for i > 0 && n > 0 {
		i--
		if s.isRaw(i) && s.entries[i].Event.SaysSomething() {
			n--
		}
	}
	return i
}

// retained returns a function that reports whether [Config.RetainInvocations] keeps an event. The newest invocations
// stay whole if they have at most the given number of tokens. Otherwise overLimit is true, and only two parts of these
// invocations stay: the user's last question, and the last events up to that number of tokens.
func (s *planner) retained(cfg Config, maxTokens int) (isRetained func(i int) bool, overLimit bool) {
	newest, question := map[int32]bool{}, -1
	for i := len(s.entries) - 1; i >= 0; i-- {
		number, e := s.invocation[i], s.entries[i].Event
		if s.isRaw(i) && !newest[number] && len(newest) < cfg.RetainInvocations && e.SaysSomething() {
			newest[number] = true
		}
		if newest[number] && question < 0 && isQuestion(e) {
			question = i
		}
	}
	isRetained = func(i int) bool { return newest[s.invocation[i]] }
	if s.tokensWhere(isRetained) <= maxTokens {
		return isRetained, false
	}
	n := len(s.entries)
	tail := n
	for tail > 0 && s.tokensBetween(tail-1, n) <= maxTokens {
		tail--
	}
	return func(i int) bool { return newest[s.invocation[i]] && (i >= tail || i == question) }, true
}

// liveQuestion returns the index of the user's newest message in the running invocation, or -1. Messages with only
// function responses do not count.
func (s *planner) liveQuestion() int {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.inRunningInvocation(i) && isQuestion(s.entries[i].Event) {
			return i
		}
	}
	return -1
}

// selection is the part of the visible log that one trigger may cover. It is immutable.
type selection struct {
	*planner

	// excluded marks the events that no summary may cover.
	excluded []bool

	// lastTied[i] is the last event that calls and responses tie to event i. For most events, lastTied[i] is i. Tied
	// events are covered together or not at all.
	lastTied []int32

	// attached[i] reports whether an event that stays lies between event i and event lastTied[i]. An attached event is
	// outside a window's span and is removed together with its last event. attachedTo maps a last event to the events
	// attached to it.
	attached   []bool
	attachedTo map[int][]int
}

// selection returns the raw events that a summary may cover. The callback excludes reports whether the trigger
// excludes event i.
func (s *planner) selection(cfg Config, excludes func(i int) bool) *selection {
	calls := s.view.Calls()
	excluded, _ := s.openCalls(calls, cfg)
	question := s.liveQuestion()
	for i, e := range s.entries {
		excluded[i] = excluded[i] || e.Summary || i == question || excludes(i) || len(s.pinned) > 0 && s.pinned[e.Event.ID()] || isADKRecord(e.Event)
	}
	return s.newSelection(excluded, ties.LastConnected(len(s.entries), calls))
}

// newSelection returns the selection that results if the excluded events stay, together with all events tied to them.
func (s *planner) newSelection(excluded []bool, lastTied []int32) *selection {
	for i, lastIndex := range lastTied {
		excluded[lastIndex] = excluded[lastIndex] || excluded[i]
	}
	for i, lastIndex := range lastTied {
		excluded[i] = excluded[i] || excluded[lastIndex]
	}
	x := &selection{planner: s, excluded: excluded, lastTied: lastTied, attached: make([]bool, len(excluded)), attachedTo: map[int][]int{}}
	// The loop goes backwards, because an attached event splits the span, and earlier events may then be attached
	// too.
	end := len(excluded)
	for i := end - 1; i >= 0; i-- {
		if excluded[i] {
			end = i
		} else if lastIndex := int(lastTied[i]); lastIndex >= end {
			x.attached[i] = true
			x.attachedTo[lastIndex] = append(x.attachedTo[lastIndex], i)
			end = i
		}
	}
	return x
}

// covers reports whether a window may contain the event.
func (x *selection) covers(i int) bool { return !x.excluded[i] }

// excludedTokens returns the number of tokens of the raw events that stay. A pass cannot remove these tokens, so they
// are no reason to make a pass that does not pay.
func (x *selection) excludedTokens() int {
	return x.tokensWhere(func(i int) bool { return x.excluded[i] && x.isRaw(i) })
}

// isADKRecord reports whether the event is ADK's record of a compaction and has no other content. Such an event stays
// visible until package adkrecord adopts it.
func isADKRecord(e *patch.Event) bool {
	if e.SaysSomething() {
		return false
	}
	_, ok := summaries.CompactionOf(e)
	return ok
}

// isQuestion reports whether the event is a user message that contains something besides function responses.
func isQuestion(e *patch.Event) bool {
	return e.Author() == "user" && e.SaysSomething() && !hasOnlyResponses(e)
}

func hasOnlyResponses(e *patch.Event) (only bool) {
	for _, p := range e.Parts() {
		if p.Kind != patch.PartResponse {
			return false
		}
		only = true
	}
	return only
}
