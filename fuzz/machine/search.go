package machine

import (
	"context"
	"iter"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// search searches each store, whose index has grown with its log, and a fresh index of the log.
func (m *machine) search(t *rapid.T) {
	s := recall.Search{
		Query: rapid.SampledFrom([]string{"question answer", "what was said", "id1 id2 id3", "inv1", "call", "k x"}).Draw(t, "query"),
		Limit: recall.MaxLimit, Hidden: rapid.Bool().Draw(t, "hidden"), Told: rapid.Bool().Draw(t, "told"),
	}
	s.Summaries = rapid.Bool().Draw(t, "summaries")
	want, err := recall.NewFinder(written{m}, -1).Search(context.Background(), m.key, s)
	if err != nil {
		t.Fatal(err)
	}
	var visible []string
	for _, e := range m.reference().Visible() {
		visible = append(visible, e.ID())
	}
	for i, of := range m.stores {
		got, err := of.Search(context.Background(), m.key, s)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, want, sameHit) {
			t.Fatalf("store %d: %q: %v, want %v\n%s", i, s.Query, places(got), places(want), m.log())
		}
		for _, h := range got {
			at := slices.Index(visible, h.Event.ID())
			if at != h.Place.Index || s.Hidden && at >= 0 {
				t.Fatalf("store %d: %q is %+v, and stands at %d\n%s", i, h.Event.ID(), h.Place, at, m.log())
			}
		}
	}
}

func sameHit(a, b store.Hit) bool {
	return a.Key == b.Key && a.Seq == b.Seq && a.Index == b.Index && a.Score == b.Score && a.Place == b.Place &&
		a.Snippet.Text == b.Snippet.Text && a.Event.String() == b.Event.String()
}

func places(hits []store.Hit) (all []any) {
	for _, h := range hits {
		all = append(all, h.Seq, h.Score, h.Place)
	}
	return all
}

// written is the log that the machine knows, folded anew.
type written struct{ *machine }

func (w written) View(context.Context, store.Key) (fold.View, error) {
	return fold.Fold(fold.New("", w.initial), w.records)
}

func (w written) RecordsFrom(_ context.Context, _ store.Key, _ fold.View, from uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, r := range w.machine.records[from-1:] {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (w written) Records(_ context.Context, _ store.Key, _ fold.View, seqs []uint64) (out []patch.Record, _ error) {
	for _, seq := range seqs {
		out = append(out, w.machine.records[seq-1])
	}
	return out, nil
}
