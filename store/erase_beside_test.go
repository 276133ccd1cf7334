package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/canary"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// An erasing that is not finished keeps nobody from making a backup, in which it can be finished.
func TestBackupOfAHalfErasedSession(t *testing.T) {
	dir := t.TempDir()
	b := openBoltAt(t, filepath.Join(dir, "log.db"))
	faulty := &storetest.Faulty{Backend: b}
	s := newStore(t, faulty, store.Options{})
	createWith(t, s, eraseKey, said(t, "e1", "secret"))
	faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Refused})
	if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "r"}); !errors.Is(err, storetest.ErrInjected) {
		t.Fatalf("a step that fails: %v", err)
	}
	testlog.NoError(t, s.Close())

	open := func(name string) *store.Store {
		s := openStore(t, filepath.Join(dir, name), store.Options{})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var copied bytes.Buffer
	testlog.NoError(t, open("log.db").Backup(t.Context(), &copied))
	testlog.NoError(t, os.WriteFile(filepath.Join(dir, "copy.db"), copied.Bytes(), 0o600))
	s = open("copy.db")
	must(t)(s.Erase(t.Context(), eraseKey, store.EraseSelection{}, store.EraseOptions{ID: "r"}))
	if got := has(t, s, eraseKey, "secret"); len(got) > 0 {
		t.Errorf("records %v of the copy have it", got)
	}
	verified(t, s)
}

// What is erased while Verify looks is no damage, though Verify had looked up the log's end before
// the receipt was there.
func TestVerifyBesideErase(t *testing.T) {
	b := beforeRead(new(memory.Backend), func() {})
	s := newStore(t, b, store.Options{})
	defer s.Close()
	createWith(t, s, eraseKey, said(t, "e1", "secret"))
	erased := false
	b.read = beforeRead(nil, func() {
		erased = true
		if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{}); err != nil {
			t.Error(err)
		}
	}).read
	verified(t, s)
	if !erased {
		t.Error("nothing was erased meanwhile")
	}
	verified(t, s)
}

// A fork that is deleted while it is being erased has nothing left to erase. The writes are the
// receipts of both forks and of the session, and then two of each: a step, and the closing commit.
func TestEraseForkDeletedMeanwhile(t *testing.T) {
	for _, c := range []struct{ write, fork int }{{1, 0}, {2, 1}, {3, 0}, {3, 1}, {4, 0}, {5, 0}, {6, 1}, {7, 1}, {8, 0}} {
		erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
			createWith(t, s, eraseKey, said(t, "e1", "secret"))
			forks := []store.Key{eraseKey, eraseKey}
			for i := range forks {
				forks[i].Session = fmt.Sprint("t", i)
				must(t)(s.Fork(t.Context(), eraseKey, forks[i], store.ForkOptions{}))
			}
			faulty.Plan(storetest.Plan{Write: c.write, Failure: storetest.Landed, During: func() {
				if err := s.Delete(t.Context(), forks[c.fork]); err != nil {
					t.Error(err)
				}
			}})
			if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{}); err != nil {
				t.Errorf("write %d, fork %d: %v", c.write, c.fork, err)
			}
			for _, key := range []store.Key{eraseKey, forks[1-c.fork]} {
				if got := has(t, s, key, "secret"); len(got) > 0 {
					t.Errorf("write %d, fork %d: records %v of %s have it", c.write, c.fork, got, key)
				}
			}
			verified(t, s)
		})
	}
}

