package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// envOn returns the env of a store on a backend.
func envOn(t *testing.T, b backend.Backend, policy snapshot.Policy) *env {
	e := &env{T: t, backend: &storetest.Faulty{Backend: b}, engine: b, opts: store.Options{
		Now: func() time.Time { return now }, Snapshots: policy, Logger: slog.New(slog.DiscardHandler),
	}}
	e.store = newStore(e, b, e.opts)
	t.Cleanup(func() { _ = e.store.Close() })
	return e
}

// onPeers runs a test on two stores that share one backend in memory, as two processes share a database. The
// argument mine is the backend of the first store.
func onPeers(t *testing.T, run func(e *env, other *env, mine *hooked)) {
	t.Helper()
	first := &memory.Backend{}
	mine := &hooked{Backend: first}
	e := envOn(t, mine, snapshot.Policy{Every: -1})
	e.create(map[string]any{"k": 1, "app:x": 1})
	e.append(says("a", 3)...)
	other := envOn(t, first.Peer(), snapshot.Policy{Every: -1})
	other.view()
	mine.takeCalls()
	run(e, other, mine)
	for problem, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v %v", problem, err)
	}
	if mine, theirs := e.viewText(e.view()), other.viewText(other.view()); mine != theirs {
		t.Errorf("two stores show\n%s\nand\n%s", mine, theirs)
	}
}

// A read includes every write of another store that was acknowledged before the read. This costs one Fetch.
func TestPeersSeeEachOther(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		e.same("visible", ids(e.view()), "a1 a2 a3")
		e.same("calls of a Get with nothing new", mine.takeCalls(), "Fetch")
		other.append(event(`{"id":"b1","actions":{"stateDelta":{"app:x":2,"k":3}}}`))
		session := e.get()
		e.same("visible", ids(session.View), "a1 a2 a3 b1")
		if x, _ := session.Value("app:x"); x.String() != "2" {
			e.Errorf("app:x is %v", x)
		}
		e.same("calls of a Get with something new", mine.takeCalls(), "Fetch")
		other.apply(patch.NewSplice(0, 2))
		e.same("visible", ids(e.view()), "a3 b1")
		other.append(says("c", 1500)...) // makes more records than one Fetch returns
		e.same("visible", ids(e.view()), ids(other.view()))
		e.no(other.store.Delete(ctx, key))
		e.is(errOf(e.store.Get(ctx, key)), store.ErrNotFound)
		other.create(nil)
		other.append(say("new"))
		e.same("visible", ids(e.view()), "new")
	})
}

// An append takes one round trip. If another store commits first, the append is not refused. It is planned again,
// with the same ids and times.
func TestPeersAppend(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		e.append(say("m1"))
		e.same("calls of an append", mine.takeCalls(), "Append")
		other.append(say("o1"))
		drawn := 0
		e.opts.NewID = func() string { drawn++; return fmt.Sprint("drawn", drawn) }
		s := newStore(e, mine, e.opts)
		e.store = s
		e.view()
		other.append(say("o2"))
		mine.takeCalls()
		e.append(event(`{"author":"x"}`))
		e.same("calls of an append that came late", mine.takeCalls(), "Append Fetch Append")
		e.same("visible", ids(e.view()), "a1 a2 a3 m1 o1 o2 drawn1")
	})
}

// wantCutOff checks the error of a write that has no effect and can have none later.
func (e *env) wantCutOff(err error) {
	e.Helper()
	if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
		e.Errorf("a write that was cut off: %v", err)
	}
}

