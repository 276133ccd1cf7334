package adk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/cache"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// RunPolicy says what happens if a run of a session begins while another run is in progress.
type RunPolicy int

const (
	// ConcurrentRuns lets both runs append to the log, in the order of arrival, as ADK's services do.
	ConcurrentRuns RunPolicy = iota

	// RefuseSecondRun fails the first append of a second run with a *[RunningError].
	RefuseSecondRun

	// WaitForRun makes the first append of a second run wait until the first run has ended, or the append's context
	// ends. The waiting event gets the time at which it is appended.
	WaitForRun
)

// RunningError says which run of a session is in progress. It matches [store.ErrConflict].
type RunningError struct {
	Key        store.Key
	Invocation string // "" if it is not known
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("session %s: invocation %q is running; wait until it has ended", e.Key, e.Invocation)
}

// Is reports whether target is [store.ErrConflict].
func (e *RunningError) Is(target error) bool { return target == store.ErrConflict }

// Names of leases: of the run that appends alone, and of a session that is being compacted.
const (
	oneRunLease  = "one run"
	compactLease = "compact"
)

const (
	// leaseTime is how long an invocation counts as running after an append.
	leaseTime = 10 * time.Minute

	// A lease is taken for leaseTTL and extended every leaseBeat while its holder runs, so it ends soon after the process.
	leaseTTL, leaseBeat = 30 * time.Second, 10 * time.Second

	// runPoll is how often a run that waits for another process checks its lease.
	runPoll = 200 * time.Millisecond

	// createTime is how long after a Get that found no session a Create may return the session that another call
	// created.
	createTime = time.Minute

	// maxClaimed is how many of the newest invocations are checked for a lease before a session is compacted.
	maxClaimed = 8
)

// runs tracks which invocation is active in each session, as far as events and the plugin show it, and enforces the
// [RunPolicy]. A nil *runs tracks and refuses nothing. It is safe for use by any number of goroutines.
type runs struct {
	policy   RunPolicy
	compacts bool // running invocations take leases, so that other processes do not compact their sessions
	log      storage.Storage
	logger   *slog.Logger

	mu sync.Mutex

	// seen is what is known of sessions. The cache may drop idle sessions, which does no harm: entries are read soon
	// after they are written.
	seen cache.Cache[store.Key, *seen]

	// alone has the runs that exclude other runs from their session, by the policy.
	alone map[store.Key]*run

	// watched has the invocations whose end the plugin will report.
	watched map[runID]bool

	// held has the leases held, with the time until which each is extended.
	held    map[heldLease]time.Time
	beating bool // a timer extends them
}

// seen is what is known of the runs of a session.
type seen struct {
	newest       *run      // of the newest event, until it ends
	began, ended time.Time // of the last run that appended alone
	missed       int       // Gets that found no session, each until a Create has followed
	missedAt     time.Time // the newest of them
}

// of returns what is known of a session. The mutex is held.
func (r *runs) of(key store.Key) *seen {
	s, ok := r.seen.Get(key)
	if !ok {
		s = &seen{}
		r.seen.Put(key, s, 1)
	}
	return s
}

type runID struct {
	key        store.Key
	invocation string
}

type heldLease struct {
	key  store.Key
	name string
}

// run is an invocation that appends to a session.
type run struct {
	invocation string
	began      time.Time     // if it appends alone
	seq        uint64        // of the newest record that it has seen, if it appends alone
	until      time.Time     // when it counts as ended, and its leases end, unless it appends before
	ended      chan struct{} // closed when it no longer appends alone
	forget     func() bool   // stops waiting for the end of its context; nil before it began
}

func newRuns(opts Options, compacts bool, log storage.Storage) *runs {
	if opts.Runs == ConcurrentRuns && !compacts && opts.KeepInterruptedCalls {
		return nil
	}
	return &runs{policy: opts.Runs, compacts: compacts, log: log, logger: opts.Logger, alone: map[store.Key]*run{}, held: map[heldLease]time.Time{}, watched: map[runID]bool{}}
}

// enter records that the invocation of an event is active, and returns its run, or nil if the event has no invocation.
// It is called before the event is visible, so that no process compacts the invocation. An event that waited, or was
// made during another run, gets the time at which it may be appended: a wrapped service may order events by time.
func (r *runs) enter(ctx context.Context, handle *Session, e *session.Event) (*run, error) {
	if r == nil || e.InvocationID == "" {
		return nil, nil
	}
	key, waited := handle.key, false
	for ; ; waited = true {
		own, other, due := r.begin(key, e.InvocationID)
		switch {
		case other != nil:
		case !due || r.mayAppend(ctx, key):
			r.advance(ctx, key, own, due)
			r.endWith(ctx, key, own)
			if waited || r.wasDuringAnother(key, e.Timestamp) {
				e.Timestamp = platform.Now(ctx)
			}
			return own, nil
		default:
			r.leave(ctx, key, e.InvocationID)
			other = &run{}
			for _, id := range newestInvocations(handle.View(), 1) {
				other.invocation = id
			}
		}
		if r.policy != WaitForRun {
			return nil, &RunningError{key, other.invocation}
		}
		select {
		case <-other.ended:
		case <-time.After(runPoll):
		case <-ctx.Done():
			return nil, errors.Join(&RunningError{key, other.invocation}, ctx.Err())
		}
	}
}

