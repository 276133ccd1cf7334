package kill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/internal/load"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/store"
)

// env has what a process is to do.
const env = "PATCHLOG_KILL"

// spec is what a process is to do.
type spec struct {
	Place string // of the store
	Dir   string // for backups
	Flaw  string
	Round int
	Seed  uint64
}

// AppName is what processes that are to be killed call themselves, by PGAPPNAME.
const AppName = "to be killed"

// Harness is a kind of storage under test.
type Harness struct {
	// Open opens the store at a place, with a flaw of [Flawed] if that is not "".
	Open func(place, flaw string) (*store.Store, error)

	// Ended, if not nil, waits until nothing is under way any more of what a process that was
	// killed had begun, with [AppName] as the name of its connections. Before, its calls are
	// made again, now and then, beside those that it has under way. nil says that nothing goes
	// on when a process has ended.
	Ended func(t testing.TB, place string)

	// Backups says that the store's backups are files that [store.Open] opens.
	Backups bool
}

// Child does not return in a process that a harness has started: that writes until it is killed.
// It is to be called before the tests run, as in an init function.
func (h Harness) Child() {
	text := os.Getenv(env)
	if text == "" {
		return
	}
	var sp spec
	err := json.Unmarshal([]byte(text), &sp)
	if err == nil {
		err = h.work(sp, os.Stdout)
	}
	fmt.Fprintln(os.Stderr, "killed too late:", err)
	os.Exit(1)
}

