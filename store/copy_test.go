package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// source returns a store in memory with the session that the tests copy, created one hour ago. The session has
// patches, one of which cannot be applied, Go types and shared values.
func source(t *testing.T) *store.Store {
	t.Helper()
	s := teststore.Memory(t, store.Options{Now: func() time.Time { return now.Add(-time.Hour) }})
	add(t, s, key, map[string]any{"cart": 1, "app:motd": "hi", "user:lang": "en"}, 5)
	typed := testlog.New(patch.Fields{ID: "typed", Author: "user", Actions: patch.Actions{StateDelta: map[string]any{"n": int32(7), "user:lang": "de"}}})
	must(t)(s.AppendEvents(ctx, key, []*patch.Event{typed}, store.AppendOptions{}))
	must(t)(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(1, 2)}, store.PatchOptions{AsOfNow: true}))
	return s
}

func add(t *testing.T, s *store.Store, key store.Key, state map[string]any, n int) {
	t.Helper()
	must(t)(s.Create(ctx, key, state, store.CreateOptions{}))
	must(t)(s.AppendEvents(ctx, key, says("e", n), store.AppendOptions{}))
}

func TestCopy(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		copies := func(created bool, added, present int, seq uint64) {
			e.Helper()
			would := testlog.Must(e.store.CopyFrom(ctx, key, from, store.CopyOptions{DryRun: true}))(e)
			got := testlog.Must(e.store.CopyFrom(ctx, key, from, store.CopyOptions{}))(e)
			for _, done := range []store.Imported{got, would} {
				e.same("a copy", fmt.Sprint(tally(done), " of ", done.View.Seq()), fmt.Sprintf("%d added, %d present, created %t of %d", added, present, created, seq))
			}
			if seq != uint64(added+present) {
				return
			}
			e.same("the log", forms(e.records(key)), forms(recordsOf(e, from, key)))
		}
		copies(true, 7, 0, 7)
		copies(false, 0, 7, 7)
		testlog.Equal(e, "the time of creation", infoOf(e, e.store, key).Created, infoOf(e, from, key).Created)
		e.same("state", fmt.Sprint(e.get().State()), fmt.Sprint(sessionOf(e, from, key).State()))
		// The source gets a record, and a shared value changes.
		e.must(from.AppendEvents(ctx, key, []*patch.Event{sets("more", `{"app:motd":"bye"}`)}, store.AppendOptions{}))
		copies(false, 1, 7, 8)
		testlog.Equal(e, "the shared value", e.get().State()["app:motd"], "bye")
		// The copy gets its own record.
		e.append(says("own", 1)...)
		copies(false, 0, 8, 9)
		// Then the source gets another record.
		e.must(from.AppendEvents(ctx, key, says("other", 1), store.AppendOptions{}))
		before := e.dump()
		for _, opts := range []store.CopyOptions{{}, {DryRun: true}} {
			e.is(testlog.ErrorOf(e.store.CopyFrom(ctx, key, from, opts)), store.ErrConflict, "record 9")
		}
		e.same("the log", e.dump(), before)
		// A log that is longer than one commit is copied in several commits.
		long := store.Key{App: "app", User: "user", Session: "long"}
		add(e.T, from, long, nil, 2000)
		got := testlog.Must(e.store.CopyFrom(ctx, long, from, store.CopyOptions{}))(e)
		e.same("a long copy", fmt.Sprint(tally(got), " of ", got.View.Seq()), "2000 added, 0 present, created true of 2000")
		e.same("the long log", forms(e.records(long)), forms(recordsOf(e, from, long)))
	})
}

func TestCopyRefuses(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		e.is(testlog.ErrorOf(e.store.CopyFrom(ctx, key, nil, store.CopyOptions{})), store.ErrInvalid)
		e.is(testlog.ErrorOf(e.store.CopyFrom(ctx, store.Key{}, nil, store.CopyOptions{})), store.ErrInvalid)
		e.is(testlog.ErrorOf(e.store.CopyFrom(ctx, store.Key{App: "app", User: "user", Session: "none"}, from, store.CopyOptions{})), store.ErrNotFound, "app/user/none")
		e.create(map[string]any{"cart": 2})
		e.is(testlog.ErrorOf(e.store.CopyFrom(ctx, key, from, store.CopyOptions{})), store.ErrConflict, "initial state")
	})
}

func TestCopyShared(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		alone := store.Key{App: "app", User: "gone", Session: "s"}
		add(e.T, from, alone, map[string]any{"user:lang": "fr"}, 1)
		e.no(from.Delete(ctx, alone))
		e.create(map[string]any{"app:motd": "mine"})
		e.append(says("own", 3)...)
		for i, want := range []int{2, 2, 0} {
			done := testlog.Must(e.store.CopyFrom(ctx, store.Key{}, from, store.CopyOptions{DryRun: i == 0}))(e)
			testlog.Equal(e, "added", done.Shared, want)
			testlog.Equal(e, "different", done.Different, []string{"app/app/app:motd"})
		}
		e.same("state", fmt.Sprint(e.get().State()), "map[app:motd:mine user:lang:de]")
		e.append(says("later", 1)...) // CopyFrom with the zero key must not change this log
		s := testlog.Must(e.store.Create(ctx, alone, nil, store.CreateOptions{}))(e)
		e.same("state", fmt.Sprint(s.State()), "map[app:motd:mine user:lang:fr]")
	})
}

