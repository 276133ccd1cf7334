package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// texts returns n events that contain a secret.
func texts(n int) (events []*patch.Event) {
	for i := range n {
		events = append(events, said(fmt.Sprint("e", i), fmt.Sprint("secret ", i)))
	}
	return events
}

// readable returns the sessions that contain a text.
func readable(t testing.TB, s *store.Store, text string) (keys []string) {
	t.Helper()
	for info, err := range s.List(ctx, store.ListOptions{}) {
		testlog.NoError(t, err)
		if strings.Contains(exportOf(t, s, info.Key, store.ExportOptions{}), text) {
			keys = append(keys, info.Key.Session)
		}
	}
	return keys
}

// An erase is killed at each of its steps. Then a fork changes, and the erase is repeated. When the erase
// succeeds, no session contains the selected text. Until then, Verify reports a problem.
func TestKilledEraseWithAFork(t *testing.T) {
	fork, late := sibling("fork"), sibling("late")
	for name, between := range map[string]func(s *store.Store) error{
		"nothing": func(*store.Store) error { return nil },
		"fork":    func(s *store.Store) error { return errOf(s.Fork(ctx, fork, late, store.ForkOptions{})) },
		"retain": func(s *store.Store) error {
			for _, err := range s.Retain(ctx, map[string]store.Retention{"": {EraseHiddenAfter: time.Nanosecond}}, store.RetainOptions{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"erase": func(s *store.Store) error {
			return errOf(s.Erase(ctx, fork, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{}))
		},
		"patch": func(s *store.Store) error {
			return errOf(s.ApplyPatch(ctx, fork, []*patch.PatchEvent{patch.NewSplice(0, 1)}, asOfNow))
		},
		"delete the fork": func(s *store.Store) error { return s.Delete(ctx, fork) },
		"delete":          func(s *store.Store) error { return s.Delete(ctx, eraseKey) },
	} {
		for user := range 2 {
			for kill, done := 1, false; !done; kill++ {
				shared := new(memory.Backend)
				faulty := &storetest.Faulty{Backend: shared}
				s, other := quietly(t, faulty), quietly(t, shared)
				createWith(t, s, eraseKey, texts(40)...)
				at := uint64(20)
				must(t)(s.Fork(ctx, eraseKey, fork, store.ForkOptions{At: &at}))
				erase := func(s *store.Store) error {
					if user == 1 {
						return errOf(s.EraseUser(ctx, "a", "u", store.EraseOptions{ID: "R1"}))
					}
					return errOf(s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "R1"}))
				}
				faulty.Plan(storetest.Plan{Write: kill, FailNext: 1 << 20})
				err := erase(s)
				if done = faulty.Writes() < kill; done && err == nil {
					break
				}
				testlog.ErrorIs(t, err, storetest.ErrInjected)
				if left := readable(t, other, "secret"); kill > 1 && len(left) > 0 {
					found := 0
					for range other.Verify(ctx, store.VerifyOptions{}) {
						found++
					}
					if found == 0 {
						t.Errorf("%s, killed before write %d: %v say it, and verify is clean", name, kill, left)
					}
				}
				testlog.NoError(t, between(other))
				if err := erase(quietly(t, shared)); name != "delete" {
					testlog.NoError(t, err)
				} else if kill == 1 { // the killed erase had logged nothing
					continue
				}
				if left := readable(t, other, "secret"); len(left) > 0 {
					t.Fatalf("%s, user %d, killed before write %d: %v say it after success", name, user, kill, left)
				}
				verified(t, other)
			}
		}
	}
}

// If retention erased events in a session but not in its fork, a later erase of these events in the session also
// erases them in the fork. This is so for a selection by id, by seq, by text, and with All.
func TestEraseWhatRetentionKeptInAFork(t *testing.T) {
	for name, of := range map[string]store.EraseSelection{"ids": {EventIDs: []string{"e1"}}, "seqs": {Seqs: []uint64{2}}, "text": {Match: "secret 1"}, "all": {All: true}} {
		s := inMemory(t)
		createWith(t, s, eraseKey, texts(4)...)
		fork := sibling("fork")
		must(t)(s.Fork(ctx, eraseKey, fork, store.ForkOptions{}))
		must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSummarise(0, 3, said("sum", "told"))}, asOfNow))
		for r, err := range s.Retain(ctx, map[string]store.Retention{"": {EraseHiddenAfter: time.Nanosecond}}, store.RetainOptions{}) {
			testlog.NoError(t, err)
			testlog.Equal(t, "hidden events that were erased", r.Erased, 3)
		}
		testlog.Equal(t, name+": sessions that say it after retention", readable(t, s, "secret 1"), []string{"fork"})
		must(t)(s.Erase(ctx, eraseKey, of, store.EraseOptions{}))
		testlog.Equal(t, name+": sessions that say it", readable(t, s, "secret 1"), nil)
		verified(t, s)
	}
}

