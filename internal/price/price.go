// Package price reckons what changing a prompt costs and saves where a provider caches prompts.
package price

import "math"

// Prices of tokens, as ratios. A token of a prompt costs Cached if the prompt was the same up to
// it at the turn before, and Fresh elsewhere, since it is then written into the cache. A
// summarizer's reading costs Read, its writing Written. They are those of the models of 2025: a
// tenth for a hit, a quarter more for a write, and five times as much for output as for input.
const (
	Cached  = 0.1
	Fresh   = 1.25
	Read    = 1
	Written = 5
)

// Balance is what a change of the prompt costs and saves.
type Balance struct {
	// Once is what the change costs, with the next turn, more than that turn would cost
	// without it; below 0 it is saved.
	Once float64

	// EachTurn is what is saved at each further turn.
	EachTurn float64
}

// Change returns the balance of a prompt that is the same up to a point behind which there
// were before tokens and are after tokens.
func Change(before, after int) Balance {
	return Balance{Once: Fresh*float64(after) - Cached*float64(before), EachTurn: Cached * float64(before-after)}
}

// BreakEven returns after how many turns the change has paid for itself; 0 if it never does.
func (b Balance) BreakEven() int {
	switch {
	case b.Once <= 0:
		return 1
	case b.EachTurn <= 0 || b.Once/b.EachTurn > 1e9:
		return 0
	}
	return 1 + int(math.Ceil(b.Once/b.EachTurn))
}
