package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// step is a write that can be repeated.
type step struct {
	name string
	do   func(e *env) error
	gone error // error of the repeated call if the first write took effect; nil means success
}

const importedText = `{"patchlog":1,"initialState":{"k":1}}
{"id":"i1"}
{"id":"i2","actions":{"stateDelta":{"app:x":5,"k":2}}}
{"id":"ip","patchType":"splice","start":0,"count":1,"replacement":[{"id":"ir"}]}
`

var steps = []step{
	{"create", func(e *env) error {
		return errOf(e.store.Create(ctx, key, map[string]any{"k": 1, "app:x": 1}, store.CreateOptions{}))
	}, store.ErrExists},
	{"append", func(e *env) error { return e.try(say("a1"), sets("a2", `{"k":2,"user:x":2}`), say("a3"), say("a4")) }, nil},
	{"append one", func(e *env) error {
		five := uint64(4)
		return errOf(e.store.AppendEvents(ctx, key, []*patch.Event{say("a5")}, store.AppendOptions{IfSeq: &five}))
	}, nil},
	{"patch", func(e *env) error {
		return errOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1, sets("r1", `{"app:y":1}`)).WithID("p1").WithBase(0), patch.NewSummarise(1, 2, summary("s1")).WithID("p2").WithBase(0)}, store.PatchOptions{}))
	}, nil},
	{"revert", func(e *env) error {
		return errOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewRevert("p2").WithID("p3").WithBase(7)}, store.PatchOptions{}))
	}, nil},
	{"fork", func(e *env) error {
		return errOf(e.store.Fork(ctx, key, store.Key{App: "app", User: "user", Session: "fork"}, store.ForkOptions{}))
	}, store.ErrExists},
	{"import, created", func(e *env) error { return errOf(e.importInto(elsewhere, importedText, store.ImportOptions{})) }, nil},
	{"import, extended", func(e *env) error {
		return errOf(e.importInto(elsewhere, importedText+`{"id":"i3"}`, store.ImportOptions{}))
	}, nil},
	{"delete", func(e *env) error { return e.store.Delete(ctx, elsewhere) }, store.ErrNotFound},
	{"import, created again", func(e *env) error { return errOf(e.importInto(elsewhere, importedText, store.ImportOptions{})) }, nil},
	{"create, again", func(e *env) error {
		return errOf(e.store.Create(ctx, store.Key{App: "app", User: "user", Session: "third"}, nil, store.CreateOptions{}))
	}, store.ErrExists},
}

// outline returns the contents of the backend as text, without creation ids.
func (e *env) outline() string {
	e.Helper()
	var b strings.Builder
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		fmt.Fprintln(&b, info.Key, info.Seq)
		e.no(e.store.Export(ctx, info.Key, &b, store.ExportOptions{}))
		fmt.Fprintln(&b, e.shared(info.Key))
	}
	return b.String()
}

func (e *env) views() string {
	e.Helper()
	var b strings.Builder
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		s := sessionOf(e, e.store, info.Key)
		b.WriteString(e.viewText(s.View))
	}
	return b.String()
}