// A commit with an unknown outcome may reach the server after the store has asked for the outcome. If the store
// then reports that nothing was written, the commit must not take effect later.
func TestPeersFence(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		var late func() error
		mine.late(func(do func() error) { late = do })
		e.wantCutOff(e.try(say("m1")))
		e.is(late(), backend.ErrMoved)
		e.same("visible", ids(e.view()), "a1 a2 a3")
		e.append(say("m1"))

		// Another store commits first.
		mine.late(func(do func() error) { other.append(say("o1")); late = do })
		e.wantCutOff(e.try(say("m2")))
		e.is(late(), backend.ErrMoved)

		// The commit takes effect, and then another store commits.
		mine.late(func(do func() error) { e.no(do()); other.append(say("o2")) })
		e.append(say("m3"))
		e.same("visible", ids(e.view()), "a1 a2 a3 m1 o1 m3 o2")

		// The commit creates a session.
		mine.late(func(do func() error) { late = do })
		e.wantCutOff(errOf(e.store.Create(ctx, elsewhere, nil, store.CreateOptions{})))
		e.is(late(), backend.ErrMoved)
		e.is(errOf(e.store.Get(ctx, elsewhere)), store.ErrNotFound)
		mine.late(func(do func() error) { e.no(do()) })
		e.must(e.store.Create(ctx, elsewhere, nil, store.CreateOptions{}))
	})
}

// If another store's commit wrote the same ids or the same seqs, the store does not mistake that commit for its
// own.
func TestPeersLandedForAnother(t *testing.T) {
	for _, theirs := range []*patch.Event{say("m1"), event(`{"id":"m1","author":"somebody else"}`)} {
		onPeers(t, func(e, other *env, mine *hooked) {
			var late func() error
			mine.late(func(do func() error) { other.append(theirs); late = do })
			e.wantCutOff(e.try(say("m1"), say("m2")))
			e.is(late(), backend.ErrMoved)
			e.same("visible", ids(e.view()), "a1 a2 a3 m1")
		})
	}
	onPeers(t, func(e, other *env, mine *hooked) {
		mine.late(func(func() error) { other.append(event(`{"id":"m1","author":"somebody else"}`)) })
		e.wantCutOff(e.try(say("m1")))
	})
}

// The response to a commit is lost. Another store had logged the same records before, and this store has not read
// them. The returned view is then the view of the log, not the view that the commit would have produced.
func TestPeersLandedBefore(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		e.view()
		other.append(say("m1"))
		other.append(say("o1"))
		mine.late(func(do func() error) { e.is(do(), backend.ErrMoved) })
		done := e.append(say("m1"))
		e.same("seq and visible", fmt.Sprint(done.Records[0].Seq, " ", ids(done.View)), "4 a1 a2 a3 m1 o1")
		e.same("visible", ids(e.view()), "a1 a2 a3 m1 o1")
	})
}

// If the view refuses a patch, the patch may already be in the log. In this test, another store logs the patch and
// an event that the patch needs. It does so after this store has read the log and before this store looks up the
// ids. The lookup then finds a record that the view lacks.
func TestPeersLoggedWhatIsRefused(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		cut := patch.NewTruncateBefore("b1").WithID("p1")
		logged := false
		mine.serve = func(_ context.Context, call string) (backend.Backend, error) {
			if call == "Lookup" && !logged {
				logged = true
				other.append(say("b1"))
				other.apply(cut)
			}
			return nil, nil
		}
		done := e.apply(cut)
		e.same("logged, seq and visible", fmt.Sprint(logged, " ", done.Records[0].Seq, " ", ids(done.View)), "true 5 b1")
	})
}

// If a session is deleted before the store asks for the outcome of a commit, or while the store reads, the outcome
// stays unknown, because other processes may have seen the records. The store does not repeat the commit.
func TestPeersDeletedMeanwhile(t *testing.T) {
	for _, c := range []struct{ again, reading bool }{{}, {again: true}, {reading: true}, {again: true, reading: true}} {
		onPeers(t, func(e, other *env, mine *hooked) {
			gone := func() {
				e.no(other.store.Delete(ctx, key))
				if c.again {
					other.create(nil)
				}
			}
			if c.reading {
				mine.set(beforeFirst("Read", gone))
			}
			mine.late(func(do func() error) {
				e.no(do())
				other.append(say("o1"))
				if !c.reading {
					gone()
				}
			})
			err := e.try(say("m1"))
			e.is(err, store.ErrOutcomeUnknown)
			testlog.Equal(e, "the error says two things", errors.Is(err, store.ErrNotFound), false)
			if !c.again {
				e.is(e.try(say("m1")), store.ErrNotFound)
				other.create(nil)
			}
			e.same("visible", ids(e.view()), "")
			e.append(say("m1"))
		})
	}
}

