package compaction

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
)

// Trigger is the reason for a pass of compaction.
type Trigger string

// The triggers.
const (
	ByInterval Trigger = "interval" // enough invocations are not summarised yet
	ByClearing Trigger = "clearing" // old results of tools take too much
	ByTokens   Trigger = "tokens"   // the prompt is too large
	ByTiers    Trigger = "tiers"    // enough summaries of one level are adjacent
)

// Span is a stretch [Start, Start+Count) of a visible log.
type Span struct {
	Start int `json:"start"`
	Count int `json:"count"`
}

// Window is what one pass of compaction covers.
type Window struct {
	Trigger Trigger `json:"trigger"`

	// Span is the stretch itself. The summaries, one for each of Groups, stand where the
	// last of the group's events stood: in Span, or in one of EarlierSpans.
	Span

	// EarlierSpans are earlier stretches that go with it, in order: calls whose last response
	// stands in Span, and what else is tied to them; or, when summaries are merged, those
	// of the same branch that stand between summaries of others.
	EarlierSpans []Span `json:"earlierSpans"`

	// Results is how many results of tools are cleared, if the trigger is [ByClearing]. Then
	// Span and EarlierSpans are the events with these results, one each. The events stay, with the results replaced.
	// There are no Groups, since nothing is summarised.
	Results int `json:"results"`
	results []result

	// Merge says that the events are summaries.
	Merge bool `json:"merge"`

	// Groups are the events by branch and isolation scope, which are never mixed in one
	// text, in the order of their last events.
	Groups []Group `json:"groups"`

	// Invocations are the ids of the raw events' invocations, in order. Events without
	// one add nothing.
	Invocations []string `json:"invocations"`

	// Tokens is the estimate for all the events.
	Tokens int `json:"tokens"`
}

// spans returns EarlierSpans and Span, in order.
func (w *Window) spans() []Span { return append(slices.Clone(w.EarlierSpans), w.Span) }

// Group is the part of a window that one summary stands for.
type Group struct {
	Branch  string `json:"branch"` // without what tells runs apart, unless all are of one run
	Scope   string `json:"scope"`
	Indices []int  `json:"indices"` // of the visible events, in order
}

// Decision is what [Plan] found.
type Decision struct {
	// Window is the next pass, or nil if there is nothing to do.
	Window *Window `json:"window,omitzero"`

	// Reason says why this window, or why none.
	Reason string `json:"reason"`

	// PromptTokens is the size of the prompt; Measured, whether that rests on a
	// measurement. See [PromptTokens]. They are 0 if compaction is off.
	PromptTokens int  `json:"promptTokens"`
	Measured     bool `json:"measured"`
}

// Plan decides what to compact next in a view, if anything, and says why. It is pure:
// the same view, config and run give the same decision, and nothing is changed. After a
// window has been applied, Plan on the new view gives the next pass; passes come to an
// end, for each leaves fewer raw events, fewer results of tools or fewer summaries.
//
// The rules, in docs/COMPACTION.md: the interval trigger before clearing before those of
// tokens before merging; the oldest stretch first; never an open call, a pinned event, the live
// question, or half of what a call and its responses tie together. The error is that of
// [Config.Validate].
func Plan(v fold.View, cfg Config, run Run) (Decision, error) {
	if err := cfg.Validate(); err != nil {
		return Decision{}, err
	}
	return newShape(v, run).plan(cfg.withDefaults()), nil
}

