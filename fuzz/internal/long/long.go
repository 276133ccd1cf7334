// Package long runs a harness in rounds: a few of them in a test, or with flags very many,
// which may be cut short and gone on with.
//
//	go test ./fuzz/kill -run TestKill -timeout 0 -rounds 2000 -progress kill.json -v
//
// The same command again goes on after the last round that passed.
package long

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	rounds   = flag.Int("rounds", 0, "how many rounds a harness makes in all, instead of the few of a short run")
	progress = flag.String("progress", "", "a `file` that keeps which rounds are done, for the next run to go on from")
	seed     = flag.Uint64("seed", 1, "what the rounds' random numbers begin from")
	round    = flag.Int("round", -1, "the only round to make")
)

// Round is one round of a harness. What it does follows from its number and the seed, as far
// as the harness is no matter of time.
type Round struct {
	N      int
	Random *rand.Rand
	mu     sync.Mutex
	counts map[string]int
}

// Count adds to one of the figures that are reported in the end. Goroutines may share a round.
func (r *Round) Count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// state is what is known of a harness: it is kept in the progress file under the test's name.
type state struct {
	Seed   uint64         `json:"seed"`
	Rounds int            `json:"rounds"`
	Took   time.Duration  `json:"took"`
	From   time.Time      `json:"from"`
	To     time.Time      `json:"to"`
	Counts map[string]int `json:"counts"`
}

// Long says whether more rounds are asked for than a test makes.
func Long() bool { return *rounds > 0 }

// Rounds yields the rounds of a test one after another: few of them, or as many as the flags
// say. It ends at the first round in which the test fails, names it, and logs the figures of
// all rounds.
func Rounds(t testing.TB, few int) iter.Seq[*Round] {
	return func(yield func(*Round) bool) {
		t.Helper()
		done, err := read(*progress, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		if done.Rounds > 0 && done.Seed != *seed {
			t.Fatalf("%s has rounds of seed %d, not of %d: give that seed, or another file", *progress, done.Seed, *seed)
		}
		done.Seed = *seed
		next, end := done.Rounds, few
		if *rounds > 0 {
			end = *rounds
		}
		if *round >= 0 {
			next, end = *round, *round+1
		}
		defer func() { t.Log(done) }()
		for ; next < end; next++ {
			r := &Round{N: next, Random: rand.New(rand.NewPCG(*seed, uint64(next))), counts: map[string]int{}}
			began := time.Now()
			goOn := yield(r)
			if t.Failed() {
				t.Logf("round %d of seed %d failed: -round %d -seed %d makes it alone", next, *seed, next, *seed)
				return
			}
			done.add(r, began, time.Now())
			if *round < 0 {
				if err := write(*progress, t.Name(), done); err != nil {
					t.Fatal(err)
				}
			}
			if !goOn {
				return
			}
		}
	}
}

func (s *state) add(r *Round, began, ended time.Time) {
	if s.Counts == nil {
		s.From, s.Counts = began, map[string]int{}
	}
	s.Rounds, s.Took, s.To = r.N+1, s.Took+ended.Sub(began), ended
	for what, n := range r.counts {
		s.Counts[what] += n
	}
}

func (s state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds in %v, %s to %s", s.Rounds, s.Took.Round(time.Millisecond), s.From.Format(time.DateOnly), s.To.Format(time.DateOnly))
	for _, what := range slices.Sorted(maps.Keys(s.Counts)) {
		fmt.Fprintf(&b, ", %d %s", s.Counts[what], what)
	}
	return b.String()
}

func readAll(path string) (map[string]state, error) {
	all := map[string]state{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("progress file: %w", err)
	}
	return all, nil
}

func read(path, test string) (state, error) {
	if path == "" {
		return state{}, nil
	}
	all, err := readAll(path)
	return all[test], err
}

func write(path, test string, s state) error {
	if path == "" {
		return nil
	}
	all, err := readAll(path)
	if err != nil {
		return err
	}
	all[test] = s
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".progress-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
