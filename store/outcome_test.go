package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// step is a write that can be tried again.
type step struct {
	name string
	do   func(e *env) error
	gone error // what a second try gives if the first landed; nil means success
}

const importedText = `{"patchlog":1,"initialState":{"k":1}}
{"id":"i1"}
{"id":"i2","actions":{"stateDelta":{"app:x":5,"k":2}}}
{"id":"ip","patchType":"splice","start":0,"count":1,"replacement":[{"id":"ir"}]}
`

var steps = []step{
	{"create", func(e *env) error {
		_, err := e.store.Create(ctx, key, map[string]any{"k": 1, "app:x": 1})
		return err
	}, store.ErrExists},
	{"append", func(e *env) error {
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("a1"), sets("a2", `{"k":2,"user:x":2}`), say("a3"), say("a4"))
		return err
	}, nil},
	{"append one", func(e *env) error {
		five := uint64(4)
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{IfSeq: &five}, say("a5"))
		return err
	}, nil},
	{"patch", func(e *env) error {
		_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{},
			patch.NewSplice(0, 1, sets("r1", `{"app:y":1}`)).WithID("p1").WithBase(0), patch.NewSummarise(1, 2, summary("s1")).WithID("p2").WithBase(0))
		return err
	}, nil},
	{"revert", func(e *env) error {
		_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{}, patch.NewRevert("p2").WithID("p3").WithBase(7))
		return err
	}, nil},
	{"fork", func(e *env) error {
		_, err := e.store.Fork(ctx, key, store.Key{App: "app", User: "user", Session: "fork"}, store.ForkOptions{})
		return err
	}, store.ErrExists},
	{"import, created", func(e *env) error {
		_, err := e.importInto(elsewhere, importedText, store.ImportOptions{WriteShared: true})
		return err
	}, nil},
	{"import, extended", func(e *env) error {
		_, err := e.importInto(elsewhere, importedText+`{"id":"i3"}`, store.ImportOptions{})
		return err
	}, nil},
	{"delete", func(e *env) error { return e.store.Delete(ctx, elsewhere) }, store.ErrNotFound},
	{"import, created again", func(e *env) error {
		_, err := e.importInto(elsewhere, importedText, store.ImportOptions{})
		return err
	}, nil},
	{"create, again", func(e *env) error {
		_, err := e.store.Create(ctx, store.Key{App: "app", User: "user", Session: "third"}, nil)
		return err
	}, store.ErrExists},
}

// outline returns what a backend holds, creation ids apart.
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

