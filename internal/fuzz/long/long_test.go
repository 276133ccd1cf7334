package long

import (
	"fmt"
	"strings"
	"testing"
)

// tb records how a test ended.
type tb struct {
	testing.TB
	failed bool
	logged []string
}

func (t *tb) Helper()                      {}
func (t *tb) Failed() bool                 { return t.failed }
func (t *tb) Logf(format string, a ...any) { t.logged = append(t.logged, fmt.Sprintf(format, a...)) }

func with[T any](t *testing.T, flag *T, v T) {
	old := *flag
	*flag = v
	t.Cleanup(func() { *flag = old })
}

func TestRounds(t *testing.T) {
	drawn := map[int]uint64{}
	run := func(few, fails int, want, last string) {
		t.Helper()
		var made []int
		x := &tb{TB: t}
		for r := range Rounds(x, few) {
			made = append(made, r.N)
			if n := r.Random.Uint64(); drawn[r.N] == 0 {
				drawn[r.N] = n
			} else if drawn[r.N] != n {
				t.Errorf("round %d draws other numbers the second time", r.N)
			}
			r.Count("things", 2)
			x.failed = r.N == fails
		}
		if got := fmt.Sprint(made); got != want || len(x.logged) == 0 || !strings.Contains(x.logged[len(x.logged)-1], last) {
			t.Errorf("rounds %s, want %s; logged %q", got, want, x.logged)
		}
	}
	run(3, -1, "[0 1 2]", "6 things")
	with(t, rounds, 8)
	run(3, 5, "[0 1 2 3 4 5]", "-round 5 -seed 1 makes it alone")
	with(t, from, 5)
	run(3, -1, "[5 6 7]", "6 things")
	with(t, round, 1)
	run(3, -1, "[1]", "2 things")
	if drawn[0] == drawn[1] {
		t.Error("two rounds draw the same numbers")
	}
}