// Each write of a script fails once, in every way in which a write can fail. After the client repeats the call,
// the write has taken effect exactly once, and the final state is the same as without failures.
func TestEveryWriteFails(t *testing.T) {
	var want string
	onEach(t, func(e *env) {
		for _, s := range steps {
			e.no(s.do(e))
		}
		want = e.outline()
	})
	type failure struct {
		plan storetest.Plan
		want error // expected error; nil means that the call succeeds
	}
	asking := []error{nil, backend.ErrClosed, backend.ErrLocked, backend.ErrDamaged, &backend.UnknownError{Cause: storetest.ErrInjected}}
	for k := range steps {
		why := asking[k%len(asking)]
		for _, f := range []failure{
			{storetest.Plan{Failure: storetest.Refused}, storetest.ErrInjected},
			{storetest.Plan{Failure: storetest.NotApplied}, storetest.ErrInjected},
			{storetest.Plan{Failure: storetest.Applied}, nil},
			{storetest.Plan{Failure: storetest.NotApplied, FailNext: 1, Err: why}, store.ErrOutcomeUnknown},
			{storetest.Plan{Failure: storetest.Applied, FailNext: 1, Err: why}, store.ErrOutcomeUnknown},
			{storetest.Plan{Failure: storetest.NotApplied, FailNext: 3}, store.ErrOutcomeUnknown},
			{storetest.Plan{Failure: storetest.Applied, FailNext: 3}, store.ErrOutcomeUnknown},
		} {
			t.Run(fmt.Sprint(steps[k].name, "/", f.plan.Failure, "/", f.plan.FailNext, "/", f.plan.Err), func(t *testing.T) {
				onEach(t, func(e *env) {
					for _, s := range steps[:k] {
						e.no(s.do(e))
					}
					f.plan.Write = 1
					e.failOnce(steps[k], f.plan, f.want)
					for _, s := range steps[k+1:] {
						e.no(s.do(e))
					}
					e.same("in the end", e.outline(), want)
				})
			})
		}
	}
}

// failOnce runs a step whose write fails as the plan says, and then repeats the step.
func (e *env) failOnce(s step, plan storetest.Plan, want error) {
	e.Helper()
	stored, views := e.dump(), e.views()
	e.backend.Plan(plan)
	err := s.do(e)
	if s.name == "delete" && plan.Failure != storetest.Refused {
		want = store.ErrOutcomeUnknown // a delete returns this error, and the caller repeats the delete
	}
	testlog.Equal(e, "writes of "+s.name, e.backend.Writes(), 1)
	e.backend.Plan(storetest.Plan{})
	if want == nil {
		e.no(err)
		if e.dump() == stored {
			e.Error("success, but nothing was written")
		}
		return
	}
	e.is(err, want, "injected")
	if !errors.Is(want, store.ErrOutcomeUnknown) {
		if errors.Is(err, store.ErrOutcomeUnknown) {
			e.Errorf("error %v, but the outcome is known", err)
		}
		e.same("stored after the failure", e.dump(), stored)
		e.same("views after the failure", e.views(), views)
	}
	if landed := e.dump() != stored; landed != (plan.Failure == storetest.Applied) {
		e.Errorf("landed: %t, but planned was %v", landed, plan.Failure)
	}
	switch err := s.do(e); {
	case plan.Failure == storetest.Applied && s.gone != nil:
		e.is(err, s.gone)
	default:
		e.no(err)
	}
}

// If the outcome of an import is unknown, the import returns the ids that it generated. A retry with these ids
// takes effect only once. [TestGroupFails] covers groups.
func TestUnknownOutcomeReturnsRecords(t *testing.T) {
	noIDs := `{"author":"a"}
{"patchType":"splice","start":0,"count":0,"replacement":[{"author":"r"}]}
`
	for _, how := range []storetest.Failure{storetest.NotApplied, storetest.Applied} {
		onEach(t, func(e *env) {
			e.backend.Plan(storetest.Plan{Write: 1, Failure: how, FailNext: 1 << 30})
			tried, err := e.importInto(key, noIDs, store.ImportOptions{})
			e.is(err, store.ErrOutcomeUnknown)
			if tried.View.Seq() != 0 || len(tried.Records) != 2 {
				e.Fatalf("%d records and a view at %d", len(tried.Records), tried.View.Seq())
			}
			e.is(errOf(e.store.Get(ctx, key)), storetest.ErrInjected) // every call fails while the storage is gone
			e.backend.Plan(storetest.Plan{})
			e.must(e.importInto(key, noIDs, store.ImportOptions{}))
			e.same("records", forms(e.records(key)), forms(tried.Records))
		})
	}
}

