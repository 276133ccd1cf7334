package pg_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
)

// Workers are processes that run this test binary again: each has a store of its own and
// does what it reads from its standard input, a call a line, any number at a time.
const (
	envWorker = "PATCHLOG_PG_WORKER" // the connection string
	envFlawed = "PATCHLOG_PG_FLAWED" // what is broken on purpose
)

func init() {
	if dsn := os.Getenv(envWorker); dsn != "" {
		if err := work(dsn, os.Getenv(envFlawed), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// call is what a client wants of its worker.
type call struct {
	N       int // tells replies apart
	Client  int // a worker has some; each has one view that it looked at last
	Session string
	Op      string // create, append, patch, revert, delete, get

	IDs     []string // of events, or of the patch
	App     string   // an append sets app:hot to it, if not ""
	Guess   bool     // an append expects the log to end where the client last saw it
	Now     bool     // a patch is meant as of now, else for the view that the client has
	Choice  int      // picks what to hide
	Timeout time.Duration
}

// reply is what came of it.
type reply struct {
	N    int
	Kind string // done, or why not: see kindOf
	Err  string

	// What the call turned out to be.
	IfSeq        *uint64
	Start, Count int
	Base         uint64
	On           string // the creation that the client's view was of

	// What it found.
	Creation string
	Seqs     []uint64 // of the records
	Seq      uint64   // of the log's last record
	PatchSeq uint64
	Visible  []string
	Last     uint64 // of a refusal: where the log ends, or its newest patch
}

func kindOf(err error) string {
	for _, k := range []struct {
		err  error
		kind string
	}{
		{store.ErrOutcomeUnknown, "unknown"}, {store.ErrDuplicateID, "duplicate"}, {store.ErrConflict, "conflict"}, {store.ErrExists, "exists"},
		{store.ErrOutOfRange, "range"}, {store.ErrBlocked, "blocked"}, {store.ErrInvalid, "invalid"}, {store.ErrCorrupt, "corrupt"},
		{store.ErrNotFound, "not found"},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	if err != nil {
		return "failed" // which claims that nothing was written
	}
	return "done"
}

func keyOf(session string) store.Key { return store.Key{App: "chaos", User: "u", Session: session} }

// work answers calls until there are no more.
func work(dsn, flawed string, in io.Reader, out io.Writer) error {
	b, err := pg.OpenBackend(context.Background(), dsn, pg.Options{MaxConns: 6, StatementTimeout: 5 * time.Second, ConnectTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	s, err := store.New(flaw(b, flawed), store.Options{Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: 16}})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	answer := json.NewEncoder(out)
	_ = answer.Encode(reply{})      // the store is open
	views := map[string]fold.View{} // by client and session
	var wg sync.WaitGroup
	lines := json.NewDecoder(bufio.NewReader(in))
	for {
		var c call
		if err := lines.Decode(&c); err != nil {
			break
		}
		wg.Go(func() {
			view := fmt.Sprint(c.Client, " ", c.Session)
			mu.Lock()
			seen := views[view]
			mu.Unlock()
			r, now := do(s, c, seen)
			mu.Lock()
			defer mu.Unlock()
			if now.Creation() != "" {
				views[view] = now
			}
			_ = answer.Encode(r)
		})
	}
	wg.Wait()
	return s.Close()
}

// do makes a call for a client that looked at a view last, and returns the one that it looks
// at then, if there is one.
func do(s *store.Store, c call, seen fold.View) (r reply, now fold.View) {
	ctx := context.Background()
	if c.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Timeout)
		defer stop()
	}
	key := keyOf(c.Session)
	r.N = c.N
	var err error
	var done store.Committed
	switch c.Op {
	case "create":
		var session store.Session
		session, err = s.Create(ctx, key, nil)
		now = session.View
	case "append":
		var opts store.AppendOptions
		if c.Guess && seen.Creation() != "" {
			seq := seen.Seq()
			r.IfSeq, opts.IfSeq = &seq, &seq
		}
		events := make([]*patch.Event, len(c.IDs))
		for i, id := range c.IDs {
			events[i] = chaosEvent(id, c.App)
		}
		done, err = s.AppendEvents(ctx, key, opts, events...)
	case "patch":
		opts := store.PatchOptions{AsOfNow: true}
		r.Start, r.Count = c.Choice%3, 1+c.Choice%2
		if !c.Now && seen.Creation() != "" && seen.Len() > 0 {
			opts = store.PatchOptions{On: seen}
			r.Start, r.Base, r.On = c.Choice%seen.Len(), seen.PatchSeq(), seen.Creation()
			r.Count = min(r.Count, seen.Len()-r.Start)
		}
		done, err = s.ApplyPatch(ctx, key, opts, patch.NewSplice(r.Start, r.Count).WithID(c.IDs[0]))
	case "revert":
		done, err = s.Revert(ctx, key, store.BackOptions{}, c.IDs[0])
	case "delete":
		err = s.Delete(ctx, key)
	case "get":
		var session store.Session
		session, err = s.Get(ctx, key)
		now = session.View
	}
	r.Kind = kindOf(err)
	if err != nil {
		r.Err = err.Error()
	}
	var moved *store.SeqError
	var newer *store.ConflictError
	switch {
	case errors.As(err, &moved):
		r.Last = moved.Last
	case errors.As(err, &newer):
		r.Last = newer.Newest
	}
	if err != nil {
		return r, fold.View{}
	}
	if done.View.Creation() != "" {
		now = done.View
	}
	for _, record := range done.Records {
		r.Seqs = append(r.Seqs, record.Seq)
	}
	r.Creation, r.Seq, r.PatchSeq = now.Creation(), now.Seq(), now.PatchSeq()
	for _, e := range now.Events() {
		r.Visible = append(r.Visible, e.ID())
	}
	return r, now
}

func chaosEvent(id, app string) *patch.Event {
	f := map[string]any{"id": id, "author": "chaos", "timestamp": "2026-01-02T03:04:05Z"}
	if app != "" {
		f["actions"] = map[string]any{"stateDelta": map[string]any{"app:hot": app}}
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	e, err := patch.ParseEvent(text)
	if err != nil {
		panic(err)
	}
	return e
}

// worker is a process that makes calls.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan struct{} // closed when it says no more

	mu      sync.Mutex
	answer  *json.Encoder
	n       int
	waiting map[int]chan reply
	stderr  strings.Builder
}

// startWorker returns once the worker's store is open, since nothing may break before.
func startWorker(t testing.TB, dsn, flawed string) *worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skipf("needs to run its own binary again: %v", err)
	}
	w := &worker{cmd: exec.Command(self), waiting: map[int]chan reply{}, out: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), envWorker+"="+dsn, envFlawed+"="+flawed)
	w.cmd.Stderr = &w.stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.in, w.answer = in, json.NewEncoder(in)
	t.Cleanup(func() { w.stop(t) })
	lines := json.NewDecoder(bufio.NewReader(out))
	if err := lines.Decode(&reply{}); err != nil {
		close(w.out)
		t.Fatalf("a worker does not open its store: %v", err)
	}
	go func() {
		defer close(w.out)
		for {
			var r reply
			if lines.Decode(&r) != nil {
				return
			}
			w.mu.Lock()
			answer := w.waiting[r.N]
			delete(w.waiting, r.N)
			w.mu.Unlock()
			answer <- r
		}
	}()
	return w
}

