package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// turn returns an invocation's events: what the user says, a call, its response, which
// sets the key last, and an answer.
func turn(n int) []*patch.Event {
	inv := fmt.Sprint("inv", n)
	return []*patch.Event{
		event(`{"id":"q%d","invocationId":%q,"author":"user","content":{"role":"user","parts":[{"text":"?"}]}}`, n, inv),
		call(fmt.Sprint("c", n), inv, fmt.Sprint("call", n)),
		event(`{"id":"r%d","invocationId":%q,"author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"call%d","name":"tool"}}]},"actions":{"stateDelta":{"last":%d}}}`, n, inv, n, n),
		event(`{"id":"a%d","invocationId":%q,"author":"agent","content":{"role":"model","parts":[{"text":"!"}]}}`, n, inv),
	}
}

// What a revert needs and cannot read is a failure to read: nothing is written, and no
// view leaves the revert out.
func TestRevertOfUnreadableRecords(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		e.apply(patch.NewSplice(0, 2).WithID("p1"))
		e.append(says("b", 2)...)
		stored := e.dump()
		whole := e.backend.Backend
		e.backend.Backend = &onRead{whole, func(context.Context, func() ([]backend.Record, error)) ([]backend.Record, error) {
			return nil, errors.New("no such sector")
		}}
		_, err := e.store.Revert(ctx, key, store.UndoOptions{}, "p1")
		e.backend.Backend = whole
		if err == nil || !strings.Contains(err.Error(), "no such sector") {
			e.Errorf("reverted what cannot be read: %v", err)
		}
		e.same("stored", e.dump(), stored)
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p1"))
		e.same("visible", ids(e.view()), "a1 a2 a3 a4 b1 b2")
	})
}

func TestRewind(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"last": 0})
		for n := range 4 {
			e.append(turn(n + 1)...)
		}
		e.apply(patch.NewSummarise(0, 4, summary("s1")).WithID("p1"))       // older than the rewind
		e.apply(patch.NewSummarise(1, 8, summary("s2")).WithID("p2"))       // across
		e.append(event(`{"id":"x","invocationId":"inv3","author":"user"}`)) // inv3 goes on
		e.append(event(`{"id":"y","invocationId":"inv5","author":"user"}`), call("z", "inv5", "open"))
		before := e.view()

		preview, err := e.store.PreviewRewind(ctx, key, store.UndoOptions{}, "inv3")
		e.no(err)
		e.same("previewed", ids(preview.After), "s1 q2 c2 r2 a2")
		e.same("visible after a preview", ids(e.view()), ids(before))

		_, err = e.store.Rewind(ctx, key, store.UndoOptions{}, "inv9")
		e.is(err, fold.ErrEventNotFound, "inv9", key.String())
		_, err = e.store.Rewind(ctx, key, store.UndoOptions{}, "")
		e.is(err, store.ErrInvalid)
		_, err = e.store.Rewind(ctx, elsewhere, store.UndoOptions{}, "inv3")
		e.is(err, store.ErrNotFound)
		older, err := e.store.ViewAt(ctx, key, 17)
		e.no(err)
		_, err = e.store.Rewind(ctx, key, store.UndoOptions{On: older}, "inv3")
		e.is(err, store.ErrConflict, "17", "18")

		c, err := e.store.Rewind(ctx, key, store.UndoOptions{On: before, Author: "ann"}, "inv3")
		e.no(err)
		e.same("visible", ids(e.view()), "s1 q2 c2 r2 a2")
		e.same("state", e.state(), `{"last":2}`)
		if len(c.Records) != len(preview.Patches) || c.View.Seq() != e.view().Seq() {
			e.Errorf("%d patches at seq %d, previewed were %d", len(c.Records), c.View.Seq(), len(preview.Patches))
		}
		seen := before.PatchSeq()
		for _, r := range c.Records {
			if base, ok := r.Patch.Base(); !ok || base != seen || r.Patch.Author() != "ann" {
				e.Errorf("logged %v, want base %d", r, seen)
			}
			seen = r.Seq
		}
		e.reopen()
		e.same("visible", ids(e.view()), "s1 q2 c2 r2 a2")
		again, err := e.store.Rewind(ctx, key, store.UndoOptions{}, "inv3")
		e.no(err)
		if len(again.Records) > 0 || again.View.Seq() != c.View.Seq() {
			e.Errorf("a second rewind logs %v", again.Records)
		}
		back, err := e.store.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, c.Records[0].ID())
		e.no(err)
		if len(back.Records) != len(c.Records) {
			e.Errorf("%d patches are taken back with %d", len(c.Records), len(back.Records))
		}
		e.same("taken back", ids(e.view()), ids(before))
	})
}

