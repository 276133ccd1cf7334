package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
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

type heldFail struct {
	backend.Backend
	free chan struct{}
	n    int
	mid  func()
}

func (h *heldFail) Append(ctx context.Context, session string, batch backend.Batch) error {
	h.n++
	switch h.n {
	case 1:
		<-h.free
		err := h.Backend.Append(ctx, session, batch)
		h.mid()
		return err
	case 2:
		return errors.New("no connection to the server")
	}
	return h.Backend.Append(ctx, session, batch)
}

// What is said without having been written is said of the log as it is, also where the write of
// the group around it failed.
func TestPeersSayWhatIs(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		synctest.Test(e.T, func(t *testing.T) {
			h := &heldFail{Backend: mine, free: make(chan struct{})}
			h.mid = func() { other.append(say("o1")) } // record 5
			s := newStore(e, h, e.opts)
			e.must(s.Get(ctx, key))
			five := uint64(5)
			var wg sync.WaitGroup
			wg.Go(func() { _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say("first")); e.no(err) }) // 4
			synctest.Wait()
			var refused, failed, none error
			var nothing, retry store.Committed
			wg.Go(func() { _, refused = s.AppendEvents(ctx, key, store.AppendOptions{IfSeq: &five}, say("m1")) })
			synctest.Wait()
			wg.Go(func() { nothing, none = s.AppendEvents(ctx, key, store.AppendOptions{}) })
			synctest.Wait()
			wg.Go(func() { retry, _ = s.AppendEvents(ctx, key, store.AppendOptions{}, says("a", 3)...) })
			synctest.Wait()
			wg.Go(func() { _, failed = s.AppendEvents(ctx, key, store.AppendOptions{}, say("m2")) })
			synctest.Wait()
			close(h.free)
			wg.Wait()
			var seq *store.SeqError
			if errors.As(refused, &seq) && seq.Last != 5 {
				t.Errorf("a true IfSeq is refused: %v", refused)
			}
			if failed == nil {
				t.Error("a write without a connection succeeded")
			}
			e.no(none)
			for _, c := range []store.Committed{nothing, retry} {
				if shown := ids(c.View); !strings.HasPrefix(shown, "a1 a2 a3 first o1") {
					t.Errorf("acknowledged with an old view: %s", shown)
				}
			}
		})
	})
}

// A snapshot of what a server has lost that took over since may reach it late. It shows by the
// chain that it is of another log.
func TestPeersSnapshotOfLostHistory(t *testing.T) {
	first := &memory.Backend{}
	opts := store.Options{Now: func() time.Time { return now }, Snapshots: snapshot.Policy{Every: 4, Share: 1}, Logger: slog.New(slog.DiscardHandler)}
	mine := &snapLate{counted: &counted{Backend: first}, gate: make(chan struct{}), reached: make(chan struct{})}
	e := &env{T: t, engine: first, backend: &storetest.Faulty{Backend: first}, opts: opts}
	s := newStore(e, mine, opts)
	e.store = s
	e.create(nil)
	e.append(says("a", 3)...)
	info := infoOf(e, e.store, key)
	e.apply(patch.NewSplice(0, 2)) // 4
	e.append(says("lost", 2)...)   // the snapshot is due, and waits
	<-mine.reached
	promoted := lostHistory(e, first, info)
	mine.counted.Backend = promoted
	close(mine.gate) // the snapshot reaches the new primary
	time.Sleep(50 * time.Millisecond)
	opts.Snapshots.Every = -1
	s2 := newStore(e, promoted, opts)
	e.must(s2.AppendEvents(ctx, key, store.AppendOptions{}, says("x", 3)...))
	e.must(s2.AppendEvents(ctx, key, store.AppendOptions{}, says("z", 2)...))
	want := viewOf(e, s2, key)
	s3 := newStore(e, promoted, opts)
	got, err := s3.View(ctx, key)
	if err != nil || e.viewText(got) != e.viewText(want) {
		e.Errorf("got %v %s, want %s\n%s\n%s", err, ids(got), ids(want), e.viewText(got), e.viewText(want))
	}
}

type snapLate struct {
	*counted
	gate    chan struct{}
	reached chan struct{}
	once    sync.Once
}

func (s *snapLate) PutSnapshot(ctx context.Context, session, creation string, kept backend.Snapshot) error {
	s.once.Do(func() { close(s.reached) })
	<-s.gate
	return s.counted.Backend.PutSnapshot(ctx, session, creation, kept)
}