// begin returns the run of an invocation, and whether its leases are due to be taken or taken again. If the invocation
// must not run now, it returns the other run that prevents it.
func (r *runs) begin(key store.Key, invocation string) (own, other *run, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own = r.alone[key]
	if own != nil && own.invocation != invocation && time.Now().Before(own.until) {
		now := *own
		return nil, &now, false
	}
	if own == nil || own.invocation != invocation {
		own = r.find(key, invocation)
		if r.policy != ConcurrentRuns {
			own.began, own.seq, own.until, own.ended = time.Now(), 0, time.Time{}, make(chan struct{})
			r.alone[key] = own
		}
	}
	if due = time.Until(own.until) < leaseTime/2; due {
		own.until = time.Now().Add(leaseTime)
	}
	return own, nil, due
}

// wasDuringAnother reports whether the session's last exclusive run, which has ended, was active at a time.
func (r *runs) wasDuringAnother(key store.Key, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(key)
	return !at.Before(s.began) && at.Before(s.ended)
}

// miss notes that a Get found no session.
func (r *runs) miss(key store.Key) {
	if r == nil || r.policy == ConcurrentRuns {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(key)
	s.missed, s.missedAt = s.missed+1, time.Now()
}

// takeMiss reports whether a Get found no session a short time ago, and no Create has followed yet.
func (r *runs) takeMiss(key store.Key) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(key)
	if time.Since(s.missedAt) >= createTime {
		s.missed = 0
	}
	missed := s.missed > 0
	s.missed = max(0, s.missed-1)
	return missed
}

// find returns the run of an invocation, if it is the newest of its session, or else a new one. The mutex is held.
func (r *runs) find(key store.Key, invocation string) *run {
	if own := r.of(key).newest; own != nil && own.invocation == invocation {
		return own
	}
	return &run{invocation: invocation}
}

// endWith ends a run with its runner's context. Without the plugin, nothing else shows the end after a model's error:
// there is no final response. A context that is not a runner's may end after each append.
func (r *runs) endWith(ctx context.Context, key store.Key, own *run) {
	if _, ok := ctx.(agent.InvocationContext); !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.forget == nil {
		own.forget = context.AfterFunc(ctx, func() { r.end(context.WithoutCancel(ctx), key, own.invocation, false) })
	}
}

// mayAppend takes the lease for exclusive appends, if the policy requires it, and reports whether no other process
// holds it. An error does not refuse the run, since the append checks the log.
func (r *runs) mayAppend(ctx context.Context, key store.Key) bool {
	if r.policy == ConcurrentRuns {
		return true
	}
	held, err := r.take(ctx, key, oneRunLease)
	return held || err != nil
}

// advance makes a run the newest one of its session, and takes its lease if that is due.
func (r *runs) advance(ctx context.Context, key store.Key, own *run, due bool) {
	r.mu.Lock()
	s := r.of(key)
	before := s.newest
	s.newest = own
	r.mu.Unlock()
	if !r.compacts || !due {
		return
	}
	if before != nil && before.invocation != own.invocation {
		r.release(ctx, key, compaction.RunLease(before.invocation))
	}
	_, _ = r.take(ctx, key, compaction.RunLease(own.invocation))
}

// watch notes that the plugin will report the end of an invocation.
func (r *runs) watch(key store.Key, invocation string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched[runID{key, invocation}] = true
	r.of(key).newest = r.find(key, invocation)
}

// isWatched reports whether the plugin will report the end of an invocation.
func (r *runs) isWatched(key store.Key, invocation string) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched[runID{key, invocation}]
}

// end records that an invocation has ended, and releases its leases. seems says that only its final response was seen:
// if the invocation continues, its next append takes the leases again.
func (r *runs) end(ctx context.Context, key store.Key, invocation string, seems bool) {
	if r == nil || invocation == "" {
		return
	}
	r.leave(ctx, key, invocation)
	r.mu.Lock()
	delete(r.watched, runID{key, invocation})
	if s := r.of(key); s.newest != nil && s.newest.invocation == invocation {
		if s.newest.forget != nil {
			s.newest.forget()
		}
		s.newest = nil
		if seems {
			s.newest = &run{invocation: invocation}
		}
	}
	r.mu.Unlock()
	if r.compacts {
		r.release(ctx, key, compaction.RunLease(invocation))
	}
}

// leave lets other runs append, if the invocation was the exclusive one.
func (r *runs) leave(ctx context.Context, key store.Key, invocation string) {
	r.mu.Lock()
	own := r.alone[key]
	leaves := own != nil && own.invocation == invocation
	if leaves {
		delete(r.alone, key)
		s := r.of(key)
		s.began, s.ended = own.began, time.Now()
		close(own.ended)
	}
	r.mu.Unlock()
	if leaves {
		r.release(ctx, key, oneRunLease)
	}
}

