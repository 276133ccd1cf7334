package adk_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
)

// scenario is a conversation: who takes part, what each model answers with, and what the
// user says. It is drawn before it is played, so that every service gets the same one.
type scenario struct {
	Root    role
	Turns   []userTurn
	Compact []compactionMode
	Restart []restart
}

// role is an agent and those below it.
type role struct {
	Name  string
	Kind  kind
	None  bool // IncludeContents: none
	Moves []move
	Subs  []role
}

// kind is a kind of agent.
type kind string

const (
	chatAgent       kind = "chat"
	taskAgent       kind = "task"
	sequentialAgent kind = "sequential"
	parallelAgent   kind = "parallel"
	loopAgent       kind = "loop"
)

// move is what a model answers with.
type move string

const (
	tells    move = "tells"     // at length
	tiny     move = "tiny"      // in a word
	looksUp  move = "looks up"  // calls a tool
	twice    move = "twice"     // calls two tools at once
	pays     move = "pays"      // calls a tool that wants confirmation
	paysBoth move = "pays both" // two such calls at once
	paysAnd  move = "pays and"  // one such call and another
	asks     move = "asks"      // calls a long-running tool
	asksBoth move = "asks both" // two such calls at once
	asksAnd  move = "asks and"  // one such call and another
	transfer move = "transfer"  // to the next agent that there is
	delegate move = "delegate"  // to a task agent
	finishes move = "finishes"  // the task
	bungles  move = "bungles"   // finish_task with arguments that are refused
	breaks   move = "breaks"    // the model fails
)

// userTurn is a message of the user. Answer picks one of the requests that are open; where
// there is none, the user says something.
type userTurn struct {
	Answer  bool
	Pick    int
	Confirm bool
	Long    bool
	Stop    int // after so many events the program ends; 0: it does not
}

// restart says when the program is started again.
type restart string

const (
	never  restart = "never"
	turns  restart = "between turns"
	within restart = "within turns" // at each third append
)

// compactionMode is how sessions are compacted.
type compactionMode struct {
	Interval, Overlap int
	Threshold, Retain int
	Plugin            bool
	AtOnce            bool // the background comes to rest after each event, not only after each turn
}

func (m compactionMode) config() compaction.Config {
	return compaction.Config{
		Enabled: true, CompactionInterval: m.Interval, OverlapSize: m.Overlap,
		TokenThreshold: m.Threshold, EventRetentionSize: m.Retain,
	}
}

// parallel reports whether agents run at a time.
func (r role) parallel() bool {
	if r.Kind == parallelAgent {
		return true
	}
	for _, s := range r.Subs {
		if s.parallel() {
			return true
		}
	}
	return false
}

// steady takes out what is chance where agents run at a time: how far the others get when
// one fails; which of them calls the tool that the user has confirmed; and whose event is
// the newest, which is where the turn begins for an agent that is shown it alone.
func (r *role) steady() {
	r.None = false
	for i, m := range r.Moves {
		switch m {
		case breaks:
			r.Moves[i] = tells
		case pays, paysBoth, paysAnd:
			r.Moves[i] = twice
		}
	}
	for i := range r.Subs {
		r.Subs[i].steady()
	}
}

// drawScenario draws one.
func drawScenario(t *rapid.T) scenario {
	d := drawing{t: t}
	s := scenario{Root: d.root()}
	breakable := !s.Root.parallel()
	if !breakable {
		s.Root.steady()
	}
	s.Turns = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) userTurn {
		u := userTurn{
			Answer:  rapid.IntRange(0, 2).Draw(t, "answers") == 0,
			Pick:    rapid.IntRange(0, 3).Draw(t, "pick"),
			Confirm: rapid.Bool().Draw(t, "confirm"),
			Long:    rapid.Bool().Draw(t, "long"),
		}
		if breakable && rapid.IntRange(0, 9).Draw(t, "stops") == 9 {
			u.Stop = rapid.IntRange(1, 4).Draw(t, "stop")
		}
		return u
	}), 1, 14).Draw(t, "turns")
	s.Compact = rapid.SliceOfN(rapid.Custom(drawMode), 2, 2).Draw(t, "compactions")
	s.Restart = rapid.SliceOfN(rapid.SampledFrom([]restart{never, turns, within}), 3, 3).Draw(t, "restarts")
	return s
}

