package adk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

const (
	// So often a write is tried again because another writer was faster.
	maxStale = 8

	// For so long the base is asked what became of a write whose caller has gone.
	settleTime = time.Second
)

// Append appends an event to the base, and then, if results in it are long, a patch that shows
// less of them.
func (b *based) Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, from *session.Event) (store.Committed, error) {
	if _, there := from.Actions.StateDelta[initialKey]; there {
		return store.Committed{}, reserved()
	}
	r := patch.Complete(patch.Record{Event: e}, uuid.NewString, time.Now())
	if carrierOf(from) != nil {
		return store.Committed{}, &patch.FieldError{Field: "customMetadata/" + carrierKey, Problem: "this key is patchlog's own; take another"}
	}
	committed := store.Committed{Records: []patch.Record{r}}
	retried := false
	err := b.withKnown(ctx, key, func(l *line) error {
		err := b.write(ctx, l, func() (*session.Event, item, error) {
			if err := l.is(opts.Creation); err != nil {
				return nil, item{}, err
			}
			if at := l.seqOf(r.ID()); at != 0 {
				if !isRetry(l.own.records[at-1], r) {
					return nil, item{}, &store.DuplicateIDError{ID: r.ID(), Seq: at}
				}
				retried = true
				return nil, item{}, nil
			}
			out := copyEvent(from) // the base's own, even if it refuses it
			out.ID, out.Timestamp = r.Event.ID(), r.Event.Timestamp()
			return out, item{id: r.ID(), event: r.Event}, nil
		})
		if at := l.seqOf(r.ID()); err == nil && at != 0 {
			committed.Records[0] = l.own.records[at-1]
		}
		committed.View = l.own.view
		return err
	})
	if err == nil && !retried && opts.MaxResultTokens > 0 && committed.Records[0].Event.EstimatedTokens() > opts.MaxResultTokens {
		committed.View = b.shorten(ctx, key, committed, opts.MaxResultTokens)
	}
	return committed, err
}

// shorten appends the patch that shows less of an event that was appended, and returns the view
// after that. If it cannot, the event is shown whole.
func (b *based) shorten(ctx context.Context, key store.Key, appended store.Committed, maxTokens int) fold.View {
	r := appended.Records[0]
	done, err := b.patch(ctx, key, appended.View.Creation(), func(l *line) (drafted, error) {
		v := l.own.view
		i, ok := v.Find(r.ID())
		if !ok { // the base has given it another id, or it is hidden already
			return drafted{on: v, after: v}, nil
		}
		short, err := recall.Shorten(v.At(i), v.SeqOf(i), b.Handle(0, 0, v.At(i)), uuid.NewString, maxTokens)
		if err != nil || short == nil {
			return drafted{on: v, after: v}, err
		}
		patches, err := completed([]*patch.PatchEvent{
			patch.NewSplice(i, 1, short).WithState(patch.Keep).WithAuthor(recall.Author).WithBase(v.PatchSeq()),
		})
		if err != nil {
			return drafted{}, err
		}
		return drafted{on: v, patches: patches}.judge(l, fold.CheckOptions{})
	})
	if err != nil {
		b.logger.Warn("patchlog: a long result is shown whole", "session", key.String(), "event", r.ID(), "error", err)
	}
	if done.View.Creation() == "" {
		return appended.View
	}
	return done.View
}

// isRetry reports whether a record offers what is there. A base may have cut off the time's
// end, and fields that it does not know.
func isRetry(there, offered patch.Record) bool {
	return there.Event != nil && there.ID() == offered.ID() &&
		(patch.Same(there, offered) || item{event: there.Event}.resembles(item{event: offered.Event}))
}

// is reports whether a creation is the session's.
func (l *line) is(creation string) error {
	if creation != "" && !sameSession(creation, l.creation()) {
		return fmt.Errorf("session %s: %w: it was created again since", l.key, store.ErrNotFound)
	}
	return nil
}

// write appends to the base what plan says, by what is known of the session: no event if
// there is nothing to do. Where the base refuses because another writer was faster, which
// services have no error for in common, what is known has changed and plan is asked again.
func (b *based) write(ctx context.Context, l *line, plan func() (*session.Event, item, error)) error {
	for tries := 0; ; tries++ {
		e, it, err := plan()
		if err != nil || e == nil {
			return err
		}
		events, updated := len(l.own.items), l.base.LastUpdateTime()
		base := l.base
		l.base = nil
		err = b.service.AppendEvent(ctx, base, e)
		if err == nil {
			l.base = base
			l.append(it)
			b.warn(l)
			return nil
		}
		if readErr := b.settle(ctx, l); readErr != nil {
			if errors.Is(readErr, store.ErrNotFound) {
				return fmt.Errorf("%w: %w", readErr, err)
			}
			return fmt.Errorf("session %s: %w: %w; and then: %w", l.key, store.ErrOutcomeUnknown, err, readErr)
		}
		moved := len(l.own.items) != events || !l.updated.Equal(updated)
		switch {
		case l.has(it.id):
			return nil
		case ctx.Err() != nil: // it may still be on its way
			return fmt.Errorf("session %s: %w: %w", l.key, store.ErrOutcomeUnknown, err)
		case !moved || tries == maxStale:
			return err
		case slices.ContainsFunc(l.own.items[min(events, len(l.own.items)):], it.resembles): // the base may have given it an id of its own
			return fmt.Errorf("session %s: %w: %w", l.key, store.ErrOutcomeUnknown, err)
		}
	}
}

