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
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// held is a backend whose first Append waits until it is let go, so that the writes
// behind it make a group.
type held struct {
	backend.Backend
	once    sync.Once
	free    chan struct{}
	planned func() // called when the group's ids are looked up, or else when it is written
}

func (h *held) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	if len(ids) > 1 && h.planned != nil {
		h.planned()
	}
	return h.Backend.Lookup(ctx, session, creation, ids)
}

func (h *held) Append(ctx context.Context, session string, batch backend.Batch) error {
	h.once.Do(func() { <-h.free })
	if len(batch.Records) > 1 && h.planned != nil {
		h.planned()
	}
	return h.Backend.Append(ctx, session, batch)
}

// inGroup does the writes at once, in their order, as one group: behind the append of
// an event with id "first", which is record 1 more than the log has. plan is what
// happens to the group's commit.
func (e *env) inGroup(plan storetest.Plan, writes ...func()) {
	e.Helper()
	e.inGroupWith(plan, nil, writes...)
}

func (e *env) inGroupWith(plan storetest.Plan, planned func(), writes ...func()) {
	e.Helper()
	whole := e.backend.Backend
	h := &held{Backend: whole, planned: planned}
	synctest.Test(e.T, func(t *testing.T) {
		h.free = make(chan struct{})
		e.backend.Backend = h
		e.open() // its channels belong to the test
		if plan.Write > 0 {
			plan.Write++ // not that of the first
		}
		e.backend.Plan(plan)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("first")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for _, w := range writes {
			wg.Go(w)
			synctest.Wait()
		}
		close(h.free)
		wg.Wait()
	})
	if n := e.backend.Writes(); n > 2 {
		e.Errorf("%d commits, want 2", n)
	}
	e.backend.Plan(storetest.Plan{})
	e.backend.Backend = whole
	e.open()
}

// outcome is what a write in a group gave.
type outcome struct {
	store.Committed
	err error
}

func (e *env) appending(out *outcome, opts store.AppendOptions, events ...*patch.Event) func() {
	return func() { out.Committed, out.err = e.store.AppendEvents(ctx, key, opts, events...) }
}

func (e *env) patching(out *outcome, opts store.PatchOptions, patches ...*patch.PatchEvent) func() {
	return func() { out.Committed, out.err = e.store.ApplyPatch(ctx, key, opts, patches...) }
}

// says what came of a write: the seqs of its records and the visible log.
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
			e.appending(&out[3], store.AppendOptions{}, say("b2"), say("b3"), say("a1")), // one of an earlier write, one new, one old
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
			"", // seq
			"8 of r1 a2 first b1 b2 b3 c1",
			"", "", // other creation, out of range
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
		if n := len(e.records(key)); n != 10 {
			e.Errorf("%d records, want 10", n)
		}
	})
}

