package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

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
		p := &paged{Backend: whole}
		e.backend.Backend = p
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p"))
		if p.read > 600 {
			e.Errorf("%d records were read, 600 come back", p.read)
		}
		if v := e.view(); !strings.HasSuffix(ids(v), "b20") || v.Len() != 720 {
			e.Errorf("%d visible, up to %s", v.Len(), v.At(v.Len()-1).ID())
		}
		e.backend.Backend = whole
	})
}

// paged counts the records that are read.
type paged struct {
	backend.Backend
	read int
}

func (p *paged) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	out, err := p.Backend.Read(ctx, name, creation, seqs, maxBytes)
	p.read += len(out)
	return out, err
}