// A copy can omit the shared values, whether it creates the session or adds to it. It can also overwrite shared
// values that differ.
func TestCopyOfSharedByChoice(t *testing.T) {
	onEach(t, func(e *env) {
		from, alone := source(e.T), store.CopyOptions{NoShared: true}
		e.must(e.store.CopyFrom(ctx, key, from, alone))
		e.same("a new session's state", fmt.Sprint(e.get().State()), "map[cart:1 n:7]")
		e.must(from.AppendEvents(ctx, key, []*patch.Event{sets("more", `{"app:motd":"bye"}`)}, store.AppendOptions{}))
		e.must(e.store.CopyFrom(ctx, key, from, alone))
		e.same("a longer session's state", fmt.Sprint(e.get().State()), "map[cart:1 n:7]")
		e.append(sets("own", `{"app:motd":"mine","app:other":1}`))
		for _, c := range []struct {
			opts             store.CopyOptions
			added, different int
			state            string
		}{
			{store.CopyOptions{OverwriteShared: true, DryRun: true}, 1, 1, "map[app:motd:mine app:other:1 cart:1 n:7]"},
			{store.CopyOptions{}, 1, 1, "map[app:motd:mine app:other:1 cart:1 n:7 user:lang:de]"},
			{store.CopyOptions{OverwriteShared: true}, 0, 1, "map[app:motd:bye app:other:1 cart:1 n:7 user:lang:de]"},
			{store.CopyOptions{OverwriteShared: true}, 0, 0, "map[app:motd:bye app:other:1 cart:1 n:7 user:lang:de]"},
		} {
			done := testlog.Must(e.store.CopyFrom(ctx, store.Key{}, from, c.opts))(e)
			if done.Shared != c.added || len(done.Different) != c.different {
				e.Errorf("%+v: %d added, different: %q", c.opts, done.Shared, done.Different)
			}
			e.same("state", fmt.Sprint(e.get().State()), c.state)
		}
	})
}

// stepped is a backend that calls the function between after each commit to a staged session.
type stepped struct {
	*storetest.Faulty
	steps   int
	last    bool // whether the commit that creates the session was tried
	most    int  // maximum number of records in a staged commit, or in a commit that creates a session
	between func(step int)
}

func (s *stepped) Append(ctx context.Context, session string, b backend.Batch) error {
	err := s.Faulty.Append(ctx, session, b)
	switch {
	case isStaged(session):
		s.most = max(s.most, len(b.Records))
		if s.steps++; s.between != nil {
			s.between(s.steps)
		}
	case b.Create:
		s.most, s.last = max(s.most, len(b.Records)), true
	}
	return err
}

// staged returns the number of staged sessions.
func (s *stepped) staged(t testing.TB) int {
	there, err := s.List(ctx, "", "", 1000)
	if err != nil && !errors.Is(err, backend.ErrClosed) {
		t.Error(err)
	}
	return len(slices.DeleteFunc(there, func(l backend.Listed) bool { return !isStaged(l.Session) }))
}

// isStaged reports whether a name belongs to a staged session.
func isStaged(session string) bool { return strings.HasPrefix(session, "\x00\x02") }

var forkKey = store.Key{App: "app", User: "user", Session: "fork"}

// onSteps runs a test on a session whose log has several pages and hidden and restored events.
func onSteps(t *testing.T, run func(e *env, s *stepped)) {
	onEach(t, func(e *env) {
		s := e.stepped()
		e.create(map[string]any{"k": 1})
		e.append(says("a", 700)...)
		e.apply(patch.NewSplice(10, 600).WithID("p1"))
		e.append(says("b", 700)...)
		e.apply(patch.NewSplice(100, 650).WithID("p2"))
		e.apply(patch.NewRevert("p1"))
		e.append(sets("s", `{"k":2}`))
		e.append(says("c", 400)...)
		run(e, s)
		testlog.Equal(e, "sessions that are still staged", s.staged(e), 0)
	})
}

// stepped reopens the store on a stepped backend.
func (e *env) stepped() *stepped {
	s := &stepped{}
	e.reopenOn(func(engine backend.Backend) backend.Backend { s.Faulty = &storetest.Faulty{Backend: engine}; return s })
	return s
}

// absentFork checks that no call returns any part of the fork.
func (e *env) absentFork() {
	e.Helper()
	e.is(testlog.ErrorOf(e.store.Get(ctx, forkKey)), store.ErrNotFound)
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if info.Key == forkKey {
			e.Error("the fork is listed")
		}
	}
}

