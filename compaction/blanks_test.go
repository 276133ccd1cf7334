package compaction_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// factsIn returns the words in events that begin with "fact-".
func factsIn(events ...*patch.Event) string {
	var facts []string
	for _, e := range events {
		for _, word := range strings.Fields(testlog.FirstText(e)) {
			if strings.HasPrefix(word, "fact-") {
				facts = append(facts, word)
			}
		}
	}
	return strings.Join(facts, " ")
}

// After an erasure and a compaction, the log has no blank summary that could be reverted. The summaries contain every
// fact that was not erased, and no erased fact.
func TestCompactAfterErase(t *testing.T) {
	ctx := t.Context()
	s := newSession(t, "")
	for i := range 40 {
		s.say("user", fmt.Sprint("i", i), fmt.Sprintf("%s fact-%02d", strings.Repeat("it was said at length and more than once ", 12), i))
	}
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.Limits().Summaries, cfg.Limits().InputTokens = 2, 2, 1_000
	cfg.Summarizer = compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		return says(factsIn(r.Events...)), nil
	})
	c := s.compactor(cfg)
	compact := func() fold.View {
		t.Helper()
		s.run(c)
		return s.view()
	}
	before := compact()
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("e", 2*i))
	}
	done, err := s.store.Erase(ctx, key, store.EraseSelection{EventIDs: ids}, store.EraseOptions{MaxGrowth: 1})
	if err != nil || len(done.Sessions[0].Blank) == 0 || len(done.Sessions[0].Reverted) == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	after := compact()
	for range 3 {
		after = compact()
	}
	plan, err := blanks.PlanReverts(after, blanks.Options{MaxGrowth: 1 << 30, Read: func(seqs []uint64) ([]patch.Record, error) {
		return slices.DeleteFunc(s.records(), func(r patch.Record) bool { return !slices.Contains(seqs, r.Seq) }), nil
	}})
	if err != nil || len(plan.Reverts) != 0 {
		t.Errorf("%d summaries are to be reverted yet, %v", len(plan.Summaries), err)
	}
	if len(after.State()) != len(before.State()) || after.Len() > 2*before.Len() {
		t.Errorf("%d events are visible, %d before", after.Len(), before.Len())
	}
	told := factsIn(events(after)...)
	for i := range 40 {
		if fact := fmt.Sprintf("fact-%02d", i); strings.Contains(told, fact) != (i%2 == 1) {
			t.Errorf("%s is told: %t", fact, i%2 == 0)
		}
	}
	seq := after.Seq()
	if again, err := s.store.Erase(ctx, key, store.EraseSelection{EventIDs: ids}, store.EraseOptions{}); err != nil || len(again.Sessions) != 0 {
		t.Errorf("erased again: %+v, %v", again, err)
	}
	if v := compact(); v.Seq() != seq {
		t.Errorf("compaction goes on: %d records, then %d", seq, v.Seq())
	}
	for p, err := range s.store.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v, %v", p, err)
	}
}

// Erasing an event also erases the summary of the next window if the summarizer of that window saw the event.
func TestEraseOverlap(t *testing.T) {
	s := newSession(t, "")
	c := s.compactor(every(3, 1, compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		said := "told:"
		for _, e := range append(r.Before, r.Events...) {
			said += " " + testlog.FirstText(e)[:5]
		}
		return says(said), nil
	})))
	for i := range 6 {
		s.say("user", fmt.Sprint("i", i), fmt.Sprintf("num-%d %s", i, strings.Repeat("it was said at length ", 20)))
		s.run(c)
	}
	for id, want := range map[string]int{"e0": 2, "e2": 3} {
		done, err := s.store.Erase(t.Context(), key, store.EraseSelection{EventIDs: []string{id}}, store.EraseOptions{DryRun: true})
		if err != nil || len(done.Sessions[0].Events) != want {
			t.Errorf("%s: %+v, %v", id, done.Sessions, err)
		}
	}
}
