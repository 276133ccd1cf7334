package adk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

const (
	// maxStale is how often a write is tried again because another writer was faster.
	maxStale = 8

	// settleTime is for how long the base is asked about a write whose caller has gone.
	settleTime = time.Second
)

// write appends to the base what plan says, by what is known of the session: no event if there is
// nothing to do. Where the base refuses because another writer was faster, plan is asked again.
func (b *baseStorage) write(ctx context.Context, l *baseLog, plan func() (*session.Event, item, error)) error {
	for tries := 0; ; tries++ {
		e, it, err := plan()
		if err != nil || e == nil {
			return err
		}
		seen, id, at := len(l.order), e.ID, e.Timestamp
		if err = b.service.AppendEvent(ctx, l.base, e); err == nil {
			l.addItem(id, at, it, false)
			return nil
		}
		if readErr := b.settle(ctx, l); readErr != nil {
			if errors.Is(readErr, store.ErrNotFound) {
				return fmt.Errorf("%w: %w", readErr, err)
			}
			return fmt.Errorf("session %s: %w: %w; and then: %w", l.key, store.ErrOutcomeUnknown, err, readErr)
		}
		_, landed := l.items[id]
		seen = min(seen, len(l.order))
		switch {
		case landed:
			return nil
		case ctx.Err() != nil: // it may still be on its way
			return fmt.Errorf("session %s: %w: %w", l.key, store.ErrOutcomeUnknown, err)
		case len(l.order) == seen || tries == maxStale:
			return err
		case slices.ContainsFunc(l.order[seen:], func(other string) bool { return it.resembles(l.items[other]) }): // the base may have changed the id
			return fmt.Errorf("session %s: %w: %w", l.key, store.ErrOutcomeUnknown, err)
		}
	}
}

// settle reads the session after a write has failed.
func (b *baseStorage) settle(ctx context.Context, l *baseLog) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
	}
	if err := b.read(ctx, l, whole); err != nil {
		return b.missing(ctx, l.key, err)
	}
	return nil
}

// resembles reports whether two items may be one, of which a base has changed the id.
func (it item) resembles(other item) bool {
	if it.event == nil || other.event == nil {
		return it.event == other.event && slices.Equal(it.patches.IDs(), other.patches.IDs())
	}
	a, b := it.event, other.event
	return a.Author() == b.Author() && a.InvocationID() == b.InvocationID() && a.Branch() == b.Branch() &&
		a.Timestamp().Truncate(time.Microsecond).Equal(b.Timestamp().Truncate(time.Microsecond))
}

// Append appends an event to the base, and then, if results in it are long, a patch that shows
// less of them.
func (b *baseStorage) Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, from *session.Event) (store.Committed, error) {
	if _, there := from.Actions.StateDelta[portable.StateKey]; there {
		return store.Committed{}, reserved(portable.StateKey)
	}
	if _, there := from.CustomMetadata[portable.MetadataKey].(string); there && from.Content == nil {
		return store.Committed{}, reserved("customMetadata/" + portable.MetadataKey)
	}
	r := patch.Complete(patch.Record{Event: e}, uuid.NewString, time.Now())
	out := store.Committed{Records: []patch.Record{r}}
	err := b.with(ctx, key, end, func(l *baseLog) error {
		retried := false
		err := b.write(ctx, l, func() (*session.Event, item, error) {
			if err := l.is(opts.Creation); err != nil {
				return nil, item{}, err
			}
			if at := l.ids[r.ID()]; at != 0 {
				there := l.records[at-1]
				if there.Event == nil || there.ID() != r.ID() || !patch.Same(there, r) && !(item{event: r.Event}).resembles(item{event: there.Event}) {
					return nil, item{}, &store.DuplicateIDError{ID: r.ID(), Seq: at}
				}
				retried = true
				return nil, item{}, nil
			}
			if last := l.view.Seq(); opts.IfSeq != nil && *opts.IfSeq != last {
				return nil, item{}, &store.SeqError{Expected: *opts.IfSeq, Last: last}
			}
			to := copyEvent(from) // the base's own, even if it refuses it
			to.ID, to.Timestamp = r.Event.ID(), r.Event.Timestamp()
			return to, item{event: r.Event}, nil
		})
		if err == nil && !retried && opts.MaxResultTokens > 0 && r.Event.EstimatedTokens() > opts.MaxResultTokens {
			b.shorten(ctx, l, r.ID(), opts.MaxResultTokens)
		}
		if at := l.ids[r.ID()]; err == nil && at != 0 {
			out.Records[0] = l.records[at-1]
		}
		out.View = l.view
		return err
	})
	return out, err
}