// Every write of a script fails once, in every way; what a client tries again lands
// once, and in the end all is as without failures.
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
		want error // nil: the call succeeds
	}
	asking := []error{nil, backend.ErrClosed, backend.ErrLocked, backend.ErrDamaged, &backend.UnknownError{Cause: storetest.ErrInjected}}
	for k := range steps {
		why := asking[k%len(asking)]
		for _, f := range []failure{
			{storetest.Plan{Failure: storetest.Refused}, storetest.ErrInjected},
			{storetest.Plan{Failure: storetest.Lost}, storetest.ErrInjected},
			{storetest.Plan{Failure: storetest.Landed}, nil},
			{storetest.Plan{Failure: storetest.Lost, Then: 1, Err: why}, store.ErrOutcomeUnknown},
			{storetest.Plan{Failure: storetest.Landed, Then: 1, Err: why}, store.ErrOutcomeUnknown},
			{storetest.Plan{Failure: storetest.Lost, Then: 3}, store.ErrOutcomeUnknown},
			{storetest.Plan{Failure: storetest.Landed, Then: 3}, store.ErrOutcomeUnknown},
		} {
			t.Run(fmt.Sprint(steps[k].name, "/", f.plan.Failure, "/", f.plan.Then, "/", f.plan.Err), func(t *testing.T) {
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

// failOnce does a step whose write fails as planned, and does it again.
func (e *env) failOnce(s step, plan storetest.Plan, want error) {
	e.Helper()
	stored, views := e.dump(), e.views()
	e.backend.Plan(plan)
	err := s.do(e)
	writes := 1
	if s.name == "delete" && plan.Failure != storetest.Refused && plan.Then == 0 {
		writes, want = 2, nil // asking is not enough there: it is deleted once more
	}
	if n := e.backend.Writes(); n != writes {
		e.Errorf("%s made %d writes, want %d", s.name, n, writes)
	}
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
	if landed := e.dump() != stored; landed != (plan.Failure == storetest.Landed) {
		e.Errorf("landed: %t, but planned was %v", landed, plan.Failure)
	}
	switch err := s.do(e); {
	case plan.Failure == storetest.Landed && s.gone != nil:
		e.is(err, s.gone)
	default:
		e.no(err)
	}
}

// Calls without ids return those that they were given, so that a retry lands once.
func TestUnknownOutcomeReturnsRecords(t *testing.T) {
	noIDs := `{"author":"a"}
{"patchType":"splice","start":0,"count":0,"replacement":[{"author":"r"}]}
`
	for _, c := range []struct {
		name  string
		try   func(e *env) (store.Committed, error)
		retry func(e *env, c store.Committed) (store.Committed, error)
	}{
		{"AppendEvents", func(e *env) (store.Committed, error) {
			return e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"author":"x"}`), say("own"), event(`{"author":"y"}`))
		}, func(e *env, c store.Committed) (store.Committed, error) {
			var events []*patch.Event
			for _, r := range c.Records {
				events = append(events, r.Event)
			}
			return e.store.AppendEvents(ctx, key, store.AppendOptions{}, events...)
		}},
		{"ApplyPatch", func(e *env) (store.Committed, error) {
			return e.store.ApplyPatch(ctx, key, store.PatchOptions{On: e.view()},
				patch.NewSplice(0, 1, event(`{"author":"r"}`)), patch.NewSummarise(0, 2, event(`{"content":{"parts":[{"text":"s"}]}}`)))
		}, func(e *env, c store.Committed) (store.Committed, error) {
			return e.store.ApplyPatch(ctx, key, store.PatchOptions{}, c.Records[0].Patch, c.Records[1].Patch)
		}},
		{"Import", func(e *env) (store.Committed, error) {
			imported, err := e.importInto(elsewhere, noIDs, store.ImportOptions{})
			return imported.Committed, err
		}, func(e *env, c store.Committed) (store.Committed, error) {
			imported, err := e.importInto(elsewhere, noIDs, store.ImportOptions{})
			return imported.Committed, err
		}},
	} {
		for _, how := range []storetest.Failure{storetest.Lost, storetest.Landed} {
			t.Run(fmt.Sprint(c.name, "/", how), func(t *testing.T) {
				onEach(t, func(e *env) {
					e.create(nil)
					e.append(says("a", 3)...)
					before := len(e.allRecords())
					e.backend.Plan(storetest.Plan{Write: 1, Failure: how, Then: 1 << 30})
					tried, err := c.try(e)
					e.is(err, store.ErrOutcomeUnknown)
					if tried.View.Seq() != 0 || len(tried.Records) == 0 {
						e.Fatalf("%d records and a view at %d", len(tried.Records), tried.View.Seq())
					}
					for _, r := range tried.Records {
						for id := range r.IDs() {
							if id == "" {
								e.Errorf("record %s has no id", text(r))
							}
						}
						if !strings.Contains(text(r), `"timestamp":"2025-11-20`) {
							e.Errorf("record %s has no time", text(r))
						}
					}
					// Nothing works while the storage is gone.
					_, err = e.store.Get(ctx, key)
					e.is(err, storetest.ErrInjected)
					e.backend.Plan(storetest.Plan{})
					for range 2 {
						again, err := c.retry(e, tried)
						e.no(err)
						for i, r := range again.Records {
							e.same("record", text(r), text(tried.Records[i]))
						}
					}
					if n := len(e.allRecords()); n != before+len(tried.Records) {
						e.Errorf("%d records, want %d", n, before+len(tried.Records))
					}
				})
			})
		}
	}
}

func (e *env) allRecords() (out []patch.Record) {
	e.Helper()
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		out = append(out, e.records(info.Key)...)
	}
	return out
}

func text(r patch.Record) string {
	b, err := r.MarshalJSON()
	if err != nil {
		panic(err)
	}
	return string(b)
}

// When the store asks for the outcome, the index may be what cannot be read.
func TestUnknownOutcomeWhenTheIndexFails(t *testing.T) {
	for _, how := range []storetest.Failure{storetest.Lost, storetest.Landed} {
		onEach(t, func(e *env) {
			e.create(nil)
			e.backend.Plan(storetest.Plan{Write: 1, Failure: how, Pass: 1, Then: 1})
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("a1"))
			if how == storetest.Landed {
				e.is(err, store.ErrOutcomeUnknown)
			} else { // a fence that takes says it all
				e.is(err, storetest.ErrInjected)
				e.backend.Plan(storetest.Plan{})
			}
			e.append(say("a1"), say("a2"))
			e.same("visible", ids(e.view()), "a1 a2")
		})
	}
}

