package compaction

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
)

// Trigger is the reason for a pass.
type Trigger string

// The triggers.
const (
	ByInterval Trigger = "interval" // enough invocations are not summarised yet
	ByClearing Trigger = "clearing" // old tool results have too many tokens
	ByTokens   Trigger = "tokens"   // the prompt, or the running invocation, has too many tokens
	ByTiers    Trigger = "tiers"    // enough adjacent summaries have the same level
)

// Span is the range [Start, Start+Count) of visible indices.
type Span struct {
	Start int `json:"start"`
	Count int `json:"count"`
}

// Window is the part of a visible log that one pass covers.
type Window struct {
	Trigger Trigger `json:"trigger"`

	// Span is the last span of the window. Each group gets one summary at the position of the group's last event. That
	// position may also be in one of EarlierSpans.
	Span

	// EarlierSpans are the earlier spans of the window, in order. They contain calls whose last response is in Span,
	// and the events that must be covered together with these calls. In a merge, they contain summaries of the same
	// branch as Span. Summaries of other branches lie between these summaries. If Trigger is [ByClearing], they contain
	// events with results to clear.
	EarlierSpans []Span `json:"earlierSpans"`

	// Results is the number of tool results to clear if Trigger is [ByClearing], or 0. Each span then has one event
	// with such results. The events stay with their results replaced, and Groups is empty.
	Results int `json:"results"`
	results []result

	// Merge reports whether the window's events are summaries.
	Merge bool `json:"merge"`

	// Groups divides the events by branch and isolation scope, in the order of the groups' last events. Each group gets
	// one summary.
	Groups []Group `json:"groups"`

	// Invocations are the ids of the invocations of the raw events, in order.
	Invocations []string `json:"invocations"`

	// Tokens is the estimated size of all events in the window.
	Tokens int `json:"tokens"`
}

// spans returns EarlierSpans and then Span.
func (w *Window) spans() []Span { return append(slices.Clone(w.EarlierSpans), w.Span) }

// Group is the part of a window that one summary covers.
type Group struct {
	Branch  string `json:"branch"` // branch of the events, without run numbers (@…) if the events have different ones
	Scope   string `json:"scope"`
	Indices []int  `json:"indices"` // visible indices of the events, in order
}

// Decision is the result of [Plan].
type Decision struct {
	// Window is the next pass, or nil if no pass is due.
	Window *Window `json:"window,omitzero"`

	// Reason explains why the window was chosen, or why no pass is due.
	Reason string `json:"reason"`

	// PromptTokens is the size of the prompt. Measured reports whether the size was measured rather than estimated; see
	// [PromptTokens]. Without compaction, both are zero.
	PromptTokens int  `json:"promptTokens"`
	Measured     bool `json:"measured"`
}

// Plan returns the next pass over a view, if one is due, and the reason. Plan is pure: the same view, config and run
// always give the same decision. After the pass, Plan on the new view returns the next pass. The passes end, because
// each one leaves fewer raw events, uncleared tool results or summaries.
//
// Triggers are checked in this order: interval, clearing, tokens, tiers. The oldest events are compacted first. A
// window never contains a recent open call, a pinned event, or the user's newest message of the running invocation.
// Except when tool results are cleared, a call and its response are either both in a window or both outside.
// docs/COMPACTION.md has all rules.
//
// The error comes from [Config.Validate].
func Plan(v fold.View, cfg Config, run Run) (Decision, error) {
	if err := cfg.Validate(); err != nil {
		return Decision{}, err
	}
	return newPlanner(v, run).plan(cfg.withDefaults()), nil
}