// If a reader waits for another read of the session, it then reads the storage itself. Its view therefore includes
// all writes that were acknowledged before its call began.
func TestPeersReadAtOnce(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		synctest.Test(e.T, func(t *testing.T) {
			read := make(chan struct{})
			once := sync.OnceFunc(func() { <-read })
			s := newStore(e, &hooked{Backend: mine, fetched: func(backend.Query, *backend.Fetched) { once() }}, e.opts)
			var wg sync.WaitGroup
			wg.Go(func() {
				e.must(s.Get(ctx, key))
			})
			synctest.Wait() // the first reader has the head and has read no records yet
			other.append(say("o1"))
			wg.Go(func() {
				session := sessionOf(e, s, key)
				e.same("visible", ids(session.View), "a1 a2 a3 o1")
			})
			synctest.Wait()
			close(read)
			wg.Wait()
		})
	})
}

// lostHistory returns a backend whose session is as it was when info was read.
func lostHistory(e *env, from backend.Backend, info store.Info) backend.Backend {
	head, err := backend.FetchHead(ctx, from, name(key))
	e.no(err)
	records, err := from.Read(ctx, name(key), info.Creation, backend.Range(1, int(info.Seq)), 1<<30)
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
	e.no(b.Append(ctx, name(key), backend.Batch{Creation: info.Creation, Create: true, Meta: head.Meta, Next: head.Token ^ 1, Records: records}))
	return b
}

// If a commit fails, all calls that share the commit fail. This includes calls that had nothing to write, and
// calls that the view in memory would have refused. That view may be out of date.
func TestPeersShareAFailure(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		synctest.Test(e.T, func(t *testing.T) {
			free := make(chan struct{})
			cut := errors.New("no connection to the server")
			s := newStore(e, &hooked{Backend: mine, appended: func(ctx context.Context, n int, next func(context.Context) error) error {
				switch n {
				case 1:
					<-free
					err := next(ctx)
					other.append(say("o1")) // record 5
					return err
				case 2:
					return cut
				}
				return next(ctx)
			}}, e.opts)
			e.must(s.Get(ctx, key))
			five := uint64(5)
			var wg sync.WaitGroup
			wg.Go(func() { e.must(s.AppendEvents(ctx, key, []*patch.Event{say("first")}, store.AppendOptions{})) }) // record 4
			synctest.Wait()
			for name, write := range map[string]func() (store.Committed, error){
				"refused": func() (store.Committed, error) {
					return s.AppendEvents(ctx, key, []*patch.Event{say("m1")}, store.AppendOptions{IfSeq: &five})
				},
				"nothing": func() (store.Committed, error) { return s.AppendEvents(ctx, key, nil, store.AppendOptions{}) },
				"retry": func() (store.Committed, error) {
					return s.AppendEvents(ctx, key, says("a", 3), store.AppendOptions{})
				},
				"failed": func() (store.Committed, error) {
					return s.AppendEvents(ctx, key, []*patch.Event{say("m2")}, store.AppendOptions{})
				},
			} {
				wg.Go(func() { testlog.ErrorIs(t, errOf(write()), cut, name) })
			}
			synctest.Wait()
			close(free)
			wg.Wait()
		})
	})
}

