package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// counted is a backend that counts calls, by name, and may be made to lose one.
type counted struct {
	backend.Backend
	mu    sync.Mutex
	calls []string

	// late, if not nil, takes an Append instead of the backend, whose outcome is then
	// unknown: the network broke, and the server may get it yet.
	late func(do func() error)
}

func (c *counted) count(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

// took returns the calls since the last time.
func (c *counted) took() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := strings.Join(c.calls, " ")
	c.calls = nil
	return calls
}

func (c *counted) Append(ctx context.Context, session string, b backend.Batch) error {
	c.count("Append")
	if late := c.late; late != nil {
		c.late = nil
		late(func() error { return c.Backend.Append(context.Background(), session, b) })
		return &backend.UnknownError{Cause: errors.New("connection reset")}
	}
	return c.Backend.Append(ctx, session, b)
}

func (c *counted) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	c.count("Look")
	return c.Backend.Look(ctx, q)
}

func (c *counted) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	c.count("Lookup")
	return c.Backend.Lookup(ctx, session, creation, ids)
}

func (c *counted) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	c.count("Read")
	return c.Backend.Read(ctx, session, creation, seqs, maxBytes)
}

func (c *counted) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	c.count("Snapshot")
	return c.Backend.Snapshot(ctx, session, creation)
}

func (c *counted) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	c.count("Delete")
	return c.Backend.Delete(ctx, session, creation, seen)
}

// onPeers runs a test on two stores that share what one backend in memory holds, as two
// processes share a database. mine is the first one's backend.
func onPeers(t *testing.T, run func(e *env, other *env, mine *counted)) {
	t.Helper()
	first := &memory.Backend{}
	envOf := func(b backend.Backend) *env {
		e := &env{T: t, backend: &storetest.Faulty{Backend: b}, engine: b, opts: store.Options{
			Now: func() time.Time { return now }, Snapshots: snapshot.Policy{Every: -1}, Logger: slog.New(slog.DiscardHandler),
		}}
		s := newStore(e, b, e.opts)
		e.store = s
		t.Cleanup(func() { _ = s.Close() })
		return e
	}
	mine := &counted{Backend: first}
	e := envOf(mine)
	e.create(map[string]any{"k": 1, "app:x": 1})
	e.append(says("a", 3)...)
	other := envOf(first.Peer())
	other.view()
	mine.took()
	run(e, other, mine)
	for problem, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v %v", problem, err)
	}
	if mine, theirs := e.viewText(e.view()), other.viewText(other.view()); mine != theirs {
		t.Errorf("two stores show\n%s\nand\n%s", mine, theirs)
	}
}

// What another store has acknowledged is in every later answer, and one look is what that
// costs.
func TestPeersSeeEachOther(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		e.same("visible", ids(e.view()), "a1 a2 a3")
		e.same("calls of a Get with nothing new", mine.took(), "Look")
		other.append(event(`{"id":"b1","actions":{"stateDelta":{"app:x":2,"k":3}}}`))
		session := e.get()
		e.same("visible", ids(session.View), "a1 a2 a3 b1")
		if x, _ := session.Value("app:x"); x.String() != "2" {
			e.Errorf("app:x is %v", x)
		}
		e.same("calls of a Get with something new", mine.took(), "Look")
		other.apply(patch.NewSplice(0, 2))
		e.same("visible", ids(e.view()), "a3 b1")
		other.append(says("c", 1500)...) // more than one look gives
		e.same("visible", ids(e.view()), ids(other.view()))
		e.no(other.store.Delete(ctx, key))
		_, err := e.store.Get(ctx, key)
		e.is(err, store.ErrNotFound)
		other.create(nil)
		other.append(say("new"))
		e.same("visible", ids(e.view()), "new")
	})
}

