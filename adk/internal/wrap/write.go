package wrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const (
	// maxRetries limits how often a write is retried because another writer wrote first.
	maxRetries = 8

	// outcomeTimeout limits how long a write checks its outcome after the caller's context has ended.
	outcomeTimeout = time.Second
)

// write appends to the base the event that plan returns. If plan returns nil, write does nothing. If the append fails
// because another writer wrote first, write reads the session and calls plan again.
func (b *Storage) write(ctx context.Context, l *baseLog, plan func() (*session.Event, item, error)) error {
	for tries := 0; ; tries++ {
		e, it, err := plan()
		if err != nil || e == nil {
			return err
		}
		oldLen, id, at := len(l.order), e.ID, e.Timestamp
		if err = b.service.AppendEvent(ctx, l.base, e); err == nil {
			l.tracksUpdateTime = l.base.LastUpdateTime().Equal(e.Timestamp) // false if the base rounds times
			l.addItem(id, at, it)
			l.fold()
			return nil
		}
		readErr := b.readAfterFailure(ctx, l)
		_, written := l.items[id]
		added := l.order[min(oldLen, len(l.order)):]
		switch {
		case errors.Is(readErr, store.ErrNotFound):
			return fmt.Errorf("%w: %w", readErr, err)
		case readErr == nil && written:
			return nil
		case readErr != nil, ctx.Err() != nil, // the write may still be in progress
			slices.ContainsFunc(added, func(id string) bool { return it.resembles(l.items[id]) }): // the base may have changed the id
			return fmt.Errorf("session %s: %w: %w", l.key, store.ErrOutcomeUnknown, errors.Join(err, readErr))
		case len(added) == 0 || tries == maxRetries:
			return err
		}
	}
}

// readAfterFailure reads the session after a failed write, even if the caller's context has ended.
func (b *Storage) readAfterFailure(ctx context.Context, l *baseLog) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
		defer cancel()
	}
	return b.refresh(ctx, l, allEvents)
}

// Append appends an event to the base. If opts.Follow returns a patch that shortens the event's results, Append
// also appends this patch.
func (b *Storage) Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, from *session.Event) (store.Committed, error) {
	if _, ok := from.Actions.StateDelta[portable.StateKey]; ok {
		return store.Committed{}, reservedKeyError(portable.StateKey)
	}
	if _, ok := from.CustomMetadata[portable.MetadataKey].(string); ok && from.Content == nil {
		return store.Committed{}, reservedKeyError("customMetadata/" + portable.MetadataKey)
	}
	r := patch.Complete(patch.Record{Event: e}, uuid.NewString, time.Now())
	out := store.Committed{Records: []patch.Record{r}}
	err := b.withLog(ctx, key, storage.NewestEvents, func(l *baseLog) error {
		retried := l.ids[r.ID()] != 0
		err := b.write(ctx, l, func() (*session.Event, item, error) {
			if err := l.checkCreation(opts.Creation); err != nil {
				return nil, item{}, err
			}
			if at := l.ids[r.ID()]; at != 0 {
				logged := l.records[at-1]
				if logged.Event == nil || logged.ID() != r.ID() || !patch.Same(logged, r) && !(item{event: r.Event}).resembles(item{event: logged.Event}) {
					return nil, item{}, &store.DuplicateIDError{ID: r.ID(), Seq: at}
				}
				return nil, item{}, nil
			}
			if last := l.view.Seq(); opts.IfSeq != nil && *opts.IfSeq != last {
				return nil, item{}, &store.SeqError{Expected: *opts.IfSeq, Last: last}
			}
			to := convert.CopyEvent(from) // copy the event, because the base may change it, even if the append fails
			to.ID, to.Timestamp = r.Event.ID(), r.Event.Timestamp()
			return to, item{event: r.Event}, nil
		})
		if err == nil && !retried && opts.Follow != nil {
			b.appendFollowUp(ctx, l, r.ID(), opts.Follow)
		}
		if at := l.ids[r.ID()]; at != 0 {
			out.Records[0] = l.records[at-1]
		}
		out.View = l.view
		return err
	})
	return out, err
}

// appendFollowUp appends the patch that patchOf returns for an appended event. If that fails, the event stays
// unshortened.
func (b *Storage) appendFollowUp(ctx context.Context, l *baseLog, id string, patchOf func(fold.View, patch.Record) (*patch.PatchEvent, error)) {
	i, ok := l.view.Find(id)
	if !ok { // the event is hidden already
		return
	}
	p, err := patchOf(l.view, patch.Record{Seq: l.view.Entry(i).Seq, Event: l.view.At(i)})
	if err == nil && p != nil {
		_, err = b.logPatches(ctx, l, store.PatchOptions{AsOfNow: true}, func() ([]*patch.PatchEvent, error) { return []*patch.PatchEvent{p}, nil })
	}
	if err != nil {
		b.logger.Warn("patchlog: cannot shorten a long tool result; the session shows the whole result", "session", l.key.String(), "event", id, "error", err)
	}
}