// If a view was restored from a snapshot, a revert reads few records, even while other goroutines write.
func TestPeersRevertAfterSnapshot(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		e.opts.Snapshots = snapshot.Policy{Every: 2, MinPercent: 1}
		snapper := newStore(e, unclosed{mine.Backend}, e.opts)
		e.must(snapper.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 2).WithID("p1")}, store.PatchOptions{AsOfNow: true}))
		e.must(snapper.AppendEvents(ctx, key, says("s", 4), store.AppendOptions{}))
		e.no(snapper.Close())
		e.opts.Snapshots = snapshot.Policy{Every: -1}
		var during func()
		reads := 0
		b := &hooked{Backend: mine, read: func(records []backend.Record) []backend.Record {
			if reads++; during != nil && reads < 400 {
				during()
			}
			return records
		}}
		s := newStore(e, b, e.opts)
		e.must(s.View(ctx, key))
		n := 0
		during = func() {
			n++
			other.append(say("n" + time.Duration(n).String()))
			e.must(s.Get(ctx, key))
		}
		e.must(s.Revert(ctx, key, "p1", store.UndoOptions{}))
		if reads > 20 {
			e.Errorf("the revert took %d reads", reads)
		}
	})
}

// If an import with a patch shares a commit with other writes, its patch sees the records that they add before it.
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
		e.inGroup(storetest.Plan{},
			e.appending(&out, store.AppendOptions{}, say("b1")),
			func() { e.must(e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{})) },
		)
	})
}

// server is a backend with leases, like a backend on a server.
type server struct{ *hooked }

func (server) Lease(context.Context, string, string, time.Duration) (bool, error) { return true, nil }

// If a call's context ends, the call returns, even if it shares a commit with a call that continues to wait.
func TestPeersLeave(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		synctest.Test(e.T, func(t *testing.T) {
			free := make(chan struct{})
			s := newStore(e, server{&hooked{Backend: mine, appended: func(ctx context.Context, n int, next func(context.Context) error) error {
				switch n {
				case 1:
					<-free
				case 2: // the server does not respond
					select {
					case <-ctx.Done():
						return &backend.UnknownError{Cause: ctx.Err()}
					case <-time.After(time.Hour):
					}
				}
				return next(ctx)
			}}}, e.opts)
			var wg sync.WaitGroup
			wg.Go(func() { s.AppendEvents(ctx, key, []*patch.Event{say("first")}, store.AppendOptions{}) })
			synctest.Wait()
			began := time.Now()
			wg.Go(func() {
				limited, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := s.AppendEvents(limited, key, []*patch.Event{say("m1")}, store.AppendOptions{})
				if took := time.Since(began); took > time.Minute {
					t.Errorf("a call with a second to go took %v: %v", took, err)
				}
			})
			synctest.Wait()
			wg.Go(func() { s.AppendEvents(ctx, key, []*patch.Event{say("m2")}, store.AppendOptions{}) })
			synctest.Wait()
			close(free)
			wg.Wait()
		})
	})
}

// If a session is deleted and created again during a read, the store does not mix records of the old session into
// the new session.
func TestPeersCreateAgain(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		var during func()
		h := &hooked{Backend: mine, read: func(records []backend.Record) []backend.Record {
			if do := during; do != nil {
				during = nil
				do()
			}
			return records
		}}
		s := newStore(e, h, e.opts)
		e.apply(patch.NewSplice(0, 1).WithID("p1"))
		text := strings.ReplaceAll(e.export(), "this is a1", "this is the other a1")
		e.must(s.View(ctx, key))
		during = func() {
			e.no(other.store.Delete(ctx, key))
			other.importText("f", text)
		}
		e.must(s.Revert(ctx, key, "p1", store.UndoOptions{}))
		v := viewOf(e, s, key)
		if mine, theirs := e.viewText(v), other.viewText(other.view()); mine != theirs {
			t.Errorf("two stores show\n%s\nand\n%s", mine, theirs)
		}
	})
}

var fork = store.Key{App: "app", User: "user", Session: "fork"}

