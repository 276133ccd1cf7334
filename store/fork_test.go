package store_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
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

// A long log is forked in steps. Between any two nobody sees the fork, and everybody
// writes, to the session that is being forked too.
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