// Two that erase parts of one session, while others write to it and read it, finish both, and what
// anybody is shown afterwards has neither.
func TestErasesBesideEachOther(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		var events []*patch.Event
		for i := range 400 {
			events = append(events, said(t, fmt.Sprint("e", i), fmt.Sprintf("secret of %d", i%2)))
		}
		createWith(t, s, eraseKey, events...)
		var erasing, writing sync.WaitGroup
		for i := range 2 {
			erasing.Go(func() {
				of := store.EraseSelection{Match: fmt.Sprintf("secret of %d", i)}
				if _, err := s.Erase(t.Context(), eraseKey, of, store.EraseOptions{ID: fmt.Sprint("r", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		over := make(chan struct{})
		writing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				if _, err := s.AppendEvents(t.Context(), eraseKey, store.AppendOptions{}, said(t, fmt.Sprint("w", n), "more")); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Get(t.Context(), eraseKey); err != nil {
					t.Error(err)
				}
			}
		})
		erasing.Wait()
		close(over)
		writing.Wait()
		if got := has(t, s, eraseKey, "secret"); len(got) > 0 {
			t.Errorf("records %v have it", got)
		}
		if receipts, err := s.Receipts(t.Context(), eraseKey); err != nil || len(receipts) != 2 {
			t.Errorf("receipts %v, %v", receipts, err)
		}
		verified(t, s)
	})
}

// stepping is the backend of a process that does something else before one of its writes, and is killed before another.
type stepping struct {
	backend.Backend
	before int // the write before which to call do; 0 for none
	do     func()
	kill   int // the write before which the process ends; 0 for none
	writes int
	dead   bool
}

var errKilled = errors.New("killed")

func (c *stepping) write(do func() error) error {
	if c.writes++; c.writes == c.before {
		c.do()
	}
	if c.dead = c.dead || c.writes == c.kill; c.dead {
		return errKilled
	}
	return do()
}

func (c *stepping) Append(ctx context.Context, session string, b backend.Batch) error {
	return c.write(func() error { return c.Backend.Append(ctx, session, b) })
}

func (c *stepping) Replace(ctx context.Context, session string, r backend.Replacement) error {
	return c.write(func() error { return c.Backend.Replace(ctx, session, r) })
}

func quietly(t testing.TB, b backend.Backend) *store.Store {
	t.Helper()
	s := newStore(t, b, store.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	return s
}

// forkedWhileErased has one process erase session s1 of ann, of which bob has a fork, another one fork s1, or bob's
// fork, before each of the eraser's writes, and the eraser end before each later one; a third one does the same again.
// Then no session shows what was erased.
func forkedWhileErased(t *testing.T, erase func(s *store.Store) error) {
	key := func(user, session string) store.Key { return store.Key{App: "a", User: user, Session: session} }
	for _, at := range []uint64{0, 1, 2, 3} {
		for _, of := range []store.Key{key("ann", "s1"), key("bob", "fork")} {
			for before, done := 1, false; !done; before++ {
				for kill := before; ; kill++ {
					shared := new(memory.Backend)
					c := &stepping{Backend: shared}
					s, other := quietly(t, c), quietly(t, shared)
					must(t)(s.Create(ctx, key("ann", "s1"), map[string]any{"k": "secret"}))
					must(t)(s.AppendEvents(ctx, key("ann", "s1"), store.AppendOptions{}, said(t, "e1", "secret"), said(t, "e2", "secret"), said(t, "e3", "secret")))
					createWith(t, s, key("ann", "s2"), said(t, "x", "of another session"))
					must(t)(s.Fork(ctx, key("ann", "s1"), key("bob", "fork"), store.ForkOptions{}))
					c.writes, c.before, c.kill = 0, before, kill
					c.do = func() {
						opts := store.ForkOptions{At: &at}
						if at == 0 {
							opts.At = nil
						}
						if _, err := other.Fork(ctx, of, key("bob", "late"), opts); err != nil {
							t.Errorf("fork: %v", err)
						}
					}
					err := erase(s)
					name := fmt.Sprintf("fork of %s at %d before write %d, killed before %d", of, at, before, kill)
					if c.dead != errors.Is(err, errKilled) {
						t.Fatalf("%s: %v", name, err)
					}
					done = c.writes < before
					if err := erase(quietly(t, shared)); err != nil {
						t.Fatalf("%s: again: %v", name, err)
					}
					for info, err := range other.List(ctx, store.ListOptions{}) {
						testlog.NoError(t, err)
						var out strings.Builder
						testlog.NoError(t, other.Export(ctx, info.Key, &out, store.ExportOptions{}))
						if strings.Contains(out.String(), "secret") {
							t.Errorf("%s: %s shows it", name, info.Key)
						}
					}
					verified(t, other)
					if !c.dead || done {
						break
					}
				}
				if t.Failed() {
					return
				}
			}
		}
	}
}

// Wherever a fork comes between the steps of an erase, and the erase is killed after it, the next call finds the fork.
func TestForkWhileErasing(t *testing.T) {
	t.Run("Erase", func(t *testing.T) {
		forkedWhileErased(t, func(s *store.Store) error {
			_, err := s.Erase(ctx, store.Key{App: "a", User: "ann", Session: "s1"}, store.EraseSelection{All: true}, store.EraseOptions{ID: "r", Values: "null"})
			return err
		})
	})
	t.Run("EraseUser", func(t *testing.T) {
		forkedWhileErased(t, func(s *store.Store) error {
			_, err := s.EraseUser(ctx, "a", "ann", store.EraseOptions{ID: "r"})
			return err
		})
	})
}

// A patch that another process logs while an erase is under way, and that tells of what goes, goes too, or is refused.
func TestPatchWhileErasing(t *testing.T) {
	for before := 1; before <= 4; before++ {
		shared := new(memory.Backend)
		c := &stepping{Backend: shared, before: before}
		s, other := quietly(t, c), quietly(t, shared)
		createWith(t, other, eraseKey, said(t, "e1", "secret"), said(t, "e2", "other"))
		seen := viewOf(t, other, eraseKey)
		refused := false
		c.do = func() {
			now := viewOf(t, other, eraseKey)
			p := patch.NewSummarise(0, 1, said(t, "s", "it was secret")).WithBase(now.PatchSeq())
			_, err := other.ApplyPatch(ctx, eraseKey, store.PatchOptions{On: seen}, p)
			if refused = errors.Is(err, store.ErrConflict); err != nil && !refused {
				t.Fatal(err)
			}
		}
		must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{}))
		if got := has(t, other, eraseKey, "secret"); len(got) > 0 || refused != (before == 3) {
			t.Errorf("a patch before write %d: refused %t, records %v have it", before, refused, got)
		}
		verified(t, other)
	}
}

