package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// A patch that stands is freed by reverting what the errors name, group by group, in no more calls
// than there are patches. (Taking back a rewind makes those stand again that it had taken back.)
func TestLawRevertWhatErrorsName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(t, &memory.Backend{}, store.Options{Snapshots: snapshot.Policy{Every: -1}})
		defer s.Close()
		l := &revertLaw{t, s, 0}
		must(t)(s.Create(ctx, key, nil))
		for range rapid.IntRange(2, 14).Draw(t, "steps") {
			l.step()
		}
		if ids := l.standing(); len(ids) > 0 {
			l.free(rapid.SampledFrom(ids).Draw(t, "patch to take back"))
		}
	})
}

// An error names the patch that is in the way, not a member of the group that made it stand again:
// taking that back would repeat the rewind.
func TestRevertAfterARewindWasTakenBack(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.append(turn(2)...)
		e.apply(patch.NewSummarise(0, 8, summary("s")).WithID("p"))
		e.apply(patch.NewSplice(0, 1).WithID("q"))
		rewound, err := e.store.Rewind(ctx, key, store.UndoOptions{}, "inv2")
		e.no(err)
		e.must(e.store.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, rewound.Records[0].ID()))
		_, err = e.store.Revert(ctx, key, store.UndoOptions{}, "p")
		e.is(err, fold.ErrBlocked)
		if blocked := as[*fold.BlockedError](e, err); blocked.Blocking != "q" {
			e.Errorf("blocked by %+v", blocked)
		}
		for _, id := range []string{"q", "p"} {
			e.must(e.store.Revert(ctx, key, store.UndoOptions{}, id))
		}
		e.same("visible", ids(e.view()), "q1 c1 r1 a1 q2 c2 r2 a2")
	})
}

type revertLaw struct {
	*rapid.T
	store *store.Store
	n     int // for ids
}

// step makes one call, which may be refused.
func (l *revertLaw) step() {
	v := viewOf(l, l.store, key)
	l.n++
	var err error
	switch kind := rapid.IntRange(0, 9).Draw(l.T, "kind"); {
	case kind < 2 || v.Len() == 0:
		for i := range rapid.IntRange(1, 3).Draw(l.T, "events") {
			e := event(`{"id":"e%d.%d","invocationId":"inv%d","author":"user","timestamp":"2025-11-20T10:30:00Z"}`, l.n, i, l.n)
			must(l)(l.store.AppendEvents(ctx, key, store.AppendOptions{}, e))
		}
	case kind < 5:
		patches := []*patch.PatchEvent{l.patch(v.Len(), 0)}
		if rapid.Bool().Draw(l.T, "two") {
			patches = append(patches, l.patch(v.Len(), 1))
			patches[0], patches[1] = patches[0].WithGroup(fmt.Sprint("g", l.n)), patches[1].WithGroup(fmt.Sprint("g", l.n))
		}
		_, err = l.store.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true, AllowOrphans: true, AllowPinned: true}, patches...)
	case kind < 8:
		if all := l.patches(); len(all) > 0 {
			err = l.revert(rapid.SampledFrom(all).Draw(l.T, "patch").ID())
		}
	default:
		_, err = l.store.Rewind(ctx, key, store.UndoOptions{}, fmt.Sprint("inv", rapid.IntRange(1, l.n).Draw(l.T, "invocation")))
	}
	var blocked *fold.BlockedError
	if err != nil && !errors.As(err, &blocked) && !errors.Is(err, fold.ErrOutOfRange) && !errors.Is(err, fold.ErrEventNotFound) {
		l.Fatalf("%v\n%s", err, l.log())
	}
}

// patch draws a patch of a visible log of n events.
func (l *revertLaw) patch(n, i int) *patch.PatchEvent {
	id := fmt.Sprintf("p%d.%d", l.n, i)
	first := rapid.IntRange(0, n-1).Draw(l.T, "first")
	count := rapid.IntRange(1, min(3, n-first)).Draw(l.T, "count")
	var p *patch.PatchEvent
	switch rapid.IntRange(0, 5).Draw(l.T, "patch") {
	case 0, 1:
		p = patch.NewSummarise(first, count, summary("s"+id))
	case 2:
		p = patch.NewSplice(first, 0, event(`{"id":"r%s","author":"user"}`, id))
	case 3:
		p = patch.NewSplice(first, count, event(`{"id":"a%s","author":"user"}`, id), event(`{"id":"b%s","author":"user"}`, id))
	case 4:
		v := viewOf(l, l.store, key)
		p = patch.NewPin(v.At(first).ID())
		if rapid.Bool().Draw(l.T, "unpin") {
			p = patch.NewUnpin(v.At(first).ID())
		}
	default:
		p = patch.NewSplice(first, count)
	}
	return p.WithID(id)
}

func (l *revertLaw) revert(id string) error {
	_, err := l.store.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, id)
	return err
}

// patches returns the log's patches.
func (l *revertLaw) patches() (all []*patch.PatchEvent) {
	for r, err := range l.store.RawEvents(ctx, key, 1) {
		no(l, err)
		if r.Patch != nil {
			all = append(all, r.Patch)
		}
	}
	return all
}

// standing returns the ids of the patches that stand, reverts apart.
func (l *revertLaw) standing() (ids []string) {
	undone := map[string]bool{}
	for _, p := range slices.Backward(l.patches()) {
		switch {
		case undone[p.ID()]:
		case p.Type() == patch.Revert:
			undone[p.PatchID()] = true
		default:
			ids = append(ids, p.ID())
		}
	}
	return ids
}

// free takes a patch back, and first what is named as in the way, and so on.
func (l *revertLaw) free(id string) {
	calls, most := 0, 0
	for _, p := range l.patches() {
		if p.Type() != patch.Revert {
			most++
		}
	}
	var said []string
	for next := id; slices.Contains(l.standing(), id); {
		err := l.revert(next)
		var blocked *fold.BlockedError
		said = append(said, fmt.Sprintf("%q: %v", next, err))
		switch {
		case err == nil && calls < most:
			calls, next = calls+1, id
		case !errors.As(err, &blocked) || blocked.TakenBack || len(said) > 100:
			l.Fatalf("to free %q, with %d patches at first:\n%s\n%s", id, most, strings.Join(said, "\n"), l.log())
		default:
			next = blocked.Blocking
		}
	}
}

func (l *revertLaw) log() (text string) {
	for r, err := range l.store.RawEvents(ctx, key, 1) {
		no(l, err)
		text += fmt.Sprintln(r)
	}
	return text
}
