package kill

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/patch"
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

const opening, opened = "opening", "open"

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
		err = work(sp, h.Open, os.Stdout)
	}
	fmt.Fprintln(os.Stderr, "killed too late:", err)
	os.Exit(1)
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
	before  content // what it held at last
}

func (h Harness) at(t *testing.T, name, flaw string) *Place {
	t.Helper()
	p := &Place{harness: h, name: name, flaw: flaw}
	s, err := h.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(context.Background(), keyOf("anchor"), nil)
	if err == nil {
		p.before, err = read(context.Background(), s)
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
	count("calls", len(j.calls))
	for _, c := range j.calls {
		if j.replies[c.N].Kind == "done" {
			count(c.Op, 1)
		}
	}
	count("acknowledged", len(j.replies))
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
	pending := j.pending()
	count("unknown", len(pending))
	for _, c := range pending {
		if c.Op == "vacuum" || c.Op == "backup" {
			count(c.Op+" cut short", 1)
		}
	}
	if err := p.after(ctx, s, j, dir, random, count); err != nil {
		_ = s.Close()
		return fmt.Errorf("%w\n%d calls, %d without a reply: %.3000v", err, len(j.calls), len(pending), pending)
	}
	return s.Close()
}

// race makes calls again, at once, that may still be under way. Those that do not succeed may
// have taken place all the same.
func race(ctx context.Context, s *store.Store, j *journal, count func(string, int)) {
	replies := make(chan reply)
	pending := j.pending()
	for _, c := range pending {
		go func() {
			r := reply{N: c.N, Kind: "unknown"}
			if c.Creation != "" && len(c.Offered) > 0 {
				r = do(ctx, s, c)
			}
			replies <- r
		}()
	}
	for range pending {
		if r := <-replies; r.Kind == "done" {
			j.end(r)
			count("raced", 1)
		}
	}
}

func (p *Place) after(ctx context.Context, s *store.Store, j *journal, dir string, random *rand.Rand, count func(string, int)) error {
	if err := verify(ctx, s); err != nil {
		return err
	}
	now, err := read(ctx, s)
	if err != nil {
		return err
	}
	g := newJudge(p.before, j, now, j.lines, j.lines)
	if err := join(g.judge()); err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	if err := repeat(ctx, s, j, now, random); err != nil {
		return err
	}
	pending := j.pending()
	slices.SortStableFunc(pending, func(a, b call) int { return cmp.Compare(b.rank(), a.rank()) })
	for _, c := range pending {
		if err := g.again(ctx, s, c, count); err != nil {
			return err
		}
	}
	if now, err = read(ctx, s); err != nil {
		return err
	}
	g = newJudge(p.before, j, now, j.lines, j.lines)
	if err := join(g.judge()); err != nil {
		return fmt.Errorf("after all was tried again: %w", err)
	}
	if err := compare(ctx, s, g.by, now, count); err != nil {
		return err
	}
	if err := p.backup(ctx, j, dir, count); err != nil {
		return err
	}
	p.before = now
	return verify(ctx, s)
}

// run starts a process and kills it.
func (p *Place) run(sp spec, random *rand.Rand) (*journal, error) {
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
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil && (!ok || status.Signal() != syscall.SIGKILL) {
		err = fmt.Errorf("the process ended before it was killed: %s", said.String())
	}
	return j, err
}

// moment is when a process is killed: some time after the n-th line of a kind.
type moment struct {
	is    func(line) bool
	n     int
	after time.Duration
}

func timing(random *rand.Rand) moment {
	upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	whole := func(l line) bool { return l.Try != nil && (l.Try.Op == "vacuum" || l.Try.Op == "backup") }
	switch p := random.IntN(100); {
	case p < 10:
		return moment{func(l line) bool { return l.At == opening }, 1, upTo(4 * time.Millisecond)}
	case p < 40:
		return moment{whole, 1 + random.IntN(3), upTo(8 * time.Millisecond)}
	}
	return moment{func(l line) bool { return l.At == opened }, 1, upTo(200 * time.Millisecond)}
}

// A process whose moment does not come lives for so long.
const patience = 2 * time.Second

// listen reads what a process says until it is killed.
func listen(out io.Reader, m moment, kill func()) (*journal, error) {
	j := newJournal()
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
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return j, fmt.Errorf("the process says %q: %w", text, err)
		}
		switch {
		case l.Wrong != "":
			return j, fmt.Errorf("the process says: %s", l.Wrong)
		case l.Try != nil:
			j.try(*l.Try)
		case l.Reply != nil:
			j.end(*l.Reply)
		}
		if m.is(l) {
			if m.n--; m.n == 0 {
				defer time.AfterFunc(m.after, kill).Stop()
			}
		}
	}
}