// An append costs one round trip, and is not refused because another store was faster: it
// is planned again, with the ids and times that it drew.
func TestPeersAppend(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		e.append(say("m1"))
		e.same("calls of an append", mine.took(), "Append")
		other.append(say("o1"))
		drawn := 0
		e.opts.NewID = func() string { drawn++; return fmt.Sprint("drawn", drawn) }
		s := newStore(e, mine, e.opts)
		e.store = s
		e.view()
		other.append(say("o2"))
		mine.took()
		e.append(event(`{"author":"x"}`))
		e.same("calls of an append that came late", mine.took(), "Append Look Append")
		e.same("visible", ids(e.view()), "a1 a2 a3 m1 o1 o2 drawn1")
	})
}

func TestPeersExpectations(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		four, five := uint64(4), uint64(5)
		other.append(say("o1"))
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{IfSeq: &five}, say("m1"))
		var seq *store.SeqError
		if !errors.As(err, &seq) || seq.Last != 4 {
			e.Errorf("an append after record 5 of 4: %v", err)
		}
		e.must(e.store.AppendEvents(ctx, key, store.AppendOptions{IfSeq: &four}, say("m1")))

		// What is there already is found, whoever wrote it, and whatever was expected.
		other.append(say("o2"))
		c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{IfSeq: &four}, say("o2"))
		e.no(err)
		if len(c.Records) != 1 || c.Records[0].Seq != 6 {
			e.Errorf("a retry of another's append: %v", c.Records)
		}
		other.append(say("o3"))
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m2"), event(`{"id":"o3","author":"somebody else"}`))
		var duplicate *store.DuplicateIDError
		if !errors.As(err, &duplicate) || duplicate.Seq != 7 {
			e.Errorf("another content with an id of record 7: %v", err)
		}
		other.append(say("o4"))
		c, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("o4"), say("m3"))
		e.no(err)
		if len(c.Records) != 2 || c.Records[0].Seq != 8 || c.Records[1].Seq != 9 {
			e.Errorf("an append of which half is there: %v", c.Records)
		}

		// A session that was created again is another one.
		old := e.view().Creation()
		e.no(other.store.Delete(ctx, key))
		other.create(nil)
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{Creation: old}, say("late"))
		e.is(err, store.ErrNotFound)
		e.append(say("late"))
		e.no(other.store.Delete(ctx, key))
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("later"))
		e.is(err, store.ErrNotFound)
		other.create(nil)
	})
}

// A commit whose outcome is unknown may reach the server after the caller has asked. Once
// the store has said that it wrote nothing, it never will.
func TestPeersFence(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		var late func() error
		mine.late = func(do func() error) { late = do }
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
		if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
			e.Errorf("an append that was cut off: %v", err)
		}
		e.is(late(), backend.ErrMoved)
		e.same("visible", ids(e.view()), "a1 a2 a3")
		e.append(say("m1"))

		// Another store was faster.
		mine.late = func(do func() error) { other.append(say("o1")); late = do }
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m2"))
		if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
			e.Errorf("an append that was cut off: %v", err)
		}
		e.is(late(), backend.ErrMoved)

		// It landed, and another's after it.
		mine.late = func(do func() error) { e.no(do()); other.append(say("o2")) }
		e.append(say("m3"))
		e.same("visible", ids(e.view()), "a1 a2 a3 m1 o1 m3 o2")

		// A session that was to be created.
		mine.late = func(do func() error) { late = do }
		_, err = e.store.Create(ctx, elsewhere, nil)
		if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
			e.Errorf("a creation that was cut off: %v", err)
		}
		e.is(late(), backend.ErrMoved)
		_, err = e.store.Get(ctx, elsewhere)
		e.is(err, store.ErrNotFound)
		mine.late = func(do func() error) { e.no(do()) }
		e.must(e.store.Create(ctx, elsewhere, nil))
	})
}