// A group whose commit fails wrote nothing, and what was judged on it says nothing.
func TestGroupFails(t *testing.T) {
	for _, c := range []struct {
		plan   storetest.Plan
		landed bool
		want   error
	}{
		{storetest.Plan{Write: 1, Failure: storetest.Refused}, false, storetest.ErrInjected},
		{storetest.Plan{Write: 1, Failure: storetest.Lost}, false, storetest.ErrInjected},
		{storetest.Plan{Write: 1, Failure: storetest.Landed}, true, nil},
		{storetest.Plan{Write: 1, Failure: storetest.Lost, Then: 1}, false, store.ErrOutcomeUnknown},
		{storetest.Plan{Write: 1, Failure: storetest.Landed, Then: 1}, true, store.ErrOutcomeUnknown},
	} {
		t.Run(fmt.Sprint(c.plan.Failure, c.plan.Then), func(t *testing.T) {
			onEach(t, func(e *env) {
				e.create(nil)
				e.append(say("a1"), say("a2"))
				seen := e.view()
				out := make([]outcome, 7)
				calls := []func(){
					e.appending(&out[0], store.AppendOptions{}, say("b1"), sets("b2", `{"app:x":1}`)),
					e.patching(&out[1], store.PatchOptions{On: seen}, patch.NewSplice(0, 1).WithID("p1")),
					e.appending(&out[2], store.AppendOptions{}, say("a2"), say("b1")), // depends on the first
					e.appending(&out[3], store.AppendOptions{}, say("a1"), say("a2")), // depends on nothing
					e.appending(&out[4], store.AppendOptions{}),
					e.patching(&out[5], store.PatchOptions{On: seen}, patch.NewSplice(0, 1).WithID("p2")), // conflicts with the second
					e.appending(&out[6], store.AppendOptions{}, event(`{"id":"a1"}`)),
				}
				e.inGroup(c.plan, calls...)
				for i := range 3 {
					if c.want == nil {
						e.no(out[i].err)
						continue
					}
					e.is(out[i].err, c.want, key.String())
					if unknown := errors.Is(c.want, store.ErrOutcomeUnknown); unknown != (len(out[i].Records) > 0) {
						e.Errorf("write %d returned %d records", i, len(out[i].Records))
					}
				}
				// What is in the log already is so whatever became of the commit.
				visible := ids(e.view())
				for i := 3; i < 5; i++ {
					e.no(out[i].err)
					if seq := out[i].View.Seq(); seq > e.view().Seq() {
						e.Errorf("write %d returned a view at %d, beyond the log's end at %d", i, seq, e.view().Seq())
					}
				}
				// A conflict with a patch that is not there is none.
				if c.want == nil {
					e.is(out[5].err, store.ErrConflict)
					e.is(out[6].err, store.ErrDuplicateID, "a1", "1")
				}
				if c.landed {
					e.same("visible", visible, "a2 first b1 b2")
				} else {
					if errors.Is(out[5].err, store.ErrConflict) || out[5].err == nil {
						e.Errorf("error %v of a patch whose rival did not land", out[5].err)
					}
					e.same("visible", visible, "a1 a2 first")
					e.same("shared", e.shared(key), "")
				}
				if out[6].err == nil {
					e.Error("a duplicate was accepted")
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

// Who is cancelled while waiting has written nothing; who is cancelled while others
// write for it waits for the outcome.
func TestGroupWithCancelledWrites(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		waiting, cancelWaiting := context.WithCancel(ctx)
		defer cancelWaiting()
		begun, cancelBegun := context.WithCancel(ctx)
		defer cancelBegun()
		var out [4]outcome
		e.inGroup(storetest.Plan{Write: 1, Failure: storetest.Landed, During: cancelBegun},
			e.appending(&out[0], store.AppendOptions{}, say("b1")),
			func() {
				out[1].Committed, out[1].err = e.store.AppendEvents(waiting, key, store.AppendOptions{}, say("b2"))
			},
			func() {
				out[2].Committed, out[2].err = e.store.AppendEvents(begun, key, store.AppendOptions{}, say("b3"))
			},
			cancelWaiting,
			e.appending(&out[3], store.AppendOptions{}, say("b4")),
		)
		e.no(out[0].err)
		e.is(out[1].err, context.Canceled)
		e.left(out[2].err)
		e.no(out[3].err)
		e.same("visible", ids(e.view()), "first b1 b3 b4")
	})
}

// left checks the error of a write that landed, and whose caller was gone meanwhile: who need
// not wait where it may take long may not know.
func (e *env) left(err error) {
	e.Helper()
	if err == nil {
		e.no(err)
		return
	}
	e.is(err, store.ErrOutcomeUnknown)
	e.is(err, context.Canceled)
}

// Who writes for others goes on when it is itself no longer waited for.
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
				out[i].Committed, out[i].err = e.store.AppendEvents(c, key, store.AppendOptions{}, say(fmt.Sprint("b", i)))
			})
		}
		e.inGroupWith(storetest.Plan{}, cancel, writes...)
		for i := range out {
			if i == 5 {
				e.no(out[i].err)
				continue
			}
			e.left(out[i].err)
			if len(out[i].Records) != 1 || out[i].Records[0].ID() != fmt.Sprint("b", i) {
				e.Errorf("write %d returned %v, to be tried again", i, out[i].Records)
			}
		}
		if got := e.view().Len(); got != 1+len(out) {
			e.Errorf("%d events are visible, want %d", got, 1+len(out))
		}
	})
}

// When a function of the options panics, the call that ran it does too. No call beside
// it is told that it succeeded, or hangs.
func TestGroupWithPanic(t *testing.T) {
	for at := range 3 { // which of the writes has no id
		bad := false
		onEachWith(t, store.Options{NewID: func() string {
			if bad {
				panic("no ids today")
			}
			return "new"
		}}, func(e *env) {
			e.create(nil)
			bad = true
			var out [3]outcome
			var panicked [3]bool
			var writes []func()
			var all []*patch.Event
			visible := "first"
			for i := range out {
				said := say(fmt.Sprint("b", i))
				if i == at {
					said = event(`{"author":"x"}`)
					visible += " new"
				} else {
					visible += fmt.Sprint(" b", i)
				}
				all = append(all, said)
				write := e.appending(&out[i], store.AppendOptions{}, said)
				writes = append(writes, func() {
					defer func() { panicked[i] = recover() != nil }()
					write()
				})
			}
			e.inGroup(storetest.Plan{}, writes...)
			bad = false
			n := 0
			for i := range out {
				switch {
				case panicked[i]:
					n++
				case out[i].err != nil: // the ids are given before the turn
					e.Errorf("beside one that panics, write %d: %v, %s", i, out[i].err, out[i].text())
				}
			}
			if n != 1 {
				e.Errorf("%d calls panicked, want 1", n)
			}
			visible = strings.Replace(visible, " new", "", 1) + " new"
			e.append(all...)
			e.same("visible", ids(e.view()), visible)
		})
	}
}