// A revert on a view of a snapshot reads few records, however busy other writers are meanwhile.
func TestPeersRevertAfterSnapshot(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		e.opts.Snapshots = snapshot.Policy{Every: 2, Share: 1}
		snapper := newStore(e, &nocloseB{mine.Backend}, e.opts)
		e.must(snapper.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patch.NewSplice(0, 2).WithID("p1")))
		e.must(snapper.AppendEvents(ctx, key, store.AppendOptions{}, says("s", 4)...))
		e.no(snapper.Close())
		e.opts.Snapshots = snapshot.Policy{Every: -1}
		var during func()
		reads := 0
		b := &onRead{mine, func(_ context.Context, next func() ([]backend.Record, error)) ([]backend.Record, error) {
			records, err := next()
			if reads++; during != nil && reads < 400 {
				during()
			}
			return records, err
		}}
		s := newStore(e, b, e.opts)
		e.must(s.View(ctx, key))
		n := 0
		during = func() {
			n++
			other.append(say("n" + time.Duration(n).String()))
			e.must(s.Get(ctx, key))
		}
		e.must(s.Revert(ctx, key, store.UndoOptions{}, "p1"))
		if reads > 20 {
			e.Errorf("the revert took %d reads", reads)
		}
	})
}

type nocloseB struct{ backend.Backend }

func (*nocloseB) Close() error { return nil }

// An import with a patch sees what goes before it in the same commit.
func TestImportInGroup(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), say("first"), say("b1"))
		e.apply(patch.NewSplice(0, 1).WithID("p1"))
		text := e.export()
		e.no(e.store.Delete(ctx, key))
		e.create(nil)
		e.append(say("a1"))
		var out outcome
		var err error
		e.inGroup(storetest.Plan{},
			e.appending(&out, store.AppendOptions{}, say("b1")),
			func() { _, err = e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{}) },
		)
		if err != nil {
			e.Errorf("import: %v", err)
		}
	})
}

// stuck is a server's backend.
type stuck struct {
	backend.Backend
	free chan struct{}
	n    int
}

func (h *stuck) Lease(context.Context, string, string, time.Duration) (bool, error) { return true, nil }

func (h *stuck) Append(ctx context.Context, session string, batch backend.Batch) error {
	h.n++
	if h.n == 1 {
		<-h.free
	}
	if h.n == 2 { // the server does not answer
		select {
		case <-ctx.Done():
			return &backend.UnknownError{Cause: ctx.Err()}
		case <-time.After(time.Hour):
		}
	}
	return h.Backend.Append(ctx, session, batch)
}

// A call ends with its context, though it shares a commit with one that waits on.
func TestPeersLeave(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		synctest.Test(e.T, func(t *testing.T) {
			h := &stuck{Backend: mine, free: make(chan struct{})}
			s := newStore(e, h, e.opts)
			var wg sync.WaitGroup
			wg.Go(func() { s.AppendEvents(ctx, key, store.AppendOptions{}, say("first")) })
			synctest.Wait()
			began := time.Now()
			wg.Go(func() {
				limited, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := s.AppendEvents(limited, key, store.AppendOptions{}, say("m1"))
				if took := time.Since(began); took > time.Minute {
					t.Errorf("a call with a second to go took %v: %v", took, err)
				}
			})
			synctest.Wait()
			wg.Go(func() { s.AppendEvents(ctx, key, store.AppendOptions{}, say("m2")) })
			synctest.Wait()
			close(h.free)
			wg.Wait()
		})
	})
}

// Records that were read of a session that has been created again since are not taken for its.
func TestPeersCreateAgain(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		var during func()
		h := &onRead{mine, func(_ context.Context, next func() ([]backend.Record, error)) ([]backend.Record, error) {
			records, err := next()
			if do := during; do != nil {
				during = nil
				do()
			}
			return records, err
		}}
		s := newStore(e, h, e.opts)
		e.apply(patch.NewSplice(0, 1).WithID("p1"))
		text := strings.ReplaceAll(e.export(), "this is a1", "this is the other a1")
		e.must(s.View(ctx, key))
		during = func() {
			e.no(other.store.Delete(ctx, key))
			other.importText("f", text)
		}
		e.must(s.Revert(ctx, key, store.UndoOptions{}, "p1"))
		v := viewOf(e, s, key)
		if mine, theirs := e.viewText(v), other.viewText(other.view()); mine != theirs {
			t.Errorf("two stores show\n%s\nand\n%s", mine, theirs)
		}
	})
}