// When the store resolves an unknown outcome, the index of ids may be unreadable.
func TestUnknownOutcomeWhenTheIndexFails(t *testing.T) {
	for _, how := range []storetest.Failure{storetest.NotApplied, storetest.Applied} {
		onEach(t, func(e *env) {
			e.create(nil)
			e.backend.Plan(storetest.Plan{Write: 1, Failure: how, PassNext: 1, FailNext: 1})
			_, err := e.store.AppendEvents(ctx, key, []*patch.Event{say("a1")}, store.AppendOptions{})
			if how == storetest.Applied {
				e.is(err, store.ErrOutcomeUnknown)
			} else { // the fence alone proves that the commit did not take place
				e.is(err, storetest.ErrInjected)
				e.backend.Plan(storetest.Plan{})
			}
			e.append(say("a1"), say("a2"))
			e.same("visible", ids(e.view()), "a1 a2")
		})
	}
}

// Records may be erased before the store reads them to resolve an unknown outcome. If their commit created the
// session, the session's existence proves the commit. Otherwise the outcome stays unknown.
func TestUnknownOutcomeOfErasedRecords(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		erased := func(k store.Key, id string) func(do func() error) {
			return func(do func() error) {
				e.no(do())
				e.must(other.store.Erase(ctx, k, store.EraseSelection{EventIDs: []string{id}}, store.EraseOptions{ID: "receipt"}))
			}
		}
		mine.late(erased(elsewhere, "i1"))
		imported, err := e.importInto(elsewhere, importedText, store.ImportOptions{})
		e.no(err)
		if !imported.Created {
			e.Error("an import that landed has not created the session")
		}
		mine.late(erased(key, "m1"))
		e.is(e.try(say("m1")), store.ErrOutcomeUnknown, "erased")
	})
}

// If a commit of shared values fails, the call can be repeated.
func TestUnknownOutcomeOfSharedValues(t *testing.T) {
	for _, how := range []storetest.Failure{storetest.NotApplied, storetest.Applied} {
		onEach(t, func(e *env) {
			from := source(e.T)
			e.create(map[string]any{"app:motd": "mine"})
			overwrite := func() error {
				_, err := e.store.CopyFrom(ctx, store.Key{}, from, store.CopyOptions{OverwriteShared: true})
				return err
			}
			e.backend.Plan(storetest.Plan{Write: 1, Failure: how})
			e.is(overwrite(), store.ErrOutcomeUnknown)
			e.no(overwrite())
			e.same("state", fmt.Sprint(e.get().State()), "map[app:motd:hi user:lang:de]")
		})
	}
}

// If a call has nothing left to do, it still makes a fence before it returns, even if the store has no session.
func TestDoneCallsConfirm(t *testing.T) {
	selected := store.EraseSelection{EventIDs: []string{"e1"}}
	calls := map[string]func(s, from *store.Store) error{
		"CopyFrom": func(s, from *store.Store) error {
			_, err := s.CopyFrom(ctx, store.Key{}, from, store.CopyOptions{})
			return err
		},
		"Erase": func(s, _ *store.Store) error {
			_, err := s.Erase(ctx, key, selected, store.EraseOptions{})
			return err
		},
		"EraseUser": func(s, _ *store.Store) error {
			_, err := s.EraseUser(ctx, key.App, key.User, store.EraseOptions{})
			return err
		},
		"EraseUser, keeping values": func(s, _ *store.Store) error {
			_, err := s.EraseUser(ctx, key.App, key.User, store.EraseOptions{Values: patch.KeepValues})
			return err
		},
	}
	for what, call := range calls {
		onEach(t, func(e *env) {
			from, b := source(e.T), &hooked{Backend: e.backend}
			s := newStore(e, b, e.opts)
			if what != "CopyFrom" {
				must(e.T)(s.CopyFrom(ctx, key, from, store.CopyOptions{}))
			}
			for i := range 2 {
				b.takeCalls()
				e.no(call(s, from))
				want := i == 1 || what == "EraseUser, keeping values" // EraseUser with KeepValues always makes a fence
				if calls := b.takeCalls(); strings.Contains(calls, "Fence") != want {
					e.Errorf("%s, call %d: calls are %s", what, i+1, calls)
				}
			}
		})
	}
}

