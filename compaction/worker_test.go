package compaction_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// gate is a summarizer whose calls wait until the test releases them.
type gate struct {
	entered chan string   // id of the first event of each call
	pass    chan struct{} // a value releases one call; closing releases all
}

func newGate() *gate { return &gate{entered: make(chan string, 1000), pass: make(chan struct{})} }

func (g *gate) Summarize(ctx context.Context, r compaction.Request) (compaction.Response, error) {
	g.entered <- r.Events[0].ID()
	select {
	case <-g.pass:
		return says("told"), nil
	case <-ctx.Done():
		return compaction.Response{}, ctx.Err()
	}
}

func (g *gate) wait(t *testing.T) string {
	t.Helper()
	return <-g.entered
}

func keyOf(i int) store.Key { return store.Key{App: "app", User: "user", Session: fmt.Sprint("w", i)} }

// newWorker returns a worker for a store with n sessions that are all due for compaction.
func newWorker(t *testing.T, n int, s compaction.Summarizer, queue, parallel int) (*session, *compaction.Worker[store.Key]) {
	t.Helper()
	env := newSession(t, "")
	for i := range n {
		testlog.Must(env.store.Create(t.Context(), keyOf(i), nil, store.CreateOptions{}))(t)
		due(t, env, i)
	}
	w := testlog.Must(compaction.NewWorker(env.compactor(every(2, 0, s))))(t)
	w.Limit(queue, parallel)
	return env, w
}

// due appends two invocations to session i, so that it is due for compaction.
func due(t *testing.T, env *session, i int) {
	t.Helper()
	for _, word := range []string{"u1*20", "a1*20", "u2*20", "a2*20"} {
		inv := word[1:2]
		e, _ := parseWord(t, word, env.words)
		e["invocationId"] = fmt.Sprintf("inv%s-%d", inv, env.words/4)
		env.words++
		testlog.Must(env.store.AppendEvents(t.Context(), keyOf(i), []*patch.Event{testlog.EventOf(t, e)}, store.AppendOptions{}))(t)
	}
}

func summaries(t *testing.T, env *session, i int) int {
	t.Helper()
	v := testlog.Must(env.store.View(context.Background(), keyOf(i)))(t)
	n := 0
	for i := range v.Len() {
		if v.Entry(i).Summary {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	t.Log("waiting until", what)
	for !ok() {
		time.Sleep(time.Millisecond)
	}
}

func closed(t *testing.T, w *compaction.Worker[store.Key]) {
	t.Helper()
	if err := w.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestWorkerQueue(t *testing.T) {
	g := newGate()
	env, w := newWorker(t, 5, g, 2, 1)
	notify := func(i int, want bool) {
		t.Helper()
		if got := w.Notify(keyOf(i)); got != want {
			t.Errorf("Notify(%d) is %v", i, got)
		}
	}
	notify(0, true)
	g.wait(t) // session 0 is running
	notify(1, true)
	notify(2, true)
	notify(3, false) // sessions 1 and 2 are queued
	notify(1, true)  // session 1 is already queued
	notify(0, true)  // session 0 is running, and now queued as well
	notify(0, true)  // session 0 is already running and queued
	if s := w.Stats(); s.Notified != 7 || s.Dropped != 1 || s.Merged != 2 || s.Waiting != 2 || s.Running != 1 || s.Ended != 0 {
		t.Errorf("counted is %+v", s)
	}
	close(g.pass)
	closed(t, w)
	if s := w.Stats(); s.Attempts[compaction.Wrote] != 3 || s.Ended != 4 || s.Waiting != 0 || s.Running != 0 {
		t.Errorf("at the end, counted is %+v; want 3 written, and session 0 looked at twice", s)
	}
	for i, want := range []int{1, 1, 1, 0, 0} {
		if got := summaries(t, env, i); got != want {
			t.Errorf("session %d has %d summaries, want %d", i, got, want)
		}
	}
}

func TestWorkerParallel(t *testing.T) {
	g := newGate()
	_, w := newWorker(t, 5, g, 0, 3)
	for i := range 5 {
		w.Notify(keyOf(i))
	}
	for range 3 {
		g.wait(t) // three calls run, because none was released
	}
	if s := w.Stats(); s.Running != 3 || s.Waiting != 2 {
		t.Errorf("counted is %+v", s)
	}
	close(g.pass)
	closed(t, w)
}

// A session is compacted by one goroutine at a time. The number of sessions that are compacted in parallel is
// limited.
func TestWorkerOneAtATime(t *testing.T) {
	const sessions, parallel = 6, 3
	var mu sync.Mutex
	busy, most := map[string]int{}, 0
	sum := compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		_, of, _ := strings.Cut(r.Events[0].InvocationID(), "-")
		mu.Lock()
		busy[of]++
		if busy[of] > 1 {
			t.Errorf("two goroutines compact what begins with invocation %s", of)
		}
		most = max(most, len(busy))
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		delete(busy, of)
		mu.Unlock()
		return says("told"), nil
	})
	env, w := newWorker(t, sessions, sum, 0, parallel)
	var wg sync.WaitGroup
	for i := range sessions {
		for range 4 {
			wg.Go(func() {
				for range 50 {
					w.Notify(keyOf(i))
					runtime.Gosched()
				}
			})
		}
	}
	wg.Wait()
	closed(t, w)
	for i := range sessions {
		if summaries(t, env, i) != 1 {
			t.Errorf("session %d is not compacted", i)
		}
	}
	if most > parallel {
		t.Errorf("%d sessions were compacted at once, want %d", most, parallel)
	}
	if s := w.Stats(); s.Attempts[compaction.Conflict] != 0 || s.Notified != sessions*4*50 || s.Dropped != 0 {
		t.Errorf("counted is %+v", s)
	}
}

func TestWorkerClose(t *testing.T) {
	t.Run("waits", func(t *testing.T) {
		g := newGate()
		env, w := newWorker(t, 3, g, 0, 1)
		for i := range 3 {
			w.Notify(keyOf(i))
		}
		g.wait(t)
		var done atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			closed(t, w)
			done.Store(true)
		}()
		eventually(t, "Notify refuses", func() bool { return !w.Notify(keyOf(0)) })
		if done.Load() {
			t.Error("Close has not waited")
		}
		close(g.pass)
		<-ended
		for i := range 3 {
			if summaries(t, env, i) != 1 {
				t.Errorf("session %d was left", i)
			}
		}
		closed(t, w) // Close may be called twice
		if w.Notify(keyOf(0)) {
			t.Error("Notify is accepted after Close")
		}
	})
	t.Run("with expired context", func(t *testing.T) {
		g := newGate()
		env, w := newWorker(t, 3, g, 0, 1)
		for i := range 3 {
			w.Notify(keyOf(i))
		}
		w.Notify(keyOf(0))
		g.wait(t)
		w.Notify(keyOf(0)) // session 0 is running, and now queued as well
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v", err)
		}
		for i := range 3 {
			if summaries(t, env, i) != 0 {
				t.Errorf("session %d was compacted", i)
			}
		}
		if s := w.Stats(); s.Running != 0 || s.Waiting != 0 || s.Attempts[compaction.Failed] != 0 {
			t.Errorf("counted is %+v", s)
		}
		if len(g.entered) != 0 {
			t.Error("another call was made")
		}
		closed(t, w)
	})
	t.Run("unused", func(t *testing.T) {
		_, w := newWorker(t, 0, newGate(), 0, 0)
		closed(t, w)
		closed(t, w)
	})
}