// A fork ends where it is asked to, shares what other sessions of the user share now, and goes its own way.
func TestFork(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"last": 0, "app:x": 1})
		e.append(turn(1)...)
		e.apply(patch.NewSummarise(0, 4, summary("s1")).WithID("p1")) // record 5
		at, five, none, beyond := e.view(), uint64(5), uint64(0), uint64(99)
		e.append(sets("t", `{"app:x":3}`))
		session, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{At: &five})
		e.no(err)
		e.same("the fork", withoutCreation(e.viewText(session.View)), withoutCreation(e.viewText(at)))
		if x, _ := session.Value("app:x"); fmt.Sprint(x) != "3" || session.View.Creation() == at.Creation() || session.Key != forkKey {
			e.Errorf("the fork is %s, created as %s, with app:x %v", session.Key, session.View.Creation(), x)
		}
		for _, c := range []struct {
			from, to store.Key
			opts     store.ForkOptions
			want     error
		}{
			{key, forkKey, store.ForkOptions{}, store.ErrExists}, {key, key, store.ForkOptions{}, store.ErrExists},
			{elsewhere, store.Key{App: "a", User: "b", Session: "c"}, store.ForkOptions{}, store.ErrNotFound},
			{key, elsewhere, store.ForkOptions{At: &beyond}, store.ErrNotFound},
			{key, store.Key{}, store.ForkOptions{}, store.ErrInvalid}, {store.Key{}, elsewhere, store.ForkOptions{}, store.ErrInvalid},
		} {
			_, err := e.store.Fork(ctx, c.from, c.to, c.opts)
			e.is(err, c.want)
		}
		whole := e.viewText(e.view())
		e.must(e.store.Revert(ctx, forkKey, store.UndoOptions{}, "p1"))
		e.must(e.store.AppendEvents(ctx, forkKey, store.AppendOptions{}, sets("t", `{}`))) // an id of the other's
		e.same("the session after changes of its fork", e.viewText(e.view()), whole)
		e.no(e.store.Delete(ctx, key))
		e.same("the fork without its origin", ids(viewOf(e, e.store, forkKey)), "q1 c1 r1 a1 t")
		e.must(e.store.Fork(ctx, forkKey, key, store.ForkOptions{At: &none}))
		if v := e.view(); v.Seq() != 0 || fmt.Sprint(v.State()) != "map[last:0]" {
			e.Errorf("a fork at 0: seq %d, %v", v.Seq(), v.State())
		}
	})
}

// window logs a group that is cut in two places of a session of three turns, and returns
// what it logged.
func (e *env) window() store.Committed {
	e.Helper()
	for n := range 3 {
		e.append(turn(n + 1)...)
	}
	return e.apply(
		patch.NewSummarise(4, 4, summary("s2")).WithID("w1").WithGroup("w"),
		patch.NewSplice(0, 4).WithState(patch.Keep).WithID("w2").WithGroup("w"))
}

// Taking back any patch of a group takes back the group, in one commit; so does taking that
// back, and half of one that was redone alone.
func TestRevertOfGroup(t *testing.T) {
	for _, policy := range []snapshot.Policy{{Every: -1}, eager} {
		onEachWith(t, store.Options{Snapshots: policy}, func(e *env) {
			e.create(map[string]any{"last": 0})
			e.window()
			cut := ids(e.view())
			e.same("visible", cut, "s2 q3 c3 r3 a3")
			whole := "q1 c1 r1 a1 q2 c2 r2 a2 q3 c3 r3 a3"
			e.reopen()
			back, err := e.store.Revert(ctx, key, store.UndoOptions{Author: "ann"}, "w1")
			e.no(err)
			e.same("taken back", ids(back.View), whole)
			e.same("the state", e.state(), `{"last":3}`)
			if len(back.Records) != 2 || back.Records[0].Patch.PatchID() != "w2" || back.Records[1].Patch.PatchID() != "w1" {
				e.Errorf("logged %v", back.Records)
			}
			group := back.Records[0].Patch.Group()
			for _, r := range back.Records {
				if r.Patch.Author() != "ann" || r.Patch.Group() != group || group == "" {
					e.Errorf("logged %v", r)
				}
			}
			_, err = e.store.Revert(ctx, key, store.UndoOptions{}, "w2")
			e.is(err, fold.ErrBlocked, "taken back already")
			e.reopen()
			redo, err := e.store.Revert(ctx, key, store.UndoOptions{}, back.Records[1].ID())
			e.no(err)
			e.same("done again", ids(redo.View), cut)
			// One of the two by hand: the call then takes back the other.
			e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{AllowOrphans: true}, patch.NewRevert("w2")))
			e.same("half of it", ids(e.view()), "q1 c1 r1 a1 s2 q3 c3 r3 a3")
			e.reopen()
			rest, err := e.store.Revert(ctx, key, store.UndoOptions{}, "w2")
			e.no(err)
			e.same("the rest", ids(rest.View), whole)
			if len(rest.Records) != 1 || rest.Records[0].Patch.PatchID() != "w1" || rest.Records[0].Patch.Group() != "" {
				e.Errorf("logged %v", rest.Records)
			}
		})
	}
}