// An append has landed, and its session is deleted while the store looks for it: that the session is gone says
// nothing of the append, which is not made again either.
func TestUnknownOutcomeOfDeletedSession(t *testing.T) {
	for _, again := range []bool{true, false} {
		onPeers(t, func(e, other *env, mine *counted) {
			mine.late = func(do func() error) {
				e.no(do())
				other.append(say("o1"))
			}
			mine.Backend = beforeRead(mine.Backend, func() {
				e.no(other.store.Delete(ctx, key))
				if again {
					other.create(nil)
				}
			})
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
			e.is(err, store.ErrOutcomeUnknown)
			if errors.Is(err, store.ErrNotFound) {
				e.Errorf("%v says two things", err)
			}
			if !again {
				other.create(nil)
			}
			e.same("visible", ids(e.view()), "")
		})
	}
}

// Records have landed, and are erased before the store looks for them. A session that is there was created with
// them; of records in a session that was there before it is not known.
func TestUnknownOutcomeOfErasedRecords(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		erased := func(k store.Key, id string) func(do func() error) {
			return func(do func() error) {
				e.no(do())
				e.must(other.store.Erase(ctx, k, store.EraseSelection{EventIDs: []string{id}}, store.EraseOptions{ID: "receipt", Salt: []byte("salt")}))
			}
		}
		mine.late = erased(elsewhere, "i1")
		imported, err := e.importInto(elsewhere, importedText, store.ImportOptions{})
		e.no(err)
		if !imported.Created {
			e.Error("an import that landed has not created the session")
		}
		mine.late = erased(key, "m1")
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
		e.is(err, store.ErrOutcomeUnknown, "erased")
	})
}

// What became of a commit of shared values is found out.
func TestUnknownOutcomeOfSharedValues(t *testing.T) {
	beside := store.Key{App: key.App, User: key.User, Session: "beside"}
	for _, c := range []struct {
		plan    storetest.Plan
		written bool // by another, meanwhile
		want    error
		state   string
	}{
		{storetest.Plan{Failure: storetest.Lost}, false, nil, "map[app:motd:hi user:lang:de]"},
		{storetest.Plan{Failure: storetest.Landed}, false, nil, "map[app:motd:hi user:lang:de]"},
		{storetest.Plan{Failure: storetest.Lost}, true, store.ErrConflict, "map[app:motd:other]"},
		{storetest.Plan{Failure: storetest.Landed}, true, store.ErrOutcomeUnknown, "map[app:motd:other user:lang:de]"},
		{storetest.Plan{Failure: storetest.Lost, Then: 1}, false, store.ErrOutcomeUnknown, "map[app:motd:mine]"},
		{storetest.Plan{Failure: storetest.Landed, Then: 1}, false, store.ErrOutcomeUnknown, "map[app:motd:hi user:lang:de]"},
	} {
		t.Run(fmt.Sprint(c.plan.Failure, "/", c.written, "/", c.plan.Then), func(t *testing.T) {
			onEach(t, func(e *env) {
				from := source(e.T)
				e.create(map[string]any{"app:motd": "mine"})
				other := newStore(e, e.backend.Backend, e.opts)
				c.plan.Write = 1
				if c.written {
					c.plan.During = func() {
						e.must(other.AppendEvents(ctx, beside, store.AppendOptions{}, sets("x", `{"app:motd":"other"}`)))
					}
					e.must(other.Create(ctx, beside, nil))
				}
				e.backend.Plan(c.plan)
				_, err := e.store.CopyShared(ctx, from, store.CopyOptions{OverwriteShared: true})
				e.backend.Plan(storetest.Plan{})
				if c.want == nil {
					e.no(err)
				} else {
					e.is(err, c.want)
				}
				e.same("state", fmt.Sprint(e.get().State()), c.state)
			})
		})
	}
}

// A copy of shared values that are there already is confirmed by a commit, also where there is no session.
func TestCopySharedConfirms(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		for range 2 {
			e.backend.Plan(storetest.Plan{})
			e.must(e.store.CopyShared(ctx, from, store.CopyOptions{}))
			if n := e.backend.Writes(); n != 1 {
				e.Errorf("%d writes, want 1", n)
			}
		}
	})
}
