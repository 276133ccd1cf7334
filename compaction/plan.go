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

// Window is the part of a visible log that one pass of compaction covers.
type Window struct {
	Trigger Trigger `json:"trigger"`

	// Span is the last span of the window. Each group has one summary, which takes the position of the group's last
	// event, in Span or in one of EarlierSpans.
	Span

	// EarlierSpans are earlier spans of the window, in order: calls whose last response is in Span, with all events
	// that must move together with them; or, in a merge, summaries of the same branch between summaries of other
	// branches.
	EarlierSpans []Span `json:"earlierSpans"`

	// Results is the number of tool results to clear if the trigger is [ByClearing]. Then each span has one event with
	// such results. The events stay, with the results replaced, and Groups is empty.
	Results int `json:"results"`
	results []result

	// Merge says that the events are summaries.
	Merge bool `json:"merge"`

	// Groups are the events by branch and isolation scope, in the order of their last events. Each group gets one
	// summary.
	Groups []Group `json:"groups"`

	// Invocations are the ids of the raw events' invocations, in order.
	Invocations []string `json:"invocations"`

	// Tokens is the estimate for all the events.
	Tokens int `json:"tokens"`
}

// spans returns EarlierSpans and Span, in order.
func (w *Window) spans() []Span { return append(slices.Clone(w.EarlierSpans), w.Span) }

// Group is the part of a window that one summary covers.
type Group struct {
	Branch  string `json:"branch"` // without the run's suffix, unless all events belong to one run
	Scope   string `json:"scope"`
	Indices []int  `json:"indices"` // of the visible events, in order
}

// Decision is the result of [Plan].
type Decision struct {
	// Window is the next pass, or nil if there is nothing to do.
	Window *Window `json:"window,omitzero"`

	// Reason says why this window was chosen, or why there is nothing to do.
	Reason string `json:"reason"`

	// PromptTokens and Measured are the size of the prompt and whether it was measured ([PromptTokens]). They are
	// zero if compaction is off.
	PromptTokens int  `json:"promptTokens"`
	Measured     bool `json:"measured"`
}

// Plan returns the next pass over a view, if one is due, and the reason. It is pure: the same view, config and run give
// the same decision. After a window is applied, Plan on the new view returns the next pass. The passes end, since each
// leaves fewer raw events, uncleared tool results or summaries.
//
// docs/COMPACTION.md has the rules. The interval trigger is checked first, then clearing, the token triggers, and
// merging. The oldest events are compacted first. A window never has an open call, a pinned event, or the user's
// message of the running invocation. A call and its response are both in a window or both outside. The error is as for
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

// byInterval returns the window over the raw events, if enough invocations have raw events. The running invocation does
// not count, and its events stay.
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
	// This count is an upper bound: it includes events that have to stay, which take longer to find.
	waiting, later := s.invocations(func(i int) bool { return !holds(i) }), ""
	if waiting >= interval {
		w, x := s.selection(cfg, holds).window(ByInterval, cfg)
		if waiting = x.invocations(x.covers); w != nil && waiting >= interval {
			read, _ := priceOf(cfg.Summarizer)
			due, why := s.due(w, s.saves(w, cfg), cfg, read == 0 && (s.prompt-x.held() >= large || waiting/forced >= interval))
			if due {
				enough := fmt.Sprintf("the interval is %d", cfg.CompactionInterval)
				if waiting < cfg.CompactionInterval {
					enough += fmt.Sprintf(", but one is enough: the newest invocations have more than %d tokens", cfg.limits.Turn)
				}
				return w, fmt.Sprintf("%d invocations have events that are not summarised, %s%s", waiting, enough, x.limited(w, cfg))
			}
			later = ", " + why
		}
	}
	return nil, fmt.Sprintf("%d of %d invocations%s", waiting, cfg.CompactionInterval, later)
}

// limited returns the reason if the input limit of a pass ends the window, or "".
func (x *selection) limited(w *Window, cfg Config) string {
	if end := w.Start + w.Count; end == len(x.entries) || x.stays[end] || x.attached[end] {
		return ""
	}
	return fmt.Sprintf("; one pass reads at most about %d tokens, and no call without its result", cfg.limits.Input)
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

// byInvocation returns the window over the older events of the running invocation, if its raw events have more tokens
// than InvocationTokens, and half of that can be covered.
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

// byTokens returns the window over the older events, if the prompt reaches the threshold and a sixteenth of the
// threshold can be covered. Without the second condition, a tail that alone reaches the threshold would cause a call
// after every event.
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
	if can := x.sum(x.covers); w == nil || can < worthwhile(limit) { // excludes events that must wait for the next window
		return nil, fmt.Sprintf("%s, but only %d of them can be summarised, and it takes a sixteenth of the threshold to be worth it", reason, can)
	}
	can := all.sum(all.covers)
	due, why := s.due(w, s.saves(w, cfg), cfg, s.prompt-x.held() >= large || s.prompt/forced >= limit && can >= s.prompt-can)
	if due {
		return w, reason + x.limited(w, cfg)
	}
	return nil, reason + ", and what can go makes a pass " + why
}

// due reports whether a pass is made: because it pays, because a limit requires it (anyway), or because the caller does
// ([Run.Force]). why is the reason if no pass is made.
func (s *shape) due(w *Window, saved int, cfg Config, anyway bool) (bool, string) {
	if anyway || s.run.Force {
		return true, ""
	}
	return s.pays(w, saved, cfg)
}

// worthwhile returns the least savings, a sixteenth of a token threshold, that are worth a call of the summarizer.
func worthwhile(threshold int) int { return threshold/16 + min(1, threshold%16) }

// byTiers returns the window over summaries of one level, if enough are adjacent.
func (s *shape) byTiers(cfg Config) (*Window, string) {
	k := cfg.limits.Summaries
	if w := s.tierMerge(s.chains(), k); w != nil {
		return w, fmt.Sprintf("%d summaries of one level stand side by side", k)
	}
	return nil, ""
}

// byMerging returns a window over summaries, if the prompt reaches the threshold and no raw events can be covered.
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
