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

// RunPolicy determines what happens if a run of a session begins while another run of the same session is in
// progress.
type RunPolicy int

const (
	// ConcurrentRuns allows all runs to append to the log, in order of arrival, as ADK's own services do.
	ConcurrentRuns RunPolicy = iota

	// RefuseSecondRun makes the first append of the second run fail with a *[RunningError].
	RefuseSecondRun

	// WaitForRun makes the first append of the second run wait until the first run has ended. If the context of the
	// append ends first, the append fails with a *[RunningError]. The timestamp of an event that waited is set to
	// the time of its append.
	WaitForRun
)

// RunningError reports that another run of a session is in progress. It matches [store.ErrConflict].
type RunningError struct {
	Key        store.Key
	Invocation string // the run in progress; "" if its id is unknown
}

func (e *RunningError) Error() string {
	if e.Invocation == "" {
		return fmt.Sprintf("session %s: another invocation is running; wait until it has ended", e.Key)
	}
	return fmt.Sprintf("session %s: invocation %q is running; wait until it has ended", e.Key, e.Invocation)
}

// Is reports whether target is [store.ErrConflict].
func (e *RunningError) Is(target error) bool { return target == store.ErrConflict }

// Names of leases. A run that excludes other runs holds exclusiveRunLease. A process that compacts a session holds
// compactLease.
const (
	exclusiveRunLease = "one run"
	compactLease      = "compact"
)

const (
	// leaseTime is how long a run keeps its leases without an append. An append renews the leases only if less
	// than half of leaseTime remains. So a run counts as ended after five to ten minutes without an append.
	leaseTime = 10 * time.Minute

	// A lease expires leaseTTL after its holder last extended it. The holder extends it every leaseExtendInterval. So
	// the leases of a dead process expire soon.
	leaseTTL, leaseExtendInterval = 30 * time.Second, 10 * time.Second

	// runPollInterval is how often a waiting run checks whether a run of another process has ended.
	runPollInterval = 200 * time.Millisecond

	// createWindow limits how long after a Get that found no session a Create may return the session that another
	// call has created.
	createWindow = time.Minute

	// maxCheckedInvocations limits how many of the newest invocations are checked for a lease before a session
	// is compacted.
	maxCheckedInvocations = 8
)

// runs tracks the active invocation of each session and enforces the [RunPolicy]. It learns about runs from appended
// events and from the plugin. A nil *runs tracks nothing and refuses nothing. The methods are safe for concurrent
// use.
type runs struct {
	policy            RunPolicy
	compactionEnabled bool // whether to take a lease for each run, so that other processes do not compact its session
	storage           storage.Storage
	logger            *slog.Logger

	mu sync.Mutex

	// sessions contains the observed runs of each session. The cache may evict the entry of an idle session,
	// because entries are only needed soon after they are written.
	sessions cache.Cache[store.Key, *sessionRuns]

	// exclusive maps each session to the run that excludes other runs under the policy.
	exclusive map[store.Key]*run

	// watched contains the invocations whose end the plugin will report.
	watched map[runID]bool

	// heldLeases maps each lease of this process to the time when the process stops extending it.
	heldLeases map[heldLease]time.Time
	extending  bool // whether the timer that extends the leases is set
}

type sessionRuns struct {
	newest       *run      // the run of the newest event, or nil if that run has ended
	began, ended time.Time // times of the last exclusive run, set when that run has ended
	misses       int       // number of Gets that found no session, minus the number of Creates that followed them
	lastMiss     time.Time // time of the newest Get that found no session
}

