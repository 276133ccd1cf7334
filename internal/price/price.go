// Package price computes what changing a prompt costs and saves with a provider's prompt cache.
package price

import "math"

// Relative prices of tokens. A token in a prompt costs Cached if the prompt up to it is unchanged
// since the previous turn, and otherwise Fresh, since it is then written to the cache. A
// summarizer's input costs Read, its output Written. The ratios are those of models of 2025: a
// tenth for a cache hit, a quarter more for a cache write, and five times the input's price for
// output.
const (
	Cached  = 0.1
	Fresh   = 1.25
	Read    = 1
	Written = 5
)

// Balance is the cost and the savings of a change of the prompt.
type Balance struct {
	// Once is the additional cost of the change and the next turn, compared with that turn without
	// the change; it is negative if the change saves at once.
	Once float64

	// EachTurn is the savings at each further turn.
	EachTurn float64
}

// Change returns the balance of changing the end of a prompt from before to after tokens.
func Change(before, after int) Balance {
	return Balance{Once: Fresh*float64(after) - Cached*float64(before), EachTurn: Cached * float64(before-after)}
}

// BreakEven returns the number of turns after which the change has paid for itself, or 0 if it
// never does.
func (b Balance) BreakEven() int {
	switch {
	case b.Once <= 0:
		return 1
	case b.EachTurn <= 0 || b.Once/b.EachTurn > 1e9:
		return 0
	}
	return 1 + int(math.Ceil(b.Once/b.EachTurn))
}
