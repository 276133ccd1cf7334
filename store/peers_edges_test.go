package store_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

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

// busy is a backend whose Reads others do not wait for.
type busy struct {
	backend.Backend
	during func()
	reads  int
}

func (b *busy) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	out, err := b.Backend.Read(ctx, session, creation, seqs, maxBytes)
	b.reads++
	if b.during != nil && b.reads < 400 {
		b.during()
	}
	return out, err
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
		b := &busy{Backend: mine}
		s := newStore(e, b, e.opts)
		e.must(s.View(ctx, key))
		n := 0
		b.during = func() {
			n++
			other.append(say("n" + time.Duration(n).String()))
			e.must(s.Get(ctx, key))
		}
		e.must(s.Revert(ctx, key, store.UndoOptions{}, "p1"))
		if b.reads > 20 {
			e.Errorf("the revert took %d reads", b.reads)
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

type pickHook struct {
	backend.Backend
	during func()
}

func (p *pickHook) Read(ctx context.Context, session, creation string, seqs []uint64, most int) ([]backend.Record, error) {
	out, err := p.Backend.Read(ctx, session, creation, seqs, most)
	if d := p.during; d != nil {
		p.during = nil
		d()
	}
	return out, err
}

// Records that were read of a session that has been created again since are not taken for its.
func TestPeersCreateAgain(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		h := &pickHook{Backend: mine}
		s := newStore(e, h, e.opts)
		e.apply(patch.NewSplice(0, 1).WithID("p1"))
		text := strings.ReplaceAll(e.export(), "this is a1", "this is the other a1")
		e.must(s.View(ctx, key))
		h.during = func() {
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