// again makes a call whose outcome is not known. It lands once: if it is in the log, where it
// is, with what it offered.
func (g *judge) again(ctx context.Context, s *store.Store, c call, count func(string, int)) error {
	is := g.now.sessions[c.Session]
	made := c.makes() && is != nil
	switch {
	case c.Op == "vacuum" || c.Op == "backup" || c.Op == "lease":
		g.end(reply{N: c.N, Kind: "done"})
		return nil
	case c.Creation != "" && (is == nil || is.creation != c.Creation): // its session is gone
		return nil
	case c.Op == "delete" && is == nil:
		g.end(reply{N: c.N, Kind: "done"})
		return nil
	}
	landed := 0
	if c.Creation != "" {
		for _, r := range is.records {
			if r.ID() == c.id() {
				landed = int(r.Seq)
			}
		}
	}
	if len(c.Offered) == 0 && c.Creation != "" { // a revert or a rewind
		if over := len(is.records) - g.acknowledged(is); over > 0 {
			r := reply{N: c.N, Kind: "done"}
			for i := range c.adds() {
				at := len(is.records) - c.adds() + i
				r.Records = append(r.Records, entry{uint64(at) + 1, is.sums[at]})
			}
			g.end(r)
			count("landed", 1)
			return nil
		}
	}
	r := do(ctx, s, c)
	switch {
	case made && r.Kind == "exists": // and is what the call was to make, by the judge's word
		r = reply{N: c.N, Kind: "done", Creation: is.creation}
		count("landed", 1)
	case landed > 0 && (r.Kind != "done" || len(r.Records) == 0 || int(r.Records[0].Seq) != landed):
		return fmt.Errorf("call %d is record %d, and made again it is: %+v\n%v", c.N, landed, r, c)
	case landed > 0:
		count("landed", 1)
	case r.Kind == "done":
	case r.Kind != "conflict" && r.Kind != "refused":
		return fmt.Errorf("call %d, made again: %+v\n%v", c.N, r, c)
	}
	g.end(r)
	return nil
}

// rank puts what deletes behind the others.
func (c call) rank() int {
	if c.Op == "delete" {
		return 0
	}
	return 1
}

// acknowledged returns how many records of a session's log are known.
func (g *judge) acknowledged(is *session) int {
	n := 0
	for n < len(is.sums) && g.ledger[is.creation][uint64(n)+1] != 0 {
		n++
	}
	return n
}

// repeat makes some calls again that were acknowledged: they find what is there.
func repeat(ctx context.Context, s *store.Store, j *journal, now content, random *rand.Rand) error {
	for range min(20, len(j.calls)) {
		c := j.calls[random.IntN(len(j.calls))]
		is := now.sessions[c.Session]
		was := j.replies[c.N]
		if is == nil || is.creation != c.Creation || len(c.Offered) == 0 || was.Kind != "done" {
			continue
		}
		if r := do(ctx, s, c); r.Kind != "done" || !slices.Equal(r.Records, was.Records) {
			return fmt.Errorf("call %d came to %+v, and made again it comes to %+v", c.N, was, r)
		}
	}
	return nil
}

func verify(ctx context.Context, s *store.Store) error {
	var problems []error
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		if err == nil {
			err = errors.New(p.String())
		}
		problems = append(problems, err)
	}
	if err := join(problems); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// compare holds the views of the sessions that calls were about against the reference model.
func compare(ctx context.Context, s *store.Store, by map[string][]call, now content, count func(string, int)) error {
	for name, is := range now.sessions {
		if len(by[name]) == 0 {
			continue
		}
		ref := fuzz.NewReference(is.initial)
		for _, r := range is.records {
			ref.Apply(r)
		}
		v, err := s.View(ctx, keyOf(name))
		if err != nil {
			return err
		}
		if err := fuzz.Compare(whole{v, s, keyOf(name)}, ref); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		count("views", 1)
	}
	return nil
}

// whole is a view that knows which patches were skipped, also if it came from a snapshot.
type whole struct {
	fold.View
	store *store.Store
	key   store.Key
}

func (w whole) Skipped() ([]patch.Skip, error) {
	v, err := w.store.Whole(context.Background(), w.key, w.View)
	if err != nil {
		return nil, err
	}
	return v.Skipped()
}

// backup holds the last backup that is whole against what was acknowledged when it was begun.
func (p *Place) backup(ctx context.Context, j *journal, dir string, count func(string, int)) error {
	var last *call
	for _, c := range j.calls {
		if _, err := os.Stat(filepath.Join(dir, filepath.Base(c.File))); c.Op == "backup" && err == nil {
			last = &c
		}
	}
	if last == nil || !p.harness.Backups {
		return nil
	}
	s, err := store.Open(last.File, store.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer s.Close()
	if err := verify(ctx, s); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	now, err := read(ctx, s)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	to, ok := j.ended[last.N]
	if !ok {
		to = j.lines
	}
	count("backups", 1)
	if err := join(newJudge(p.before, j, now, j.began[last.N], to).judge()); err != nil {
		return fmt.Errorf("in the backup of call %d: %w", last.N, err)
	}
	return nil
}