// Whether a group's revert splits calls is judged for all of it.
func TestRevertOfGroupIsJudgedAsOne(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.apply(patch.NewSplice(2, 1).WithID("a").WithGroup("g"), patch.NewSplice(1, 1).WithID("b").WithGroup("g"))
		_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewRevert("b"))
		e.no(err) // a call that comes back open
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewRevert("a")))
		e.apply(patch.NewSplice(2, 1).WithID("c").WithGroup("h"), patch.NewSplice(1, 1).WithID("d").WithGroup("h"))
		e.append(event(`{"id":"late","invocationId":"inv1","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"call1","name":"tool"}}]}}`))
		preview, err := e.store.PreviewRevert(ctx, key, store.UndoOptions{}, "c")
		e.no(err)
		back, err := e.store.Revert(ctx, key, store.UndoOptions{}, "c")
		e.no(err)
		e.same("visible", ids(back.View), "q1 c1 r1 a1 late")
		e.same("previewed", ids(preview.After), ids(back.View))
		if len(preview.Patches) != 2 || visibleIDs(preview.Added) != "c1 r1" || len(preview.Removed) > 0 || preview.First != 1 {
			e.Errorf("previewed %+v", preview)
		}
	})
}

// A group is its author's: the log takes no second one of that id, in whatever call, and a
// retry of the first is one.
func TestGroupIsNew(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(nil)
		done := e.window()
		stored := e.dump()
		for _, again := range []bool{false, true} {
			if again {
				e.reopen()
			}
			_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: e.view()}, patch.NewSplice(0, 1).WithGroup("w"))
			e.is(err, store.ErrInvalid, "group", "w")
			_, err = e.store.Preview(ctx, key, store.PatchOptions{On: e.view()}, patch.NewPin("s2").WithGroup("w"))
			e.is(err, store.ErrInvalid, "group", "w")
			retry, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{}, done.Records[0].Patch, done.Records[1].Patch)
			e.no(err)
			if len(retry.Records) != 2 || retry.Records[1].Seq != done.Records[1].Seq {
				e.Errorf("a retry gives %v", retry.Records)
			}
			e.same("stored", e.dump(), stored)
		}
		// An event's id is no group's.
		e.append(event(`{"id":"g","author":"user"}`))
		e.apply(patch.NewPin("s2").WithGroup("g"))
	})
}

// slow is a backend whose reads of single records, and of pages, wait until they are let
// go.
type slow struct {
	backend.Backend
	reading chan struct{} // a read has begun
	free    chan struct{}
	reads   int
}

func (s *slow) wait(ctx context.Context) error {
	s.reads++
	select {
	case s.reading <- struct{}{}:
	default:
	}
	select {
	case <-s.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slow) Read(ctx context.Context, name, creation string, seqs []uint64, most int) ([]backend.Record, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Backend.Read(ctx, name, creation, seqs, most)
}

// What a revert needs is read under its caller's context, while others write: it ends with
// the context before it reads another record, with nothing written.
func TestRevertReadsOutsideTheLock(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.create(nil)
		e.append(says("a", 1500)...)
		e.apply(patch.NewSplice(0, 1400).WithID("p"))
		whole := e.backend.Backend
		s := &slow{Backend: whole, reading: make(chan struct{}, 1), free: make(chan struct{})}
		e.backend.Backend = s
		short, cancel := context.WithCancel(ctx)
		result := make(chan error)
		revert := func(ctx context.Context) {
			_, err := e.store.Revert(ctx, key, store.UndoOptions{}, "p")
			result <- err
		}
		go revert(short)
		<-s.reading
		e.append(say("meanwhile")) // nobody waits for the revert
		cancel()
		e.is(<-result, context.Canceled)
		if s.reads != 1 {
			e.Errorf("%d reads after the context had ended", s.reads-1)
		}
		e.backend.Backend = whole
		if records := e.records(key); len(records) != 1502 || records[1501].ID() != "meanwhile" {
			e.Errorf("a cancelled revert has written: %d records", len(records))
		}
		e.backend.Backend = s
		go revert(ctx)
		<-s.reading
		e.append(say("and again"))
		close(s.free)
		e.no(<-result)
		v := e.view()
		if v.Len() != 1502 || v.At(0).ID() != "a1" || v.At(1501).ID() != "and again" {
			e.Errorf("%d visible", v.Len())
		}
		e.backend.Backend = whole
	})
}

// In a session that was read from a snapshot, a revert reads what comes back, and not the log.
func TestRevertAfterSnapshot(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"k": 1})
		e.append(says("a", 700)...)
		e.apply(patch.NewSplice(0, 600).WithID("p"))
		e.append(says("b", 20)...)
		e.reopen()
		e.view()
		whole := e.backend.Backend
		read := 0
		e.backend.Backend = &onRead{whole, func(_ context.Context, next func() ([]backend.Record, error)) ([]backend.Record, error) {
			records, err := next()
			read += len(records)
			return records, err
		}}
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p"))
		if read > 600 {
			e.Errorf("%d records were read, 600 come back", read)
		}
		if v := e.view(); !strings.HasSuffix(ids(v), "b20") || v.Len() != 720 {
			e.Errorf("%d visible, up to %s", v.Len(), v.At(v.Len()-1).ID())
		}
		e.backend.Backend = whole
	})
}

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
		testlog.NoError(l, err)
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
		testlog.NoError(l, err)
		text += fmt.Sprintln(r)
	}
	return text
}