// live returns the id of the active invocation, or "".
func (r *runs) live(key store.Key) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own := r.of(key).newest; own != nil {
		return own.invocation
	}
	return ""
}

// append appends an event of a run. The log decides: the event is refused if another run has appended since, even if
// that run's process never took the lease or holds it by now.
func (r *runs) append(ctx context.Context, key store.Key, own *run, opts store.AppendOptions, log func(store.AppendOptions) (store.Committed, error)) (store.Committed, error) {
	if own == nil || r.policy == ConcurrentRuns {
		return log(opts)
	}
	for {
		seq := r.advanceSeq(own, 0)
		if seq > 0 {
			opts.IfSeq = &seq
		}
		done, err := log(opts)
		var moved *store.SeqError
		switch {
		case err == nil:
			r.advanceSeq(own, done.View.Seq())
			return done, nil
		case !errors.As(err, &moved):
			if seq == 0 {
				r.leave(ctx, key, own.invocation)
			}
			return done, err
		}
		for record, err := range r.log.RawEvents(ctx, key, seq+1) {
			if err != nil {
				return done, err
			}
			if e := record.Event; e != nil && e.InvocationID() != "" && e.InvocationID() != own.invocation {
				return done, &RunningError{key, e.InvocationID()}
			}
			seq = record.Seq
		}
		r.advanceSeq(own, seq)
	}
}

// advanceSeq records that a run has seen a record, and returns the newest seq that it has seen.
func (r *runs) advanceSeq(own *run, seq uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	own.seq = max(own.seq, seq)
	return own.seq
}

// take takes a lease, and extends it until it is released or leaseTime is over.
func (r *runs) take(ctx context.Context, key store.Key, name string) (held bool, err error) {
	if held, err = r.lease(ctx, key, name, leaseTTL); err != nil || !held {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[heldLease{key, name}] = time.Now().Add(leaseTime); !r.beating {
		r.beating = true
		time.AfterFunc(leaseBeat, r.beat)
	}
	return true, nil
}

// release releases a lease, even if the context has ended. After an error the lease expires.
func (r *runs) release(ctx context.Context, key store.Key, name string) {
	r.mu.Lock()
	delete(r.held, heldLease{key, name})
	r.mu.Unlock()
	_, _ = r.lease(context.WithoutCancel(ctx), key, name, 0)
}

// isFree reports whether no other process holds a lease.
func (r *runs) isFree(ctx context.Context, key store.Key, name string) bool {
	free, err := r.lease(ctx, key, name, -1)
	return free && err == nil
}

// lease is [store.Store.Lease]. An error is only logged, since leases only save work.
func (r *runs) lease(ctx context.Context, key store.Key, name string, ttl time.Duration) (held bool, err error) {
	held, err = r.log.Lease(ctx, key, name, ttl)
	if err != nil && ctx.Err() == nil {
		r.logger.WarnContext(ctx, "patchlog: a lease could not be had", "session", key.String(), "lease", name, "error", err)
	}
	return held, err
}

// beat extends the held leases, and repeats this until none is held.
func (r *runs) beat() {
	r.mu.Lock()
	maps.DeleteFunc(r.held, func(_ heldLease, until time.Time) bool { return !time.Now().Before(until) })
	due := slices.Collect(maps.Keys(r.held))
	r.beating = len(due) > 0
	r.mu.Unlock()
	for _, l := range due {
		r.extend(l)
	}
	if len(due) > 0 {
		time.AfterFunc(leaseBeat, r.beat)
	}
}

// extend extends a lease that is held.
func (r *runs) extend(l heldLease) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseBeat)
	defer cancel()
	held, err := r.log.Lease(ctx, l.key, l.name, leaseTTL)
	r.mu.Lock()
	_, wanted := r.held[l]
	if lost := err == nil && !held || errors.Is(err, store.ErrClosed); lost {
		delete(r.held, l)
	}
	r.mu.Unlock()
	if !wanted && held { // it was released meanwhile
		_, _ = r.log.Lease(ctx, l.key, l.name, 0)
	}
}

// claim takes a session's compaction lease. ok is false if another process holds it, or runs one of the
// session's newest invocations.
func (r *runs) claim(ctx context.Context, key store.Key, v fold.View) (done func(), ok bool) {
	for _, id := range newestInvocations(v, maxClaimed) {
		if !r.isFree(ctx, key, compaction.RunLease(id)) {
			return nil, false
		}
	}
	if held, _ := r.take(ctx, key, compactLease); !held {
		return nil, false
	}
	return func() { r.release(ctx, key, compactLease) }, true
}

// newestInvocations returns the ids of the invocations of the newest visible events.
func newestInvocations(v fold.View, most int) []string {
	var ids []string
	seen := map[string]bool{"": true}
	for i := v.Len() - 1; i >= 0 && len(ids) < most; i-- {
		if id := v.At(i).InvocationID(); !v.Entry(i).Summary && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}
