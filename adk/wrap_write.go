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
	"github.com/patchlog-dev/patchlog/store"
)

const (
	// So often a write is tried again because another writer was faster.
	maxStale = 8

	// For so long the base is asked what became of a write whose caller has gone.
	settleTime = time.Second
)

// Append appends an event to the base.
func (b *based) Append(ctx context.Context, key store.Key, creation string, e *patch.Event, from *session.Event) (store.Committed, error) {
	if _, there := from.Actions.StateDelta[initialKey]; there {
		return store.Committed{}, reserved()
	}
	l, done, err := b.known(ctx, key)
	if err != nil {
		return store.Committed{}, b.missing(ctx, key, err)
	}
	defer done()
	r := patch.Complete(patch.Record{Event: e}, uuid.NewString, time.Now())
	out := copyEvent(from)
	out.ID, out.Timestamp = r.Event.ID(), r.Event.Timestamp()
	if out.CustomMetadata[carrierKey] != nil && carrierOf(out) != nil {
		return store.Committed{}, &patch.FieldError{Field: "customMetadata/" + carrierKey, Problem: "this key is patchlog's own; take another"}
	}
	committed := store.Committed{Records: []patch.Record{r}}
	err = b.write(ctx, l, func() (*session.Event, item, error) {
		if err := l.is(creation); err != nil {
			return nil, item{}, err
		}
		if at := l.seqOf(r.ID()); at != 0 {
			there := l.own.records[at-1]
			if !isRetry(there, r) {
				return nil, item{}, &store.DuplicateIDError{ID: r.ID(), Seq: at}
			}
			return nil, item{}, nil
		}
		return out, item{id: r.ID(), eventID: r.ID(), event: r.Event}, nil
	})
	if at := l.seqOf(r.ID()); err == nil && at != 0 {
		committed.Records[0] = l.own.records[at-1]
	}
	committed.View = l.own.view
	return committed, err
}

