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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
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
	return errors.Join((&ops.Local{Store: s}).Serve(in, out), s.Close())
}

// flaw is the backend with a flaw, for tests of the tests.
func flaw(b backend.Backend, what string) backend.Backend {
	switch what {
	case "":
		return b
	case "unfenced":
		return unfenced{b}
	}
	return ops.Flaws[what](b)
}

// unfenced fences no commit.
type unfenced struct{ backend.Backend }

func (unfenced) Fence(context.Context, string, string, backend.Token, backend.Token) (bool, error) {
	return false, nil
}

const chaosName = "chaos" // of the app

func keyOf(session string) store.Key { return ops.Key(chaosName, session) }

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
	waiting map[int]chan ops.Reply
	stderr  strings.Builder
}

// startWorker returns once the worker's store is open, since nothing may break before.
func startWorker(t testing.TB, dsn, flawed string) *worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skipf("needs to run its own binary again: %v", err)
	}
	w := &worker{cmd: exec.Command(self), waiting: map[int]chan ops.Reply{}, out: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), envWorker+"="+dsn, envFlawed+"="+flawed)
	w.cmd.Stderr = &w.stderr
	in := testlog.Must(w.cmd.StdinPipe())(t)
	out := testlog.Must(w.cmd.StdoutPipe())(t)
	testlog.NoError(t, w.cmd.Start())
	w.in, w.answer = in, json.NewEncoder(in)
	t.Cleanup(func() { w.stop(t) })
	lines := json.NewDecoder(bufio.NewReader(out))
	if err := lines.Decode(&ops.Reply{}); err != nil {
		close(w.out)
		t.Fatalf("a worker does not open its store: %v", err)
	}
	go func() {
		defer close(w.out)
		for {
			var r ops.Reply
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
	<-w.out
	if w.cmd.ProcessState == nil {
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("a worker: %v: %s", err, w.stderr.String())
		}
	}
}

// Call implements [ops.Caller]. A worker that is no more gives a reply that says so.
func (w *worker) Call(c ops.Op) ops.Reply {
	answer := make(chan ops.Reply, 1)
	w.mu.Lock()
	w.n++
	c.N = w.n
	w.waiting[c.N] = answer
	err := w.answer.Encode(c)
	w.mu.Unlock()
	if err != nil {
		return ops.Reply{Outcome: ops.Gone, Err: err.Error()}
	}
	select {
	case r := <-answer:
		return r
	case <-w.out:
		return ops.Reply{Outcome: ops.Gone, Err: "it ended: " + w.stderr.String()}
	}
}
