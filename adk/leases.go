package adk

import (
	"context"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// Names of leases: of a session that is being compacted, and of an invocation, whose id
// follows.
const (
	compactLease = "compact"
	runLease     = "run "
)

// leaseTime is for how long an invocation is taken to be running after it has appended, by
// processes that do not run it.
const leaseTime = 10 * time.Minute

// So many invocations, the newest of a view, are asked about before it is compacted.
const maxAsked = 8

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
	for _, id := range newestInvocations(v, maxAsked) {
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