// inGroup runs the writes at the same time, so that one group commit contains them in the given order. Before the
// group, it appends an event with the id "first", which adds one record to the log. The argument plan describes
// the failure of the group's commit.
func (e *env) inGroup(plan storetest.Plan, writes ...func()) {
	e.Helper()
	e.inGroupWith(plan, nil, writes...)
}

func (e *env) inGroupWith(plan storetest.Plan, planned func(), writes ...func()) {
	e.Helper()
	whole := e.backend.Backend
	synctest.Test(e.T, func(t *testing.T) {
		free := make(chan struct{})
		e.backend.Backend = &hooked{Backend: whole, appended: func(ctx context.Context, n int, next func(context.Context) error) error {
			switch {
			case n == 1: // writes that wait behind the first commit form the group
				<-free
			case planned != nil:
				planned()
			}
			return next(ctx)
		}}
		e.open() // synctest requires that the store's channels are made inside its bubble
		if plan.Write > 0 {
			plan.Write++ // the first append writes before the group does
		}
		e.backend.Plan(plan)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.store.AppendEvents(ctx, key, []*patch.Event{say("first")}, store.AppendOptions{}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for _, w := range writes {
			wg.Go(w)
			synctest.Wait()
		}
		close(free)
		wg.Wait()
	})
	if n := e.backend.Writes(); n > 2 {
		e.Errorf("%d commits, want 2", n)
	}
	e.backend.Plan(storetest.Plan{})
	e.backend.Backend = whole
	e.open()
}

type outcome struct {
	store.Committed
	err error
}

func (e *env) appending(out *outcome, opts store.AppendOptions, events ...*patch.Event) func() {
	return func() { out.Committed, out.err = e.store.AppendEvents(ctx, key, events, opts) }
}

func (e *env) patching(out *outcome, opts store.PatchOptions, patches ...*patch.PatchEvent) func() {
	return func() { out.Committed, out.err = e.store.ApplyPatch(ctx, key, patches, opts) }
}

// text returns the seqs of the records and the visible log.
func (o outcome) text() string {
	if o.err != nil {
		return o.err.Error()
	}
	var b strings.Builder
	for _, r := range o.Records {
		fmt.Fprint(&b, r.Seq, " ")
	}
	return b.String() + "of " + ids(o.View)
}

func TestGroup(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), say("a2"))
		seen := e.view()
		seq := func(n uint64) store.AppendOptions { return store.AppendOptions{IfSeq: &n} }
		out := make([]outcome, 14)
		e.inGroup(storetest.Plan{},
			e.appending(&out[0], store.AppendOptions{}, say("b1"), say("b2")),
			e.patching(&out[1], store.PatchOptions{On: seen}, patch.NewSplice(0, 1, say("r1")).WithID("p1")),
			e.patching(&out[2], store.PatchOptions{On: seen}, patch.NewSplice(0, 1).WithID("p2")),
			e.appending(&out[3], store.AppendOptions{}, say("b2"), say("b3"), say("a1")), // event of an earlier write, new event, event that is already logged
			e.appending(&out[4], store.AppendOptions{}, event(`{"id":"b1"}`)),
			e.appending(&out[5], store.AppendOptions{}, say("r1")),
			e.patching(&out[6], store.PatchOptions{}, patch.NewSplice(0, 1, say("r1")).WithID("p1")),
			e.appending(&out[7], seq(6), say("c1")),
			e.appending(&out[8], seq(7), say("c1")),
			e.appending(&out[9], store.AppendOptions{Creation: "other"}, say("c2")),
			e.patching(&out[10], asOfNow, patch.NewSplice(6, 1).WithID("p3"), patch.NewSplice(6, 1).WithID("p4")),
			e.appending(&out[11], store.AppendOptions{}),
			e.appending(&out[12], store.AppendOptions{}, sets("s1", `{"app:x":1,"k":1}`)),
			e.appending(&out[13], store.AppendOptions{}, sets("s2", `{"app:x":2,"k":2}`)),
		)
		for i, want := range []string{
			"4 5 of a1 a2 first b1 b2",
			"6 of r1 a2 first b1 b2",
			"", // conflict
			"5 7 1 of r1 a2 first b1 b2 b3",
			"", "", // duplicates
			"6 of r1 a2 first b1 b2 b3",
			"", // append with a wrong seq
			"8 of r1 a2 first b1 b2 b3 c1",
			"", "", // append with a wrong creation id, and patch with an index out of range
			"of r1 a2 first b1 b2 b3 c1",
			"9 of r1 a2 first b1 b2 b3 c1 s1",
			"10 of r1 a2 first b1 b2 b3 c1 s1 s2",
		} {
			if want != "" {
				e.same(fmt.Sprint("write ", i), out[i].text(), want)
			}
		}
		e.is(out[2].err, store.ErrConflict, "0", "6")
		e.is(out[4].err, store.ErrDuplicateID, "b1", "4")
		e.is(out[5].err, store.ErrDuplicateID, "r1", "6")
		e.is(out[7].err, store.ErrConflict, "6", "7")
		e.is(out[9].err, store.ErrNotFound)
		e.is(out[10].err, fold.ErrOutOfRange, "6")
		e.same("state", e.state(), `{"app:x":2,"k":2}`)
		testlog.Equal(e, "records", len(e.records(key)), 10)
	})
}

