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

// RunPolicy determines what happens if a run of a session begins while another run of the session is in progress.
type RunPolicy int

const (
	// ConcurrentRuns allows both runs to append to the log, in order of arrival. ADK's own services do the same.
	ConcurrentRuns RunPolicy = iota

	// RefuseSecondRun makes the first append of the second run fail with a *[RunningError].
	RefuseSecondRun

	// WaitForRun makes the first append of the second run wait until the first run has ended. If the context of the
	// append ends first, the append fails with a *[RunningError]. The event that waited gets the time at which it is
	// appended.
	WaitForRun
)

// RunningError reports that another run of a session is in progress. It matches [store.ErrConflict].
type RunningError struct {
	Key        store.Key
	Invocation string // the run in progress; "" if its id is unknown
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("session %s: invocation %q is running; wait until it has ended", e.Key, e.Invocation)
}

// Is reports whether target is [store.ErrConflict].
func (e *RunningError) Is(target error) bool { return target == store.ErrConflict }

// Names of leases. oneRunLease is the lease of a run that excludes other runs. compactLease is the lease of a process
// that compacts a session.
const (
	oneRunLease  = "one run"
	compactLease = "compact"
)

const (
	// leaseTime is how long a run keeps its leases after they were taken or renewed. An append renews them only if
	// less than half of leaseTime remains. So a run counts as ended after five to ten minutes without an append.
	leaseTime = 10 * time.Minute

	// A lease expires leaseTTL after it was last extended, and its holder extends it every leaseBeat. So the leases
	// of a process that dies expire soon.
	leaseTTL, leaseBeat = 30 * time.Second, 10 * time.Second

	// runPoll is how often a waiting run checks whether a run of another process has ended.
	runPoll = 200 * time.Millisecond

	// createTime limits the time between a Get that found no session and a Create that may return the session that
	// another call created.
	createTime = time.Minute

	// maxClaimed is how many of the newest invocations are checked for a lease before a session is compacted.
	maxClaimed = 8
)

// runs tracks the active invocation of each session and enforces the [RunPolicy]. It learns about runs from appended
// events and from the plugin. A nil *runs tracks nothing and refuses nothing. It is safe for concurrent use.
type runs struct {
	policy   RunPolicy
	compacts bool // take a lease for each run, so that other processes do not compact its session
	log      storage.Storage
	logger   *slog.Logger

	mu sync.Mutex

	// seen contains the observed runs of each session. The cache may evict an entry of an idle session without harm,
	// because entries are read soon after they are written.
	seen cache.Cache[store.Key, *seen]

	// alone contains, for each session, the run that excludes other runs under the policy.
	alone map[store.Key]*run

	// watched contains the invocations whose end the plugin will report.
	watched map[runID]bool

	// held contains the leases of this process, each with the time at which extending it stops.
	held    map[heldLease]time.Time
	beating bool // a timer is set that extends the leases
}

// seen contains what was observed of the runs of one session.
type seen struct {
	newest       *run      // the run of the newest event, or nil if that run has ended
	began, ended time.Time // times of the last exclusive run that has ended
	missed       int       // number of Gets that found no session, less the Creates that followed
	missedAt     time.Time // time of the newest of these Gets
}

// of returns the entry of a session. The caller holds the mutex.
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

// run is an invocation that appends to a session. An exclusive run is one that excludes other runs of its session.
type run struct {
	invocation string
	began      time.Time     // only of an exclusive run
	seq        uint64        // seq of the newest record that an exclusive run has seen
	until      time.Time     // when the run counts as ended, unless an append renews it
	ended      chan struct{} // closed when the run is no longer exclusive
	forget     func() bool   // cancels endWith; nil if endWith was not called
}

func newRuns(opts Options, compacts bool, log storage.Storage) *runs {
	if opts.Runs == ConcurrentRuns && !compacts && opts.KeepInterruptedCalls {
		return nil
	}
	return &runs{policy: opts.Runs, compacts: compacts, log: log, logger: opts.Logger, alone: map[store.Key]*run{}, held: map[heldLease]time.Time{}, watched: map[runID]bool{}}
}