func (s *shape) plan(cfg Config) Decision {
	if !cfg.Enabled {
		return Decision{Reason: "compaction is off"}
	}
	d := Decision{PromptTokens: s.prompt, Measured: s.measured}
	var reasons []string
	for _, trigger := range []func(cfg Config) (*Window, string){
		s.byInterval, s.byClearing, s.byInvocation, s.byTokens, s.byTiers, s.byMerging,
	} {
		w, reason := trigger(cfg)
		if w != nil {
			d.Window, d.Reason = w, reason
			return d
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	d.Reason = "nothing to do: " + strings.Join(reasons, "; ")
	return d
}

// byInterval returns the window over all that no summary stands for, if enough invocations
// have such events. Those of the running invocation are not counted and stay.
func (s *shape) byInterval(cfg Config) (*Window, string) {
	if cfg.CompactionInterval == 0 {
		return nil, ""
	}
	newest, over := s.retained(cfg, cfg.limits.Turn)
	interval := cfg.CompactionInterval
	if over {
		interval = 1
	}
	holds := func(i int) bool { return s.inRunning(i) || newest(i) }
	// What would be counted if nothing had to stay: to find out what does takes longer.
	waiting, later := s.invocations(func(i int) bool { return !holds(i) }), ""
	if waiting >= interval {
		w, x := s.selection(cfg, holds).window(ByInterval, cfg)
		if waiting = x.invocations(x.covers); w != nil && waiting >= interval {
			read, _ := priceOf(cfg.Summarizer)
			due, why := s.due(w, s.saves(w, cfg), cfg, read == 0 && (s.prompt-x.held() >= large || waiting/forced >= interval))
			if due {
				return w, fmt.Sprintf("%d invocations have events that are not summarised, the interval is %d", waiting, interval)
			}
			later = ", " + why
		}
	}
	return nil, fmt.Sprintf("%d of %d invocations%s", waiting, cfg.CompactionInterval, later)
}

// byClearing returns the window over old results of tools, if clearing them saves enough.
func (s *shape) byClearing(cfg Config) (*Window, string) {
	if cfg.ClearAfter == 0 {
		return nil, ""
	}
	w, saved, held := s.clearing(cfg)
	later := ""
	if w != nil {
		due, why := s.due(w, saved, cfg, s.prompt-held >= large)
		if due {
			return w, fmt.Sprintf("clearing old results of tools saves about %d tokens, %d are enough", saved, cfg.ClearAfter)
		}
		later = ", " + why
	}
	if saved == 0 {
		return nil, ""
	}
	return nil, fmt.Sprintf("clearing old results of tools would save %d of %d tokens%s", saved, cfg.ClearAfter, later)
}

// byInvocation returns the window over the older events of the running invocation, if its raw
// events take too many tokens and half as many can go.
func (s *shape) byInvocation(cfg Config) (*Window, string) {
	takes := s.sum(s.inRunning)
	if cfg.InvocationTokens == 0 || takes == 0 {
		return nil, ""
	}
	later := ""
	if takes >= cfg.InvocationTokens {
		tail := s.tail(cfg.EventRetentionSize)
		w, x := s.selection(cfg, func(i int) bool { return i >= tail || s.invocation[i] != s.running }).window(ByTokens, cfg)
		if w != nil && x.sum(x.covers) >= (cfg.InvocationTokens+1)/2 {
			due, why := s.due(w, s.saves(w, cfg), cfg, s.prompt-x.held() >= large || takes/forced >= cfg.InvocationTokens)
			if due {
				return w, fmt.Sprintf("the running invocation takes %d tokens, it may take %d", takes, cfg.InvocationTokens)
			}
			later = ", and compaction would take what can go, " + why
		}
	}
	return nil, fmt.Sprintf("the running invocation takes %d of %d tokens%s", takes, cfg.InvocationTokens, later)
}

// byTokens returns the window over the older events, if the prompt takes too many tokens and
// a sixteenth of the threshold can go: a tail that alone reaches the threshold must not cost a
// call with every event.
func (s *shape) byTokens(cfg Config) (*Window, string) {
	limit := cfg.TokenThreshold
	if limit == 0 {
		return nil, ""
	}
	if s.prompt < limit {
		return nil, fmt.Sprintf("%d of %d tokens", s.prompt, limit)
	}
	tail := s.tail(cfg.EventRetentionSize)
	newest, _ := s.retained(cfg, min(limit/2, cfg.limits.Turn))
	all := s.selection(cfg, func(i int) bool { return i >= tail || newest(i) })
	w, x := all.window(ByTokens, cfg)
	reason := fmt.Sprintf("the prompt takes %d tokens, the threshold is %d", s.prompt, limit)
	if can := x.sum(x.covers); w == nil || can < worthwhile(limit) { // without what has to wait for the next window
		return nil, fmt.Sprintf("%s, but only %d of them can be summarised, and it takes a sixteenth of the threshold to be worth it", reason, can)
	}
	can := all.sum(all.covers)
	due, why := s.due(w, s.saves(w, cfg), cfg, s.prompt-x.held() >= large || s.prompt/forced >= limit && can >= s.prompt-can)
	if due {
		return w, reason
	}
	return nil, reason + ", and what can go makes a pass " + why
}

// due reports whether a pass pays, or is made in any case because a limit asks for it or a person does, and says why not.
func (s *shape) due(w *Window, saved int, cfg Config, anyway bool) (bool, string) {
	if anyway || s.run.Force {
		return true, ""
	}
	return s.pays(w, saved, cfg)
}

// worthwhile is the least part of a token threshold that is worth a call of the summarizer.
func worthwhile(threshold int) int { return threshold/16 + min(1, threshold%16) }

// byTiers returns the window over summaries of one level, if enough stand side by side.
func (s *shape) byTiers(cfg Config) (*Window, string) {
	k := cfg.limits.Summaries
	if w := s.tierMerge(s.chains(), k); w != nil {
		return w, fmt.Sprintf("%d summaries of one level stand side by side", k)
	}
	return nil, ""
}

// byMerging returns a window over summaries, if the prompt takes too many tokens and nothing
// else is left.
func (s *shape) byMerging(cfg Config) (*Window, string) {
	limit := cfg.TokenThreshold
	if limit == 0 || s.prompt < limit {
		return nil, ""
	}
	if w := s.forcedMerge(s.chains(), cfg.limits.Summaries, limit); w != nil {
		return w, fmt.Sprintf("the prompt takes %d tokens, the threshold is %d, and only summaries are left to merge", s.prompt, limit)
	}
	return nil, ""
}
