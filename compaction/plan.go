package compaction

import (
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
)

// Trigger is what asks for a compaction.
type Trigger string

// The triggers.
const (
	ByInterval Trigger = "interval" // so many invocations are not summarised yet
	ByClearing Trigger = "clearing" // old results of tools take too much
	ByTokens   Trigger = "tokens"   // the prompt is too large
	ByTiers    Trigger = "tiers"    // so many summaries of one level stand side by side
)

// Span is a stretch [Start, Start+Count) of a visible log.
type Span struct {
	Start int
	Count int
}

// Window is what one pass of compaction covers.
type Window struct {
	Trigger Trigger

	// Span is the stretch itself. The summaries, one for each of Groups, stand where the
	// last of the group's events stood: in Span, or in one of Also.
	Span

	// Also are earlier stretches that go with it, in order: calls whose last response
	// stands in Span, and what else is tied to them; or, when summaries are merged, those
	// of the same branch that stand between summaries of others.
	Also []Span

	// Results are what is cleared, in order, if the trigger is [ByClearing]. Then Span and
	// Also are the events in which they stand, one each, and stay but for these; and there
	// are no Groups, since nothing is summarised.
	Results []Result

	// Merge says that the events are summaries.
	Merge bool

	// Groups are the events by branch and isolation scope, which are never mixed in one
	// text, in the order of their last events.
	Groups []Group

	// Invocations are the ids of the raw events' invocations, in order. Events without
	// one add nothing.
	Invocations []string

	// Tokens is the estimate for all the events.
	Tokens int
}

// Group is the part of a window that one summary stands for.
type Group struct {
	Branch  string // without what tells runs apart, unless all are of one run
	Scope   string
	Indices []int // of the visible events, in order
}

// Decision is what [Plan] found.
type Decision struct {
	// Window is the next pass, or nil if there is nothing to do.
	Window *Window

	// Reason says why this window, or why none.
	Reason string

	// PromptTokens is the size of the prompt; Measured, whether that rests on a
	// measurement. See [PromptTokens]. They are 0 if compaction is off.
	PromptTokens int
	Measured     bool

	// Balance is what the pass would cost and save that intervals or clearing ask for, if
	// [Config.Cost] counts: the window's, or that of one that does not pay yet. It is nil
	// where they ask for none.
	Balance *Balance
}

// So much of TokenThreshold must be there to be covered before the token trigger fires
// again, lest a tail that alone reaches the threshold costs a call with every event.
const worthwhile = 16

// fraction is the least that is worth a call under a threshold.
func fraction(threshold int) int { return threshold/worthwhile + min(1, threshold%worthwhile) }

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
	return newVisible(v, run).plan(cfg.withDefaults()), nil
}

