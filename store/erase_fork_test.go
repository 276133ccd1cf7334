package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

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
						no(t, err)
						var out strings.Builder
						no(t, other.Export(ctx, info.Key, &out, store.ExportOptions{}))
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
