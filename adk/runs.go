package adk

import (
	"context"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// runs knows which invocation is under way in a session, as far as one can tell: it is the
// one of the newest event that was appended, until the plugin says that it has ended. Of
// sessions in which nothing happens while so many others are used, it forgets; they are
// only asked about after something was appended. It is safe for use by any number of
// goroutines.
type runs struct {
	mu     sync.Mutex // for reading and writing an entry
	active cache[store.Key, invocation]
}

type invocation struct {
	id      string
	watched bool      // the plugin will say when it has ended
	leased  time.Time // when its lease is to be taken again
}

// find returns the zero invocation for a session of which none is known.
func (r *runs) find(key store.Key) invocation {
	run, _ := r.active.get(key)
	return run
}

// began says that an invocation appends, and returns the one that was known before, and
// whether its lease is due to be taken: until then it is for others to see.
func (r *runs) began(key store.Key, id string, until time.Time) (before string, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.find(key)
	before = run.id
	if run.id != id {
		run = invocation{id: id}
	}
	if due = time.Now().After(run.leased); due {
		run.leased = until
	}
	r.active.put(key, run, 1)
	return before, due
}

// release says that an invocation has no lease any more.
func (r *runs) release(key store.Key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.find(key); run.id == id {
		run.leased = time.Time{}
		r.active.put(key, run, 1)
	}
}

// watch says that the end of an invocation will be told.
func (r *runs) watch(key store.Key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.put(key, invocation{id: id, watched: true}, 1)
}

// ended says that an invocation has ended.
func (r *runs) ended(key store.Key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.find(key).id == id {
		r.active.remove(key)
	}
}

// live returns the id of the invocation that is under way, or "".
func (r *runs) live(key store.Key) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(key).id
}

// watched reports whether the end of the invocation will be told.
func (r *runs) watched(key store.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(key).watched
}

// Names of leases: of a session that is being compacted, and of an invocation, whose id
// follows.
const (
	compactLease = "compact"
	runLease     = "run "
)

// leaseTime is for how long an invocation is taken to be running after it has appended, by
// processes that do not run it.
const leaseTime = 10 * time.Minute

// maxClaimed is how many invocations, the newest of a view, are checked for a lease before it is compacted.
const maxClaimed = 8

// lease takes a lease, or takes it again, or with a time of 0 gives it up. What fails is
// reported and does no harm: leases keep work from being done in vain.
func (c *compacting) lease(ctx context.Context, key store.Key, name string, ttl time.Duration) (held bool) {
	held, err := c.log.Lease(ctx, key, name, ttl)
	if err != nil && ctx.Err() == nil {
		c.logger.WarnContext(ctx, "patchlog: a lease could not be had", "session", key.String(), "lease", name, "error", err)
	}
	return held && err == nil
}

func (c *compacting) release(ctx context.Context, key store.Key, invocation string) {
	c.lease(context.WithoutCancel(ctx), key, runLease+invocation, 0)
}

// claim reports whether this service may compact a session: no other process does, and none
// runs one of its newest invocations.
func (c *compacting) claim(ctx context.Context, key store.Key, v fold.View) (done func(), ok bool) {
	for _, id := range newestInvocations(v, maxClaimed) {
		if !c.lease(ctx, key, runLease+id, -1) {
			return nil, false
		}
	}
	if !c.lease(ctx, key, compactLease, leaseTime) {
		return nil, false
	}
	return func() { c.lease(context.WithoutCancel(ctx), key, compactLease, 0) }, true
}

// newestInvocations returns the ids of the invocations that the newest visible events belong
// to.
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