// On each backend, an erase and a fork complete even if another goroutine writes without a pause.
func TestWriterWithoutPause(t *testing.T) {
	onPeers(t, func(e, other *env, mine *hooked) {
		createWith(t, e.store, eraseKey, texts(5)...)
		n := 0
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		mine.set(func(_ context.Context, call string) (backend.Backend, error) {
			n++
			_, err := other.store.AppendEvents(ctx, eraseKey, []*patch.Event{said(fmt.Sprint("w", n), "more")}, store.AppendOptions{})
			if n > 200 && err == nil {
				err = errors.New("there is no end")
			}
			return nil, err
		})
		fork := sibling("fork")
		testlog.NoError(t, testlog.ErrorOf(e.store.Fork(ctx, eraseKey, fork, store.ForkOptions{})))
		calls := n
		testlog.NoError(t, testlog.ErrorOf(e.store.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1", "e2", "e3"}}, store.EraseOptions{})))
		t.Logf("a fork: %d calls; an erase with a fork: %d", calls, n-calls)
		mine.set(nil)
		for _, key := range []store.Key{eraseKey, fork} {
			testlog.Equal(t, "records that have it", slices.Concat(has(t, other.store, key, "secret 1"), has(t, other.store, key, "secret 3")), nil)
		}
		verified(t, other.store)
	})
}

// An erase of one event in a session without forks takes a few backend calls, which read no other session. Their
// number depends neither on the number of sessions nor on the length of the log.
func TestEraseCost(t *testing.T) {
	cost := func(others, events int, hot bool) (calls []string) {
		b := &hooked{Backend: new(memory.Backend)}
		s := quietly(t, b)
		createWith(t, s, eraseKey, texts(events)...)
		applied(t, s, eraseKey, patch.NewSummarise(0, 3, said("sum", "told of secret 1")))
		for i := range others {
			createWith(t, s, sibling(fmt.Sprint("other ", i)), said("e1", "secret 1"))
		}
		if !hot {
			s = quietly(t, b)
		}
		b.takeCalls()
		var read []string
		b.named = func(call, session string) {
			if session != "" && !strings.HasPrefix(session, "a\x00\x01u\x00\x01s\x00\x01") {
				read = append(read, call+" of "+session)
			}
		}
		done := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{ID: "r"}))(t)
		b.named = nil
		testlog.Equal(t, "reverted", done.Sessions[0].Reverted, []string{"sum"})
		testlog.Equal(t, "calls for other sessions", read, nil)
		calls = strings.Fields(b.takeCalls())
		verified(t, s)
		return calls
	}
	for _, hot := range []bool{true, false} {
		few, many := cost(0, 20, hot), cost(1000, 500, hot)
		testlog.Equal(t, "calls beside 1,000 sessions", many, few)
		if len(few) > 8 {
			t.Errorf("%d calls: %v", len(few), few)
		}
		t.Log(few)
	}
}

