package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// changing is an action that logs patches: patches of selected events, a revert or a rewind.
type changing struct {
	i *Inspector
	a *asked
}

func newChange(i *Inspector, a *asked) deed { return changing{i, a} }

// change returns the operation, and the id of the patch or of the invocation that it is about.
func (d changing) change(ctx context.Context) (ops.Change, string, error) {
	back := store.BackOptions{Author: d.a.author, AllowOrphans: d.a.orphans}
	switch d.a.act {
	case "revert":
		id, err := d.id(ctx)
		return ops.Revert{PatchID: id, Options: back}, id, err
	case "rewind":
		id, err := d.id(ctx)
		return ops.Rewind{InvocationID: id, Options: back}, id, err
	}
	return ops.Patches{Plan: d.a.patches, Options: store.PatchOptions{AllowOrphans: d.a.orphans, AllowPinned: d.a.pinned}}, "", nil
}

func (d changing) preview(ctx context.Context, v fold.View, b *actBody) error {
	c, _, err := d.change(ctx)
	if err != nil {
		return err
	}
	would, err := c.Preview(ctx, d.i.store, d.a.key, v)
	if err != nil {
		return err
	}
	if len(would.Patches) == 0 {
		b.notice("Nothing is left of what came since, so that there is nothing to do.")
		return nil
	}
	b.would(ops.Explain(would), would)
	if d.a.orphans {
		b.notice("Split calls are accepted.")
	}
	if d.a.pinned {
		b.notice("Pinned events may be hidden.")
	}
	b.Forms = append(b.Forms, actForm{Button: "Do it", Strong: true, Fields: d.a.fields(stepDo)})
	return nil
}

func (d changing) do(ctx context.Context, v fold.View, b *actBody) error {
	c, id, err := d.change(ctx)
	if err != nil {
		return err
	}
	done, err := c.Apply(ctx, d.i.store, d.a.key, v)
	if errors.Is(err, store.ErrConflict) && id != "" { // patches of selected events have ids, by which a store knows them
		there, lookErr := d.already(ctx, v, id)
		if lookErr != nil {
			return lookErr
		}
		if len(there) > 0 {
			b.notice("This was done already: the log has what it comes to. Nothing more was written.")
			return d.i.showDone(ctx, d.a, b, there)
		}
	}
	if err != nil {
		return err
	}
	return d.i.showDone(ctx, d.a, b, done.Records)
}

// id is the id of the patch to take back, or of the invocation to rewind to.
func (d changing) id(ctx context.Context) (string, error) {
	r, err := d.i.actRecord(ctx, d.a)
	switch {
	case err != nil:
		return "", err
	case d.a.act == "revert" && r.Patch == nil:
		return "", &unfit{text: fmt.Sprintf("Record %d is an event, and only patches can be taken back. Cut the event out instead.", r.Seq)}
	case d.a.act == "revert":
		return r.ID(), nil
	case r.Event == nil || r.Event.InvocationID() == "":
		return "", &unfit{text: fmt.Sprintf("Record %d belongs to no invocation, so that there is none to rewind to.", r.Seq)}
	}
	return r.Event.InvocationID(), nil
}

// actRecord is the record that an act is about.
func (i *Inspector) actRecord(ctx context.Context, a *asked) (patch.Record, error) {
	if a.seq == 0 {
		return patch.Record{}, badRequest(fieldSeq, "it is missing; it says which record this is about")
	}
	for r, err := range i.store.RawEvents(ctx, a.key, a.seq) {
		return r, err
	}
	return patch.Record{}, fmt.Errorf("session %s: record %d: %w", a.key, a.seq, store.ErrNotFound)
}

// already are the records by which the same was done, if it is the first that was patched since
// the view.
func (d changing) already(ctx context.Context, v fold.View, id string) ([]patch.Record, error) {
	since, err := d.i.patchesSince(ctx, d.a.key, v.PatchSeq())
	if err != nil || len(since) == 0 {
		return nil, err
	}
	group := since[0].Patch.Group()
	n := 1
	for group != "" && n < len(since) && since[n].Patch.Group() == group {
		n++
	}
	before, err := d.i.store.ViewAt(ctx, d.a.key, since[0].Seq-1)
	if err != nil {
		return nil, err
	}
	planned, err := d.planned(ctx, before, id)
	if err != nil || len(planned) != n {
		return nil, nil // it could not have been done then
	}
	for k, p := range planned {
		if d.a.author != "" {
			p = p.WithAuthor(d.a.author)
		}
		if !patch.Same(since[k], patch.Record{Patch: p.WithGroup(group)}) {
			return nil, nil
		}
	}
	return since[:n], nil
}