// A commit is not taken for another's that wrote some of the same ids, or in the same place.
func TestPeersLandedForAnother(t *testing.T) {
	for _, theirs := range []*patch.Event{say("m1"), event(`{"id":"m1","author":"somebody else"}`)} {
		onPeers(t, func(e, other *env, mine *counted) {
			var late func() error
			mine.late = func(do func() error) { other.append(theirs); late = do }
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"), say("m2"))
			if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
				e.Errorf("an append that was cut off, while another's id was its first: %v", err)
			}
			e.is(late(), backend.ErrMoved)
			e.same("visible", ids(e.view()), "a1 a2 a3 m1")
		})
	}
	onPeers(t, func(e, other *env, mine *counted) {
		mine.late = func(func() error) { other.append(event(`{"id":"m1","author":"somebody else"}`)) }
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
		if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
			e.Errorf("an append that was cut off, while another took its id: %v", err)
		}
	})
}

// Of a session that is gone nobody can say whether a commit reached it: others may have seen
// what it wrote.
func TestPeersDeletedMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		onPeers(t, func(e, other *env, mine *counted) {
			mine.late = func(do func() error) {
				e.no(do())
				e.same("visible to another", ids(other.view()), "a1 a2 a3 m1")
				e.no(other.store.Delete(ctx, key))
				if again {
					other.create(nil)
				}
			}
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
			e.is(err, store.ErrOutcomeUnknown)
			_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
			if again {
				e.no(err)
			} else {
				e.is(err, store.ErrNotFound)
				other.create(nil)
			}
		})
	}
}

// A reader that waits while another one reads the session looks again when it has it: what
// was acknowledged when it began is in its view.
func TestPeersReadAtOnce(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		synctest.Test(e.T, func(t *testing.T) {
			slow := &slowHead{Backend: mine, read: make(chan struct{})}
			s := newStore(e, slow, e.opts)
			var wg sync.WaitGroup
			wg.Go(func() {
				e.must(s.Get(ctx, key))
			})
			synctest.Wait() // it has the head, and has not read on
			other.append(say("o1"))
			wg.Go(func() {
				session := sessionOf(e, s, key)
				e.same("visible", ids(session.View), "a1 a2 a3 o1")
			})
			synctest.Wait()
			close(slow.read)
			wg.Wait()
		})
	})
}

// slowHead is a backend whose first answer about a head takes long to come.
type slowHead struct {
	backend.Backend
	once sync.Once
	read chan struct{}
}

func (s *slowHead) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	head, err := s.Backend.Look(ctx, q)
	s.once.Do(func() { <-s.read })
	return head, err
}

// What a server that took over has lost is lost in every later view, also where as many
// records have been written since.
func TestPeersAfterLostHistory(t *testing.T) {
	for _, again := range []string{"", "x", "x y", "x y z", "y lost1"} {
		onPeers(t, func(e, other *env, mine *counted) {
			before := mine.Backend
			info := infoOf(e, e.store, key)
			e.append(says("lost", 2)...)
			mine.Backend = lostHistory(e, before, info)
			for _, id := range strings.Fields(again) {
				e.no(func() error {
					s := newStore(e, mine.Backend, e.opts)
					_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say(id))
					return err
				}())
			}
			e.same("visible", ids(e.view()), strings.TrimSpace("a1 a2 a3 "+again))
			e.append(say("m1"))
			e.same("visible", ids(e.view()), strings.TrimSpace("a1 a2 a3 "+again)+" m1")
			mine.Backend = before
		})
	}
}

// lostHistory is a backend with the session as it was when info was had of it.
func lostHistory(e *env, from backend.Backend, info store.Info) backend.Backend {
	name := e.nameOf(info)
	head, err := backend.HeadOf(ctx, from, name)
	e.no(err)
	records, err := from.Read(ctx, name, info.Creation, backend.Range(1, int(info.Seq)), 1<<30)
	e.no(err)
	chain := backend.Chain{}
	for i, r := range records {
		records[i].Sum = recordform.Checksum(r.Data)
		rec, err := patch.DecodeRecord(r.Data)
		e.no(err)
		for id := range rec.IDs() {
			records[i].IDs = append(records[i].IDs, id)
		}
		chain = chain.Add(records[i].Sum)
	}
	b := &memory.Backend{}
	e.no(b.Append(ctx, name, backend.Batch{Creation: info.Creation, Create: true, Meta: head.Meta, Next: head.Token ^ 1, Records: records}))
	return b
}