// stop waits until the worker has closed its store and ended.
func (w *worker) stop(t testing.TB) {
	_ = w.in.Close()
	select {
	case <-w.out:
	case <-time.After(30 * time.Second):
		t.Error("a worker does not end")
		_ = w.cmd.Process.Kill()
		<-w.out
	}
	if w.cmd.ProcessState == nil {
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("a worker: %v: %s", err, w.stderr.String())
		}
	}
}

// do has the worker make a call. A worker that is no more gives a reply that says so.
func (w *worker) do(c call) reply {
	answer := make(chan reply, 1)
	w.mu.Lock()
	w.n++
	c.N = w.n
	w.waiting[c.N] = answer
	err := w.answer.Encode(c)
	w.mu.Unlock()
	if err != nil {
		return reply{Kind: "worker", Err: err.Error()}
	}
	select {
	case r := <-answer:
		return r
	case <-w.out:
		return reply{Kind: "worker", Err: "it ended: " + w.stderr.String()}
	}
}

// flaw is the backend with a flaw, for tests of the tests.
func flaw(b backend.Backend, what string) backend.Backend {
	switch what {
	case "":
		return b
	case "exclusive":
		return exclusive{b}
	case "stale":
		return &stale{Backend: b, heads: map[string]backend.News{}}
	case "unfenced":
		return unfenced{b}
	}
	panic("no such flaw: " + what)
}

// exclusive says that nobody else writes.
type exclusive struct{ backend.Backend }

func (exclusive) Exclusive() bool { return true }

// unfenced settles nothing.
type unfenced struct{ backend.Backend }

func (unfenced) Fence(context.Context, string, string, backend.Token, backend.Token) (bool, error) {
	return false, nil
}

// stale gives a Get news that are up to 20 ms old.
type stale struct {
	backend.Backend
	mu    sync.Mutex
	heads map[string]backend.News
	ages  map[string]time.Time
}

func (s *stale) Since(ctx context.Context, session string, seen backend.Seen, prefixes ...string) (backend.News, error) {
	if len(prefixes) == 0 {
		return s.Backend.Since(ctx, session, seen)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.heads[session]; ok && old.Creation == seen.Creation && old.Last == seen.Last && time.Since(s.ages[session]) < 20*time.Millisecond {
		old.Records = nil
		return old, nil
	}
	news, err := s.Backend.Since(ctx, session, seen, prefixes...)
	if err == nil {
		old := news
		old.Shared = slices.Clone(news.Shared)
		s.heads[session] = old
		if s.ages == nil {
			s.ages = map[string]time.Time{}
		}
		s.ages[session] = time.Now()
	}
	return news, err
}
