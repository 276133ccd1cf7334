//go:build linux

package power

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// A process that writes is this test's own binary, told by this variable what to do.
const envJob = "PATCHLOG_POWER_JOB"

func TestMain(m *testing.M) {
	if path := os.Getenv(envJob); path != "" {
		if err := work(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// job is a script, as far as it is not done.
type job struct {
	Script script
	Dir    string // where the file is
	Tried  []int
	Done   []int
}

// child returns a process that is to do a job, ready to start.
func child(t testing.TB, j job, wrap ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skipf("needs to run its own binary again: %v", err)
	}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	path := jobOf(j.Dir)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(wrap, self)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), envJob+"="+path, "GORACE=halt_on_error=1")
	return cmd
}

// jobOf is the file that a job in a directory is written to.
func jobOf(dir string) string { return dir + ".job" }

const (
	wordTry = "try "
	wordAck = "ack "
)

// worker does a job, and says of each call that it will try it, and that it was acknowledged.
type worker struct {
	job
	tried, done map[int]bool
	say         sync.Mutex // lines whole
}

func (w *worker) line(word string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.say.Lock()
	defer w.say.Unlock()
	fmt.Println(word + string(text))
}

func work(path string) error {
	text, err := os.ReadFile(path)
	w := &worker{tried: map[int]bool{}, done: map[int]bool{}}
	if err == nil {
		err = json.Unmarshal(text, &w.job)
	}
	if err != nil {
		return err
	}
	for _, n := range w.Tried {
		w.tried[n] = true
	}
	for _, n := range w.Done {
		w.done[n] = true
	}
	for _, o := range w.Script.ops() {
		o.parse()
	}
	return w.run(context.Background())
}

func (w *worker) run(ctx context.Context) (err error) {
	var s *opened
	for _, p := range w.Script.Phases {
		if s == nil {
			if s, err = open(w.Dir, w.Script.Durability); err != nil {
				return err
			}
			d := done{Op: -1, Shows: map[string]uint64{}}
			for info, err := range s.List(ctx, store.ListOptions{}) {
				if err != nil {
					return err
				}
				d.Shows[info.Key.String()] = info.Seq
			}
			w.line(wordAck, d)
		}
		errs := make([]error, len(p.Lanes))
		var lanes sync.WaitGroup
		for i, lane := range p.Lanes {
			lanes.Go(func() {
				for _, o := range lane {
					if errs[i] == nil {
						errs[i] = w.call(o, func() (done, error) { return s.do(ctx, o, w.tried[o.N]) })
					}
				}
			})
		}
		lanes.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if !p.Reopen && p.Closed == nil {
			continue
		}
		if err := s.Close(); err != nil {
			return err
		}
		s = nil
		for _, o := range p.Closed {
			if err := w.call(o, func() (done, error) { return done{Op: o.N}, doClosed(ctx, w.Dir, o) }); err != nil {
				return err
			}
		}
	}
	if s != nil {
		return s.Close()
	}
	return nil
}

func (w *worker) call(o *op, do func() (done, error)) error {
	if w.done[o.N] {
		return nil
	}
	w.line(wordTry, o.N)
	d, err := do()
	if err == nil {
		w.line(wordAck, d)
	}
	return err
}

// heard takes what a process says into the model, as of a place in its record.
func (m *model) heard(line string, at int) error {
	word, text := line[:min(len(line), len(wordTry))], line[min(len(line), len(wordTry)):]
	switch word {
	case wordTry:
		var n int
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return fmt.Errorf("the process says %.100q: %w", line, err)
		}
		m.try(n, at)
	case wordAck:
		var d done
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&d); err != nil {
			return fmt.Errorf("the process says %.100q: %w", line, err)
		}
		m.acknowledge(d, at)
	default:
		return fmt.Errorf("the process says %.100q", line)
	}
	return nil
}