func (s *visible) plan(cfg Config) Decision {
	if !cfg.Enabled {
		return Decision{Reason: "compaction is off"}
	}
	d := Decision{}
	d.PromptTokens, d.Measured = promptTokens(s.entries, s.view.PatchSeq())

	waiting, reason := 0, ""
	if cfg.CompactionInterval > 0 {
		s.number()
		// What the trigger would count if nothing had to stay. Finding out what does is
		// the dearer part.
		if waiting = s.invocations(func(i int) bool { return s.invocation[i] != s.live || s.live == noInvocation }); waiting >= cfg.CompactionInterval {
			s.settle(cfg, func(i int) bool { return s.live != noInvocation && s.invocation[i] == s.live })
			w := s.window(ByInterval, cfg)
			if waiting = s.invocations(s.coverable); waiting >= cfg.CompactionInterval && d.worth(s, w, cfg) {
				d.Window = w
				d.Reason = fmt.Sprintf("%d invocations have events that are not summarised, the interval is %d", waiting, cfg.CompactionInterval)
				return d
			}
		}
		reason = fmt.Sprintf("%d of %d invocations%s; ", waiting, cfg.CompactionInterval, d.notYet())
	}
	if cfg.ClearAfter > 0 {
		w, saved := s.clearing(cfg)
		if w != nil && d.worthSaving(s, w, saved, cfg) {
			d.Window = w
			d.Reason = fmt.Sprintf("clearing old results of tools saves about %d tokens, %d are enough", saved, cfg.ClearAfter)
			return d
		}
		if saved > 0 {
			reason += fmt.Sprintf("clearing old results of tools would save %d of %d tokens%s; ", saved, cfg.ClearAfter, d.notYet())
		}
	}
	if cfg.InvocationTokens > 0 {
		takes, w := s.longInvocation(cfg)
		if w != nil {
			d.Window = w
			d.Reason = fmt.Sprintf("the running invocation takes %d tokens, it may take %d", takes, cfg.InvocationTokens)
			return d
		}
		if takes > 0 {
			reason += fmt.Sprintf("the running invocation takes %d of %d tokens; ", takes, cfg.InvocationTokens)
		}
	}
	over := cfg.TokenThreshold > 0 && d.PromptTokens >= cfg.TokenThreshold
	if over {
		tail := s.tail(cfg.EventRetentionSize)
		s.settle(cfg, func(i int) bool { return i >= tail })
		all := s.coverableTokens()
		w := s.window(ByTokens, cfg)
		there := s.coverableTokens() // without what has to wait for the next window
		if w != nil && there >= fraction(cfg.TokenThreshold) && all >= s.step(cfg, cfg.TokenThreshold, d.PromptTokens, all) {
			d.Window = w
			d.Reason = fmt.Sprintf("the prompt takes %d tokens, the threshold is %d", d.PromptTokens, cfg.TokenThreshold)
			return d
		}
		reason = fmt.Sprintf("the prompt takes %d tokens, the threshold is %d, but only %d of them can be summarised, and it takes %s of the threshold to be worth it",
			d.PromptTokens, cfg.TokenThreshold, there, s.stepName(cfg, d.PromptTokens, all))
	} else if cfg.TokenThreshold > 0 {
		reason += fmt.Sprintf("%d of %d tokens", d.PromptTokens, cfg.TokenThreshold)
	}
	chains := s.chains()
	if d.Window = s.tierMerge(chains, cfg.MaxSummaries); d.Window != nil {
		d.Reason = fmt.Sprintf("%d summaries of one level stand side by side", cfg.MaxSummaries)
		return d
	}
	if over {
		if d.Window = s.forcedMerge(chains, cfg.MaxSummaries, d.PromptTokens, cfg.TokenThreshold, s.step(cfg, cfg.TokenThreshold, d.PromptTokens, 0)); d.Window != nil {
			d.Reason = fmt.Sprintf("the prompt takes %d tokens, the threshold is %d, and only summaries are left to merge", d.PromptTokens, cfg.TokenThreshold)
			return d
		}
	}
	d.Reason = "nothing to do: " + strings.TrimSuffix(reason, "; ")
	return d
}

// worth reports whether summaries of a window pay, and notes the balance.
func (d *Decision) worth(s *visible, w *Window, cfg Config) bool {
	return w == nil || cfg.Cost.Turns == 0 || d.worthSaving(s, w, w.saves(s, cfg), cfg)
}

// worthSaving is the same of a window of which it is known what it saves.
func (d *Decision) worthSaving(s *visible, w *Window, saved int, cfg Config) bool {
	if cfg.Cost.Turns == 0 {
		return true
	}
	b := s.balance(w, saved, cfg)
	d.Balance = &b
	return cfg.Cost.pays(b)
}

// notYet says why a pass that is due is not made.
func (d *Decision) notYet() string {
	if d.Balance == nil {
		return ""
	}
	if n := d.Balance.BreakEven(); n > 0 {
		return fmt.Sprintf(", which does not pay yet: it breaks even after %d turns, and would cost %.0f at once where %.0f were spent", n, max(0, d.Balance.Once), d.Balance.Spent)
	}
	return ", which never pays"
}

// longInvocation returns how many tokens the raw events of the running invocation take, and
// the window over those that can go, if they take too many. Half of what they may take must
// be there to be covered, lest a long turn costs a call with every step.
func (s *visible) longInvocation(cfg Config) (takes int, w *Window) {
	s.number()
	if s.live == noInvocation {
		return 0, nil
	}
	for i, e := range s.entries {
		if s.invocation[i] == s.live {
			takes += e.Event.EstimatedTokens()
		}
	}
	if takes < cfg.InvocationTokens {
		return takes, nil
	}
	tail := s.tail(cfg.EventRetentionSize)
	s.settle(cfg, func(i int) bool { return i >= tail || s.invocation[i] != s.live })
	w = s.window(ByTokens, cfg)
	if s.coverableTokens() < (cfg.InvocationTokens+1)/2 {
		w = nil
	}
	return takes, w
}
