package store_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// source returns a store in memory with the session that tests copy, made an hour ago. It
// has patches, one of which does not apply, Go types and shared values.
func source(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.OpenMemory(store.Options{Now: func() time.Time { return now.Add(-time.Hour) }})
	testlog.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	add(t, s, key, map[string]any{"cart": 1, "app:motd": "hi", "user:lang": "en"}, 5)
	typed, err := patch.NewEvent(patch.Fields{ID: "typed", Author: "user", Actions: patch.Actions{StateDelta: map[string]any{"n": int32(7), "user:lang": "de"}}})
	if err == nil {
		_, err = s.AppendEvents(ctx, key, store.AppendOptions{}, typed)
	}
	if err == nil {
		_, err = s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patch.NewSplice(1, 2))
	}
	testlog.NoError(t, err)
	return s
}

func add(t *testing.T, s *store.Store, key store.Key, state map[string]any, n int) {
	t.Helper()
	must(t)(s.Create(ctx, key, state))
	must(t)(s.AppendEvents(ctx, key, store.AppendOptions{}, says("e", n)...))
}

func raw(t *testing.T, s *store.Store, key store.Key) []string {
	t.Helper()
	var all []string
	for r, err := range s.RawEvents(ctx, key, 0) {
		testlog.NoError(t, err)
		data, err := patch.AppendRecord(nil, r) // with the Go types
		testlog.NoError(t, err)
		all = append(all, fmt.Sprint(r.Seq, " ", string(data)))
	}
	return all
}

func TestCopy(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		copies := func(want store.Copied) {
			e.Helper()
			would, err := e.store.CopyFrom(ctx, from, key, store.CopyOptions{DryRun: true})
			e.no(err)
			got, err := e.store.CopyFrom(ctx, from, key, store.CopyOptions{})
			e.no(err)
			if got != want || would != want {
				e.Errorf("got %+v, a dry run %+v, want %+v", got, would, want)
			}
			if want.Seq != uint64(want.Added+want.Present) {
				return
			}
			if a, b := raw(e.T, from, key), raw(e.T, e.store, key); !reflect.DeepEqual(a, b) {
				e.Errorf("the logs differ:\n%q\n%q", a, b)
			}
		}
		copies(store.Copied{Created: true, Added: 7, Seq: 7})
		copies(store.Copied{Present: 7, Seq: 7})
		there := infoOf(e, from, key)
		info := infoOf(e, e.store, key)
		if !info.Created.Equal(there.Created) {
			e.Errorf("created %v, want %v", info.Created, there.Created)
		}
		theirs := sessionOf(e, from, key)
		e.same("state", fmt.Sprint(e.get().State()), fmt.Sprint(theirs.State()))

		// The source grows, by a change of a shared value too.
		e.must(from.AppendEvents(ctx, key, store.AppendOptions{}, sets("more", `{"app:motd":"bye"}`)))
		copies(store.Copied{Added: 1, Present: 7, Seq: 8})
		if v, _ := e.get().Value("app:motd"); v.Any() != "bye" {
			e.Errorf("the shared value is %v", v.Any())
		}
		// The copy goes on by itself.
		e.append(says("own", 1)...)
		copies(store.Copied{Present: 8, Seq: 9})
		// Then the source does too, otherwise.
		e.must(from.AppendEvents(ctx, key, store.AppendOptions{}, says("other", 1)...))
		before := e.dump()
		for _, opts := range []store.CopyOptions{{}, {DryRun: true}} {
			_, err := e.store.CopyFrom(ctx, from, key, opts)
			e.is(err, store.ErrConflict, "record 9")
		}
		e.same("the log", e.dump(), before)
	})
}

// A log longer than a commit, which is staged in part, arrives as a whole.
func TestCopyOfLongLog(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		long := store.Key{App: "app", User: "user", Session: "long"}
		add(e.T, from, long, nil, 2000)
		got, err := e.store.CopyFrom(ctx, from, long, store.CopyOptions{})
		e.no(err)
		if want := (store.Copied{Created: true, Added: 2000, Seq: 2000}); got != want {
			e.Errorf("got %+v, want %+v", got, want)
		}
		if a, b := raw(e.T, from, long), raw(e.T, e.store, long); !reflect.DeepEqual(a, b) {
			e.Error("the logs differ")
		}
	})
}