// If a session and its forks are copied to another store, an erase of one copy there covers the other copies too,
// including records that a second copy added. Sessions that Salvage recovers are related in the same way.
func TestLineageOfCopies(t *testing.T) {
	dir := t.TempDir()
	from, to := openStore(t, filepath.Join(dir, "from.db"), store.Options{}), inMemory(t)
	createWith(t, from, eraseKey, texts(3)...)
	fork := sibling("fork")
	must(t)(from.Fork(ctx, eraseKey, fork, store.ForkOptions{}))
	must(t)(to.CopyFrom(ctx, eraseKey, from, store.CopyOptions{}))
	must(t)(from.AppendEvents(ctx, eraseKey, []*patch.Event{said("late", "secret late")}, store.AppendOptions{}))
	second := sibling("second")
	must(t)(from.Fork(ctx, eraseKey, second, store.ForkOptions{}))
	for _, key := range []store.Key{fork, second, eraseKey} {
		must(t)(to.CopyFrom(ctx, key, from, store.CopyOptions{}))
	}
	must(t)(to.Erase(ctx, second, store.EraseSelection{EventIDs: []string{"e1", "late"}}, store.EraseOptions{}))
	testlog.Equal(t, "copies that say it", slices.Concat(readable(t, to, "secret 1"), readable(t, to, "secret late")), nil)
	verified(t, to)

	testlog.NoError(t, from.Close())
	file := testlog.Must(os.Open(filepath.Join(dir, "from.db")))(t)
	defer file.Close()
	size := testlog.Must(file.Stat())(t).Size()
	saved := inMemory(t)
	must(t)(store.Salvage(ctx, io.NewSectionReader(file, 0, size), saved, store.SalvageOptions{}))
	must(t)(saved.Erase(ctx, fork, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{}))
	testlog.Equal(t, "salvaged sessions that say it", readable(t, saved, "secret 1"), nil)
	verified(t, saved)
}

// Retention counts the age of a hidden event from the time when the hiding patch was logged, even if the patch has
// an older timestamp.
func TestHiddenSinceByTheLog(t *testing.T) {
	clock := now
	s := teststore.Memory(t, store.Options{Now: func() time.Time { return clock }})
	createWith(t, s, eraseKey, texts(1)...)
	clock = now.Add(60 * day)
	must(t)(s.AppendEvents(ctx, eraseKey, []*patch.Event{said("e2", "today")}, store.AppendOptions{}))
	must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 1).WithTimestamp(now)}, asOfNow))
	of := store.Retention{EraseHiddenAfter: 30 * day}
	testlog.Equal(t, "done at once", len(done(t, s, of, false)), 0)
	clock = now.Add(91 * day)
	testlog.Equal(t, "sessions of which something is erased later", len(done(t, s, of, false)), 1)
	testlog.Equal(t, "sessions that say it", readable(t, s, "secret"), nil)
}

// If a file was exported during an erase, an import of the file omits the content that the erase covers.
func TestImportOfAHalfErasedSession(t *testing.T) {
	faulty := &storetest.Faulty{Backend: new(memory.Backend)}
	s := quietly(t, faulty)
	must(t)(s.Create(ctx, eraseKey, map[string]any{"k": "secret"}, store.CreateOptions{}))
	must(t)(s.AppendEvents(ctx, eraseKey, texts(3), store.AppendOptions{}))
	faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Refused})
	testlog.ErrorIs(t, testlog.ErrorOf(s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{Values: patch.NullValues})), storetest.ErrInjected)
	faulty.Plan(storetest.Plan{})
	file := exportOf(t, s, eraseKey, store.ExportOptions{})
	other := inMemory(t)
	for range 2 {
		must(t)(other.Import(ctx, eraseKey, strings.NewReader(file), store.ImportOptions{}))
	}
	testlog.Equal(t, "sessions that say it", readable(t, other, "secret"), nil)
	verified(t, other)
	must(t)(other.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 1)}, asOfNow))
}
