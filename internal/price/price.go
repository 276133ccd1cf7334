// Package price computes the cost and savings of changing a prompt if the provider caches prompts.
package price

import "math"

// Relative prices of tokens. A token of a prompt has the price Cached if the prompt up to this token has not changed
// since the previous turn. Otherwise it has the price Fresh, because it is written to the cache. A token that a
// summarizer reads has the price Read, and a token that it writes has the price Written. The ratios match models of
// 2025: a tenth of the price for a cache hit, a quarter more for a cache write, and five times the input's price for
// output.
const (
	Cached  = 0.1
	Fresh   = 1.25
	Read    = 1
	Written = 5
)

// Balance is the cost and the savings of changing a prompt.
type Balance struct {
	// Once is the additional cost of the next turn because of the change. If it is negative, the change saves at once.
	Once float64

	// EachTurn is the savings in each later turn.
	EachTurn float64
}

// Change returns the balance of replacing the end of a prompt. The parameters are the sizes of the old and the new end
// in tokens.
func Change(before, after int) Balance {
	return Balance{Once: Fresh*float64(after) - Cached*float64(before), EachTurn: Cached * float64(before-after)}
}

// BreakEven returns the number of turns after which the savings exceed the cost, or 0 if they never do.
func (b Balance) BreakEven() int {
	switch {
	case b.Once <= 0:
		return 1
	case b.EachTurn <= 0 || b.Once/b.EachTurn > 1e9:
		return 0
	}
	return 1 + int(math.Ceil(b.Once/b.EachTurn))
}
