// Package long runs a harness in rounds: a few in a test, or as many as the flags say.
//
//	go test ./internal/fuzz/kill -run TestKilled$ -timeout 0 -rounds 2000 -v
//
// To resume a run, set -from to the number of the last round in its log.
package long

import (
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	rounds = flag.Int("rounds", 0, "how many rounds a harness makes in all, instead of the few of a short run")
	from   = flag.Int("from", 0, "the first round to make")
	seed   = flag.Uint64("seed", 1, "seed of the rounds' random numbers")
	round  = flag.Int("round", -1, "the only round to make")
)

// Round is one round of a harness. The number and the seed of a round determine its operations, unless an operation
// depends on timing.
type Round struct {
	N      int
	Random *rand.Rand
	mu     sync.Mutex
	counts map[string]int
}

// Count adds n to a figure, which is logged at the end. Count is safe for concurrent use.
func (r *Round) Count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// Long reports whether the flags request a long run.
func Long() bool { return *rounds > 0 }

// Rounds yields the rounds of a test. Their number is few, or the number in the flags. Rounds stops at the first
// round that fails, and logs how to repeat it. It logs the figures of all rounds at the end, and in a long run after
// each round.
func Rounds(t testing.TB, few int) iter.Seq[*Round] {
	return func(yield func(*Round) bool) {
		t.Helper()
		began, counts, next, end := time.Now(), map[string]int{}, *from, few
		if Long() {
			end = *rounds
		}
		if *round >= 0 {
			next, end = *round, *round+1
		}
		for more := true; more && next < end; next++ {
			r := &Round{N: next, Random: rand.New(rand.NewPCG(*seed, uint64(next))), counts: counts}
			more = yield(r)
			if t.Failed() {
				t.Logf("round %d of seed %d failed: -round %d -seed %d makes it alone", next, *seed, next, *seed)
				return
			}
			if Long() || next == end-1 {
				t.Logf("round %d of %d, %v: %s", next, end, time.Since(began).Round(time.Millisecond), r)
			}
		}
	}
}

// String returns the figures of all rounds so far.
func (r *Round) String() string {
	var figures []string
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		figures = append(figures, fmt.Sprint(r.counts[what], " ", what))
	}
	return strings.Join(figures, ", ")
}
