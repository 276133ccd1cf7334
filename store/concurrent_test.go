package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

func TestOneOfManyPatchersWins(t *testing.T) {
	const writers = 16
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 10)...)
		for round := range 5 {
			seen := e.view()
			var won, lost atomic.Int32
			together(writers, func(i int) {
				p := patch.NewSplice(0, 1).WithID(fmt.Sprint("p", round, "-", i))
				switch c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p); {
				case err == nil:
					won.Add(1)
					if c.View.PatchSeq() != seen.Seq()+1 {
						e.Errorf("the winner's patch is record %d", c.View.PatchSeq())
					}
				case errors.Is(err, store.ErrConflict):
					lost.Add(1)
					if got := as[*fold.ConflictError](e, err); got.Base != seen.PatchSeq() || got.Newest != seen.Seq()+1 {
						e.Errorf("conflict of %d with %d, want %d with %d", got.Base, got.Newest, seen.PatchSeq(), seen.Seq()+1)
					}
				default:
					e.Error(err)
				}
			})
			if won.Load() != 1 || lost.Load() != writers-1 {
				e.Fatalf("%d won and %d lost", won.Load(), lost.Load())
			}
		}
		if n := e.view().Len(); n != 5 {
			e.Errorf("%d events are visible, want 5", n)
		}
	})
}

func TestAppendsNeverConflict(t *testing.T) {
	const writers, each = 8, 15
	onEach(t, func(e *env) {
		e.create(nil)
		var seqs sync.Map
		together(writers, func(i int) {
			last := uint64(0)
			for k := range each {
				id := fmt.Sprint(i, "-", k)
				c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, sets(id, fmt.Sprintf(`{"k%d":%d}`, i, k)), sets(id+"b", `{}`))
				if err != nil {
					e.Error(err)
					return
				}
				for _, r := range c.Records {
					if _, twice := seqs.LoadOrStore(r.Seq, r.ID()); twice || r.Seq <= last {
						e.Errorf("record %d after %d, given before: %t", r.Seq, last, twice)
					}
					last = r.Seq
				}
				// What was acknowledged is in every later view.
				if v := e.view(); v.Seq() < last {
					e.Errorf("a view at %d, after record %d was acknowledged", v.Seq(), last)
				}
			}
		})
		records := e.records(key)
		if len(records) != 2*writers*each {
			e.Fatalf("%d records, want %d", len(records), 2*writers*each)
		}
		for _, r := range records {
			if id, _ := seqs.Load(r.Seq); id != r.ID() {
				e.Errorf("record %d is %q, but %q was acknowledged", r.Seq, r.ID(), id)
			}
		}
		for i := range writers {
			if v, _ := e.view().Value(fmt.Sprint("k", i)); v.String() != fmt.Sprint(each-1) {
				e.Errorf("k%d is %s", i, v)
			}
		}
	})
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

// Deleting and creating again beside readers and writers: each sees one creation or
// that there is none.
func TestDeleteAndCreateWhileOthersUse(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		var wg sync.WaitGroup
		done := make(chan struct{})
		for i := range 4 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					var err error
					if i%2 == 0 {
						_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{}`))
					} else {
						for r, rawErr := range e.store.RawEvents(ctx, key, 1) {
							if err = rawErr; err == nil && r.Event == nil {
								e.Error("a record without event")
							}
						}
					}
					if err != nil && !errors.Is(err, store.ErrNotFound) {
						e.Error(err)
					}
				}
			})
		}
		for range 10 {
			e.no(e.store.Delete(ctx, key))
			if _, err := e.store.Create(ctx, key, nil); err != nil {
				e.Error(err)
			}
		}
		close(done)
		wg.Wait()
	})
}