// An idle worker has no goroutines.
func TestWorkerIdle(t *testing.T) {
	before := runtime.NumGoroutine()
	env, w := newWorker(t, 4, &scripted{}, 0, 4)
	for i := range 4 {
		w.Notify(keyOf(i))
	}
	eventually(t, "all are written", func() bool { return w.Stats().Attempts[compaction.Wrote] == 4 })
	eventually(t, "nothing runs or waits, and no goroutine is left", func() bool { // goroutines of other tests may end too
		s := w.Stats()
		return s.Running == 0 && s.Waiting == 0 && runtime.NumGoroutine() <= before
	})
	due(t, env, 0)
	w.Notify(keyOf(0))
	eventually(t, "it has started again", func() bool { return w.Stats().Attempts[compaction.Wrote] == 5 })
	closed(t, w)
}

// A failed compaction is counted and does not stop the worker.
func TestWorkerContinuesAfterFailure(t *testing.T) {
	sum := &scripted{reply: func(compaction.Request) (compaction.Response, error) { panic("out of cheese") }}
	env, w := newWorker(t, 2, sum, 0, 1)
	w.Notify(keyOf(0))
	w.Notify(store.Key{App: "app", User: "user", Session: "not there"})
	w.Notify(store.Key{})
	w.Notify(keyOf(1))
	closed(t, w)
	if s := w.Stats(); s.Attempts[compaction.Failed] != 4 || s.Ended != 4 || summaries(t, env, 0) != 0 {
		t.Errorf("counted is %+v", s)
	}
}

// A panic in a function of the caller stops neither the worker nor the process. The worker logs and counts it.
func TestPanicsAreContained(t *testing.T) {
	boom := func() { panic("out of cheese") }
	for name, opts := range map[string]compaction.Options[store.Key]{
		"run":     {Run: func(store.Key, fold.View) compaction.Run { boom(); return compaction.Run{} }},
		"approve": {Approve: func(context.Context, compaction.ApproveRequest[store.Key]) error { boom(); return nil }},
		"observe": {Observe: func(context.Context, compaction.Attempt[store.Key]) { boom() }},
	} {
		s := newSession(t, "u1*50 a1*50")
		var lines bytes.Buffer
		opts.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		c := s.with(every(1, 0, &scripted{}), opts)
		w := testlog.Must(compaction.NewWorker(c))(t)
		w.Notify(key)
		testlog.NoError(t, w.Close(t.Context()))
		if got := w.Stats(); got.Attempts[compaction.Failed] != 1 || got.Ended != 1 || !strings.Contains(lines.String(), "out of cheese") || !strings.Contains(lines.String(), "stack=") {
			t.Errorf("%s: %+v, logged is %s", name, got, lines.String())
		}
		if name == "approve" {
			s.append("u2 u3")
			if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, compaction.ErrPanic) {
				t.Errorf("the error is %v", err)
			}
		}
	}
}
