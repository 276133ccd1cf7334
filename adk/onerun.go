package adk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/store"
)

// Runs says what becomes of a run of a session in which another one is under way.
type Runs int

const (
	// ConcurrentRuns append to one log, in the order of arrival, as with ADK's services.
	ConcurrentRuns Runs = iota

	// RefuseSecondRun fails the first append of a second run with a *[RunningError].
	RefuseSecondRun

	// WaitForRun has the first append of a second run wait until the first has ended, or until
	// its context ends.
	WaitForRun
)

// RunningError says which run of a session is under way. It matches [store.ErrConflict].
type RunningError struct {
	Key        store.Key
	Invocation string // "" if it is not known
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("session %s: invocation %q is running; wait until it has ended", e.Key, e.Invocation)
}

// Is reports whether target is [store.ErrConflict].
func (e *RunningError) Is(target error) bool { return target == store.ErrConflict }

const (
	// oneRunLease is the name of the lease that a process has while it runs a session.
	oneRunLease = "one run"

	// runPoll is how often a run that waits for another process asks.
	runPoll = 200 * time.Millisecond
)

// oneRun lets one run of a session append at a time; nil lets all. It is safe for use by any number of
// goroutines.
type oneRun struct {
	wait bool
	log  storage

	mu      sync.Mutex
	running map[store.Key]*run
}

// run is an invocation that appends to a session.
type run struct {
	invocation string
	watched    bool          // the plugin will say when it has ended
	seq        uint64        // of the newest record that it has seen
	until      time.Time     // it is taken for running no longer, unless it appends
	ended      chan struct{} // closed when it has
}

func newOneRun(runs Runs, log storage) *oneRun {
	if runs == ConcurrentRuns {
		return nil
	}
	return &oneRun{wait: runs == WaitForRun, log: log, running: map[store.Key]*run{}}
}

// enter returns the run that an event belongs to, nil if it belongs to none or all may run.
func (o *oneRun) enter(ctx context.Context, handle *Session, e *session.Event) (*run, error) {
	if o == nil || e.InvocationID == "" {
		return nil, nil
	}
	key := handle.key
	for {
		own, other := o.begin(key, e.InvocationID)
		var ended <-chan struct{}
		if other != nil {
			ended = other.ended
		} else {
			if !o.due(own) {
				return own, nil
			}
			held, err := o.log.Lease(ctx, key, oneRunLease, leaseTime)
			if held || err != nil { // a lease that cannot be asked for refuses nothing: the append will tell
				return own, nil
			}
			o.end(ctx, key, e.InvocationID, false)
			other = &run{}
			for _, id := range newestInvocations(handle.View(), 1) {
				other.invocation = id
			}
		}
		if !o.wait {
			return nil, &RunningError{key, other.invocation}
		}
		select {
		case <-ended:
		case <-time.After(runPoll):
		case <-ctx.Done():
			return nil, errors.Join(&RunningError{key, other.invocation}, ctx.Err())
		}
	}
}

// begin returns the run of an invocation, or else the one that is under way.
func (o *oneRun) begin(key store.Key, invocation string) (own, other *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.running[key]
	if r != nil && r.invocation != invocation && time.Now().Before(r.until) {
		return nil, r
	}
	if r == nil || r.invocation != invocation {
		r = &run{invocation: invocation, ended: make(chan struct{}), until: time.Now().Add(leaseTime / 4)}
		o.running[key] = r
	}
	return r, nil
}

// due reports whether the lease of a run is to be taken, for the first time or again.
func (o *oneRun) due(r *run) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	due := time.Until(r.until) < leaseTime/2
	if due {
		r.until = time.Now().Add(leaseTime)
	}
	return due
}

// watch says that the end of an invocation will be told.
func (o *oneRun) watch(key store.Key, invocation string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.running[key]; r != nil && r.invocation == invocation {
		r.watched = true
	}
}

// end says that an invocation has ended, or seems to have: watched invocations then go on.
func (o *oneRun) end(ctx context.Context, key store.Key, invocation string, seems bool) {
	if o == nil {
		return
	}
	o.mu.Lock()
	r := o.running[key]
	ends := r != nil && r.invocation == invocation && !(seems && r.watched)
	if ends {
		delete(o.running, key)
		close(r.ended)
	}
	o.mu.Unlock()
	if ends {
		_, _ = o.log.Lease(context.WithoutCancel(ctx), key, oneRunLease, 0) // else it passes by itself
	}
}

// append appends an event of a run. The log is the judge: where another run has appended since, whose
// process did not ask for the lease or holds it by now, the event is refused.
func (o *oneRun) append(ctx context.Context, key store.Key, r *run, opts store.AppendOptions, log func(store.AppendOptions) (store.Committed, error)) (store.Committed, error) {
	if r == nil {
		return log(opts)
	}
	for {
		seq := o.saw(r, 0)
		if seq > 0 {
			opts.IfSeq = &seq
		}
		done, err := log(opts)
		var moved *store.SeqError
		switch {
		case err == nil:
			o.saw(r, done.View.Seq())
			return done, nil
		case !errors.As(err, &moved):
			if seq == 0 {
				o.end(ctx, key, r.invocation, false)
			}
			return done, err
		}
		for record, err := range o.log.RawEvents(ctx, key, seq+1) {
			if err != nil {
				return done, err
			}
			if e := record.Event; e != nil && e.InvocationID() != "" && e.InvocationID() != r.invocation {
				return done, &RunningError{key, e.InvocationID()}
			}
			seq = record.Seq
		}
		o.saw(r, seq)
	}
}

// saw says that a run has seen a record, and returns the newest one that it has.
func (o *oneRun) saw(r *run, seq uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.seq = max(r.seq, seq)
	return r.seq
}