func TestCopyRefuses(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		_, err := e.store.CopyFrom(ctx, nil, key, store.CopyOptions{})
		e.is(err, store.ErrInvalid)
		_, err = e.store.CopyShared(ctx, nil, store.CopyOptions{})
		e.is(err, store.ErrInvalid)
		_, err = e.store.CopyFrom(ctx, from, store.Key{App: "app", User: "user", Session: "none"}, store.CopyOptions{})
		e.is(err, store.ErrNotFound, "app/user/none")
		e.create(map[string]any{"cart": 2})
		_, err = e.store.CopyFrom(ctx, from, key, store.CopyOptions{})
		e.is(err, store.ErrConflict, "initial state")
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
		for i, want := range []store.CopiedShared{{Added: 2}, {Added: 2}, {}} {
			want.Different = []string{"app/app/app:motd"}
			got, err := e.store.CopyShared(ctx, from, store.CopyOptions{DryRun: i == 0})
			e.no(err)
			if !reflect.DeepEqual(got, want) {
				e.Errorf("%d: got %+v, want %+v", i, got, want)
			}
		}
		e.same("state", fmt.Sprint(e.get().State()), "map[app:motd:mine user:lang:de]")
		e.append(says("later", 1)...) // the log goes on where it was
		s, err := e.store.Create(ctx, alone, nil)
		e.no(err)
		e.same("state", fmt.Sprint(s.State()), "map[app:motd:mine user:lang:fr]")
	})
}

// A copy may leave the shared scopes alone, whether it creates the session or adds to it, and
// shared values that differ may be written.
func TestCopyOfSharedByChoice(t *testing.T) {
	onEach(t, func(e *env) {
		from, alone := source(e.T), store.CopyOptions{NoShared: true}
		e.must(e.store.CopyFrom(ctx, from, key, alone))
		e.same("a new session's state", fmt.Sprint(e.get().State()), "map[cart:1 n:7]")
		e.must(from.AppendEvents(ctx, key, store.AppendOptions{}, sets("more", `{"app:motd":"bye"}`)))
		e.must(e.store.CopyFrom(ctx, from, key, alone))
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
			done, err := e.store.CopyShared(ctx, from, c.opts)
			e.no(err)
			if done.Added != c.added || len(done.Different) != c.different {
				e.Errorf("%+v: %+v", c.opts, done)
			}
			e.same("state", fmt.Sprint(e.get().State()), c.state)
		}
	})
}

// stepped is a backend that calls between after each step of staging a session.
type stepped struct {
	*storetest.Faulty
	steps   int
	last    bool // the last step, which creates the session, has been tried
	most    int  // records in a step, or in a commit that creates a session
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

// staged returns how many sessions are in the making.
func (s *stepped) staged(t testing.TB) int {
	there, err := s.List(ctx, "", "", 1000)
	if err != nil && !errors.Is(err, backend.ErrClosed) {
		t.Error(err)
	}
	return len(slices.DeleteFunc(there, func(l backend.Listed) bool { return !isStaged(l.Session) }))
}

// isStaged reports whether a name is that of a session in the making.
func isStaged(session string) bool { return strings.HasPrefix(session, "\x00\x02") }

var forkKey = store.Key{App: "app", User: "user", Session: "fork"}

// onSteps runs a test on a session with a log of several pages, in which events were
// hidden and brought back.
func onSteps(t *testing.T, run func(e *env, s *stepped)) {
	onEach(t, func(e *env) {
		s := &stepped{}
		e.reopenOn(func(engine backend.Backend) backend.Backend {
			s.Faulty = &storetest.Faulty{Backend: engine}
			return s
		})
		e.create(map[string]any{"k": 1})
		e.append(says("a", 700)...)
		e.apply(patch.NewSplice(10, 600).WithID("p1"))
		e.append(says("b", 700)...)
		e.apply(patch.NewSplice(100, 650).WithID("p2"))
		e.apply(patch.NewRevert("p1"))
		e.append(sets("s", `{"k":2}`))
		e.append(says("c", 400)...)
		run(e, s)
		if n := s.staged(e); n > 0 {
			e.Errorf("%d sessions are still staged", n)
		}
	})
}

// absentFork checks that nothing of the fork is to be seen.
func (e *env) absentFork() {
	e.Helper()
	_, err := e.store.Get(ctx, forkKey)
	e.is(err, store.ErrNotFound)
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if info.Key == forkKey {
			e.Error("the fork is listed")
		}
	}
}

