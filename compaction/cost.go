package compaction

import (
	"fmt"
	"math"

	"github.com/patchlog-dev/patchlog/internal/records"
)

// Prices of [Cost], as ratios: a token of a prompt costs CachedPrice where it stands in the
// same prefix as at the turn before, and FreshPrice elsewhere, since it is then written into
// the cache. A summarizer's reading costs ReadPrice, its writing WrittenPrice. They are those
// of the models of 2025 that cache prompts: a tenth for a hit, a quarter more for a write,
// and five times as much for output as for input.
const (
	CachedPrice  = 0.1
	FreshPrice   = 1.25
	ReadPrice    = 1
	WrittenPrice = 5
)

// Defaults of [DefaultCost].
const (
	DefaultTurns = 20
	DefaultRisk  = 0.01
)

// Cost says when a pass is worth what it costs: the summarizer's reading and writing, and that
// what follows the window is no longer in the model's cache. With it, intervals and clearing
// make a pass only if it pays; limits of tokens are held at any cost, but in larger steps
// where what may not go is near the limit already. The zero Cost switches all this off.
type Cost struct {
	// Turns is how many turns of the model to expect after a pass, at least. 0 switches it
	// all off, and nothing else may be set then.
	Turns int

	// Risk is how much dearer a pass may make the session, as a part of what it would have
	// cost so far without compaction, if it ended with the next turn. 0 means [DefaultRisk].
	Risk float64

	// Cached, Fresh, Read and Written are prices of tokens, of which only the ratios matter.
	// All 0 mean [CachedPrice], [FreshPrice], [ReadPrice] and [WrittenPrice]. The offline
	// summarizer reads and writes for nothing.
	Cached, Fresh, Read, Written float64
}

// DefaultCost expects 20 turns more, and makes no session more than a hundredth dearer.
func DefaultCost() Cost {
	return Cost{DefaultTurns, DefaultRisk, CachedPrice, FreshPrice, ReadPrice, WrittenPrice}
}

// validate returns what is wrong with a cost: a field and its problem.
func (c Cost) validate() (field, problem string) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"Turns", float64(c.Turns)}, {"Risk", c.Risk}, {"Cached", c.Cached}, {"Fresh", c.Fresh}, {"Read", c.Read}, {"Written", c.Written}} {
		switch {
		case !(f.value >= 0) || math.IsInf(f.value, 0):
			return f.name, fmt.Sprintf("%v is not a number from 0 on", f.value)
		case c.Turns == 0 && f.value > 0:
			return "Turns", fmt.Sprintf("it must be set with %s, which is %v", f.name, f.value)
		}
	}
	if prices := (Cost{Cached: c.Cached, Fresh: c.Fresh, Read: c.Read, Written: c.Written}); prices != (Cost{}) && c.Fresh < c.Cached {
		return "Fresh", fmt.Sprintf("%v is less than Cached, which is %v", c.Fresh, c.Cached)
	}
	return "", ""
}

func (c Cost) withDefaults() Cost {
	if c.Turns == 0 {
		return c
	}
	if c.Risk == 0 {
		c.Risk = DefaultRisk
	}
	if c.Cached == 0 && c.Fresh == 0 && c.Read == 0 && c.Written == 0 {
		d := DefaultCost()
		d.Turns, d.Risk = c.Turns, c.Risk
		return d
	}
	return c
}

// Balance is what a pass costs and saves, in the units of [Cost].
type Balance struct {
	// Once is what the pass costs, with the turn after it, more than that turn would cost
	// without; below 0 it is saved.
	Once float64

	// EachTurn is what is saved at each further turn.
	EachTurn float64

	// Spent is what the session would have cost so far without compaction, as estimated.
	Spent float64

	// Saved is what earlier passes have saved by what followed the newest of them, less what
	// its summary cost.
	Saved float64
}

// BreakEven returns after how many turns the pass has paid for itself; 0 if it never does.
func (b Balance) BreakEven() int {
	switch {
	case b.Once <= 0:
		return 1
	case b.EachTurn <= 0 || b.Once/b.EachTurn > 1e9:
		return 0
	}
	return 1 + int(math.Ceil(b.Once/b.EachTurn))
}

// pays reports whether a pass is worth it.
func (c Cost) pays(b Balance) bool {
	n := b.BreakEven()
	return n > 0 && n <= c.Turns && b.Once <= c.Risk*b.Spent+max(0, b.Saved)
}

// balance returns the balance of a window that will take so many tokens less.
func (s *visible) balance(w *Window, saved int, cfg Config) Balance {
	first := w.Start
	for _, a := range w.Also {
		first = min(first, a.Start)
	}
	from, prefix, unread, visible := 0, 0, 0, 0
	b := Balance{}
	c := cfg.Cost
	for i, e := range s.entries {
		if i >= first {
			from += e.Event.EstimatedTokens()
		}
		if e.Summary {
			l := LineageOf(e.Event)
			tokens := max(l.Tokens, e.Event.EstimatedTokens())
			turns := float64(l.Events / 2) // about every second event is a model's
			b.Spent += c.Fresh*float64(tokens) + turns*c.Cached*(float64(prefix)+float64(tokens)/2)
			prefix += tokens
			visible += e.Event.EstimatedTokens()
			b.Saved = -c.Fresh * float64(e.Event.EstimatedTokens())
			continue
		}
		if e.Event.Author() != "user" && e.Event.Role() == "model" {
			b.Spent += c.Cached*float64(prefix) + c.Fresh*float64(unread)
			b.Saved += c.Cached * float64(prefix-visible)
			prefix, visible, unread = prefix+unread, visible+unread, 0
		}
		unread += records.LoggedTokens(e.Event)
	}
	b.Once = c.Fresh*float64(from-saved) - c.Cached*float64(from)
	b.EachTurn = c.Cached * float64(saved)
	if _, offline := cfg.Summarizer.(Extractive); !offline && len(w.Groups) > 0 {
		read := 0
		for _, g := range w.Groups {
			for _, i := range g.Indices {
				read += shownTokens(s.entries[i].Event)
			}
		}
		b.Once += c.Read*float64(read) + c.Written*float64(w.Tokens-saved)
	}
	return b
}

// saves returns about how many tokens summaries of a window save.
func (w *Window) saves(s *visible, cfg Config) int {
	left := 0
	for _, g := range w.Groups {
		tokens := 0
		for _, i := range g.Indices {
			tokens += s.entries[i].Event.EstimatedTokens()
		}
		left += min(tokens, cfg.MaxSummaryTokens, max(leastAim, int(aimOfEvents*float64(tokens))))
	}
	return w.Tokens - left
}

// step is the least part of a limit that is worth a call: half of it where costs count and
// what may not go takes three quarters of it, so that the pass would be the first of many;
// else a sixteenth.
func (s *visible) step(cfg Config, limit, prompt, coverable int) int {
	if cfg.Cost.Turns > 0 && prompt-coverable > limit-limit/4 {
		return max(fraction(limit), limit/2)
	}
	return fraction(limit)
}

// stepName is the step of the threshold in words.
func (s *visible) stepName(cfg Config, prompt, coverable int) string {
	if s.step(cfg, cfg.TokenThreshold, prompt, coverable) > fraction(cfg.TokenThreshold) {
		return "half"
	}
	return "a sixteenth"
}
