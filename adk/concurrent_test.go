package adk_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Several goroutines use one session while others use the same log through their own.
func TestConcurrentUse(t *testing.T) {
	const writers, each = 6, 30
	svc, err := adk.NewService(opened(t)(store.OpenMemory(store.Options{})), adk.Options{}.WithCache(2000))
	no(t, err)
	ctx := t.Context()
	shared := create(t, svc, "s", nil)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			sess := shared
			if w%2 == 1 {
				sess = get(t, svc, "s")
			}
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				e := text(id, "agent", id)
				e.Actions.StateDelta = map[string]any{fmt.Sprint("k", w): i, "app:last": id, "temp:t": i}
				if err := svc.AppendEvent(ctx, sess, e); err != nil {
					t.Error(err)
					return
				}
				own := false
				for e := range sess.Events().All() {
					own = own || e.ID == id
					e.Content.Parts[0].Text = "scribbled" // its own
				}
				if v, err := sess.State().Get(fmt.Sprint("k", w)); !own || err != nil || v != i {
					t.Errorf("after %s the session shows it: %v, and k is %v, %v", id, own, v, err)
				}
				_ = sess.State().Set("temp:x", w)
				for range sess.State().All() {
				}
			}
		})
	}
	group.Go(func() {
		for range each {
			sess := get(t, svc, "s")
			p := patch.NewSplice(0, min(1, sess.Events().Len()), summary(t, "note")).WithState(patch.Keep)
			if _, err := svc.ApplyPatch(ctx, sess, p); err != nil && !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		}
	})
	group.Wait()
	events := 0
	for r, err := range svc.RawEvents(ctx, shared, 1) {
		no(t, err)
		if r.Event != nil {
			events++
		}
	}
	equal(t, "events in the audit log", events, writers*each)
	if adk.SameEvents {
		shared = get(t, svc, "s")
	}
	for e := range shared.Events().All() {
		if e.Content.Parts[0].Text == "scribbled" {
			t.Error("a change to a returned event shows")
		}
	}
}
