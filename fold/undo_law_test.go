package fold_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
)

// undoLog is a log to which groups of reverts are added, as a store's method Revert does.
type undoLog struct {
	rapid.TB
	*keeper
	view fold.View
}

func newUndoLog(t rapid.TB, records []patch.Record) *undoLog {
	l := &undoLog{TB: t, keeper: &keeper{t: t, log: records}}
	l.view = l.fold(fold.New("", nil), records)
	return l
}

func (l *undoLog) patches() (all []*patch.PatchEvent) {
	for _, r := range l.log {
		if r.Patch != nil {
			all = append(all, r.Patch)
		}
	}
	return all
}

// active returns the ids of the applied patches that no active revert targets, except receipts.
func (l *undoLog) active() (ids []string) {
	skipped, err := l.view.Skipped()
	if err != nil {
		l.Fatal(err)
	}
	undone := map[string]bool{}
	for _, r := range slices.Backward(l.log) {
		isSkipped := slices.ContainsFunc(skipped, func(s patch.Skip) bool { return s.Seq == r.Seq })
		if r.Patch == nil || isSkipped || undone[r.Patch.ID()] || r.Patch.Type() == patch.Erase {
			continue
		}
		if r.Patch.Type() == patch.Revert {
			undone[r.Patch.PatchID()] = true
		}
		ids = append(ids, r.Patch.ID())
	}
	return ids
}

// add logs patches together. If they are refused, it returns the error.
func (l *undoLog) add(patches ...*patch.PatchEvent) error {
	for i, p := range patches {
		patches[i] = p.WithID(fmt.Sprint("u", len(l.log)+1+i))
		if len(patches) > 1 {
			patches[i] = patches[i].WithGroup(fmt.Sprint("undo", len(l.log)))
		}
	}
	err := l.retry(l.view, func(v fold.View) error {
		_, err := v.Preview(patches, fold.CheckOptions{AllowOrphans: true, AllowPinned: true})
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range patches {
		l.log = append(l.log, patch.Record{Seq: l.view.Seq() + 1, Patch: p})
		l.view = l.fold(l.view, l.log[len(l.log)-1:])
	}
	return nil
}

// revert reverts the active patches of a group. If this is refused, it returns the error.
func (l *undoLog) revert(id string) error {
	ids, err := l.view.RevertTargets(id)
	if err != nil {
		return err
	}
	patches := make([]*patch.PatchEvent, len(ids))
	for i, id := range ids {
		patches[i] = patch.NewRevert(id)
	}
	return l.add(patches...)
}

func (l *undoLog) typeOf(id string) patch.Type {
	for _, p := range l.patches() {
		if p.ID() == id {
			return p.Type()
		}
	}
	return ""
}

// change logs a pin, an unpin, or the records of a revert. The log may refuse them.
func (l *undoLog) change(t *rapid.T) {
	if n := l.view.Len(); n > 0 && rapid.IntRange(0, 4).Draw(t, "pin") == 0 {
		id := l.view.At(rapid.IntRange(0, n-1).Draw(t, "event")).ID()
		p := patch.NewPin(id)
		if rapid.Bool().Draw(t, "unpin") {
			p = patch.NewUnpin(id)
		}
		if err := l.add(p); err != nil && !errors.Is(err, fold.ErrUnknownPatch) {
			l.Fatal(err)
		}
		return
	}
	if all := l.patches(); len(all) > 0 {
		_ = l.revert(rapid.SampledFrom(all).Draw(t, "patch").ID())
	}
}

// followErrors reverts a patch. If an error names another patch, followErrors reverts that patch first. It repeats this
// until the given patch is inactive. It returns the number of successful calls, and the results of all calls.
func (l *undoLog) followErrors(id string, maxCalls int) (calls int, results []string) {
	for next := id; slices.Contains(l.active(), id); {
		err := l.revert(next)
		results = append(results, fmt.Sprintf("%q: %v", next, err))
		var blocked *fold.BlockedError
		switch {
		case err == nil:
			calls, next = calls+1, id
		case !errors.As(err, &blocked) || blocked.AlreadyReverted || blocked.Blocking == next:
			l.Fatalf("reverting %q:\n%s\n%s", id, strings.Join(results, "\n"), fuzz.Text(l.log, nil))
		default:
			next = blocked.Blocking
		}
		if calls > maxCalls || len(results) > 3*maxCalls+3 {
			l.Fatalf("reverting %q, of %d patches:\n%s\n%s", id, maxCalls, strings.Join(results, "\n"), fuzz.Text(l.log, nil))
		}
	}
	return calls, results
}

// A caller can revert any active patch, even a revert, if it first reverts the patches named in errors. The
// number of calls is at most the number of patches. A pin or unpin needs one call.
func TestLawFollowingErrorsReverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newUndoLog(t, fuzz.Records(fuzz.Options{Max: 25, Accepted: true}).Draw(t, "records"))
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			l.change(t)
		}
		ids := l.active()
		if len(ids) == 0 {
			return
		}
		id := rapid.SampledFrom(ids).Draw(t, "patch to revert")
		targets, err := l.view.RevertTargets(id)
		if err != nil {
			t.Fatal(err)
		}
		calls, said := l.followErrors(id, len(l.patches()))
		isPin := func(id string) bool { return l.typeOf(id) == patch.Pin || l.typeOf(id) == patch.Unpin }
		if calls > 1 && !slices.ContainsFunc(targets, func(id string) bool { return !isPin(id) }) {
			t.Fatalf("%d calls to revert a pin:\n%s\n%s", calls, strings.Join(said, "\n"), fuzz.Text(l.log, nil))
		}
	})
}

