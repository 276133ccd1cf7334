package compaction_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Erase and compaction in turn leave no blank summary that can be reverted, tell what is left, and never what was erased.
func TestCompactAfterErase(t *testing.T) {
	ctx := t.Context()
	st := emptySession(t)
	long := strings.Repeat("it was said at length and more than once ", 12)
	for i := range 40 {
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i), InvocationID: fmt.Sprint("i", i), Author: "user",
			Content: patch.Text("user", fmt.Sprintf("%s fact-%02d", long, i))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.AppendEvents(ctx, key, store.AppendOptions{}, e); err != nil {
			t.Fatal(err)
		}
	}
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.Limits().Summaries, cfg.Limits().Input = 2, 2, 1_000
	cfg.Summarizer = tellingFacts
	c, err := compaction.New(st, cfg, compaction.Options[store.Key]{})
	if err != nil {
		t.Fatal(err)
	}
	compact := func() fold.View {
		t.Helper()
		if _, err := c.MaybeCompact(ctx, key); err != nil {
			t.Fatal(err)
		}
		v, err := st.View(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	tells := func(v fold.View) (facts string) {
		for _, e := range v.Events() {
			for _, word := range strings.Fields(testlog.FirstText(e)) {
				if strings.HasPrefix(word, "fact-") {
					facts += word
				}
			}
		}
		return facts
	}
	before := compact()
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("e", 2*i))
	}
	done, err := st.Erase(ctx, key, store.EraseSelection{EventIDs: ids}, store.EraseOptions{Room: 1})
	if err != nil || len(done.Sessions[0].Blank) == 0 || len(done.Sessions[0].Reverted) == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	after := compact()
	for range 3 {
		after = compact()
	}
	plan, err := blanks.Revert(after, blanks.Options{Room: 1 << 30, Read: func(seqs []uint64) (out []patch.Record, err error) {
		for r, err := range st.RawEvents(ctx, key, 1) {
			if err != nil {
				return nil, err
			}
			for _, seq := range seqs {
				if r.Seq == seq {
					out = append(out, r)
				}
			}
		}
		return out, nil
	}})
	if err != nil || len(plan.Reverts) != 0 {
		t.Errorf("%d summaries are to be reverted yet, %v", len(plan.Summaries), err)
	}
	if len(after.State()) != len(before.State()) || after.Len() > 2*before.Len() {
		t.Errorf("%d events are visible, %d before", after.Len(), before.Len())
	}
	told := tells(after)
	for i := range 40 {
		if fact := fmt.Sprintf("fact-%02d", i); strings.Contains(told, fact) != (i%2 == 1) {
			t.Errorf("%s is told: %t", fact, i%2 == 0)
		}
	}
	seq := after.Seq()
	if again, err := st.Erase(ctx, key, store.EraseSelection{EventIDs: ids}, store.EraseOptions{}); err != nil || len(again.Sessions) != 0 {
		t.Errorf("erased again: %+v, %v", again, err)
	}
	if v := compact(); v.Seq() != seq {
		t.Errorf("compaction goes on: %d records, then %d", seq, v.Seq())
	}
	for p, err := range st.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v, %v", p, err)
	}
}

// tellingFacts tells the words that begin with fact-.
var tellingFacts = compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
	var facts []string
	for _, e := range r.Events {
		for _, word := range strings.Fields(testlog.FirstText(e)) {
			if strings.HasPrefix(word, "fact-") {
				facts = append(facts, word)
			}
		}
	}
	return says(strings.Join(facts, " ")), nil
})

// emptySession returns a store in memory with a session that has no events.
func emptySession(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if _, err := st.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	return st
}

// A summary whose summarizer was shown an event of the window before goes with it.
func TestEraseShownAgain(t *testing.T) {
	ctx := t.Context()
	st := emptySession(t)
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.OverlapSize = 3, 1
	cfg.Summarizer = compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		said := "told:"
		for _, e := range append(r.Before, r.Events...) {
			said += " " + testlog.FirstText(e)[:5]
		}
		return says(said), nil
	})
	c, err := compaction.New(st, cfg, compaction.Options[store.Key]{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i), InvocationID: fmt.Sprint("i", i), Author: "user",
			Content: patch.Text("user", fmt.Sprintf("num-%d %s", i, strings.Repeat("it was said at length ", 20)))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.AppendEvents(ctx, key, store.AppendOptions{}, e); err != nil {
			t.Fatal(err)
		}
		if _, err := c.MaybeCompact(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{"e0": 2, "e2": 3} { // itself and its summary, and one that was shown it
		done, err := st.Erase(ctx, key, store.EraseSelection{EventIDs: []string{id}}, store.EraseOptions{DryRun: true})
		if err != nil || len(done.Sessions[0].Events) != want {
			t.Errorf("%s: %+v, %v", id, done.Sessions, err)
		}
	}
}