// If a group commit fails, it writes nothing, and every call of the group fails.
func TestGroupFails(t *testing.T) {
	for _, c := range []struct {
		plan   storetest.Plan
		landed bool
		want   error
	}{
		{storetest.Plan{Write: 1, Failure: storetest.Refused}, false, storetest.ErrInjected},
		{storetest.Plan{Write: 1, Failure: storetest.NotApplied}, false, storetest.ErrInjected},
		{storetest.Plan{Write: 1, Failure: storetest.Applied}, true, nil},
		{storetest.Plan{Write: 1, Failure: storetest.NotApplied, FailNext: 1}, false, store.ErrOutcomeUnknown},
		{storetest.Plan{Write: 1, Failure: storetest.Applied, FailNext: 1}, true, store.ErrOutcomeUnknown},
	} {
		t.Run(fmt.Sprint(c.plan.Failure, c.plan.FailNext), func(t *testing.T) {
			onEach(t, func(e *env) {
				e.create(nil)
				e.append(say("a1"), say("a2"))
				seen := e.view()
				out := make([]outcome, 7)
				calls := []func(){
					e.appending(&out[0], store.AppendOptions{}, say("b1"), sets("b2", `{"app:x":1}`)),
					e.patching(&out[1], store.PatchOptions{On: seen}, patch.NewSplice(0, 1).WithID("p1")),
					e.appending(&out[2], store.AppendOptions{}, say("a2"), say("b1")), // this write depends on the first write
					e.appending(&out[3], store.AppendOptions{}, say("a1"), say("a2")), // this write depends on no other write
					e.appending(&out[4], store.AppendOptions{}),
					e.patching(&out[5], store.PatchOptions{On: seen}, patch.NewSplice(0, 1).WithID("p2")), // this patch conflicts with the second write
					e.appending(&out[6], store.AppendOptions{}, event(`{"id":"a1"}`)),
				}
				e.inGroup(c.plan, calls...)
				for i := range out {
					if c.want != nil {
						e.is(out[i].err, c.want, key.String())
					} else if i < 5 {
						e.no(out[i].err)
					}
					if unknown := errors.Is(c.want, store.ErrOutcomeUnknown); unknown && len(out[i].Records) == 0 && i != 4 {
						e.Errorf("write %d returned no records", i)
					}
				}
				visible := ids(e.view())
				if c.want == nil {
					e.is(out[5].err, store.ErrConflict)
					e.is(out[6].err, store.ErrDuplicateID, "a1", "1")
				}
				if c.landed {
					e.same("visible", visible, "a2 first b1 b2")
				} else {
					e.same("visible", visible, "a1 a2 first")
					e.same("shared", e.shared(key), "")
				}
				for _, call := range calls[:3] {
					call()
				}
				for i := range 3 {
					e.no(out[i].err)
				}
				e.same("visible", ids(e.view()), "a2 first b1 b2")
			})
		})
	}
}

