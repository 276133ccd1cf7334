package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// between calls functions amid what a store does with its backend.
type between struct {
	backend.Backend
	appended func()              // after a commit
	headed   func()              // after a look at a session
	shared   func(prefix string) // after a look at shared values
}

func (b *between) Append(ctx context.Context, session string, batch backend.Batch) error {
	err := b.Backend.Append(ctx, session, batch)
	if b.appended != nil {
		b.appended()
	}
	return err
}

func (b *between) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	news, err := b.Backend.Look(ctx, q)
	if f := b.headed; f != nil && q.Session != "" {
		b.headed = nil
		f()
	}
	if f := b.shared; f != nil && len(q.Shared) > 0 {
		b.shared = nil
		f(q.Shared[0])
	}
	return news, err
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

// While a commit has been made that its writer does not know of yet, readers see all of it or
// nothing, and none goes back.
func TestReadsWhileCommitting(t *testing.T) {
	onBetween(t, func(e *env, b *between) {
		for name, look := range map[string]func() uint64{
			"get": func() uint64 {
				session := sessionOf(e, e.store, key)
				x, _ := session.Value("app:x")
				if n, _ := x.Any().(int64); n != int64(session.View.Seq()) {
					e.Errorf("app:x is %v after record %d", x, session.View.Seq())
				}
				return session.View.Seq()
			},
			"raw": func() uint64 {
				last := uint64(0)
				for r, err := range e.store.RawEvents(ctx, key, 1) {
					e.no(err)
					last = r.Seq
				}
				return last
			},
			"info": func() uint64 {
				info := infoOf(e, e.store, key)
				return info.Seq
			},
			"export": func() uint64 {
				var text strings.Builder
				e.no(e.store.Export(ctx, key, &text, store.ExportOptions{}))
				return uint64(strings.Count(text.String(), `"seq"`))
			},
			"fork": func() uint64 {
				fork, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{})
				e.no(err)
				e.no(e.store.Delete(ctx, forkKey))
				return fork.View.Seq()
			},
		} {
			e.Run(name, func(t *testing.T) {
				e := e.with(t)
				committed, release := make(chan struct{}), make(chan struct{})
				b.appended = func() {
					b.appended = nil
					close(committed)
					<-release
				}
				written, read := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(written)
					e.append(sets("", `{"app:x":`+string('0'+rune(e.view().Seq()+1))+`}`))
				}()
				<-committed
				go func() {
					defer close(read)
					seen := look()
					if newest := e.view().Seq(); newest < seen {
						e.Errorf("%d records are seen, and then %d", seen, newest)
					}
				}()
				select {
				case <-read:
				case <-time.After(30 * time.Millisecond): // it waits
				}
				close(release)
				<-read
				<-written
			})
		}
	})
}

// Both scopes are as of one moment.
func TestScopesOfOneMoment(t *testing.T) {
	onBetween(t, func(e *env, b *between) {
		other := key
		other.Session = "other"
		e.must(e.store.Create(ctx, other, nil))
		b.shared = func(string) {
			e.must(e.store.AppendEvents(ctx, other, store.AppendOptions{}, sets("b", `{"app:x":2,"user:x":2}`)))
		}
		session := sessionOf(e, e.store, key)
		app, _ := session.Value("app:x")
		user, _ := session.Value("user:x")
		if !app.Equal(user) {
			e.Errorf("app:x is %v, and user:x is %v", app, user)
		}
	})
}