func from(id, invocation string) *patch.Event {
	return event(`{"id":%q,"invocationId":%q,"author":"user","content":{"role":"user","parts":[{"text":"needle %s"}]}}`, id, invocation, id)
}

// callsAcrossFailover are calls that read a log of 8 records. The new server has only the first 5 records. Record
// 3 is a patch, and record 7 reverts it.
var callsAcrossFailover = map[string]func(*store.Store) error{
	"Get":                       func(s *store.Store) error { return errOf(s.Get(ctx, key)) },
	"View":                      func(s *store.Store) error { return errOf(s.View(ctx, key)) },
	"ViewAt":                    func(s *store.Store) error { return viewAt(s, 4) },
	"ViewAt, lost":              func(s *store.Store) error { return viewAt(s, 8) },
	"RawEvents":                 func(s *store.Store) error { return errIn(s.RawEvents(ctx, key, 1)) },
	"RawEvents from the middle": func(s *store.Store) error { return errIn(s.RawEvents(ctx, key, 4)) },
	"Receipts":                  func(s *store.Store) error { return errOf(s.Receipts(ctx, key)) },
	"Export":                    func(s *store.Store) error { return s.Export(ctx, key, io.Discard, store.ExportOptions{}) },
	"History": func(s *store.Store) error {
		v, err := s.View(ctx, key)
		if err == nil {
			_, err = s.History(ctx, key, v)
		}
		return err
	},
	"HistoryPage": func(s *store.Store) error {
		v, err := s.View(ctx, key)
		if err == nil {
			_, err = s.HistoryPage(ctx, key, v, v.At(v.Len()-1).ID(), 2)
		}
		return err
	},
	"Fork": func(s *store.Store) error { return errOf(s.Fork(ctx, key, fork, store.ForkOptions{})) },
	"Fork at a record": func(s *store.Store) error {
		at := uint64(7)
		return errOf(s.Fork(ctx, key, fork, store.ForkOptions{At: &at}))
	},
	"CopyFrom": func(s *store.Store) error {
		into, err := store.New(&memory.Backend{}, store.Options{})
		if err != nil {
			return err
		}
		defer into.Close()
		return errOf(into.CopyFrom(ctx, key, s, store.CopyOptions{}))
	},
	"Rewind":     func(s *store.Store) error { return errOf(s.Rewind(ctx, key, "i7", store.UndoOptions{})) },
	"dry Rewind": func(s *store.Store) error { return errOf(s.Rewind(ctx, key, "i4", store.UndoOptions{DryRun: true})) },
	"Revert":     func(s *store.Store) error { return errOf(s.Revert(ctx, key, "p", store.UndoOptions{})) },
	"append again": func(s *store.Store) error {
		return errOf(s.AppendEvents(ctx, key, []*patch.Event{from("e7", "i7")}, store.AppendOptions{}))
	},
	"Search": func(s *store.Store) error {
		return errOf(recall.NewFinder(s, 0).Search(ctx, key, recall.Search{Query: "needle"}))
	},
	"Retain": func(s *store.Store) error {
		return errIn(s.Retain(ctx, map[string]store.Retention{"": {DeleteAfter: time.Hour}}, store.RetainOptions{}))
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

// later returns options with a clock at which the sessions are due for [store.Store.Retain].
func later(opts store.Options) store.Options {
	opts.Now = func() time.Time { return now.Add(2 * time.Hour) }
	return opts
}

// errIn returns the first error of an iterator.
func errIn[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func viewAt(s *store.Store, seq uint64) error {
	v, err := s.ViewAt(ctx, key, seq)
	if err == nil && v.Seq() != seq {
		err = fmt.Errorf("the view is of record %d", v.Seq())
	}
	return err
}

// After a failover, the new server lacks the end of the log. Whichever backend call of a read reaches the new
// server first, the read does not report damage. No later view contains the lost records.
func TestReadAcrossFailover(t *testing.T) {
	for _, every := range []int{-1, 3} {
		for _, regrown := range []int{0, 1, 3, 5} {
			for what, call := range callsAcrossFailover {
				t.Run(fmt.Sprintf("%s/snapshots %d/%d records since", what, every, regrown), func(t *testing.T) {
					first := &memory.Backend{}
					e := envOn(t, first, snapshot.Policy{Every: every, MinPercent: 1})
					e.create(nil)
					e.append(from("e1", "i1"), from("e2", "i2"))
					e.apply(parsePatch(`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}]}`))
					e.append(from("e4", "i4"), from("e5", "i5"))
					info := infoOf(e, e.store, key)
					e.append(from("e6", "i6"))
					e.must(e.store.Revert(ctx, key, "p", store.UndoOptions{}))
					e.append(from("e8", "i8"))
					all := infoOf(e, e.store, key)
					kept, err := backend.FetchSnapshot(ctx, first, name(key), info.Creation)
					e.no(err)
					for at := int64(1); ; at++ {
						old, after := lostHistory(e, lostHistory(e, first, all), all), lostHistory(e, first, info)
						if kept.Data != nil {
							e.no(old.PutSnapshot(ctx, name(key), info.Creation, kept))
							if what != "Verify" { // Verify reports a snapshot that reaches the new server late
								e.no(after.PutSnapshot(ctx, name(key), info.Creation, kept))
							}
						}
						s := newStore(e, unclosed{after}, e.opts)
						for i := range regrown {
							e.must(s.AppendEvents(ctx, key, []*patch.Event{from(fmt.Sprint("n", i), "n")}, store.AppendOptions{}))
						}
						e.no(s.Close())
						var calls atomic.Int64
						// Backend call number at, and all later calls, reach the new server, which lacks the end
						// of the log.
						b := &hooked{Backend: old, maxRecords: 2, serve: func(_ context.Context, call string) (backend.Backend, error) {
							if call == "PutSnapshot" || calls.Add(1) < at {
								return old, nil
							}
							return after, nil
						}}
						s = newStore(e, unclosed{b}, later(e.opts))
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
						over := calls.Swap(at) < at
						shown, err := s.View(ctx, key)
						anew := newStore(e, unclosed{after}, e.opts)
						want, wantErr := anew.View(ctx, key)
						if errors.Is(err, store.ErrNotFound) != errors.Is(wantErr, store.ErrNotFound) || e.viewText(shown) != e.viewText(want) {
							t.Errorf("call %d of the backend: then the new server's log shows as\n%s%v, want\n%s%v", at, e.viewText(shown), err, e.viewText(want), wantErr)
						}
						e.no(errors.Join(s.Close(), anew.Close()))
						if over {
							break
						}
					}
				})
			}
		}
	}
}

// beforeGap returns the records with seqs below 4.
func beforeGap(records []backend.Record) []backend.Record {
	for i, r := range records {
		if r.Seq > 3 {
			return records[:i]
		}
	}
	return records
}

// A call that reads a log with a gap reports damage, even while other stores write to the session. A call that
// does not read as far as the gap succeeds.
func TestGapIsDamage(t *testing.T) {
	b := &memory.Backend{}
	e := envOn(t, b, snapshot.Policy{Every: -1})
	e.create(nil)
	for i := range 8 {
		e.append(from(fmt.Sprint("e", i+1), fmt.Sprint("i", i+1)))
	}
	for what, call := range callsAcrossFailover {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/busy %v", what, busy), func(t *testing.T) {
				var n atomic.Uint64
				gap := &hooked{Backend: b, read: beforeGap, fetched: func(_ backend.Query, news *backend.Fetched) {
					if busy { // makes each read return another token
						news.Token += backend.Token(n.Add(1))
					}
					news.Records = beforeGap(news.Records)
				}}
				s := newStore(e, unclosed{gap}, later(e.opts))
				defer s.Close()
				if err := call(s); !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("the error is %v, want ErrCorrupt", err)
				}
			})
		}
	}
}
