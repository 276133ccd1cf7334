package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// together runs f in n goroutines that start at once, and waits for them.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// The same call from many goroutines at once lands once.
func TestRetriesAtOnce(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		seen := e.view()
		together(12, func(i int) {
			c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("b1"), say("b2"))
			if err != nil || c.Records[1].ID() != "b2" {
				e.Errorf("append: %v", err)
			}
			p := patch.NewSplice(0, 1).WithID("p")
			if c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p); err != nil || c.Records[0].ID() != "p" {
				e.Errorf("patch: %v", err)
			}
		})
		if n := len(e.records(key)); n != 7 {
			e.Errorf("%d records, want 7", n)
		}
	})
}

// Who holds a view can read it while others append and patch.
func TestViewsWhileOthersWrite(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"k": "initial"})
		e.append(says("a", 20)...)
		held := e.view()
		text := e.viewText(held)
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for last := uint64(0); ; {
					select {
					case <-done:
						return
					default:
					}
					s, err := e.store.Get(ctx, key)
					if err != nil {
						e.Error(err)
						return
					}
					if s.View.Seq() < last {
						e.Errorf("a view at %d after one at %d", s.View.Seq(), last)
					}
					last = s.View.Seq()
					readView(s.View)
					if e.viewText(held) != text {
						e.Error("a held view has changed")
					}
					_ = held.Check(patch.NewSplice(2, 3), fold.CheckOptions{})
				}
			})
		}
		together(4, func(i int) {
			for k := range 15 {
				if _, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, sets(fmt.Sprint(i, "-", k), `{"k":1}`)); err != nil {
					e.Error(err)
				}
				p := patch.NewSplice(0, 1, event(`{}`))
				if _, err := e.store.ApplyPatch(ctx, key, asOfNow, p); err != nil {
					e.Error(err)
				}
			}
		})
		close(done)
		readers.Wait()
	})
}

func readView(v fold.View) {
	n := 0
	for i, ev := range v.Events() {
		_ = ev.ID()
		n = i
	}
	_ = v.State()
	for i := n; i < v.Len(); i++ {
		_ = v.Entry(i)
	}
}