// failsOver is a backend that another server takes over from, which has lost the end of the log:
// the call with the given number, and all that follow, go there.
type failsOver struct {
	backend.Backend
	after backend.Backend
	calls atomic.Int64
	at    int64
}

func (b *failsOver) server() backend.Backend {
	if b.calls.Add(1) < b.at {
		return b.Backend
	}
	return b.after
}

func (b *failsOver) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	return b.server().Look(ctx, q)
}

func (b *failsOver) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	return b.server().Read(ctx, session, creation, seqs[:min(len(seqs), 2)], maxBytes)
}

func (b *failsOver) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	return b.server().Lookup(ctx, session, creation, ids)
}

func (b *failsOver) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	return b.server().Snapshot(ctx, session, creation)
}

func (b *failsOver) Append(ctx context.Context, session string, batch backend.Batch) error {
	return b.server().Append(ctx, session, batch)
}

func (b *failsOver) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	return b.server().Delete(ctx, session, creation, seen)
}

func (b *failsOver) Close() error { return nil }

var fork = store.Key{App: "app", User: "user", Session: "fork"}

func from(id, invocation string) *patch.Event {
	return event(`{"id":%q,"invocationId":%q,"author":"user","content":{"role":"user","parts":[{"text":"needle %s"}]}}`, id, invocation, id)
}

// callsAcrossFailover are calls that read a log of 8 records, of which the new server has 5. The
// third is a patch, and the seventh reverts it.
var callsAcrossFailover = map[string]func(*store.Store) error{
	"Get": func(s *store.Store) error {
		_, err := s.Get(ctx, key)
		return err
	},
	"View": func(s *store.Store) error {
		_, err := s.View(ctx, key)
		return err
	},
	"ViewAt": func(s *store.Store) error {
		v, err := s.ViewAt(ctx, key, 4)
		if err == nil && v.Seq() != 4 {
			err = fmt.Errorf("the view is of record %d", v.Seq())
		}
		return err
	},
	"ViewAt, lost": func(s *store.Store) error {
		v, err := s.ViewAt(ctx, key, 8)
		if err == nil && v.Seq() != 8 {
			err = fmt.Errorf("the view is of record %d", v.Seq())
		}
		return err
	},
	"RawEvents":                 func(s *store.Store) error { return lastOf(s.RawEvents(ctx, key, 1)) },
	"RawEvents from the middle": func(s *store.Store) error { return lastOf(s.RawEvents(ctx, key, 4)) },
	"Receipts": func(s *store.Store) error {
		_, err := s.Receipts(ctx, key)
		return err
	},
	"Export": func(s *store.Store) error { return s.Export(ctx, key, io.Discard, store.ExportOptions{}) },
	"History": func(s *store.Store) error {
		v, err := s.View(ctx, key)
		if err == nil {
			_, err = s.History(ctx, key, v)
		}
		return err
	},
	"Fork": func(s *store.Store) error {
		_, err := s.Fork(ctx, key, fork, store.ForkOptions{})
		return err
	},
	"Fork at a record": func(s *store.Store) error {
		at := uint64(7)
		_, err := s.Fork(ctx, key, fork, store.ForkOptions{At: &at})
		return err
	},
	"CopyFrom": func(s *store.Store) error {
		into, err := store.New(&memory.Backend{}, store.Options{})
		if err != nil {
			return err
		}
		defer into.Close()
		_, err = into.CopyFrom(ctx, s, key, store.CopyOptions{})
		return err
	},
	"Rewind": func(s *store.Store) error {
		_, err := s.Rewind(ctx, key, store.UndoOptions{}, "i7")
		return err
	},
	"PreviewRewind": func(s *store.Store) error {
		_, err := s.PreviewRewind(ctx, key, store.UndoOptions{}, "i4")
		return err
	},
	"Revert": func(s *store.Store) error {
		_, err := s.Revert(ctx, key, store.UndoOptions{}, "p")
		return err
	},
	"append again": func(s *store.Store) error {
		_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, from("e7", "i7"))
		return err
	},
	"Search": func(s *store.Store) error {
		_, err := s.Search(ctx, key, recall.Search{Query: "needle"})
		return err
	},
	"Retain": func(s *store.Store) error {
		for _, err := range s.Retain(ctx, map[string]store.Retention{"": {DeleteAfter: time.Hour}}, store.RetainOptions{}) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"Verify": func(s *store.Store) error {
		for p, err := range s.Verify(ctx, store.VerifyOptions{Key: key}) {
			if err != nil {
				return err
			}
			return p.Err
		}
		return nil
	},
	"Watch": func(s *store.Store) error {
		n := 0
		for _, err := range s.Watch(ctx, key, 1) {
			if n++; err != nil || n == 5 {
				return err
			}
		}
		return nil
	},
}

