package compaction

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// Limits of a [Worker].
const (
	workerQueue    = 1024 // maximum number of queued sessions
	workerParallel = 2    // maximum number of sessions that are compacted in parallel
)

// Worker compacts sessions in the background. After each invocation, call [Worker.Notify] with the session's key. At
// most one goroutine compacts a given session at a time. The Compactor logs and counts failures; Notify does not report
// them. A Worker is safe for concurrent use.
type Worker[K comparable] struct {
	compactor *Compactor[K]
	parallel  int
	capacity  int

	ctx    context.Context // cancelled when the context of Close ends
	cancel context.CancelFunc
	idle   sync.WaitGroup // waits for the compacting goroutines

	mu      sync.Mutex
	closed  bool
	running int // number of compacting goroutines
	queue   []K
	state   map[K]stage // stage of each queued or running session
	stats   WorkerStats
}

// stage says whether a session is queued in a worker, running, or both.
type stage int

const (
	queued stage = iota + 1
	running
	runningAndQueued // the session was queued again while it was running
)

// WorkerStats counts the notifications of a worker and the passes of its compactor.
type WorkerStats struct {
	Attempts Stats

	Notified uint64 // number of calls of Notify
	Merged   uint64 // number of calls of Notify for a session that was already queued
	Dropped  uint64 // number of calls of Notify that returned false
	Ended    uint64 // number of compactions that have ended
	Waiting  int    // number of queued sessions
	Running  int    // number of sessions that are being compacted
}

// NewWorker returns a worker that compacts two sessions at once and queues up to 1,024. If the compactor is nil, the
// error matches [patch.ErrInvalid]. An idle worker has no goroutines.
func NewWorker[K comparable](c *Compactor[K]) (*Worker[K], error) {
	if c == nil {
		return nil, fmt.Errorf("%w: the compactor is nil", patch.ErrInvalid)
	}
	w := &Worker[K]{compactor: c, parallel: workerParallel, capacity: workerQueue, state: map[K]stage{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

// Notify queues a session for compaction and returns at once. It returns false if the queue is full or the worker is
// closed. A session that a full queue rejected is compacted after a later Notify.
func (w *Worker[K]) Notify(key K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Notified++
	switch stage := w.state[key]; {
	case w.closed:
	case stage == queued || stage == runningAndQueued:
		w.stats.Merged++
		return true
	case stage == running:
		w.state[key] = runningAndQueued
		return true
	case len(w.queue) < w.capacity:
		w.push(key)
		return true
	}
	w.stats.Dropped++
	return false
}

// push queues a session. If fewer than w.parallel goroutines run, push starts one. The caller holds the mutex.
func (w *Worker[K]) push(key K) {
	w.state[key] = queued
	w.queue = append(w.queue, key)
	if w.running < w.parallel {
		w.running++
		w.idle.Add(1)
		go w.run()
	}
}

// run compacts sessions until the queue is empty.
func (w *Worker[K]) run() {
	defer w.idle.Done()
	for {
		key, ok := w.next()
		if !ok {
			return
		}
		w.compact(key)
		w.finish(key)
	}
}

func (w *Worker[K]) next() (key K, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.running--
		return key, false
	}
	key = w.queue[0]
	w.queue = w.queue[1:]
	w.state[key] = running
	return key, true
}

func (w *Worker[K]) finish(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Ended++
	repeat := w.state[key] == runningAndQueued
	delete(w.state, key)
	if repeat && w.ctx.Err() == nil {
		w.push(key)
	}
}

func (w *Worker[K]) compact(key K) {
	if w.ctx.Err() != nil {
		return
	}
	// The compactor has already logged and reported failures of its passes. A panic that is recovered here comes from
	// Options.Observe or from the log.
	defer func() {
		if p := recover(); p != nil {
			w.compactor.reportPanic(w.ctx, key, &panicError{ErrPanic, p, debug.Stack()})
		}
	}()
	_, _ = w.compactor.MaybeCompact(w.ctx, key)
}

// Stats returns the counters and the current numbers of queued and running sessions.
func (w *Worker[K]) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Attempts = w.compactor.Stats()
	s.Waiting, s.Running = len(w.queue), w.running
	return s
}

// Close rejects new sessions and waits until all queued and running compactions have ended. If ctx ends first, Close
// cancels the compactions, waits until they have stopped, and returns ctx's error. Summaries that are already written
// remain. Further calls of Close wait too.
func (w *Worker[K]) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		w.idle.Wait()
		close(ended)
	}()
	defer w.cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	w.cancel()
	<-ended
	return ctx.Err()
}