// A long log is forked in steps. Between two steps the fork is invisible, and others
// write, to the session that is being forked too.
func TestForkInSteps(t *testing.T) {
	onSteps(t, func(e *env, s *stepped) {
		before := e.view()
		soon, cancel := context.WithTimeout(ctx, time.Minute) // it would wait for ever
		defer cancel()
		s.between = func(step int) {
			e.absentFork()
			for _, k := range []store.Key{key, elsewhere} {
				if k == elsewhere && step == 1 {
					e.must(e.store.Create(soon, k, nil))
				}
				e.must(e.store.AppendEvents(soon, k, store.AppendOptions{}, say(fmt.Sprint("meanwhile", step))))
			}
		}
		fork, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{})
		e.no(err)
		if s.steps < 3 || s.most > 512 {
			e.Errorf("%d steps, of up to %d records", s.steps, s.most)
		}
		e.same("the fork", withoutCreation(e.viewText(fork.View)), withoutCreation(e.viewText(before)))
		if n := len(e.records(key)); n != int(before.Seq())+s.steps {
			e.Errorf("%d records in the session, want %d more than the fork's %d", n, s.steps, before.Seq())
		}
		// It stands on its own: what patches hid comes from its own log.
		e.no(e.store.Delete(ctx, key))
		done, err := e.store.Revert(ctx, forkKey, store.UndoOptions{}, "p2")
		e.no(err)
		if n := done.View.Len(); n != before.Len()+650 {
			e.Errorf("%d visible events, want %d", n, before.Len()+650)
		}
		e.reopen()
		there := sessionOf(e, e.store, forkKey)
		e.same("after reopening", e.viewText(there.View), e.viewText(done.View))
		for _, id := range []string{"a1", "b700", "c400", "p1"} {
			_, err := e.store.AppendEvents(ctx, forkKey, store.AppendOptions{}, event(`{"id":%q}`, id))
			e.is(err, store.ErrDuplicateID, id)
		}
	})
}

// Whatever ends a fork before its last step, nothing of it is left, and it can be done
// again.
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
			e.must(e.store.Create(ctx, forkKey, map[string]any{"own": 1}))
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
					_, err := e.store.Fork(c1, key, forkKey, store.ForkOptions{})
					e.is(err, c.want)
					s.between = nil
					if c.want == store.ErrExists {
						there := sessionOf(e, e.store, forkKey)
						e.same("the other's", fmt.Sprint(there.State(), there.View.Len()), "map[own:1] 0")
						e.no(e.store.Delete(ctx, forkKey))
					}
					e.absentFork()
					if s.staged(e) > 0 {
						e.Error("something is still staged")
					}
					if c.want == store.ErrNotFound {
						return
					}
					e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
				})
			})
		}
	}
}

// A step that fails, in any way, fails the fork; that of the last decides.
func TestForkWhoseStepsFail(t *testing.T) {
	for _, how := range []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed} {
		if testlog.Race && how == storetest.Lost {
			continue
		}
		onSteps(t, func(e *env, s *stepped) {
			for step := 1; ; step++ {
				s.Plan(storetest.Plan{Write: step, Failure: how})
				s.steps, s.last = 0, false
				_, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{})
				last := s.last
				s.Plan(storetest.Plan{})
				if last && how == storetest.Landed {
					e.no(err)
					break
				}
				e.is(err, storetest.ErrInjected)
				if errors.Is(err, store.ErrOutcomeUnknown) {
					e.Errorf("step %d: error %v, but the outcome is known", step, err)
				}
				e.absentFork()
				if last {
					break
				}
			}
			if how != storetest.Landed {
				e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
			}
			fork := sessionOf(e, e.store, forkKey)
			e.same("the fork", ids(fork.View), ids(e.view()))
		})
	}
}

// Of a log that hides most of what is in it a fork holds only what is visible, while it
// copies too.
func TestForkHoldsWhatIsVisible(t *testing.T) {
	testlog.OneGoroutine(t)
	onSteps(t, func(e *env, s *stepped) {
		if e.path == "" {
			return // its storage is in memory
		}
		noise := make([]byte, 37_500)
		rand.NewChaCha8([32]byte{}).Read(noise) // which nothing compresses
		long := base64.StdEncoding.EncodeToString(noise)
		for round := range 20 {
			var events []*patch.Event
			for i := range 25 {
				events = append(events, event(`{"id":"e%d-%d","author":%q}`, round, i, long))
			}
			e.append(events...)
			view := e.view()
			e.must(e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(view.Len()-25, 25)))
		}
		before, most := heap(), uint64(0)
		s.between = func(int) { most = max(most, heap()) }
		fork, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{})
		e.no(err)
		if s.steps < 10 || most > before+8<<20 {
			e.Errorf("%d steps; the fork of a log of 25 MB takes %d bytes", s.steps, most-before)
		}
		e.same("the fork", ids(fork.View), ids(e.view()))
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