// isRetry reports whether a record offers what is there. A base may have cut off the time's
// end, and fields that it does not know.
func isRetry(there, offered patch.Record) bool {
	if there.Event == nil || there.ID() != offered.ID() {
		return false
	}
	a, b := there.Event, offered.Event
	return patch.Same(there, offered) || a.Author() == b.Author() && a.InvocationID() == b.InvocationID() && a.Branch() == b.Branch() &&
		a.Timestamp().Truncate(time.Microsecond).Equal(b.Timestamp().Truncate(time.Microsecond))
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
		err = b.service.AppendEvent(ctx, l.base, e)
		if err == nil {
			l.append(it)
			b.warn(l)
			return nil
		}
		if readErr := b.settle(ctx, l); readErr != nil {
			if missing := b.missing(context.WithoutCancel(ctx), l.key, readErr); errors.Is(missing, store.ErrNotFound) {
				return fmt.Errorf("%w: %w", store.ErrNotFound, err)
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
		case l.resembles(events, e): // the base may have given it an id of its own
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
	_, err := b.read(ctx, l)
	return err
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

// resembles reports whether one of the items from the n-th on may be the event.
func (l *line) resembles(n int, e *session.Event) bool {
	for _, it := range l.own.items[min(n, len(l.own.items)):] {
		if it.event != nil && it.event.Author() == e.Author && it.event.InvocationID() == e.InvocationID &&
			it.event.Timestamp().Truncate(time.Microsecond).Equal(e.Timestamp.Truncate(time.Microsecond)) {
			return true
		}
	}
	return false
}

// drafted are patches on a view, judged.
type drafted struct {
	on      fold.View
	patches []*patch.PatchEvent
	after   fold.View
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
func (b *based) Preview(ctx context.Context, key store.Key, opts store.PatchOptions, patches ...*patch.PatchEvent) (store.Preview, error) {
	patches, err := completed(patches)
	if err != nil {
		return store.Preview{}, err
	}
	l, done, err := b.newest(ctx, key)
	if err != nil {
		return store.Preview{}, b.missing(ctx, key, err)
	}
	defer done()
	if err := l.is(opts.On.Creation()); err != nil {
		return store.Preview{}, err
	}
	d, err := l.draft(opts, patches)
	if err != nil {
		return store.Preview{}, err
	}
	return store.Preview{Difference: d.on.Diff(d.after), Patches: d.patches}, nil
}

// ApplyOn is ApplyPatch for authors that know views and patches alone.
func (b *based) ApplyOn(ctx context.Context, key store.Key, on fold.View, opts fold.CheckOptions, patches ...*patch.PatchEvent) (fold.View, error) {
	done, err := b.ApplyPatch(ctx, key, store.PatchOptions{On: on}.With(opts), patches...)
	return done.View, err
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
	l, done, err := b.newest(ctx, key)
	if err != nil {
		return out, b.missing(ctx, key, err)
	}
	defer done()
	var patches []*patch.PatchEvent
	id := uuid.NewString()
	err = b.write(ctx, l, func() (*session.Event, item, error) {
		if l.has(id) { // and another writer has made what it says inapplicable
			return nil, item{}, nil
		}
		if err := l.is(creation); err != nil {
			return nil, item{}, err
		}
		d, err := draft(l)
		if patches = d.patches; err != nil || len(patches) == 0 || l.seqOf(patches[0].ID()) != 0 {
			return nil, item{}, err
		}
		// Behind all that it is about, and no later than what comes next.
		at := l.newestTime()
		if at.IsZero() {
			at = platform.Now(ctx)
		}
		at = at.Truncate(time.Microsecond).Add(time.Microsecond)
		e, err := carry(d.on, id, at, patches)
		if err != nil {
			return nil, item{}, err
		}
		c := carrierOf(e)
		if size := len(e.CustomMetadata[carrierKey].(string)); size > store.DefaultMaxRecordBytes {
			return nil, item{}, fmt.Errorf("%w: patch %q takes %d bytes; the limit is %d", store.ErrTooLarge, patches[0].ID(), size, store.DefaultMaxRecordBytes)
		}
		return e, item{id: id, eventID: id, carrier: c}, nil
	})
	out.View = l.own.view
	if err == nil && slices.ContainsFunc(l.own.left, func(c *carrier) bool { return c.id == id }) {
		return out, &store.ConflictError{Base: l.own.view.PatchSeq() - uint64(len(patches)), Newest: l.own.view.PatchSeq()}
	}
	for _, p := range patches {
		r := patch.Record{Patch: p}
		if at := l.seqOf(p.ID()); at != 0 {
			r = l.own.records[at-1]
		}
		out.Records = append(out.Records, r)
	}
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		out.Records = nil
	}
	return out, err
}

// completed gives patches ids and times.
func completed(patches []*patch.PatchEvent) ([]*patch.PatchEvent, error) {
	out := make([]*patch.PatchEvent, len(patches))
	now := time.Now()
	seen := map[string]bool{}
	for i, p := range patches {
		if p == nil {
			return nil, fmt.Errorf("%w: patch %d of the call is nil", patch.ErrInvalid, i)
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

// draft judges patches on the session as it is known, as a store does: a call's own patches
// count as seen, and those of one group are judged as one. If all are there already, they
// are returned.
func (l *line) draft(opts store.PatchOptions, patches []*patch.PatchEvent) (drafted, error) {
	v := l.own.view
	d := drafted{on: v, after: v}
	there := 0
	for _, p := range patches {
		r := patch.Record{Patch: p}
		for id := range r.IDs() {
			at := l.seqOf(id)
			if at == 0 {
				continue
			}
			if had := l.own.records[at-1]; id != p.ID() || had.Patch == nil || had.Patch.Type() != p.Type() || !sameNew(had.Patch, p) {
				return drafted{}, &store.DuplicateIDError{ID: id, Seq: at}
			}
			if id == p.ID() {
				there++
				break
			}
		}
	}
	switch {
	case there == len(patches):
		d.patches = patches
		return d, nil
	case there > 0:
		return drafted{}, &store.DuplicateIDError{ID: patches[0].ID(), Seq: l.seqOf(patches[0].ID())}
	}
	seen := opts.On.PatchSeq()
	if opts.On.Creation() != "" && opts.On.Creation() != v.Creation() {
		if !l.sawAll(opts.On) {
			return drafted{}, errReordered
		}
		var err error
		if patches, err = moved(patches, opts.On, v); err != nil {
			return drafted{}, err
		}
		seen = v.PatchSeq()
	}
	for i, p := range patches {
		if _, malformed := p.Field("base"); !malformed {
			if _, has := p.Base(); !has {
				base := seen
				if i > 0 {
					base = v.Seq() + uint64(i)
				}
				p = p.WithBase(base)
			}
		}
		d.patches = append(d.patches, p)
	}
	return d.judge(l, fold.CheckOptions{AllowOrphans: opts.AllowOrphans, AllowPinned: opts.AllowPinned, HideWaiting: opts.HideWaiting, AsOfNow: opts.AsOfNow})
}

// errReordered is a conflict between a patch and the order in which a base gives events.
var errReordered = fmt.Errorf("%w: the wrapped service gives the session's events otherwise than the patch's author saw them; look again and make it anew", store.ErrConflict)

// sawAll reports whether the author of a patch, who has seen a view of the epoch before this
// one, has seen all patches that there are.
func (l *line) sawAll(on fold.View) bool {
	if on.Creation() != l.former.view.Creation() || on.Seq() > uint64(len(l.former.records)) {
		return false
	}
	return slices.Equal(patchIDs(l.former.records[:on.Seq()]), patchIDs(l.own.records))
}

func patchIDs(records []patch.Record) (ids []string) {
	for _, r := range records {
		if r.Patch != nil {
			ids = append(ids, r.ID())
		}
	}
	return ids
}

// moved returns patches that were made from one view, one after the other, as they apply to
// another one.
func moved(patches []*patch.PatchEvent, from, to fold.View) ([]*patch.PatchEvent, error) {
	out := make([]*patch.PatchEvent, len(patches))
	for i, p := range patches {
		if err := from.Check(p, fold.CheckOptions{AllowOrphans: true, AllowPinned: true, AsOfNow: true}); err != nil {
			return nil, err
		}
		where, err := placeOf(from, p)
		if err != nil {
			return nil, err
		}
		there, ok := carriedPatch{p, where}.on(to)
		if !ok {
			return nil, errReordered
		}
		if from, err = from.Apply(patch.Record{Seq: from.Seq() + 1, Patch: p}); err != nil {
			return nil, err
		}
		if to, err = to.Apply(patch.Record{Seq: to.Seq() + 1, Patch: there}); err != nil {
			return nil, err
		}
		out[i] = there
	}
	return out, nil
}

// sameNew reports whether two patches put in the same events.
func sameNew(a, b *patch.PatchEvent) bool {
	x, y := a.NewEvents(), b.NewEvents()
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i].ID() != y[i].ID() {
			return false
		}
	}
	return true
}

// judge judges what is drafted.
func (d drafted) judge(l *line, opts fold.CheckOptions) (_ drafted, err error) {
	if d.after, err = d.on.CheckAll(d.patches, opts); err != nil {
		return drafted{}, err
	}
	for _, p := range d.patches {
		if l.hasGroup(p.Group()) {
			return drafted{}, &patch.FieldError{Field: "group", Problem: fmt.Sprintf("the log holds group %q already; take an id of your own", p.Group())}
		}
	}
	return d, nil
}

func (l *line) hasGroup(group string) bool {
	if group == "" {
		return false
	}
	for _, r := range l.own.records {
		if r.Patch != nil && r.Patch.Group() == group {
			return true
		}
	}
	return false
}

// back drafts patches that take something back.
func (l *line) back(opts store.BackOptions, check fold.CheckOptions, plan func(fold.View) ([]*patch.PatchEvent, error)) (drafted, error) {
	v := l.own.view
	on := opts.On
	switch {
	case on.Creation() == "":
	case on.Creation() != v.Creation():
		if !l.sawAll(on) {
			return drafted{}, errReordered
		}
	case on.PatchSeq() < v.PatchSeq():
		return drafted{}, &store.ConflictError{Base: on.PatchSeq(), Newest: v.PatchSeq()}
	}
	patches, err := plan(v)
	if err != nil || len(patches) == 0 {
		return drafted{on: v, after: v}, err
	}
	group := ""
	if len(patches) > 1 {
		group = uuid.NewString()
	}
	base := v.PatchSeq()
	for i, p := range patches {
		if opts.Author != "" {
			p = p.WithAuthor(opts.Author)
		}
		patches[i] = p.WithBase(base).WithGroup(group)
		base = v.Seq() + 1 + uint64(i)
	}
	if patches, err = completed(patches); err != nil {
		return drafted{}, err
	}
	return drafted{on: v, patches: patches}.judge(l, check)
}
