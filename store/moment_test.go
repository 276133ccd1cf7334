package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// between calls functions amid what a store does with its backend.
type between struct {
	backend.Backend
	headed func() // after a look at a session
}

func (b *between) Head(ctx context.Context, session string) (backend.Head, error) {
	head, err := b.Backend.Head(ctx, session)
	if f := b.headed; f != nil {
		b.headed = nil
		f()
	}
	return head, err
}

func onBetween(t *testing.T, run func(e *env, b *between)) {
	onEach(t, func(e *env) {
		b := &between{}
		e.reopenOn(func(engine backend.Backend) backend.Backend { b.Backend = engine; return b })
		e.create(nil)
		e.append(sets("a", `{"app:x":1,"user:x":1}`))
		run(e, b)
	})
}

// An import creates the session if it is not there, when others delete it too.
func TestImportWhileDeleted(t *testing.T) {
	onBetween(t, func(e *env, b *between) {
		b.headed = func() { e.no(e.store.Delete(ctx, key)) }
		done, err := e.store.Import(ctx, key, strings.NewReader(`{"id":"b"}`), store.ImportOptions{})
		e.no(err)
		if !done.Created || done.Added != 1 || done.View.Seq() != 1 {
			e.Errorf("created: %v, %d added, %d records", done.Created, done.Added, done.View.Seq())
		}
	})
}