// wantUnchanged checks the error of a write that took effect after its context was cancelled. The caller may have
// stopped waiting before the outcome was known.
func (e *env) wantUnchanged(err error) {
	e.Helper()
	if err != nil {
		e.is(err, store.ErrOutcomeUnknown)
		e.is(err, context.Canceled)
	}
}

// If the context of the call that commits a group is cancelled, the other writes of the group are still committed.
func TestGroupWhoseLeaderIsCancelled(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		leaders, cancel := context.WithCancel(ctx)
		defer cancel()
		var out [12]outcome
		var writes []func()
		for i := range out {
			c := leaders
			if i == 5 {
				c = ctx
			}
			writes = append(writes, func() {
				out[i].Committed, out[i].err = e.store.AppendEvents(c, key, []*patch.Event{say(fmt.Sprint("b", i))}, store.AppendOptions{})
			})
		}
		e.inGroupWith(storetest.Plan{}, cancel, writes...)
		for i := range out {
			if i == 5 {
				e.no(out[i].err)
				continue
			}
			e.wantUnchanged(out[i].err)
			if len(out[i].Records) != 1 || out[i].Records[0].ID() != fmt.Sprint("b", i) {
				e.Errorf("write %d returned %v, to be tried again", i, out[i].Records)
			}
		}
		testlog.Equal(e, "visible events", e.view().Len(), 1+len(out))
	})
}

// If the call that commits a group panics, its caller gets the panic. The other callers get an error, and they can
// repeat their calls. If the commit had started, the error reports an unknown outcome. Otherwise nothing was
// written.
func TestGroupWhoseLeaderPanics(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		panicking := func(do func()) func() {
			return func() {
				defer func() {
					if recover() == nil {
						e.Error("the leader's caller sees no panic")
					}
				}()
				do()
			}
		}
		out := make([]outcome, 3)
		follow := store.AppendOptions{Follow: func(fold.View, patch.Record) (*patch.PatchEvent, error) { panic("follow") }}
		e.inGroup(storetest.Plan{},
			panicking(e.appending(&out[0], follow, say("a1"))),
			e.appending(&out[1], store.AppendOptions{}, say("a2")),
		)
		if err := out[1].err; err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
			e.Errorf("the other call's error is %v", err)
		}
		e.same("after a panic in a plan", ids(e.view()), "first")

		testlog.NoError(e, e.store.Delete(ctx, key))
		e.create(nil)
		e.inGroup(storetest.Plan{Write: 1, Failure: storetest.Applied, During: func() { panic("during the commit") }},
			panicking(e.appending(&out[0], store.AppendOptions{}, say("b1"))),
			e.appending(&out[2], store.AppendOptions{}, say("b2")),
		)
		e.is(out[2].err, store.ErrOutcomeUnknown)
		testlog.Equal(e, "records that came with it", len(out[2].Records), 1)
		e.must(e.store.AppendEvents(ctx, key, []*patch.Event{say("b2")}, store.AppendOptions{}))
		e.same("after a panic during the commit", ids(e.view()), "first b1 b2")
	})
}