// settle reads the session after a write has failed.
func (b *based) settle(ctx context.Context, l *line) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
	}
	if err := b.read(ctx, l); err != nil {
		return b.missing(ctx, l, err)
	}
	return nil
}

// has reports whether the session has an item.
func (l *line) has(id string) bool {
	for i := len(l.own.items) - 1; i >= 0; i-- {
		if l.own.items[i].id == id {
			return true
		}
	}
	return false
}

// ApplyPatch appends an event that carries the patches.
func (b *based) ApplyPatch(ctx context.Context, key store.Key, opts store.PatchOptions, patches ...*patch.PatchEvent) (store.Committed, error) {
	patches, err := completed(patches)
	if err != nil {
		return store.Committed{}, err
	}
	return b.patch(ctx, key, opts.On.Creation(), func(l *line) (drafted, error) {
		return l.draft(opts, patches)
	})
}

// Preview drafts the patches.
func (b *based) Preview(ctx context.Context, key store.Key, opts store.PatchOptions, patches ...*patch.PatchEvent) (out store.Preview, err error) {
	patches, err = completed(patches)
	if err != nil {
		return out, err
	}
	err = b.withNewest(ctx, key, func(l *line) error {
		if err := l.is(opts.On.Creation()); err != nil {
			return err
		}
		d, err := l.draft(opts, patches)
		if err == nil {
			out = store.Preview{Difference: d.on.Diff(d.after), Patches: d.patches}
		}
		return err
	})
	return out, err
}

// Revert appends an event that carries reverts.
func (b *based) Revert(ctx context.Context, key store.Key, opts store.BackOptions, patchID string) (store.Committed, error) {
	return b.patch(ctx, key, opts.On.Creation(), func(l *line) (drafted, error) {
		return l.back(opts, fold.CheckOptions{AllowOrphans: opts.AllowOrphans}, func(v fold.View) (patches []*patch.PatchEvent, err error) {
			ids, err := v.Standing(patchID)
			for _, id := range ids {
				patches = append(patches, patch.NewRevert(id))
			}
			return patches, err
		})
	})
}

// Rewind appends an event that carries what a rewind takes.
func (b *based) Rewind(ctx context.Context, key store.Key, opts store.BackOptions, invocationID string) (store.Committed, error) {
	if invocationID == "" {
		return store.Committed{}, fmt.Errorf("%w: the invocation to rewind to has no id", patch.ErrInvalid)
	}
	return b.patch(ctx, key, opts.On.Creation(), func(l *line) (drafted, error) {
		for _, r := range l.own.records {
			if r.Event != nil && r.Event.InvocationID() == invocationID {
				return l.back(opts, fold.CheckOptions{AllowOrphans: true, AllowPinned: true}, func(v fold.View) ([]*patch.PatchEvent, error) {
					return v.Rewind(r.Seq)
				})
			}
		}
		return drafted{}, fmt.Errorf("session %s: %w: no event belongs to invocation %q", key, store.ErrEventNotFound, invocationID)
	})
}

// patch appends an event that carries what is drafted on the session as it is in the base.
func (b *based) patch(ctx context.Context, key store.Key, creation string, draft func(*line) (drafted, error)) (out store.Committed, err error) {
	var patches []*patch.PatchEvent
	id := uuid.NewString()
	err = b.withNewest(ctx, key, func(l *line) error {
		err := b.write(ctx, l, func() (*session.Event, item, error) {
			if err := l.is(creation); err != nil {
				return nil, item{}, err
			}
			d, err := draft(l)
			if patches = d.patches; err != nil || len(patches) == 0 || l.seqOf(patches[0].ID()) != 0 {
				return nil, item{}, err
			}
			return l.carrying(ctx, id, d)
		})
		if err == nil && slices.ContainsFunc(l.own.left, func(c *carrier) bool { return c.id == id }) {
			err = errOvertaken
		}
		out.View = l.own.view
		for _, p := range patches {
			r := patch.Record{Patch: p}
			if at := l.seqOf(p.ID()); at != 0 {
				r = l.own.records[at-1]
			}
			out.Records = append(out.Records, r)
		}
		return err
	})
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		out.Records = nil
	}
	return out, err
}

// errOvertaken: another writer has patched what a patch was about, and comes first in order.
var errOvertaken = fmt.Errorf("%w: another patch was logged at the same time, and this one is skipped; look again and make it anew", store.ErrConflict)

// carrying returns the event that carries what is drafted. Its time is behind all that it is
// about, and not behind what comes next.
func (l *line) carrying(ctx context.Context, id string, d drafted) (*session.Event, item, error) {
	at := l.newestTime()
	if at.IsZero() {
		at = platform.Now(ctx)
	}
	e, err := carry(d.on, id, at.Truncate(time.Microsecond).Add(time.Microsecond), d.patches)
	if err != nil {
		return nil, item{}, err
	}
	if size := len(e.CustomMetadata[carrierKey].(string)); size > store.DefaultMaxRecordBytes {
		return nil, item{}, fmt.Errorf("%w: patch %q takes %d bytes; the limit is %d", store.ErrTooLarge, d.patches[0].ID(), size, store.DefaultMaxRecordBytes)
	}
	return e, item{id: id, carrier: carrierOf(e)}, nil
}