// writtenBefore calls something before the first write of shared values.
type writtenBefore struct {
	backend.Backend
	do func()
}

func (w *writtenBefore) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	if do := w.do; do != nil {
		w.do = nil
		do()
	}
	return w.Backend.PutShared(ctx, changes)
}

// A value of the shared state that is written while an erase, or a copy, is about to write it is kept.
func TestSharedValueWrittenMeanwhile(t *testing.T) {
	key := store.Key{App: "a", User: "ann", Session: "s"}
	for name, erase := range map[string]func(s *store.Store) error{
		"Erase": func(s *store.Store) error {
			done, err := s.Erase(ctx, key, store.EraseSelection{Match: "secret"}, store.EraseOptions{Values: "null"})
			if err == nil && fmt.Sprint(done.Shared) != "[user:k]" {
				err = fmt.Errorf("shared: %q", done.Shared)
			}
			return err
		},
		"CopyShared": func(s *store.Store) error {
			from := quietly(t, new(memory.Backend))
			if _, err := from.Create(ctx, key, map[string]any{"user:x": "copied"}); err != nil {
				return err
			}
			if _, err := s.CopyShared(ctx, from, store.CopyOptions{OverwriteShared: true}); !errors.Is(err, store.ErrConflict) {
				return fmt.Errorf("a copy that overtakes another write: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared := new(memory.Backend)
			w := &writtenBefore{Backend: shared}
			s, other := quietly(t, w), quietly(t, shared)
			must(t)(s.Create(ctx, key, map[string]any{"user:k": "secret", "user:x": "secret"}))
			w.do = func() {
				written := event(`{"id":"later","author":"agent","actions":{"stateDelta":{"user:x":"new"}}}`)
				if _, err := other.AppendEvents(ctx, key, store.AppendOptions{}, written); err != nil {
					t.Error(err)
				}
			}
			if err := erase(s); err != nil {
				t.Error(err)
			}
			session := sessionOf(t, s, key)
			if v, _ := session.Value("user:x"); v.Any() != "new" {
				t.Errorf("the value is %v", v.Any())
			}
		})
	}
}

var eraseSelection = store.EraseSelection{Match: "secret"}

// eraseUntilKilled erases what the test has put into a file.
func eraseUntilKilled(path string) error {
	s, err := store.Open(path, store.Options{LockTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	if _, err = s.Erase(ctx, key, eraseSelection, store.EraseOptions{ID: "receipt"}); err != nil {
		return err
	}
	return s.Close()
}

// A process that is killed while it erases leaves a whole log, which says that the erasing is
// not finished, or not begun; once more finishes it, with one receipt.
func TestKilledErasing(t *testing.T) {
	const events = 1200
	fork := key
	fork.Session = "fork"
	path := filepath.Join(t.TempDir(), "log.db")
	open := func() *store.Store {
		t.Helper()
		s := openStore(t, path, store.Options{LockTimeout: 5 * time.Second})
		return s
	}
	s := open()
	var all []*patch.Event
	for i := range events {
		text := "secret "
		if i%60 == 59 {
			text = "kept "
		}
		all = append(all, said(t, fmt.Sprint("e", i), fmt.Sprint(text, i)))
	}
	createWith(t, s, key, all...)
	summaries := 0
	summarise := func(n, count int) {
		for i := range n {
			p := patch.NewSummarise(i, count, said(t, fmt.Sprint("s", summaries), "secret"))
			must(t)(s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, p))
			summaries++
		}
	}
	summarise(events/60, 60)
	summarise(events/300, 5)
	must(t)(s.Fork(ctx, key, fork, store.ForkOptions{}))
	testlog.NoError(t, s.Close())
	killed := 0
	for most := 20 * time.Millisecond; ; most += most / 2 {
		cmd := child(t, "erase", path)
		testlog.NoError(t, cmd.Start())
		kill := time.AfterFunc(rand.N(most), func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		s := open()
		left := 0
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			testlog.NoError(t, err)
			if r, err := s.Receipts(ctx, p.Key); err != nil || len(r) != 1 || r[0].Seq != p.Seq {
				t.Errorf("after %d kills: %v", killed, p)
			}
			left++
		}
		if err == nil && left > 0 {
			t.Errorf("erased, and %d erasings are not finished", left)
		}
		for _, k := range []store.Key{key, fork} {
			if r, receiptsErr := s.Receipts(ctx, k); receiptsErr != nil || len(r) > 1 || err == nil && len(r) != 1 {
				t.Errorf("after %d kills %s has the receipts %v, %v", killed, k, r, receiptsErr)
			}
			v, viewErr := s.View(ctx, k)
			if viewErr != nil || err == nil && (v.Len() != events || v.Seq() != uint64(events+2*summaries+1)) {
				t.Errorf("erased, and %s has %d visible events of %d records, %v", k, v.Len(), v.Seq(), viewErr)
			}
			if got := has(t, s, k, "secret"); err == nil && len(got) > 0 {
				t.Errorf("erased, and %s has %d records with it", k, len(got))
			}
		}
		if closeErr := s.Close(); closeErr != nil {
			t.Fatal(closeErr)
		}
		if err == nil {
			break
		}
		killed++
	}
	t.Logf("killed %d times", killed)
}

// Of 10,000 canaries, in what users and tools said, in data, compressed or not, in state, summaries, snapshots and
// forks, no file of the store has one after they were erased and it was vacuumed. Without the
// vacuum some are there: the scan would find them.
func TestEraseCanaries(t *testing.T) {
	testlog.OneGoroutine(t)
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	dir := t.TempDir()
	b, err := bolt.Open(filepath.Join(dir, "a.db"), bolt.Options{NoSync: true})
	testlog.NoError(t, err)
	s := newStore(t, b, store.Options{Snapshots: snapshot.Policy{Every: 100, Share: 1}})
	defer s.Close()
	canary.Plant(t, s, n)
	stored := canary.EndsOf(t, b)
	if got := canary.Find(t, dir, stored); got < n {
		t.Fatalf("%d canaries and records that have one are found, of %d", got, n)
	}
	must(t)(s.EraseUser(ctx, canary.App, canary.User, store.EraseOptions{}))
	verified(t, s)
	if got := canary.Find(t, dir, stored); got == 0 {
		t.Error("without a vacuum none is found: the scan does not look where they are")
	} else {
		t.Logf("%d canaries are found before the vacuum", got)
	}
	testlog.NoError(t, s.Vacuum(ctx))
	if got := canary.Find(t, dir, stored); got != 0 {
		t.Errorf("%d canaries are found after the vacuum", got)
	}
	testlog.NoError(t, s.Close())
	if got := canary.Find(t, dir, stored); got != 0 {
		t.Errorf("%d canaries are found after closing", got)
	}
}
