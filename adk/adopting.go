package adk

import (
	"context"
	"errors"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// metadataRecord is where services that cannot store the record of an event's actions keep it.
const metadataRecord = "_adk_compaction"

// carriesRecord reports whether an event is a compaction record, as ADK's own compaction
// appends them.
func carriesRecord(e *session.Event) bool {
	return isRecord(e) || e.CustomMetadata[metadataRecord] != nil
}

// adoptRecords makes summaries of patchlog's own of the records in a session's visible log,
// after an event was appended that is one. ADK's compaction and this one would otherwise
// summarise the same events, each for itself. Where a workflow's node appends it, that has
// its place in the list of events, which must not shrink: then it is done with the first event
// that is none of a node's.
func (c *compacting) adoptRecords(ctx context.Context, handle *Session, e *session.Event) {
	handle.mu.Lock()
	handle.records = handle.records || carriesRecord(e)
	due := handle.records && !inNode(e)
	if due {
		handle.records = false
	}
	handle.mu.Unlock()
	if due && c.adopt(ctx, handle.key, handle.View()) {
		c.show(ctx, handle)
	}
}

// adoptAfter looks again after a summary was written: a record that could not be adopted may
// have been overtaken by it.
func (c *compacting) adoptAfter(ctx context.Context, a compaction.Attempt[store.Key]) {
	if a.Outcome != compaction.Wrote {
		return
	}
	if v, err := c.log.View(ctx, a.Key); err == nil {
		c.adopt(ctx, a.Key, v)
	}
}

// So often the records of a session are looked at again, if others patch it meanwhile.
const adoptionTries = 3

// adopt reports whether it logged anything.
func (c *compacting) adopt(ctx context.Context, key store.Key, v fold.View) bool {
	for range adoptionTries {
		plan := adkrecord.AdoptWith(v, adkrecord.Options{Stay: pins(v, c.config), Live: true})
		for _, left := range plan.Left {
			c.logger.DebugContext(ctx, "patchlog: a compaction record of ADK's stays as it is", "session", key.String(), "event", left.EventID, "reason", left.Reason)
		}
		if len(plan.Patches) == 0 {
			return false
		}
		_, err := c.log.ApplyOn(ctx, key, v, fold.CheckOptions{}, plan.Patches...)
		if err == nil {
			return true
		}
		if errors.Is(err, store.ErrConflict) {
			if v, err = c.log.View(ctx, key); err == nil {
				continue
			}
		}
		if ctx.Err() == nil {
			c.logger.WarnContext(ctx, "patchlog: compaction records of ADK's could not be adopted", "session", key.String(), "error", err)
		}
		return false
	}
	return false
}

// show moves a session's handle to the newest view, unless it is another session by now.
func (c *compacting) show(ctx context.Context, handle *Session) {
	v, err := c.log.View(context.WithoutCancel(ctx), handle.key)
	if err == nil && sameSession(handle.View().Creation(), v.Creation()) {
		handle.advance(v)
	}
}