// work opens the store, and has clients write to it until the process is killed.
func (h Harness) work(sp spec, out io.Writer) error {
	ctx := context.Background()
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	say := func(l load.Line) {
		mu.Lock()
		defer mu.Unlock()
		if err := lines.Encode(l); err != nil { // in one call of the system's
			panic(err)
		}
	}
	say(load.Line{At: load.Opening})
	s, err := h.Open(sp.Place, sp.Flaw)
	if err != nil {
		return err
	}
	say(load.Line{At: load.Opened})
	crowd := &load.Crowd{Store: s, Round: sp.Round, Seed: sp.Seed, Dir: sp.Dir, Say: say}
	var wg sync.WaitGroup
	for i := range load.Clients {
		wg.Go(func() {
			c := crowd.Client(i)
			for {
				if err := c.Step(ctx); err != nil {
					say(load.Line{Wrong: fmt.Sprintf("client %d: %v", i, err)})
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.New("the clients have ended")
}

// Check makes rounds, each of which kills a process. place makes a new storage, which is used
// for so many rounds as perPlace says.
func (h Harness) Check(t *testing.T, few, perPlace int, place func() string) {
	var p *Place
	for r := range long.Rounds(t, few) {
		if p == nil || r.N%perPlace == 0 {
			p = h.at(t, place(), "")
		}
		if err := p.Round(t, r.N, r.Random, r.Count); err != nil {
			t.Error(err)
		}
	}
}

// Finds makes rounds with a flaw until one reports something, and fails if none does.
func (h Harness) Finds(t *testing.T, flaw string, within int, place string) {
	p := h.at(t, place, flaw)
	for n := range within {
		count := func(string, int) {}
		if err := p.Round(t, n, rand.New(rand.NewPCG(uint64(n), 0)), count); err != nil {
			t.Logf("round %d: %.600s", n, err.Error())
			return
		}
	}
	t.Errorf("in %d rounds nothing was found of a store that is %s", within, flaw)
}

// Place is a storage that processes write to until they are killed, one after the other.
type Place struct {
	harness Harness
	name    string
	flaw    string
	before  load.Content // what it held at last
}

func (h Harness) at(t *testing.T, name, flaw string) *Place {
	t.Helper()
	p := &Place{harness: h, name: name, flaw: flaw}
	s, err := h.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(context.Background(), load.Key("anchor"), nil)
	if err == nil {
		p.before, err = load.Read(context.Background(), s)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return p
}

// Round kills a process that writes, holds what is there against what it was told, makes the
// calls again whose outcome is not known, and holds it again.
func (p *Place) Round(t testing.TB, n int, random *rand.Rand, count func(string, int)) error {
	ctx := context.Background()
	dir := t.TempDir()
	defer os.RemoveAll(dir) // there may be many
	j, err := p.run(spec{p.name, dir, p.flaw, n, random.Uint64()}, random)
	if err != nil {
		return err
	}
	count("kills", 1)
	for _, c := range j.Calls {
		if j.Replies[c.N].Kind == "done" {
			count(c.Op, 1)
		}
	}
	count("calls", len(j.Calls))
	count("acknowledged", len(j.Replies))
	s, err := p.harness.Open(p.name, p.flaw)
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	if p.harness.Ended != nil {
		if random.IntN(2) == 0 {
			race(ctx, s, j, count)
		}
		p.harness.Ended(t, p.name)
	}
	pending := j.Pending()
	count("unknown", len(pending))
	for _, c := range pending {
		if c.Op == "vacuum" || c.Op == "backup" || c.Op == "erase" {
			count(c.Op+" cut short", 1)
		}
	}
	before := p.before
	if p.before, err = load.Settle(ctx, s, before, j, random, count); err == nil {
		err = p.backup(ctx, before, j, dir, count)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("after the kill: %w\n%d calls, %d without a reply: %.3000v", err, len(j.Calls), len(pending), pending)
	}
	return nil
}

// race makes calls again, at once, that may still be under way. Those that do not succeed may
// have taken place all the same.
func race(ctx context.Context, s *store.Store, j *load.Journal, count func(string, int)) {
	replies := make(chan load.Reply)
	pending := j.Pending()
	for _, c := range pending {
		go func() {
			r := load.Reply{N: c.N, Kind: "unknown"}
			if c.Creation != "" && len(c.Offered) > 0 {
				r = load.Do(ctx, s, c)
			}
			replies <- r
		}()
	}
	for range pending {
		if r := <-replies; r.Kind == "done" {
			j.End(r)
			count("raced", 1)
		}
	}
}

// run starts a process and kills it.
func (p *Place) run(sp spec, random *rand.Rand) (*load.Journal, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(sp)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env+"="+string(text), "PGAPPNAME="+AppName, "GORACE=halt_on_error=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j, err := listen(out, timing(random), func() { _ = cmd.Process.Kill() })
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if err == nil && cmd.ProcessState.Exited() && runtime.GOOS != "windows" {
		err = fmt.Errorf("the process ended before it was killed: %s", said.String())
	}
	return j, err
}

// moment is when a process is killed: some time after the n-th line of a kind.
type moment struct {
	is    func(load.Line) bool
	n     int
	after time.Duration
}

// timing draws a moment: by what has been done, not by the clock, since a machine may be busy.
func timing(random *rand.Rand) moment {
	upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	whole := func(l load.Line) bool {
		return l.Try != nil && slices.Contains([]string{"vacuum", "backup", "erase"}, l.Try.Op)
	}
	replies := func(l load.Line) bool { return l.Reply != nil }
	switch p := random.IntN(100); {
	case p < 10:
		return moment{func(l load.Line) bool { return l.At == load.Opening }, 1, upTo(4 * time.Millisecond)}
	case p < 40:
		return moment{whole, 1 + random.IntN(3), upTo(8 * time.Millisecond)}
	case p < 50:
		return moment{replies, 1 + random.IntN(1000), upTo(time.Millisecond)}
	}
	return moment{replies, 1 + random.IntN(200), upTo(3 * time.Millisecond)}
}

// A process whose moment does not come lives for so long.
const patience = 10 * time.Second

// listen reads what a process says until it is killed.
func listen(out io.Reader, m moment, kill func()) (*load.Journal, error) {
	j := load.NewJournal()
	defer time.AfterFunc(patience, kill).Stop()
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line that was cut short says nothing
			return j, nil
		}
		if err != nil {
			return j, err
		}
		var l load.Line
		if err := json.Unmarshal(text, &l); err != nil {
			return j, fmt.Errorf("the process says %q: %w", text, err)
		}
		if err := j.Hear(l); err != nil {
			return j, fmt.Errorf("the process says: %w", err)
		}
		if m.is(l) {
			if m.n--; m.n == 0 {
				defer time.AfterFunc(m.after, kill).Stop()
			}
		}
	}
}

// backup holds the last backup that is whole against what was acknowledged when it was begun.
func (p *Place) backup(ctx context.Context, before load.Content, j *load.Journal, dir string, count func(string, int)) error {
	var last load.Call
	for _, c := range j.Calls {
		if _, err := os.Stat(c.File); c.Op == "backup" && err == nil {
			last = c
		}
	}
	if last.N == 0 || !p.harness.Backups {
		return nil
	}
	s, err := store.Open(last.File, store.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer s.Close()
	from, to := j.Window(last)
	if err := load.VerifyBeside(ctx, s, j.PendingAt(from, to)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	now, err := load.Read(ctx, s)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	count("backups", 1)
	if err := load.Judge(before, j, now, from, to); err != nil {
		return fmt.Errorf("in the backup of call %d: %w", last.N, err)
	}
	return nil
}
