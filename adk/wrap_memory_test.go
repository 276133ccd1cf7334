package adk_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
)

// Without a cache nothing of a session is kept, and handles go on as with one. No lock outlives its use.
func TestWrapForgets(t *testing.T) {
	s := wrap(t, session.InMemoryService(), adk.Options{}.WithCache(-1))
	sess := create(t, s, "s", map[string]any{"k": 1})
	for i := range 10 {
		no(t, s.AppendEvent(t.Context(), sess, text(fmt.Sprint("e", i), "user", "x")))
	}
	_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 9))
	no(t, err)
	equal(t, "events", ids(get(t, s, "s")), []string{"e9"})
	cached, locked := s.Known()
	equal(t, "cached", cached, 0)
	equal(t, "locked", locked, 0)
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