// shorten appends the patch that shows less of an event that was appended. If it cannot, the event is
// shown whole.
func (b *baseStorage) shorten(ctx context.Context, l *baseLog, id string, maxTokens int) {
	_, err := b.log(ctx, l, func() ([]*patch.PatchEvent, error) {
		v := l.view
		i, ok := v.Find(id)
		if !ok { // it is hidden already
			return nil, nil
		}
		short, err := recall.Shorten(v.At(i), v.Entry(i).Seq, b.Handle(0, 0, v.At(i)), uuid.NewString, maxTokens)
		if err != nil || short == nil {
			return nil, err
		}
		patches, err := completed(patch.NewSplice(i, 1, short).WithState(patch.Keep).WithAuthor(recall.Author).WithBase(v.PatchSeq()))
		if err == nil {
			_, err = v.Preview(patches, fold.CheckOptions{})
		}
		return patches, err
	})
	if err != nil {
		b.logger.Warn("patchlog: a long result is shown whole", "session", l.key.String(), "event", id, "error", err)
	}
}

// log appends an event that carries the patches that plan makes, by what is known of the session, and
// returns their records.
func (b *baseStorage) log(ctx context.Context, l *baseLog, plan func() ([]*patch.PatchEvent, error)) (records []patch.Record, err error) {
	var patches []*patch.PatchEvent
	id := uuid.NewString()
	err = b.write(ctx, l, func() (*session.Event, item, error) {
		var err error
		if patches, err = plan(); err != nil || len(patches) == 0 || l.ids[patches[0].ID()] != 0 {
			return nil, item{}, err
		}
		return l.patchEvent(ctx, id, patches)
	})
	if err == nil && len(patches) > 0 && l.items[id].patches != nil {
		// A base that refuses no stale writer may have another writer's patch in front.
		if b.read(ctx, l, end) == nil && l.skipped[id] {
			err = errOvertaken
		}
	}
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		return nil, err
	}
	for _, p := range patches {
		r := patch.Record{Patch: p}
		if at := l.ids[p.ID()]; at != 0 {
			r = l.records[at-1]
		}
		records = append(records, r)
	}
	return records, err
}

var (
	errNoErase   = fmt.Errorf("%w: a receipt is logged by the erasing that it is of: %w", patch.ErrInvalid, errUnsupported)
	errOvertaken = fmt.Errorf("%w: another patch was logged at the same time, and this one is skipped; look again and make it anew", store.ErrConflict)
	errReordered = fmt.Errorf("%w: the wrapped service gives the session's events in another order than the patch's author saw them; look again and make it anew", store.ErrConflict)
)