// logPatches appends an event that carries the patches that plan returns. It returns the records of the patches.
func (b *Storage) logPatches(ctx context.Context, l *baseLog, opts store.PatchOptions, plan func() ([]*patch.PatchEvent, error)) (records []patch.Record, err error) {
	id := uuid.NewString()
	err = b.write(ctx, l, func() (*session.Event, item, error) {
		planned, err := plan()
		var missing []int
		if err == nil {
			records, missing, _, err = l.draft(opts, planned)
		}
		if err != nil || len(missing) == 0 {
			return nil, item{}, err
		}
		patches := make([]*patch.PatchEvent, len(missing))
		for n, i := range missing {
			patches[n] = records[i].Patch
		}
		return l.carrierEvent(ctx, id, patches)
	})
	// If the base accepts writes from an outdated session, another writer's patch may come before this one.
	if err == nil && l.items[id].patches != nil && b.refresh(ctx, l, storage.NewestEvents) == nil && l.skipped[id] {
		err = errOvertaken
	}
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		return nil, err
	}
	for i, r := range records {
		if at := l.ids[r.ID()]; at != 0 {
			records[i] = l.records[at-1]
		}
	}
	return records, err
}

var (
	errOvertaken = fmt.Errorf("%w: another patch was logged at the same time, so this patch is skipped; get the session again and create the patch from its new view", store.ErrConflict)
	errReordered = fmt.Errorf("%w: the wrapped service now returns the session's events in another order than in the view; get the session again and use its new view", store.ErrConflict)
)

// logPlanned reads a session with the filter req, and logs the patches that plan returns.
func (b *Storage) logPlanned(ctx context.Context, key store.Key, req session.GetRequest, opts store.PatchOptions, plan func(*baseLog) ([]*patch.PatchEvent, error)) (out store.Committed, err error) {
	err = b.withLog(ctx, key, req, func(l *baseLog) error {
		out.Records, err = b.logPatches(ctx, l, opts, func() ([]*patch.PatchEvent, error) {
			if err := l.checkCreation(opts.On.Creation()); err != nil {
				return nil, err
			}
			return plan(l)
		})
		out.View = l.view
		return err
	})
	return out, err
}

// ApplyPatch appends an event that carries the patches.
func (b *Storage) ApplyPatch(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return b.logPlanned(ctx, key, allEvents, opts, func(*baseLog) ([]*patch.PatchEvent, error) { return patches, nil })
}

// ApplyToRecentView is like ApplyPatch, but reads only the newest events.
func (b *Storage) ApplyToRecentView(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return b.logPlanned(ctx, key, storage.NewestEvents, opts, func(*baseLog) ([]*patch.PatchEvent, error) { return patches, nil })
}

// Preview checks the patches like ApplyPatch, but writes nothing.
func (b *Storage) Preview(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (out store.Preview, err error) {
	err = b.withLog(ctx, key, allEvents, func(l *baseLog) error {
		drafted, missing, after, err := l.draft(opts, patches)
		if err == nil {
			out.Difference = l.view.Diff(after)
		}
		for _, i := range missing {
			out.Patches = append(out.Patches, drafted[i].Patch)
		}
		return err
	})
	return out, err
}

// Revert appends an event that carries reverts.
func (b *Storage) Revert(ctx context.Context, key store.Key, patchID string, on fold.View, allowOrphans bool) (store.Committed, error) {
	return b.undo(ctx, key, store.PatchOptions{On: on, AllowOrphans: allowOrphans}, func(l *baseLog) (patches []*patch.PatchEvent, err error) {
		ids, err := l.view.RevertTargets(patchID)
		for _, id := range ids {
			patches = append(patches, patch.NewRevert(id))
		}
		return patches, err
	})
}

// Rewind appends an event that carries the patches of a rewind.
func (b *Storage) Rewind(ctx context.Context, key store.Key, invocationID string, on fold.View) (store.Committed, error) {
	if invocationID == "" {
		return store.Committed{}, fmt.Errorf("%w: the invocation id is empty; pass the id of the invocation to rewind", patch.ErrInvalid)
	}
	return b.undo(ctx, key, store.PatchOptions{On: on, AllowOrphans: true, AllowPinned: true}, func(l *baseLog) ([]*patch.PatchEvent, error) {
		for _, r := range l.records {
			if r.Event != nil && r.Event.InvocationID() == invocationID {
				return l.view.Rewind(r.Seq)
			}
		}
		return nil, fmt.Errorf("session %s: %w: no event belongs to invocation %q", key, fold.ErrEventNotFound, invocationID)
	})
}

// undo appends an event that carries the patches that plan returns for the newest view.
func (b *Storage) undo(ctx context.Context, key store.Key, opts store.PatchOptions, plan func(*baseLog) ([]*patch.PatchEvent, error)) (store.Committed, error) {
	return b.logPlanned(ctx, key, allEvents, opts, func(l *baseLog) ([]*patch.PatchEvent, error) {
		patches, err := plan(l)
		for i, r := range fold.Grouped(l.view, storage.UserAuthor, uuid.NewString, patches) {
			patches[i] = r.Patch
		}
		return patches, err
	})
}