func drawMode(t *rapid.T) compactionMode {
	m := compactionMode{
		Plugin: rapid.Bool().Draw(t, "plugin"), AtOnce: rapid.Bool().Draw(t, "at once"),
	}
	by := rapid.IntRange(0, 2).Draw(t, "by")
	if by != 1 {
		m.Interval, m.Overlap = rapid.IntRange(1, 4).Draw(t, "interval"), rapid.IntRange(0, 1).Draw(t, "overlap")
	}
	if by != 0 {
		m.Threshold, m.Retain = rapid.IntRange(50, 600).Draw(t, "threshold"), rapid.IntRange(1, 4).Draw(t, "retain")
	}
	return m
}

// drawing draws agents, and gives them their names.
type drawing struct {
	t     *rapid.T
	named int
}

func (d *drawing) name() string {
	d.named++
	return fmt.Sprint("agent", d.named)
}

func (d *drawing) root() role {
	switch k := rapid.SampledFrom([]kind{chatAgent, chatAgent, chatAgent, chatAgent, sequentialAgent, parallelAgent, loopAgent}).Draw(d.t, "root"); k {
	case chatAgent:
		return d.chatty(2)
	default:
		return d.workflow(k, 2)
	}
}

var anyMove = []move{tells, tiny, looksUp, twice, pays, paysBoth, paysAnd, asks, asksBoth, asksAnd, breaks}

// chatty draws an agent that talks, and its sub-agents.
func (d *drawing) chatty(depth int) role {
	r := role{Name: d.name(), Kind: chatAgent, None: rapid.IntRange(0, 3).Draw(d.t, "none") == 0}
	moves := slices.Clone(anyMove)
	if depth > 0 {
		for range rapid.IntRange(0, 2).Draw(d.t, "subs") {
			switch k := rapid.SampledFrom([]kind{chatAgent, taskAgent, taskAgent, sequentialAgent}).Draw(d.t, "sub"); k {
			case taskAgent:
				r.Subs = append(r.Subs, d.tasked())
				moves = append(moves, delegate, delegate, delegate)
			case chatAgent:
				r.Subs = append(r.Subs, d.chatty(depth-1))
				moves = append(moves, transfer, transfer)
			default:
				r.Subs = append(r.Subs, d.workflow(k, depth-1))
				moves = append(moves, transfer, transfer)
			}
		}
	}
	if depth < 2 { // there may be an agent above to go back to
		moves = append(moves, transfer)
	}
	r.Moves = rapid.SliceOfN(rapid.SampledFrom(moves), 1, 12).Draw(d.t, "moves")
	return r
}

// tasked draws an agent that does a task.
func (d *drawing) tasked() role {
	r := role{Name: d.name(), Kind: taskAgent}
	r.Moves = rapid.SliceOfN(rapid.SampledFrom([]move{tells, tiny, looksUp, twice, pays, asks, finishes, finishes, finishes, bungles}), 1, 8).Draw(d.t, "moves")
	return r
}

// workflow draws an agent that runs others.
func (d *drawing) workflow(k kind, depth int) role {
	r := role{Name: d.name(), Kind: k}
	for range rapid.IntRange(1, 3).Draw(d.t, "members") {
		if depth > 1 && rapid.IntRange(0, 3).Draw(d.t, "nested") == 0 {
			r.Subs = append(r.Subs, d.workflow(rapid.SampledFrom([]kind{sequentialAgent, parallelAgent}).Draw(d.t, "kind"), depth-1))
			continue
		}
		r.Subs = append(r.Subs, d.chatty(0))
	}
	return r
}

// String gives the scenario so that one can read what happens.
func (s scenario) String() string {
	var b strings.Builder
	var agents func(r role, indent string)
	agents = func(r role, indent string) {
		none := ""
		if r.None {
			none = ", none"
		}
		fmt.Fprintf(&b, "%s%s (%s%s) %q\n", indent, r.Name, r.Kind, none, r.Moves)
		for _, sub := range r.Subs {
			agents(sub, indent+"  ")
		}
	}
	agents(s.Root, "")
	for i, u := range s.Turns {
		fmt.Fprintf(&b, "turn %d: %+v\n", i+1, u)
	}
	for _, m := range s.Compact {
		fmt.Fprintf(&b, "compaction %+v\n", m)
	}
	fmt.Fprintf(&b, "restarts %q\n", s.Restart)
	return b.String()
}
