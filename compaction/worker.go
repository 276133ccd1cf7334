package compaction

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// Limits of a [Worker]: sessions in its queue, and sessions that it compacts at once.
const (
	workerQueue    = 1024 // sessions that wait
	workerParallel = 2    // sessions that are compacted at once
)

// Worker compacts sessions in the background. After each invocation, call [Worker.Notify] with its session. One
// goroutine at a time compacts a session. The Compactor logs and counts failures; the caller of Notify never sees them.
// A Worker is safe for use by any number of goroutines.
type Worker[K comparable] struct {
	compactor *Compactor[K]
	parallel  int
	capacity  int

	ctx    context.Context // cancelled when the context of Close ends
	cancel context.CancelFunc
	idle   sync.WaitGroup // of the goroutines that compact

	mu      sync.Mutex
	closed  bool
	running int // goroutines
	queue   []K
	state   map[K]stage // of the sessions that wait or run
	stats   WorkerStats
}

// stage is the state of a session in a worker.
type stage int

const (
	queued stage = iota + 1
	runs
	runningAndQueued // notified while it runs
)

// WorkerStats counts the notifications of a worker and the passes of its compactor.
type WorkerStats struct {
	Attempts Stats

	Notified uint64 // calls of Notify
	Merged   uint64 // calls of Notify for a session that was queued already
	Dropped  uint64 // calls of Notify that returned false
	Ended    uint64 // sessions that were processed
	Waiting  int    // sessions that wait now
	Running  int    // sessions that are being compacted now
}

// NewWorker returns a worker that compacts two sessions at once and queues up to 1,024. The error
// matches [patch.ErrInvalid] if the compactor is nil. The worker has goroutines only while there is work.
func NewWorker[K comparable](c *Compactor[K]) (*Worker[K], error) {
	if c == nil {
		return nil, fmt.Errorf("%w: the compactor is nil", patch.ErrInvalid)
	}
	w := &Worker[K]{compactor: c, parallel: workerParallel, capacity: workerQueue, state: map[K]stage{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

// Notify enqueues a session that has grown, and returns at once. It returns false if the queue is full or the worker is
// closed. After a full queue, a later Notify compacts the session.
func (w *Worker[K]) Notify(key K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Notified++
	switch stage := w.state[key]; {
	case w.closed:
	case stage == queued || stage == runningAndQueued:
		w.stats.Merged++
		return true
	case stage == runs:
		w.state[key] = runningAndQueued
		return true
	case len(w.queue) < w.capacity:
		w.push(key)
		return true
	}
	w.stats.Dropped++
	return false
}

// push enqueues a session, and starts a goroutine if fewer than parallel run. The caller holds the mutex.
func (w *Worker[K]) push(key K) {
	w.state[key] = queued
	w.queue = append(w.queue, key)
	if w.running < w.parallel {
		w.running++
		w.idle.Add(1)
		go w.run()
	}
}

// run compacts sessions until none waits.
func (w *Worker[K]) run() {
	defer w.idle.Done()
	for {
		key, ok := w.next()
		if !ok {
			return
		}
		w.compact(key)
		w.done(key)
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
	w.state[key] = runs
	return key, true
}

func (w *Worker[K]) done(key K) {
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
	// The compactor has logged, counted and reported its failures. A panic that arrives here comes
	// from Options.Observe or from the log.
	defer func() {
		if p := recover(); p != nil {
			w.compactor.panicked(w.ctx, key, &panicError{ErrPanic, p, debug.Stack()})
		}
	}()
	_, _ = w.compactor.MaybeCompact(w.ctx, key)
}

// Stats returns the counters and how many sessions wait and run.
func (w *Worker[K]) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Attempts = w.compactor.Stats()
	s.Waiting, s.Running = len(w.queue), w.running
	return s
}

// Close refuses new sessions and waits until all queued and running compactions are done. If ctx ends first, Close
// cancels them, waits until they have stopped, and returns ctx's error; summaries written until then stay. Further
// calls of Close wait as well.
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
