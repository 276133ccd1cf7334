package price_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/price"
)

func TestBreakEven(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int
		want          int
	}{
		{"a shorter end pays after some turns", 1000, 500, 12}, // costs 525 at once and saves 50 per turn
		{"a much shorter end pays at once", 1000, 80, 1},
		{"a longer end never pays", 500, 1000, 0},
		{"an end of the same length never pays", 500, 500, 0},
	} {
		if got := price.Change(c.before, c.after).BreakEven(); got != c.want {
			t.Errorf("%s: %d turns, want %d", c.name, got, c.want)
		}
	}
}
