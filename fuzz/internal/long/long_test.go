package long

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// tb is a test whose end is watched.
type tb struct {
	testing.TB
	failed bool
	logged string
}

func (t *tb) Helper()                      {}
func (t *tb) Name() string                 { return "TestX" }
func (t *tb) Failed() bool                 { return t.failed }
func (t *tb) Log(args ...any)              { t.logged = fmt.Sprint(args...) }
func (t *tb) Logf(format string, a ...any) { t.logged = fmt.Sprintf(format, a...) }

func (t *tb) Fatal(...any) {
	t.failed = true
	runtime.Goexit()
}

func (t *tb) Fatalf(string, ...any) { t.Fatal() }

func with[T any](t *testing.T, flag *T, v T) {
	old := *flag
	*flag = v
	t.Cleanup(func() { *flag = old })
}

func TestRounds(t *testing.T) {
	with(t, progress, filepath.Join(t.TempDir(), "progress.json"))
	var made []int
	drawn := map[int]uint64{}
	run := func(few, fails int) {
		made = nil
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
	}
	want := func(rounds string, in string) {
		t.Helper()
		if got := fmt.Sprint(made); got != rounds {
			t.Errorf("rounds %s, want %s", got, rounds)
		}
		s, err := read(*progress, "TestX")
		if got := fmt.Sprint(s.Rounds, s.Counts); err != nil || got != in {
			t.Errorf("the file has %s, %v, want %s", got, err, in)
		}
	}
	run(3, -1)
	want("[0 1 2]", "3 map[things:6]")
	run(3, -1)
	want("[]", "3 map[things:6]")
	with(t, rounds, 8)
	run(3, 5)
	want("[3 4 5]", "5 map[things:10]")
	run(3, -1)
	want("[5 6 7]", "8 map[things:16]")
	with(t, round, 1)
	run(3, -1)
	want("[1]", "8 map[things:16]")
	if drawn[0] == drawn[1] {
		t.Error("two rounds draw the same numbers")
	}
}

func TestProgressThatIsNotOfThisRun(t *testing.T) {
	for _, text := range []string{"no", `{"TestX":{"seed":7,"rounds":1}}`} {
		with(t, progress, filepath.Join(t.TempDir(), "progress.json"))
		if err := os.WriteFile(*progress, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		x := &tb{}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range Rounds(x, 1) {
				t.Errorf("a round is made with the file %s", text)
			}
		}()
		<-ended
		if !x.failed {
			t.Errorf("the file %s is taken", text)
		}
	}
}