// enter records that the invocation of an event is active, and returns its run. It returns nil if the event has no
// invocation. enter runs before the event is visible, so that no process compacts the invocation.
//
// If the event had to wait, enter sets its timestamp to the current time. It does the same if the timestamp is from
// the time of an earlier exclusive run. Otherwise, a wrapped service that orders events by time could put the event
// among the events of the earlier run.
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

// begin returns the run of an invocation as own. due reports whether its leases must be taken or renewed. If the
// policy excludes the invocation because another run is in progress, begin returns that run as other.
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

// wasDuringAnother reports whether the session's last exclusive run that has ended was active at the given time.
func (r *runs) wasDuringAnother(key store.Key, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(key)
	return !at.Before(s.began) && at.Before(s.ended)
}

func (r *runs) miss(key store.Key) {
	if r == nil || r.policy == ConcurrentRuns {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(key)
	s.missed, s.missedAt = s.missed+1, time.Now()
}

// takeMiss reports whether a Get recently found no session and no Create has followed. It consumes that miss.
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

// find returns the run of an invocation if the run is the session's newest, and otherwise a new run. The caller holds
// the mutex.
func (r *runs) find(key store.Key, invocation string) *run {
	if own := r.of(key).newest; own != nil && own.invocation == invocation {
		return own
	}
	return &run{invocation: invocation}
}

// endWith ends a run when the runner's context ends. After an error of the model there is no final response, so
// without the plugin, only the context shows the end of the run. endWith ignores a context that is not from a runner,
// because such a context may end after each append.
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

// mayAppend reports whether no other process excludes this run. If the policy requires exclusive runs, mayAppend
// takes the lease for them. If the lease operation fails, it reports true, because the append checks the log as well.
func (r *runs) mayAppend(ctx context.Context, key store.Key) bool {
	if r.policy == ConcurrentRuns {
		return true
	}
	held, err := r.take(ctx, key, oneRunLease)
	return held || err != nil
}

// advance makes a run the session's newest run. If due, it takes the lease of the run.
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

// watch records that the plugin will report the end of an invocation.
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

// end records that an invocation has ended, and releases its leases. If seems is true, only the final response was
// seen, and the invocation may continue. Then its next append takes the leases again.
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

// leave allows other runs to append, if the invocation's run was the exclusive one.
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

// append appends an event of a run. It refuses the event of an exclusive run if another run has appended in the
// meantime. It finds the other run's events in the log, so the check works even if the other run took no lease.
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

// advanceSeq records that a run has seen the record with the given seq, and returns the newest seq that it has seen.
func (r *runs) advanceSeq(own *run, seq uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	own.seq = max(own.seq, seq)
	return own.seq
}

// take takes a lease. beat then extends the lease until it is released, for at most leaseTime.
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

// release releases a lease, even if ctx has ended. If this fails, the lease expires.
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

// lease calls [store.Store.Lease] and logs an error. Callers may ignore the error, because leases only avoid
// duplicate work.
func (r *runs) lease(ctx context.Context, key store.Key, name string, ttl time.Duration) (held bool, err error) {
	held, err = r.log.Lease(ctx, key, name, ttl)
	if err != nil && ctx.Err() == nil {
		r.logger.WarnContext(ctx, "patchlog: a lease could not be had", "session", key.String(), "lease", name, "error", err)
	}
	return held, err
}

// beat extends all held leases. It schedules itself again until no lease is held.
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
	if !wanted && held { // the lease was released while it was being extended
		_, _ = r.log.Lease(ctx, l.key, l.name, 0)
	}
}

// claim takes a session's compaction lease. ok is false if another process holds the lease, or runs one of the
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

// newestInvocations returns the ids of the newest visible invocations, with the newest first. most limits their
// number.
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