func (s *planner) plan(cfg Config) Decision {
	if !cfg.Enabled {
		return Decision{Reason: "compaction is off"}
	}
	d := Decision{PromptTokens: s.prompt, Measured: s.measured}
	var reasons []string
	for _, trigger := range []func(cfg Config) (*Window, string){
		s.checkInterval, s.checkClearing, s.checkInvocation, s.checkTokens, s.checkTiers, s.checkMerging,
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

// checkInterval returns the window over the oldest raw events, if enough invocations have raw events. The running
// invocation does not count, and its events stay.
func (s *planner) checkInterval(cfg Config) (*Window, string) {
	if cfg.CompactionInterval == 0 {
		return nil, ""
	}
	isRetained, overLimit := s.retained(cfg, cfg.limits.RetainedTokens)
	interval := cfg.CompactionInterval
	if overLimit {
		interval = 1
	}
	excludes := func(i int) bool { return s.inRunningInvocation(i) || isRetained(i) }
	// The count includes events that must stay, because finding these events is more expensive. So it is an upper
	// bound.
	waiting, notYet := s.countInvocations(func(i int) bool { return !excludes(i) }), ""
	if waiting >= interval {
		w, x := s.selection(cfg, excludes).oldestWindow(ByInterval, cfg)
		if waiting = x.countInvocations(x.covers); w != nil && waiting >= interval {
			readPrice, _ := priceOf(cfg.Summarizer)
			due, why := s.isDue(w, s.estimateSavings(w, cfg), cfg, readPrice == 0 && (s.prompt-x.excludedTokens() >= largePrompt || waiting/forcedFactor >= interval))
			if due {
				enough := fmt.Sprintf("the interval is %d", cfg.CompactionInterval)
				if waiting < cfg.CompactionInterval {
					enough += fmt.Sprintf(", but one is enough, because the newest invocations have more than %d tokens", cfg.limits.RetainedTokens)
				}
				return w, fmt.Sprintf("%d invocations have events that are not summarised; %s%s", waiting, enough, x.inputLimitNote(w, cfg))
			}
			notYet = ", but " + why
		}
	}
	return nil, fmt.Sprintf("%d of %d invocations%s", waiting, cfg.CompactionInterval, notYet)
}

// inputLimitNote returns the reason if the input limit ends the window, or "".
func (x *selection) inputLimitNote(w *Window, cfg Config) string {
	if end := w.Start + w.Count; end == len(x.entries) || x.excluded[end] || x.attached[end] {
		return ""
	}
	return fmt.Sprintf("; a pass reads at most about %d tokens, and does not separate a call from its result", cfg.limits.InputTokens)
}

// checkClearing returns the window over old tool results if clearing them saves enough.
func (s *planner) checkClearing(cfg Config) (*Window, string) {
	if cfg.ClearAfter == 0 {
		return nil, ""
	}
	w, saved, excluded := s.clearingWindow(cfg)
	notYet := ""
	if w != nil {
		due, why := s.isDue(w, saved, cfg, s.prompt-excluded >= largePrompt)
		if due {
			return w, fmt.Sprintf("clearing old tool results saves about %d tokens; the trigger is %d", saved, cfg.ClearAfter)
		}
		notYet = ", but " + why
	}
	if saved == 0 {
		return nil, ""
	}
	return nil, fmt.Sprintf("clearing old tool results would save %d of %d tokens%s", saved, cfg.ClearAfter, notYet)
}

// checkInvocation returns the window over the older events of the running invocation. It requires that the raw events
// of that invocation have InvocationTokens tokens, and that at least half of InvocationTokens can be covered.
func (s *planner) checkInvocation(cfg Config) (*Window, string) {
	size := s.tokensWhere(s.inRunningInvocation)
	if cfg.InvocationTokens == 0 || size == 0 {
		return nil, ""
	}
	notYet := ""
	if size >= cfg.InvocationTokens {
		tail := s.tailStart(cfg.EventRetentionSize)
		w, x := s.selection(cfg, func(i int) bool { return i >= tail || s.invocation[i] != s.running }).oldestWindow(ByTokens, cfg)
		if w != nil && x.tokensWhere(x.covers) >= (cfg.InvocationTokens+1)/2 {
			due, why := s.isDue(w, s.estimateSavings(w, cfg), cfg, s.prompt-x.excludedTokens() >= largePrompt || size/forcedFactor >= cfg.InvocationTokens)
			if due {
				return w, fmt.Sprintf("the running invocation has %d tokens; the trigger is %d", size, cfg.InvocationTokens)
			}
			notYet = ", but " + why
		}
	}
	return nil, fmt.Sprintf("the running invocation has %d of %d tokens%s", size, cfg.InvocationTokens, notYet)
}

// checkTokens returns the window over the older events. It requires that the prompt reaches the threshold, and that a
// sixteenth of the threshold can be covered. Otherwise, if the newest events alone reached the threshold, the
// summarizer would be called after every event.
func (s *planner) checkTokens(cfg Config) (*Window, string) {
	limit := cfg.TokenThreshold
	if limit == 0 {
		return nil, ""
	}
	if s.prompt < limit {
		return nil, fmt.Sprintf("%d of %d tokens", s.prompt, limit)
	}
	tail := s.tailStart(cfg.EventRetentionSize)
	isRetained, _ := s.retained(cfg, min(limit/2, cfg.limits.RetainedTokens))
	all := s.selection(cfg, func(i int) bool { return i >= tail || isRetained(i) })
	w, x := all.oldestWindow(ByTokens, cfg)
	reason := fmt.Sprintf("the prompt has %d tokens; the threshold is %d", s.prompt, limit)
	if coverable := x.tokensWhere(x.covers); w == nil || coverable < minSavings(limit) { // x does not cover the events that no window can contain yet
		return nil, fmt.Sprintf("%s, but only %d tokens can be summarised, and a pass needs at least a sixteenth of the threshold", reason, coverable)
	}
	coverable := all.tokensWhere(all.covers)
	due, why := s.isDue(w, s.estimateSavings(w, cfg), cfg, s.prompt-x.excludedTokens() >= largePrompt || s.prompt/forcedFactor >= limit && coverable >= s.prompt-coverable)
	if due {
		return w, reason + x.inputLimitNote(w, cfg)
	}
	return nil, reason + ", but " + why
}

// isDue reports whether a pass is made. A pass is made if it pays, if required is set because a limit requires it, or
// if [Run.Force] is set. If no pass is made, why is the reason.
func (s *planner) isDue(w *Window, saved int, cfg Config, required bool) (bool, string) {
	if required || s.run.Force {
		return true, ""
	}
	return s.pays(w, saved, cfg)
}

// minSavings returns the smallest savings that are worth a summarizer call: a sixteenth of the threshold.
func minSavings(threshold int) int { return threshold/16 + min(1, threshold%16) }

// checkTiers returns the window over adjacent summaries of one level, if there are enough.
func (s *planner) checkTiers(cfg Config) (*Window, string) {
	k := cfg.limits.Summaries
	if w := s.tierMerge(s.chains(), k); w != nil {
		return w, fmt.Sprintf("%d adjacent summaries have the same level", k)
	}
	return nil, ""
}

// checkMerging returns a window over summaries if the prompt reaches the threshold and no raw events can be covered.
func (s *planner) checkMerging(cfg Config) (*Window, string) {
	limit := cfg.TokenThreshold
	if limit == 0 || s.prompt < limit {
		return nil, ""
	}
	if w := s.forcedMerge(s.chains(), cfg.limits.Summaries, limit); w != nil {
		return w, fmt.Sprintf("the prompt has %d tokens; the threshold is %d, and only summaries are left to merge", s.prompt, limit)
	}
	return nil, ""
}
