package adk_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
)

// Sessions that nobody uses are forgotten, and their locks with them.
func TestWrapForgets(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	var kept []session.Session
	for i := range 3000 {
		sess := create(t, s, fmt.Sprint("s", i), nil)
		if i < 10 {
			kept = append(kept, sess)
		}
	}
	for range 6000 {
		runtime.GC()
		if s.Lines() <= adk.MaxLines+len(kept) {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run in a goroutine of their own
	}
	if n := s.Lines(); n > adk.MaxLines+len(kept) {
		t.Errorf("%d sessions are known", n)
	}
	for i, sess := range kept {
		no(t, s.AppendEvent(t.Context(), sess, text("e", "user", "x")))
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		no(t, err)
		equal(t, "events", get(t, s, fmt.Sprint("s", i)).Events().Len(), 0)
	}
}

// A read converts and folds what is new, and nothing else.
func TestWrapReadsWhatIsNew(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3000 {
		no(t, s.AppendEvent(t.Context(), sess, text(fmt.Sprint("e", i), "user", "x")))
	}
	first := get(t, s, "s").(*adk.Session).View()
	allocs := testing.AllocsPerRun(5, func() { get(t, s, "s") })
	if allocs > 300 {
		t.Errorf("a read makes %v allocations", allocs)
	}
	for i, e := range get(t, s, "s").(*adk.Session).View().Events() {
		if e != first.At(i) {
			t.Fatalf("event %d was read again", i)
		}
	}
}

// Writers in one process do not hinder each other, whatever they do.
func TestWrapConcurrent(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		create(t, base, "s", nil)
		var wg sync.WaitGroup
		s := wrap(t, base, adk.Options{Logger: quiet()})
		for w := range 4 {
			wg.Go(func() {
				sess := get(t, s, "s")
				for i := range 10 {
					if err := s.AppendEvent(t.Context(), sess, timed(10*w+i, fmt.Sprintf("e%d-%d", w, i), "user")); err != nil {
						t.Error(err)
					}
					_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1).WithState(patch.Keep))
					if err != nil {
						sess = get(t, s, "s")
					}
					for range sess.Events().All() {
					}
				}
			})
		}
		wg.Wait()
		n := 0
		for e := range get(t, base, "s").Events().All() {
			if e.CustomMetadata["_patchlog"] == nil {
				n++
			}
		}
		equal(t, "events", n, 40)
		one, other := get(t, s, "s"), get(t, wrap(t, base, adk.Options{Logger: quiet()}), "s")
		a, b := ids(one), ids(other)
		slices.Sort(a)
		slices.Sort(b)
		if len(a) != len(b) {
			t.Errorf("one sees %d events, another %d", len(a), len(b))
		}
	})
}
