package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// fill lets the session's log grow to n records, with patches of each type in it.
func (e *env) fill(n int) {
	e.Helper()
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	for {
		v := e.view()
		i, l := int(v.Seq()), v.Len()
		if i >= n {
			return
		}
		id := fmt.Sprint("f", i)
		switch k := rnd.IntN(10); {
		case k == 0 && l > 3:
			e.apply(patch.NewSplice(rnd.IntN(l), 1, sets(id, fmt.Sprintf(`{"k%d":%d}`, i%5, i))))
		case k == 1 && l > 3:
			e.apply(patch.NewSummarise(rnd.IntN(l-2), 2, summary(id)))
		case k == 2 && l > 6:
			e.apply(patch.NewTruncateBefore(v.At(rnd.IntN(3)).ID()))
		default:
			e.append(event(`{"id":%q,"author":"a","timestamp":"2025-11-20T10:%02d:00Z","actions":{"stateDelta":{"k%d":%d}}}`, id, rnd.IntN(60), i%5, i))
		}
	}
}

func TestRawEvents(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		for range e.store.RawEvents(ctx, key, 1) {
			e.Fatal("an empty log has a record")
		}
		var events []*patch.Event
		for i := range 1300 { // more than two pages
			events = append(events, event(`{"id":"e%d"}`, i+1))
		}
		e.append(events...)
		e.apply(patch.NewSplice(3, 2).WithID("p"))
		for _, from := range []uint64{0, 1, 2, 512, 513, 514, 1300, 1301, 1302, 1 << 63} {
			seq := max(from, 1)
			for r, err := range e.store.RawEvents(ctx, key, from) {
				e.no(err)
				if r.Seq != seq {
					e.Fatalf("from %d: record %d, want %d", from, r.Seq, seq)
				}
				if want := fmt.Sprint("e", seq); r.Event != nil && r.ID() != want {
					e.Errorf("record %d has id %q", seq, r.ID())
				}
				seq++
			}
			if want := max(1302, max(from, 1)); seq != want {
				e.Errorf("from %d: ended before %d, want %d", from, seq, want)
			}
		}
	})
}

func TestRawEventsEnds(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 1100)...)
		// When the loop does.
		for r, err := range e.store.RawEvents(ctx, key, 5) {
			e.no(err)
			if r.Seq == 7 {
				break
			}
		}
		// When the caller is gone.
		cancelled, cancel := context.WithCancel(ctx)
		defer cancel()
		var last uint64
		var end error
		for r, err := range e.store.RawEvents(cancelled, key, 1) {
			if end = err; err == nil {
				last = r.Seq
				cancel()
			}
		}
		if !errors.Is(end, context.Canceled) || last == 1100 {
			e.Errorf("after %d records: %v, want %v", last, end, context.Canceled)
		}
		// When the session is, even if there is a new one.
		end = nil
		for r, err := range e.store.RawEvents(ctx, key, 1) {
			if end = err; err == nil && r.Seq == 1 {
				e.no(e.store.Delete(ctx, key))
				e.create(nil)
				e.append(says("b", 1200)...)
			} else if err == nil && r.ID() != fmt.Sprint("a", r.Seq) {
				e.Fatalf("record %d of another creation", r.Seq)
			}
		}
		e.is(end, store.ErrNotFound, key.String())
	})
}

// A page of records is read at a time, and pages have no seam.
func TestLargeRecordsPageByPage(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		var want []string
		for i, size := range []int{10, 700_000, 700_000, 10, 3_000_000, 10, 10} {
			want = append(want, fmt.Sprint("e", i))
			e.append(event(`{"id":%q,"content":{"parts":[{"text":"%0*d"}]}}`, want[i], size, 1))
		}
		e.reopen()
		e.same("visible", ids(e.view()), fmt.Sprint(want)[1:len(fmt.Sprint(want))-1])
	})
}

// Reading a log whose records are long and say little keeps a page in memory, not what a page
// of compressed records unpacks to.
func TestReadingHoldsAPage(t *testing.T) {
	testlog.OneGoroutine(t)
	rounds := 20
	if testing.Short() {
		rounds = 10
	}
	long := strings.Repeat("x", 500_000)
	onEach(t, func(e *env) {
		e.create(nil)
		for i := range rounds {
			var events []*patch.Event
			for j := range 10 {
				events = append(events, testlog.New(patch.Fields{ID: fmt.Sprint("e", i, "-", j), Author: long}))
			}
			e.append(events...)
			e.must(e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 10)))
		}
		e.opts.CacheBytes = -1
		e.reopen()
		if raw, err := e.engine.Read(ctx, name(key), e.creation(), backend.Range(1, 1000), 1<<20); err != nil || len(raw) < 100 {
			e.Fatalf("%d records are a page of the backend's, %v", len(raw), err)
		}
		check := func(what string, read func(between func())) {
			before, most := heap(), uint64(0)
			read(func() { most = max(most, heap()) })
			if most == 0 || most > before+8<<20 {
				e.Errorf("%s a log of %d MB takes %d bytes", what, 5*rounds, int64(most)-int64(before))
			}
		}
		check("reading", func(between func()) {
			for r, err := range e.store.RawEvents(ctx, key, 1) {
				e.no(err)
				if r.Seq%50 == 1 {
					between()
				}
				runtime.KeepAlive(r)
			}
		})
	})
}

// name is what backends call a session whose key needs no escaping.
func name(key store.Key) string {
	return strings.Join([]string{key.App, key.User, key.Session, ""}, "\x00\x01")
}

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