// planned are the patches that do it on a view.
func (d changing) planned(ctx context.Context, v fold.View, id string) ([]*patch.PatchEvent, error) {
	if d.a.act == "revert" {
		ids, err := v.Standing(id)
		var patches []*patch.PatchEvent
		for _, id := range ids {
			patches = append(patches, patch.NewRevert(id))
		}
		return patches, err
	}
	for r, err := range d.i.store.RawEvents(ctx, d.a.key, 1) {
		if err != nil {
			return nil, err
		}
		if r.Event != nil && r.Event.InvocationID() == id {
			return v.Rewind(r.Seq)
		}
	}
	return nil, store.ErrEventNotFound
}

// patchesSince are the records of patches above a seq, the first thousand of them.
func (i *Inspector) patchesSince(ctx context.Context, key store.Key, seq uint64) ([]patch.Record, error) {
	var patches []patch.Record
	for r, err := range i.store.RawEvents(ctx, key, seq+1) {
		if err != nil {
			return nil, err
		}
		if r.Patch != nil {
			patches = append(patches, r)
		}
		if len(patches) == 1000 {
			break
		}
	}
	return patches, nil
}

// forking is the deed of a fork.
type forking struct {
	i *Inspector
	a *asked
}

// mayFork reports whether the request may create the session that a fork makes.
func (i *Inspector) mayFork(r *http.Request, a *asked) error {
	if a.act != "fork" || a.to == "" {
		return nil
	}
	key, err := store.ParseKey(a.to)
	if err != nil {
		return err
	}
	if !i.may(r, key, Read) || !i.may(r, key, Write) {
		return fmt.Errorf("session %s: %w: it may not be created by you", key, errForbidden)
	}
	return nil
}

func (d forking) fork(to store.Key) ops.Fork { return ops.Fork{From: d.a.key, To: to, At: &d.a.seq} }

func (d forking) preview(ctx context.Context, v fold.View, b *actBody) error {
	a := d.a
	if a.seq == 0 {
		a.seq = v.Seq()
	}
	suggested := a.to
	if suggested == "" {
		to := a.key
		to.Session = fmt.Sprintf("%s-fork-%d", a.key.Session, a.seq)
		if suggested = to.String(); to.Validate() != nil {
			suggested = ""
		}
	} else {
		key, err := store.ParseKey(a.to)
		if err != nil {
			return err
		}
		switch _, err := d.fork(key).Preview(ctx, d.i.store); {
		case errors.Is(err, store.ErrExists):
			b.Problem = fmt.Sprintf("Session %s is there already. Take another key.", key)
		case err != nil:
			return err
		}
	}
	upTo, err := d.i.store.ViewAt(ctx, a.key, a.seq)
	if err != nil {
		return err
	}
	b.notice("A new session begins with the initial state and the first %s of this one; %s. From there on each goes its own way. Values that sessions share are not copied.",
		present.Counted(upTo.Seq(), "record"), present.Counted(upTo.Len(), "visible event"))
	b.Forms = append(b.Forms, actForm{
		Button: "Do it", Strong: true, Fields: a.fields(stepDo),
		Input: &actInput{Name: fieldTo, Label: "Key of the new session, as app/user/session", Value: suggested},
	})
	return nil
}

func (d forking) do(ctx context.Context, _ fold.View, b *actBody) error {
	a := d.a
	key, err := store.ParseKey(a.to)
	if err != nil {
		return err
	}
	if a.seq == 0 {
		return badRequest(fieldSeq, "it is missing; it says up to which record the fork goes")
	}
	v, err := d.fork(key).Apply(ctx, d.i.store)
	switch {
	case errors.Is(err, store.ErrExists):
		same, lookErr := d.isFork(ctx, key)
		if lookErr != nil {
			return lookErr
		}
		if !same {
			return err
		}
		b.notice("Session %s is there already, and begins with the records of this fork: it was done before. Nothing more was written.", key)
	case err != nil:
		return err
	default:
		b.notice("%s.", d.fork(key).Explain(v))
	}
	b.Heading = "Done: " + a.title
	url, err := query("session", "key", key)
	b.Links = append(b.Links, link{url, "Session " + present.Printable(key.String())})
	return err
}

// isFork reports whether a session begins with the records that a fork would have.
func (d forking) isFork(ctx context.Context, key store.Key) (bool, error) {
	var ids []string
	for r, err := range d.i.store.RawEvents(ctx, key, 1) {
		if err != nil {
			return false, err
		}
		if r.Seq > d.a.seq {
			break
		}
		ids = append(ids, r.ID())
	}
	if uint64(len(ids)) < d.a.seq {
		return false, nil
	}
	for r, err := range d.i.store.RawEvents(ctx, d.a.key, 1) {
		if err != nil {
			return false, err
		}
		if r.Seq > d.a.seq {
			break
		}
		if r.ID() != ids[r.Seq-1] {
			return false, nil
		}
	}
	return true, nil
}
