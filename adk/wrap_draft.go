package adk

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// drafted are patches on a view, judged.
type drafted struct {
	on      fold.View
	patches []*patch.PatchEvent
	after   fold.View
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
		if lacksBase(p) {
			base := seen
			if i > 0 {
				base = v.Seq() + uint64(i)
			}
			p = p.WithBase(base)
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
	return slices.EqualFunc(a.NewEvents(), b.NewEvents(), func(x, y *patch.Event) bool { return x.ID() == y.ID() })
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

// lacksBase reports whether the patch says nothing of its base, so that the view's may be filled in.
// A malformed base says something, and [patch.PatchEvent.Validate] refuses it.
func lacksBase(p *patch.PatchEvent) bool {
	_, ok := p.Base()
	text, _ := p.Field("base")
	return !ok && (text == nil || string(text) == "null")
}
