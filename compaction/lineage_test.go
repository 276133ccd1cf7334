package compaction_test

import (
	"bytes"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// shownBefore compacts a session and returns which events its last request showed again.
func shownBefore(t *testing.T, s *session, k store.Key) string {
	t.Helper()
	sum := &scripted{}
	if _, err := s.compactor(every(2, 1, sum)).MaybeCompact(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if sum.calls() == 0 {
		t.Fatal("nothing was summarised")
	}
	return ids(sum.requests[len(sum.requests)-1].Before)
}

// What a summary says of its origin means the log that wrote it. Elsewhere its seqs name
// other events, such as one that was cut there by hand.
func TestLineageInAnotherLog(t *testing.T) {
	other := store.Key{App: "app", User: "user", Session: "other"}
	appendTo := func(s *session, k store.Key, words ...string) {
		for _, w := range words {
			e, _ := parseWord(t, w, s.words)
			s.words++
			if _, err := s.store.AppendEvents(t.Context(), k, store.AppendOptions{}, testlog.EventOf(t, e)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cut := func(s *session, k store.Key, id string) {
		v, err := s.store.View(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		at, ok := v.Find(id)
		if !ok {
			t.Fatalf("%s is not visible", id)
		}
		if _, err := s.store.ApplyPatch(t.Context(), k, store.PatchOptions{On: v}, patch.NewSplice(at, 1)); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("imported", func(t *testing.T) {
		s := newSession(t, "u1 a1 u2 a2")
		s.compact(every(2, 1, &scripted{}))
		var out bytes.Buffer
		if err := s.store.Export(t.Context(), key, &out, store.ExportOptions{Visible: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.Import(t.Context(), other, &out, store.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		appendTo(s, other, "u3", "a3", "a3", "u4", "a4") // e4 to e8, as records 2 to 6
		cut(s, other, "e5")
		cut(s, other, "e6")
		if got := shownBefore(t, s, other); got != "S" {
			t.Errorf("shown are %s", got)
		}
	})
	t.Run("carried over by hand", func(t *testing.T) {
		for _, whole := range []bool{false, true} {
			s := newSession(t, "u1 a1 u2 a2")
			s.compact(every(2, 1, &scripted{}))
			if _, err := s.store.Create(t.Context(), other, nil); err != nil {
				t.Fatal(err)
			}
			appendTo(s, other, "u3", "a3", "a3", "a3", "a3") // e4 to e8, as records 1 to 5
			cut(s, other, "e6")
			cut(s, other, "e7")
			p := patch.NewSplice(0, 0, s.view().At(0))
			if whole {
				for r, err := range s.store.RawEvents(t.Context(), key, 5) {
					if err != nil {
						t.Fatal(err)
					}
					var about error
					if p, about = p.WithCustomMetadata(r.Patch.CustomMetadata()); about != nil {
						t.Fatal(about)
					}
				}
			}
			if _, err := s.store.ApplyPatch(t.Context(), other, store.PatchOptions{AsOfNow: true}, p); err != nil {
				t.Fatal(err)
			}
			appendTo(s, other, "u4", "a4")
			if got := shownBefore(t, s, other); got != "S" {
				t.Errorf("whole=%v: shown are %s", whole, got)
			}
		}
	})
	t.Run("forked", func(t *testing.T) {
		s := newSession(t, "u1 a1 u2 a2")
		s.compact(every(2, 1, &scripted{}))
		if _, err := s.store.Fork(t.Context(), key, other, store.ForkOptions{}); err != nil {
			t.Fatal(err)
		}
		appendTo(s, other, "u3", "a3", "u4", "a4")
		if got := shownBefore(t, s, other); got != "S e2 e3" {
			t.Errorf("shown are %s", got)
		}
	})
	t.Run("merged", func(t *testing.T) {
		s := newSession(t, "u1*40 a1*40 u2*40 a2*40 c2(x)")
		cfg := with(every(2, 1, &scripted{}), func(c *compaction.Config) { c.Limits().Summaries = 2 })
		s.compact(cfg)
		s.append("r2(x) u3*40 a3*40")
		s.compact(cfg)
		s.append("u4*40 a4*40 u5*40")
		if got := shownBefore(t, s, key); got != "S e6 e7" {
			t.Errorf("shown are %s: %s", got, s.visible())
		}
	})
}