// If no patch of a group is active, a revert is refused as already reverted. The error names the newest active
// revert of the patch.
func TestLawAlreadyReverted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newUndoLog(t, fuzz.Records(fuzz.Options{Max: 25, Accepted: true}).Draw(t, "records"))
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			l.change(t)
		}
		active := l.active()
		for _, p := range l.patches() {
			isMember := func(q *patch.PatchEvent) bool { return q == p || p.Group() != "" && q.Group() == p.Group() }
			var blocked *fold.BlockedError
			_, err := l.view.RevertTargets(p.ID())
			if errors.Is(err, patch.ErrInvalid) { // the patch was skipped, or is a receipt
				continue
			}
			some := false
			var by *patch.PatchEvent
			for _, q := range l.patches() {
				isActive := slices.Contains(active, q.ID())
				some = some || isMember(q) && isActive
				if q.Type() == patch.Revert && isActive && q.PatchID() == p.ID() {
					by = q
				}
			}
			if refused := errors.As(err, &blocked); refused == some || refused && (!blocked.AlreadyReverted || blocked.PatchID != p.ID() || blocked.Blocking != by.ID() || strings.Contains(err.Error(), "first")) {
				t.Fatalf("reverting %q: %v\n%s", p.ID(), err, fuzz.Text(l.log, nil))
			}
		}
	})
}

// After several interleaved reverts and redos, the error for the inactive splice names the splice's own revert.
func TestFollowingErrorsOfRedoneReverts(t *testing.T) {
	l := newUndoLog(t, []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}})
	for _, p := range []*patch.PatchEvent{
		patch.NewSplice(0, 1), patch.NewRevert("u3"), patch.NewSplice(0, 1), patch.NewRevert("u5"), patch.NewRevert("u4"), patch.NewRevert("u3"),
	} {
		if err := l.add(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"u5", "u3"} {
		want := map[string]fold.BlockedError{
			"u5": {PatchID: "u5", Blocking: "u6", BlockingSeq: 6, AlreadyReverted: true},
			"u3": {PatchID: "u3", Blocking: "u8", BlockingSeq: 8, AlreadyReverted: true},
		}[id]
		var blocked *fold.BlockedError
		for call, err := range map[string]error{"Revert": l.revert(id), "Check": l.check(l.view, patch.NewRevert(id), fold.CheckOptions{})} {
			if !errors.As(err, &blocked) || *blocked != want {
				t.Errorf("%s of %s: %v", call, id, err)
			}
		}
	}
	if calls, _ := l.followErrors("u6", len(l.log)); ids(l.view) != "e2" {
		t.Errorf("after redoing u5 in %d calls: %s", calls, ids(l.view))
	}
}
