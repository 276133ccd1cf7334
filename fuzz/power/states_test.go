//go:build linux

package power

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/store"
)

// failed is a state that is not as it should be.
type failed struct {
	state state
	step  int
	err   error
}

func (f *failed) Error() string {
	return fmt.Sprintf("the power fails after step %d, %s: %v", f.step, f.state.how, f.err)
}

func (f *failed) Unwrap() error { return f.err }

// A check that takes longer hangs.
const patience = 2 * time.Minute

// checkState checks a state, in a directory of its own.
func (r *record) checkState(base string, s state, at int, thorough bool) (under int, err error) {
	dir, err := os.MkdirTemp(base, "state-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := s.write(dir); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if under, err = r.model.check(ctx, dir, bounds{lo: at, hi: at}, thorough); err != nil {
			err = &failed{s, at, err}
		}
	}()
	select {
	case <-ended:
		return under, err
	case <-time.After(patience + 10*time.Second):
		return 0, &failed{s, at, errors.New("its check does not end")}
	}
}

// explore makes states of a record that a power failure may leave, and checks them. It returns the
// last of them, and the first error.
func (r *record) explore(base string, random *rand.Rand, states int, count func(string, int)) (last state, err error) {
	var acks []int
	for i, s := range r.steps {
		if s.kind == stepSay && strings.HasPrefix(s.says, wordAck) {
			acks = append(acks, i)
		}
	}
	points := make([]int, states)
	for i := range points {
		points[i] = random.IntN(len(r.steps) + 1)
		switch n := random.IntN(12); {
		case n < 4 && len(acks) > 0: // as soon as something was promised
			points[i] = acks[random.IntN(len(acks))] + 1
		case n < 5 && r.killed > 0: // as soon as what a process left was found
			points[i] = min(r.killed+1+random.IntN(8), len(r.steps))
		}
	}
	slices.Sort(points)
	var mu sync.Mutex
	var workers sync.WaitGroup
	type job struct {
		state    state
		at       int
		thorough bool
	}
	jobs := make(chan job)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				under, jobErr := r.checkState(base, j.state, j.at, j.thorough)
				mu.Lock()
				if err == nil {
					err = jobErr
				}
				count("states", 1)
				count("calls under way", under)
				mu.Unlock()
			}
		})
	}
	d, at := newDisk(r.start), 0
	for _, point := range points {
		for ; at < point; at++ {
			d.apply(r.steps[at])
		}
		last = d.draw(random)
		jobs <- job{last, point, random.IntN(8) == 0}
		mu.Lock()
		stop := err != nil
		mu.Unlock()
		if stop {
			break
		}
	}
	close(jobs)
	workers.Wait()
	return last, err
}

// keep saves a state that failed, and says where.
func keep(t testing.TB, err error) {
	t.Helper()
	var f *failed
	if !errors.As(err, &f) {
		t.Error(err)
		return
	}
	dir, mkErr := os.MkdirTemp("", "patchlog-power-state-")
	if err := errors.Join(mkErr, f.state.write(dir)); err != nil {
		t.Error(err)
	}
	t.Errorf("%v\nthe state is in %s", err, dir)
}

// starts returns what a round's file may begin as: nothing, or what older versions wrote.
func starts(t testing.TB) []map[string]*file {
	t.Helper()
	paths, err := filepath.Glob("../../store/testdata/*.db.gz")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no files of older versions: %v", err)
	}
	out := []map[string]*file{{}, {}}
	for _, path := range paths {
		out = append(out, golden(t, path))
	}
	return out
}

// Whatever of its unsynced writes a power failure leaves, nothing is lost that was acknowledged,
// nothing is altered, no half of a commit is there, and what is tried again lands once.
func TestStates(t *testing.T) {
	const states = 100
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	rec := recorder{t, needStrace(t), room(t)}
	begin := starts(t)
	for round := range long.Rounds(t, rounds) {
		random := round.Random
		start := begin[round.N%len(begin)]
		for n := states; n > 0 && !t.Failed(); {
			part := n
			if random.IntN(4) == 0 {
				part = min(n, 20+random.IntN(60))
			}
			logs := rec.logs(start)
			s := write(random, fmt.Sprintf("r%d-%d", round.N, n), slices.Sorted(maps.Keys(logs)))
			kill := 0
			if random.IntN(2) == 0 {
				kill = 1 + random.IntN(1+random.IntN(16)) // each thread counts by itself
			}
			r := rec.record(start, logs, s, kill)
			if r.killed > 0 {
				round.Count("records with a killed process", 1)
			}
			round.Count("records", 1)
			round.Count("steps", len(r.steps))
			last, err := r.explore(rec.room, random, part, round.Count)
			if err != nil {
				keep(t, err)
			}
			n -= part
			start = last.start() // what follows goes on where the power has failed
		}
	}
}

// start returns the state as what a process finds. Backups are left out.
func (s state) start() map[string]*file {
	out := map[string]*file{}
	for name, c := range s.files {
		if strings.HasPrefix(name, "backup") {
			continue
		}
		out[name] = &file{c.data, c.size}
	}
	return out
}

// What is not synced, or not in time, must be found out, or the test above proves nothing.
func TestStatesFindsWhatIsLost(t *testing.T) {
	rec := recorder{t, needStrace(t), room(t)}
	for name, c := range map[string]struct {
		durability store.Durability
		change     func(steps []step) []step
	}{
		"relaxed": {durability: store.Relaxed},
		"every second sync is left out": {change: func(steps []step) []step {
			return without(steps, stepSync, func(n int) bool { return n%2 == 1 })
		}},
		"the others are": {change: func(steps []step) []step {
			return without(steps, stepSync, func(n int) bool { return n%2 == 0 })
		}},
		"names are not synced": {change: func(steps []step) []step {
			return without(steps, stepSyncDir, func(int) bool { return true })
		}},
		"acknowledged before": {change: acknowledgedEarly},
	} {
		t.Run(name, func(t *testing.T) {
			rec := recorder{t, rec.strace, rec.room}
			random := rand.New(rand.NewPCG(1, 1))
			s := write(random, "c", nil)
			s.Durability = c.durability
			r := rec.record(nil, nil, s, 0)
			if c.change != nil {
				r = r.with(t, c.change(r.steps))
			}
			n := 0
			_, err := r.explore(rec.room, random, 2000, func(what string, k int) {
				if what == "states" {
					n += k
				}
			})
			var f *failed
			if !errors.As(err, &f) {
				t.Errorf("of %d states none is found to have lost anything (%v)", n, err)
			}
			t.Logf("after %d states: %.300v", n, err)
		})
	}
}

// with is the record as if other steps had been made.
func (r *record) with(t testing.TB, steps []step) *record {
	t.Helper()
	out := &record{start: r.start, steps: steps, model: newModel(r.model.script, nil)}
	for i, s := range steps {
		if s.kind == stepSay {
			if err := out.model.heard(s.says, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// acknowledgedEarly has each sync come after what is said next.
func acknowledgedEarly(steps []step) []step {
	out := slices.Clone(steps)
	for i := 0; i+1 < len(out); i++ {
		if out[i].kind == stepSync && out[i+1].kind == stepSay {
			out[i], out[i+1] = out[i+1], out[i]
			i++
		}
	}
	return out
}