// later returns options with a clock by which the sessions are due for [store.Store.Retain].
func later(opts store.Options) store.Options {
	opts.Now = func() time.Time { return now.Add(2 * time.Hour) }
	return opts
}

func lastOf(records func(yield func(patch.Record, error) bool)) (err error) {
	for _, err = range records {
	}
	return err
}

// A healthy log is never called damaged, whichever of a call's questions is the first that is asked
// of a server that took over and has lost the end of the log.
func TestReadAcrossFailover(t *testing.T) {
	for _, every := range []int{-1, 3} {
		for _, regrown := range []int{0, 1, 3, 5} {
			for name, call := range callsAcrossFailover {
				t.Run(fmt.Sprintf("%s/snapshots %d/%d records since", name, every, regrown), func(t *testing.T) {
					e := &env{T: t, opts: store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
						Snapshots: snapshot.Policy{Every: every, Share: 1}}}
					first := &memory.Backend{}
					e.backend = &storetest.Faulty{Backend: first}
					e.open()
					e.create(nil)
					e.append(from("e1", "i1"), from("e2", "i2"))
					e.apply(parsePatch(`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}]}`))
					e.append(from("e4", "i4"), from("e5", "i5"))
					info := infoOf(e, e.store, key)
					e.append(from("e6", "i6"))
					e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p"))
					e.append(from("e8", "i8"))
					all := infoOf(e, e.store, key)
					kept, err := first.Snapshot(ctx, e.nameOf(info), info.Creation)
					e.no(err)
					for at := int64(1); ; at++ {
						old, after := lostHistory(e, lostHistory(e, first, all), all), lostHistory(e, first, info)
						if kept.Data != nil {
							e.no(old.PutSnapshot(ctx, e.nameOf(info), info.Creation, kept))
						}
						s := newStore(e, unclosed{after}, e.opts)
						for i := range regrown {
							e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, from(fmt.Sprint("n", i), "n")))
						}
						e.no(s.Close())
						b := &failsOver{Backend: old, after: after, at: at}
						s = newStore(e, b, later(e.opts))
						err = call(s)
						for _, allowed := range []error{store.ErrConflict, store.ErrNotFound, fold.ErrEventNotFound, fold.ErrBlocked} {
							if errors.Is(err, allowed) {
								t.Logf("call %d of the backend: %v", at, err)
								err = nil
							}
						}
						if err != nil {
							t.Errorf("call %d of the backend: %v", at, err)
						}
						e.no(s.Close())
						if b.calls.Load() < at {
							break
						}
					}
				})
			}
		}
	}
}

// hasGap is a shared backend whose records from the fourth on are gone. If busy, each head is
// another one.
type hasGap struct {
	backend.Backend
	busy bool
	n    atomic.Uint64
}

func (b *hasGap) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	news, err := b.Backend.Look(ctx, q)
	if b.busy {
		news.Token += backend.Token(b.n.Add(1))
	}
	news.Records = beforeGap(news.Records)
	return news, err
}

func (b *hasGap) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	records, err := b.Backend.Read(ctx, session, creation, seqs, maxBytes)
	return beforeGap(records), err
}

func (b *hasGap) Close() error { return nil }

func beforeGap(records []backend.Record) []backend.Record {
	for i, r := range records {
		if r.Seq > 3 {
			return records[:i]
		}
	}
	return records
}

// A gap is damage, also while others write to the session, unless the call does not read so far.
func TestGapIsDamage(t *testing.T) {
	b := &memory.Backend{}
	e := &env{T: t, backend: &storetest.Faulty{Backend: b}, opts: store.Options{Now: func() time.Time { return now },
		Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: -1}}}
	e.open()
	e.create(nil)
	for i := range 8 {
		e.append(from(fmt.Sprint("e", i+1), fmt.Sprint("i", i+1)))
	}
	for name, call := range callsAcrossFailover {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/busy %v", name, busy), func(t *testing.T) {
				s := newStore(e, &hasGap{Backend: b, busy: busy}, later(e.opts))
				defer s.Close()
				if err := call(s); !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("the error is %v, want ErrCorrupt", err)
				}
			})
		}
	}
}