// session returns the entry of a session, which it creates if necessary. The caller holds the mutex.
func (r *runs) session(key store.Key) *sessionRuns {
	s, ok := r.sessions.Get(key)
	if !ok {
		s = &sessionRuns{}
		r.sessions.Put(key, s, 1)
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

// run is an invocation that appends to a session. A run is exclusive if it excludes other runs of its session.
type run struct {
	invocation           string
	began                time.Time     // when an exclusive run began
	seq                  uint64        // seq of the newest record that an exclusive run has seen
	until                time.Time     // when the run counts as ended, unless an append renews its leases
	ended                chan struct{} // closed when the run no longer excludes other runs
	cancelEndWithContext func() bool   // cancels endWithContext; nil if endWithContext was not called
}

func newRuns(opts Options, compactionEnabled bool, s storage.Storage) *runs {
	if opts.Runs == ConcurrentRuns && !compactionEnabled && opts.KeepInterruptedCalls {
		return nil
	}
	return &runs{policy: opts.Runs, compactionEnabled: compactionEnabled, storage: s, logger: opts.Logger, exclusive: map[store.Key]*run{}, heldLeases: map[heldLease]time.Time{}, watched: map[runID]bool{}}
}

// enter records that the invocation of an event is active, and returns its run. It returns nil if the event has no
// invocation. enter runs before the event is visible, so that no process compacts the invocation.
//
// enter sets the event's timestamp to the current time if the event had to wait, or if the timestamp lies within an
// earlier exclusive run. Otherwise, a wrapped service that orders events by time could put the event among the
// events of the earlier run.
func (r *runs) enter(ctx context.Context, handle *Session, e *session.Event) (*run, error) {
	if r == nil || e.InvocationID == "" {
		return nil, nil
	}
	key, waited := handle.key, false
	for ; ; waited = true {
		own, other, due := r.begin(key, e.InvocationID)
		switch {
		case other != nil:
		case !due || r.takeExclusiveLease(ctx, key):
			r.makeNewest(ctx, key, own, due)
			r.endWithContext(ctx, key, own)
			if waited || r.isDuringEndedRun(key, e.Timestamp) {
				e.Timestamp = platform.Now(ctx)
			}
			return own, nil
		default:
			r.endExclusive(ctx, key, e.InvocationID)
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
		case <-time.After(runPollInterval):
		case <-ctx.Done():
			return nil, errors.Join(&RunningError{key, other.invocation}, ctx.Err())
		}
	}
}

// begin returns the run of an invocation as own. due reports whether the run's leases must be taken or renewed. If the
// policy excludes the invocation because another run is in progress, begin returns that run as other.
func (r *runs) begin(key store.Key, invocation string) (own, other *run, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own = r.exclusive[key]
	if own != nil && own.invocation != invocation && time.Now().Before(own.until) {
		now := *own
		return nil, &now, false
	}
	if own == nil || own.invocation != invocation {
		own = r.runFor(key, invocation)
		if r.policy != ConcurrentRuns {
			own.began, own.seq, own.until, own.ended = time.Now(), 0, time.Time{}, make(chan struct{})
			r.exclusive[key] = own
		}
	}
	if due = time.Until(own.until) < leaseTime/2; due {
		own.until = time.Now().Add(leaseTime)
	}
	return own, nil, due
}

// isDuringEndedRun reports whether the session's last ended exclusive run was active at the given time.
func (r *runs) isDuringEndedRun(key store.Key, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.session(key)
	return !at.Before(s.began) && at.Before(s.ended)
}

func (r *runs) recordMiss(key store.Key) {
	if r == nil || r.policy == ConcurrentRuns {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.session(key)
	s.misses, s.lastMiss = s.misses+1, time.Now()
}

// consumeMiss reports whether a Get recently found no session and no Create has followed. It counts the current
// call as the Create that follows.
func (r *runs) consumeMiss(key store.Key) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.session(key)
	if time.Since(s.lastMiss) >= createWindow {
		s.misses = 0
	}
	missed := s.misses > 0
	s.misses = max(0, s.misses-1)
	return missed
}

// runFor returns the newest run of the session if it belongs to the invocation. Otherwise it returns a new run. The
// caller holds the mutex.
func (r *runs) runFor(key store.Key, invocation string) *run {
	if own := r.session(key).newest; own != nil && own.invocation == invocation {
		return own
	}
	return &run{invocation: invocation}
}

// endWithContext ends a run when the runner's context ends. Without the plugin, only the end of the context shows that
// a run has failed, because there is no final response. endWithContext ignores a context that is not from a runner,
// because such a context may end after each append.
func (r *runs) endWithContext(ctx context.Context, key store.Key, own *run) {
	if _, ok := ctx.(agent.InvocationContext); !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.cancelEndWithContext == nil {
		own.cancelEndWithContext = context.AfterFunc(ctx, func() { r.end(context.WithoutCancel(ctx), key, own.invocation, false) })
	}
}

// takeExclusiveLease takes the lease for exclusive runs, if the policy requires exclusive runs. It returns false if
// another process holds the lease. If the attempt to take the lease fails with an error, it returns true, because the
// append checks the log as well.
func (r *runs) takeExclusiveLease(ctx context.Context, key store.Key) bool {
	if r.policy == ConcurrentRuns {
		return true
	}
	held, err := r.takeLease(ctx, key, exclusiveRunLease)
	return held || err != nil
}

// makeNewest makes own the session's newest run. If due is set, it takes the lease of the run.
func (r *runs) makeNewest(ctx context.Context, key store.Key, own *run, due bool) {
	r.mu.Lock()
	s := r.session(key)
	before := s.newest
	s.newest = own
	r.mu.Unlock()
	if !r.compactionEnabled || !due {
		return
	}
	if before != nil && before.invocation != own.invocation {
		r.releaseLease(ctx, key, compaction.RunLease(before.invocation))
	}
	_, _ = r.takeLease(ctx, key, compaction.RunLease(own.invocation))
}

// watch records that the plugin will report the end of an invocation.
func (r *runs) watch(key store.Key, invocation string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched[runID{key, invocation}] = true
	r.session(key).newest = r.runFor(key, invocation)
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

// end records that an invocation has ended, and releases its leases. If mayContinue is set, only the final response
// was seen. The invocation may then continue, and its next append takes the leases again.
func (r *runs) end(ctx context.Context, key store.Key, invocation string, mayContinue bool) {
	if r == nil || invocation == "" {
		return
	}
	r.endExclusive(ctx, key, invocation)
	r.mu.Lock()
	delete(r.watched, runID{key, invocation})
	if s := r.session(key); s.newest != nil && s.newest.invocation == invocation {
		if s.newest.cancelEndWithContext != nil {
			s.newest.cancelEndWithContext()
		}
		s.newest = nil
		if mayContinue {
			s.newest = &run{invocation: invocation}
		}
	}
	r.mu.Unlock()
	if r.compactionEnabled {
		r.releaseLease(ctx, key, compaction.RunLease(invocation))
	}
}

// endExclusive allows other runs to append, if the invocation's run was exclusive.
func (r *runs) endExclusive(ctx context.Context, key store.Key, invocation string) {
	r.mu.Lock()
	own := r.exclusive[key]
	wasExclusive := own != nil && own.invocation == invocation
	if wasExclusive {
		delete(r.exclusive, key)
		s := r.session(key)
		s.began, s.ended = own.began, time.Now()
		close(own.ended)
	}
	r.mu.Unlock()
	if wasExclusive {
		r.releaseLease(ctx, key, exclusiveRunLease)
	}
}

// activeInvocation returns the id of the session's active invocation, or "".
func (r *runs) activeInvocation(key store.Key) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own := r.session(key).newest; own != nil {
		return own.invocation
	}
	return ""
}

// append appends an event of a run. It refuses the event of an exclusive run if another run has appended since
// the run's previous append. It finds such appends in the log, so the check works even if the other run took no
// lease.
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
		var stale *store.SeqError
		switch {
		case err == nil:
			r.advanceSeq(own, done.View.Seq())
			return done, nil
		case !errors.As(err, &stale):
			if seq == 0 {
				r.endExclusive(ctx, key, own.invocation)
			}
			return done, err
		}
		for record, err := range r.storage.RawEvents(ctx, key, seq+1) {
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

// takeLease takes a lease. Afterwards, extendLeases extends the lease until it is released, for at most
// leaseTime.
func (r *runs) takeLease(ctx context.Context, key store.Key, name string) (held bool, err error) {
	if held, err = r.lease(ctx, key, name, leaseTTL); err != nil || !held {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heldLeases[heldLease{key, name}] = time.Now().Add(leaseTime); !r.extending {
		r.extending = true
		time.AfterFunc(leaseExtendInterval, r.extendLeases)
	}
	return true, nil
}

// releaseLease releases a lease, even if ctx has ended. If the release fails, the lease expires later.
func (r *runs) releaseLease(ctx context.Context, key store.Key, name string) {
	r.mu.Lock()
	delete(r.heldLeases, heldLease{key, name})
	r.mu.Unlock()
	_, _ = r.lease(context.WithoutCancel(ctx), key, name, 0)
}

func (r *runs) isLeaseFree(ctx context.Context, key store.Key, name string) bool {
	free, err := r.lease(ctx, key, name, -1)
	return free && err == nil
}

// lease calls [store.Store.Lease] and logs errors. Callers may ignore the returned error, because leases only
// avoid duplicate work.
func (r *runs) lease(ctx context.Context, key store.Key, name string, ttl time.Duration) (held bool, err error) {
	held, err = r.storage.Lease(ctx, key, name, ttl)
	if err != nil && ctx.Err() == nil {
		r.logger.WarnContext(ctx, "patchlog: a lease operation failed", "session", key.String(), "lease", name, "error", err)
	}
	return held, err
}

// extendLeases extends all held leases. It sets a timer to call itself again while a lease is held.
func (r *runs) extendLeases() {
	r.mu.Lock()
	maps.DeleteFunc(r.heldLeases, func(_ heldLease, until time.Time) bool { return !time.Now().Before(until) })
	leases := slices.Collect(maps.Keys(r.heldLeases))
	r.extending = len(leases) > 0
	r.mu.Unlock()
	for _, l := range leases {
		r.extendLease(l)
	}
	if len(leases) > 0 {
		time.AfterFunc(leaseExtendInterval, r.extendLeases)
	}
}

func (r *runs) extendLease(l heldLease) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseExtendInterval)
	defer cancel()
	held, err := r.storage.Lease(ctx, l.key, l.name, leaseTTL)
	r.mu.Lock()
	_, wanted := r.heldLeases[l]
	if lost := err == nil && !held || errors.Is(err, store.ErrClosed); lost {
		delete(r.heldLeases, l)
	}
	r.mu.Unlock()
	if !wanted && held { // the lease was released while it was being extended
		_, _ = r.storage.Lease(ctx, l.key, l.name, 0)
	}
}

// claimCompaction takes a session's compaction lease. ok is false if another process holds the lease, or if another
// process runs one of the session's newest invocations.
func (r *runs) claimCompaction(ctx context.Context, key store.Key, v fold.View) (done func(), ok bool) {
	for _, id := range newestInvocations(v, maxCheckedInvocations) {
		if !r.isLeaseFree(ctx, key, compaction.RunLease(id)) {
			return nil, false
		}
	}
	if held, _ := r.takeLease(ctx, key, compactLease); !held {
		return nil, false
	}
	return func() { r.releaseLease(ctx, key, compactLease) }, true
}

// newestInvocations returns the ids of up to limit visible invocations, newest first.
func newestInvocations(v fold.View, limit int) []string {
	var ids []string
	seen := map[string]bool{"": true}
	for i := v.Len() - 1; i >= 0 && len(ids) < limit; i-- {
		if id := v.At(i).InvocationID(); !v.Entry(i).Summary && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}