// A long log is forked in several commits. Between two commits, the fork is invisible, and callers can write to
// the origin and to other sessions.
func TestForkInSteps(t *testing.T) {
	onSteps(t, func(e *env, s *stepped) {
		before := e.view()
		soon, cancel := context.WithTimeout(ctx, time.Minute) // so that a deadlock fails the test
		defer cancel()
		s.between = func(step int) {
			e.absentFork()
			for _, k := range []store.Key{key, elsewhere} {
				if k == elsewhere && step == 1 {
					e.must(e.store.Create(soon, k, nil, store.CreateOptions{}))
				}
				e.must(e.store.AppendEvents(soon, k, []*patch.Event{say(fmt.Sprint("meanwhile", step))}, store.AppendOptions{}))
			}
		}
		fork := testlog.Must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))(e)
		if s.steps < 3 || s.most > 512 {
			e.Errorf("%d steps, of up to %d records", s.steps, s.most)
		}
		e.same("the fork", withoutCreation(e.viewText(fork.View)), withoutCreation(e.viewText(before)))
		testlog.Equal(e, "records in the session", len(e.records(key)), int(before.Seq())+s.steps)
		// A revert in the fork reads the hidden events from the fork's own log.
		e.no(e.store.Delete(ctx, key))
		done := testlog.Must(e.store.Revert(ctx, forkKey, "p2", store.UndoOptions{}))(e)
		testlog.Equal(e, "visible events", done.View.Len(), before.Len()+650)
		e.reopen()
		e.same("after reopening", e.viewText(viewOf(e, e.store, forkKey)), e.viewText(done.View))
		for _, id := range []string{"a1", "b700", "c400", "p1"} {
			e.is(testlog.ErrorOf(e.store.AppendEvents(ctx, forkKey, []*patch.Event{event(`{"id":%q}`, id)}, store.AppendOptions{})), store.ErrDuplicateID, id)
		}
	})
}

// If a fork fails before its last commit, it leaves nothing in the store and can be repeated.
func TestForkCutShort(t *testing.T) {
	for name, c := range map[string]struct {
		at   func(e *env, cancel func())
		want error
	}{
		"cancelled":      {func(_ *env, cancel func()) { cancel() }, context.Canceled},
		"origin deleted": {func(e *env, _ func()) { e.no(e.store.Delete(ctx, key)) }, store.ErrNotFound},
		"origin created again": {func(e *env, _ func()) {
			e.no(e.store.Delete(ctx, key))
			e.create(nil)
			e.append(says("new", 900)...)
			e.append(says("new2", 900)...)
		}, store.ErrNotFound},
		"created by another": {func(e *env, _ func()) {
			e.must(e.store.Create(ctx, forkKey, map[string]any{"own": 1}, store.CreateOptions{}))
		}, store.ErrExists},
	} {
		for _, step := range []int{1, 3} {
			if testlog.Race && step == 1 {
				continue
			}
			t.Run(fmt.Sprint(name, "/", step), func(t *testing.T) {
				onSteps(t, func(e *env, s *stepped) {
					c1, cancel := context.WithCancel(ctx)
					defer cancel()
					s.between = func(n int) {
						if n == step {
							c.at(e, cancel)
						}
					}
					e.is(testlog.ErrorOf(e.store.Fork(c1, key, forkKey, store.ForkOptions{})), c.want)
					s.between = nil
					if c.want == store.ErrExists {
						there := sessionOf(e, e.store, forkKey)
						e.same("the other's", fmt.Sprint(there.State(), there.View.Len()), "map[own:1] 0")
						e.no(e.store.Delete(ctx, forkKey))
					}
					e.absentFork()
					testlog.Equal(e, "sessions that are still staged", s.staged(e), 0)
					if c.want == store.ErrNotFound {
						return
					}
					e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
				})
			})
		}
	}
}

// failedStep checks the error of a fork or an import after a failed commit. The call must create nothing and must
// not report an unknown outcome.
func (e *env) failedStep(err error) {
	e.Helper()
	e.is(err, storetest.ErrInjected)
	testlog.Equal(e, "the outcome is unknown", errors.Is(err, store.ErrOutcomeUnknown), false)
	e.absentFork()
}

// If any commit of a fork fails, the fork fails. Only the last commit can have an unknown outcome.
func TestForkWhoseStepsFail(t *testing.T) {
	for _, how := range []storetest.Failure{storetest.Refused, storetest.NotApplied, storetest.Applied} {
		if testlog.Race && how == storetest.NotApplied {
			continue
		}
		onSteps(t, func(e *env, s *stepped) {
			for step := 1; ; step++ {
				s.Plan(storetest.Plan{Write: step, Failure: how})
				s.steps, s.last = 0, false
				_, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{})
				last := s.last
				s.Plan(storetest.Plan{})
				if last && how == storetest.Applied {
					e.no(err)
					break
				}
				e.failedStep(err)
				if last {
					break
				}
			}
			if how != storetest.Applied {
				e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
			}
			e.same("the fork", ids(viewOf(e, e.store, forkKey)), ids(e.view()))
		})
	}
}
