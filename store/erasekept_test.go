package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func eraseIDs(t testing.TB, s *store.Store, key store.Key, opts store.EraseOptions, ids ...string) []string {
	t.Helper()
	sel := store.EraseSelection{EventIDs: ids}
	dry := opts
	dry.DryRun = true
	planned, err := s.Erase(t.Context(), key, sel, dry)
	no(t, err)
	done, err := s.Erase(t.Context(), key, sel, opts)
	if err != nil || !slices.Equal(whys(planned), whys(done)) {
		t.Fatalf("erased %q, planned %q, %v", whys(done), whys(planned), err)
	}
	verified(t, s)
	return whys(done)
}

var keeping = store.EraseOptions{Summaries: patch.KeepSummaries}

// What was kept goes when the event is erased again, with all that stands for it, and that once.
func TestEraseWhatWasKept(t *testing.T) {
	stands := ": stands for an erased event"
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		told(t, s)
		if got, want := eraseIDs(t, s, eraseKey, keeping, "a", "e"), []string{"s 1.0 a: selected", "s 5.0 e: selected"}; !slices.Equal(got, want) {
			t.Errorf("erased %q, want %q", got, want)
		}
		summariesSay(t, s, map[string]string{"a": patch.ErasedText, "s1": "text a, text b", "m": "text a to text d", "s3": "text e"})
		if got := eraseIDs(t, s, eraseKey, keeping, "a", "e"); got != nil {
			t.Errorf("kept again: %q", got)
		}
		// At any depth, through what was erased and kept meanwhile.
		eraseIDs(t, s, eraseKey, keeping, "s1")
		summariesSay(t, s, map[string]string{"s1": patch.ErasedText, "m": "text a to text d"})
		want := []string{"s 1.0 a: selected", "s 7.0 s1" + stands, "s 9.0 m" + stands}
		if got := eraseIDs(t, s, eraseKey, store.EraseOptions{}, "a"); !slices.Equal(got, want) {
			t.Errorf("erased %q, want %q", got, want)
		}
		summariesSay(t, s, map[string]string{"m": patch.ErasedText, "s2": "text c, text d", "s3": "text e"})
		for _, opts := range []store.EraseOptions{{}, keeping} {
			if got := eraseIDs(t, s, eraseKey, opts, "a"); got != nil {
				t.Errorf("erased once more: %q", got)
			}
		}
		// By other choices too.
		for name, sel := range map[string]store.EraseSelection{"seq": {Seqs: []uint64{5}}, "author": {Author: "user"}, "all": {All: true}} {
			planned, err := s.Erase(t.Context(), eraseKey, sel, store.EraseOptions{DryRun: true})
			if err != nil || !slices.Contains(whys(planned), "s 10.0 s3"+stands) && !slices.Contains(whys(planned), "s 10.0 s3: selected") {
				t.Errorf("by %s: %q, %v", name, whys(planned), err)
			}
		}
	})
}

// What has to be planned anew, since somebody else wrote, is told in full.
func TestEraseKeepingPlannedAnew(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
		createWith(t, s, eraseKey, said(t, "a", "secret"), said(t, "b", "other"))
		fork := eraseKey
		fork.Session = "fork"
		must(t)(s.Fork(t.Context(), eraseKey, fork, store.ForkOptions{}))
		faulty.Plan(storetest.Plan{Write: 1, Failure: storetest.Landed, During: func() {
			if _, err := s.ApplyPatch(context.Background(), eraseKey, store.PatchOptions{AsOfNow: true}, patch.NewSplice(1, 1)); err != nil {
				t.Error(err)
			}
		}})
		done, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, keeping)
		if want := []string{"s 1.0 a: selected", "fork 1.0 a: same event in another session"}; err != nil || !slices.Equal(whys(done), want) {
			t.Errorf("erased %q, want %q, %v", whys(done), want, err)
		}
		verified(t, s)
	})
}

// Of one event in several sessions each is judged by itself when it is kept, and all go when it is erased,
// wherever it is blank already.
func TestEraseWhatWasKeptInForks(t *testing.T) {
	for _, first := range []bool{true, false} {
		clock := now
		erasableAt(t, func() time.Time { return clock }, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
			clock = now
			createWith(t, s, eraseKey, said(t, "a", "secret"), said(t, "b", "other"))
			fork := eraseKey
			fork.Session = "fork"
			must(t)(s.Fork(t.Context(), eraseKey, fork, store.ForkOptions{}))
			p := patch.NewSummarise(0, 2, said(t, "s", "secret told in the fork"))
			must(t)(s.ApplyPatch(t.Context(), fork, store.PatchOptions{AsOfNow: true}, p))
			clock = now.Add(day)
			if got := done(t, s, store.Retention{EraseHiddenAfter: day}, store.RetainOptions{}); !slices.Equal(got, []string{"fork false  2"}) {
				t.Fatalf("kept: %q", got)
			}
			key := map[bool]store.Key{true: fork, false: eraseKey}[first]
			if got := eraseIDs(t, s, key, store.EraseOptions{}, "a"); len(got) != 3 {
				t.Errorf("erased %q", got)
			}
			for _, key := range []store.Key{eraseKey, fork} {
				if got := has(t, s, key, "secret"); len(got) > 0 {
					t.Errorf("%s has it in %v", key, got)
				}
				if got := has(t, s, eraseKey, "other"); len(got) != 1 {
					t.Errorf("other is in %v", got)
				}
			}
		})
	}
}