// patching calls log for a session as it is in the base, which must be the one of the view.
func (b *baseStorage) patching(ctx context.Context, key store.Key, on fold.View, plan func(*baseLog) ([]*patch.PatchEvent, error)) (out store.Committed, err error) {
	err = b.with(ctx, key, whole, func(l *baseLog) error {
		out.Records, err = b.log(ctx, l, func() ([]*patch.PatchEvent, error) {
			if err := l.is(on.Creation()); err != nil {
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
func (b *baseStorage) ApplyPatch(ctx context.Context, key store.Key, opts store.PatchOptions, patches ...*patch.PatchEvent) (store.Committed, error) {
	patches, err := completed(patches...)
	if err != nil {
		return store.Committed{}, err
	}
	return b.patching(ctx, key, opts.On, func(l *baseLog) ([]*patch.PatchEvent, error) {
		drafted, _, err := l.draft(opts, patches)
		return drafted, err
	})
}

// Preview drafts the patches.
func (b *baseStorage) Preview(ctx context.Context, key store.Key, opts store.PatchOptions, patches ...*patch.PatchEvent) (out store.Preview, err error) {
	if patches, err = completed(patches...); err != nil {
		return out, err
	}
	err = b.with(ctx, key, whole, func(l *baseLog) error {
		if err := l.is(opts.On.Creation()); err != nil {
			return err
		}
		drafted, after, err := l.draft(opts, patches)
		if err == nil {
			out = store.Preview{Difference: l.view.Diff(after), Patches: drafted}
		}
		return err
	})
	return out, err
}

// Revert appends an event that carries reverts.
func (b *baseStorage) Revert(ctx context.Context, key store.Key, opts store.UndoOptions, patchID string) (store.Committed, error) {
	return b.patching(ctx, key, opts.On, func(l *baseLog) ([]*patch.PatchEvent, error) {
		return l.draftUndo(opts, fold.CheckOptions{AllowOrphans: opts.AllowOrphans}, func() (patches []*patch.PatchEvent, err error) {
			ids, err := l.view.Standing(patchID)
			for _, id := range ids {
				patches = append(patches, patch.NewRevert(id))
			}
			return patches, err
		})
	})
}

// Rewind appends an event that carries the patches of a rewind.
func (b *baseStorage) Rewind(ctx context.Context, key store.Key, opts store.UndoOptions, invocationID string) (store.Committed, error) {
	if invocationID == "" {
		return store.Committed{}, fmt.Errorf("%w: the invocation to rewind to has no id", patch.ErrInvalid)
	}
	return b.patching(ctx, key, opts.On, func(l *baseLog) ([]*patch.PatchEvent, error) {
		return l.draftUndo(opts, fold.CheckOptions{AllowOrphans: true, AllowPinned: true}, func() ([]*patch.PatchEvent, error) {
			for _, r := range l.records {
				if r.Event != nil && r.Event.InvocationID() == invocationID {
					return l.view.Rewind(r.Seq)
				}
			}
			return nil, fmt.Errorf("session %s: %w: no event belongs to invocation %q", key, fold.ErrEventNotFound, invocationID)
		})
	})
}

// completed gives patches ids and times.
func completed(patches ...*patch.PatchEvent) ([]*patch.PatchEvent, error) {
	out := make([]*patch.PatchEvent, len(patches))
	now, seen := time.Now(), map[string]bool{}
	for i, p := range patches {
		switch {
		case p == nil:
			return nil, fmt.Errorf("%w: patch %d of the call is nil", patch.ErrInvalid, i)
		case p.Type() == patch.Erase:
			return nil, errNoErase
		}
		r := patch.Complete(patch.Record{Patch: p}, uuid.NewString, now)
		for id := range r.IDs() {
			if seen[id] {
				return nil, &store.DuplicateIDError{ID: id}
			}
			seen[id] = true
		}
		out[i] = r.Patch
	}
	return out, nil
}

// draft judges patches on the session, as a store does: a call's own patches count as seen. If all
// are there already, they are returned.
func (l *baseLog) draft(opts store.PatchOptions, patches []*patch.PatchEvent) (drafted []*patch.PatchEvent, after fold.View, err error) {
	present := 0
	for _, p := range patches {
		for id := range (patch.Record{Patch: p}).IDs() {
			at := l.ids[id]
			if at == 0 {
				continue
			}
			if id != p.ID() || !patch.Same(l.records[at-1], patch.Record{Patch: p}) {
				return nil, l.view, &store.DuplicateIDError{ID: id, Seq: at}
			}
			present++
			break
		}
	}
	switch present {
	case len(patches):
		return patches, l.view, nil
	case 0:
	default:
		return nil, l.view, &store.DuplicateIDError{ID: patches[0].ID(), Seq: l.ids[patches[0].ID()]}
	}
	for i, p := range patches {
		_, hasBase := p.Base()
		if !hasBase && p.Validate() == nil && opts.On.Creation() != "" {
			if err := l.saw(opts.On); err != nil {
				return nil, l.view, err
			}
			base := opts.On.PatchSeq()
			if i > 0 {
				base = l.view.Seq() + uint64(i)
			}
			p = p.WithBase(base)
		}
		drafted = append(drafted, p)
	}
	after, err = l.judge(drafted, fold.CheckOptions{AllowOrphans: opts.AllowOrphans, AllowPinned: opts.AllowPinned, HideWaiting: opts.HideWaiting, AsOfNow: opts.AsOfNow})
	return drafted, after, err
}

// saw reports whether the author of a patch, who has seen a view, has seen all patches that there are,
// and the events in the order in which they are.
func (l *baseLog) saw(on fold.View) error {
	switch {
	case on.Creation() == "":
		return nil
	case on.PatchSeq() < l.view.PatchSeq():
		return &fold.ConflictError{Base: on.PatchSeq(), Newest: l.view.PatchSeq()}
	case on.PatchSeq() > l.view.PatchSeq() || on.Len() > l.view.Len():
		return errReordered
	}
	for i, e := range on.Events() {
		if l.view.At(i).ID() != e.ID() {
			return errReordered
		}
	}
	return nil
}

// judge returns the view after patches that may be logged together.
func (l *baseLog) judge(patches []*patch.PatchEvent, opts fold.CheckOptions) (fold.View, error) {
	after, err := l.whole().Preview(patches, opts)
	for _, p := range patches {
		if err == nil && p.Group() != "" && l.ids[groupID(p.Group())] != 0 {
			err = &patch.FieldError{Field: "group", Problem: fmt.Sprintf("the log holds group %q already; take an id of your own", p.Group())}
		}
	}
	return after, err
}

// draftUndo drafts patches that take something back, as one group.
func (l *baseLog) draftUndo(opts store.UndoOptions, check fold.CheckOptions, plan func() ([]*patch.PatchEvent, error)) ([]*patch.PatchEvent, error) {
	if err := l.saw(opts.On); err != nil {
		return nil, err
	}
	patches, err := plan()
	if err != nil || len(patches) == 0 {
		return nil, err
	}
	group := ""
	if len(patches) > 1 {
		group = uuid.NewString()
	}
	base := l.view.PatchSeq()
	for i, p := range patches {
		if opts.Author != "" {
			p = p.WithAuthor(opts.Author)
		}
		patches[i] = p.WithBase(base).WithGroup(group)
		base = l.view.Seq() + 1 + uint64(i)
	}
	if patches, err = completed(patches...); err != nil {
		return nil, err
	}
	_, err = l.judge(patches, check)
	return patches, err
}

// patchEvent returns the event that carries patches which apply to the session. Its time is after
// that of all events, and before what comes next. Its author is the user, since ADK takes the author
// of the newest event that is not the user's for the agent to go on with.
func (l *baseLog) patchEvent(ctx context.Context, id string, patches []*patch.PatchEvent) (*session.Event, item, error) {
	said, err := portable.New(l.whole(), patches...)
	if err != nil {
		return nil, item{}, err
	}
	text, err := said.Text()
	if err != nil {
		return nil, item{}, err
	}
	if len(text) > store.DefaultMaxRecordBytes {
		return nil, item{}, fmt.Errorf("%w: patch %q takes %d bytes; the limit is %d", store.ErrTooLarge, patches[0].ID(), len(text), store.DefaultMaxRecordBytes)
	}
	at := l.newest
	if at.IsZero() {
		at = platform.Now(ctx)
	}
	e := &session.Event{
		ID: id, InvocationID: id, Author: userAuthor, Timestamp: at.Truncate(time.Microsecond).Add(time.Microsecond),
		LLMResponse: model.LLMResponse{CustomMetadata: map[string]any{portable.MetadataKey: text}},
		Actions:     session.EventActions{StateDelta: map[string]any{}},
	}
	for _, p := range patches {
		for _, one := range p.NewEvents() {
			for c := range one.SharedChanges() {
				e.Actions.StateDelta[c.Key] = c.Value.Any()
			}
		}
	}
	return e, item{patches: &said}, nil
}
