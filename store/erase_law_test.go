package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// lawOp is a step of a session's life; what it names is taken modulo what there is.
type lawOp struct {
	kind       string
	a, b       int
	keep, both bool
}

func drawLawOps(t *rapid.T) []lawOp {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) lawOp {
		kinds := []string{"event", "event", "event", "summarise", "summarise", "merge", "splice", "cut", "revert", "rewind", "pin", "retain"}
		return lawOp{rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.IntRange(0, 50).Draw(t, "a"), rapid.IntRange(0, 50).Draw(t, "b"), rapid.Bool().Draw(t, "keep"), rapid.Bool().Draw(t, "both")}
	}), 6, 30).Draw(t, "ops")
}

// lawWorld is a session in which each event says a text of its own, and each summary all that it was made of.
type lawWorld struct {
	t *rapid.T
	b backend.Backend
	s *store.Store
	n int // events and patches so far

	drawn int // ids of receipts and reverts
}

func newLawWorld(t *rapid.T, ops []lawOp) *lawWorld {
	w := &lawWorld{t: t, b: new(memory.Backend)}
	w.open(w.b)
	_, err := w.s.Create(ctx, eraseKey, map[string]any{"k": "initial"})
	w.must(err)
	for _, op := range ops {
		w.do(op)
	}
	return w
}

func (w *lawWorld) open(b backend.Backend) {
	s, err := store.New(b, store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		NewID: func() string { w.drawn++; return fmt.Sprintf("new %d", w.drawn) }})
	w.must(err)
	w.s = s
}

func (w *lawWorld) must(err error) {
	w.t.Helper()
	no(w.t, err)
}

func (w *lawWorld) view() fold.View {
	v, err := w.s.View(ctx, eraseKey)
	w.must(err)
	return v
}

func (w *lawWorld) do(op lawOp) {
	v := w.view()
	w.n++
	id := fmt.Sprintf("x%d", w.n)
	at, count := 0, 0
	if v.Len() > 0 {
		at = op.a % v.Len()
		count = 1 + op.b%min(3, v.Len()-at)
	}
	telling := func(id string, from, n int) *patch.Event {
		var says []string
		for i := from; i < from+n; i++ {
			says = append(says, textOf(v.At(i)))
		}
		return lines(nil, fmt.Sprintf(`{"id":%q,"author":"user","content":{"role":"model","parts":[{"text":%q}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`, id, strings.Join(says, " ")))[0]
	}
	var p *patch.PatchEvent
	switch op.kind {
	case "event":
		_, err := w.s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, lines(nil, fmt.Sprintf(`{"id":%q,"author":"user","invocationId":"i%d","content":{"role":"user","parts":[{"text":"it is <%s> %s"}]},"actions":{"stateDelta":{"k%d":%d}}}`,
			id, w.n/3, id, strings.Repeat("and so on ", op.a%7), op.a%3, w.n))...)
		w.must(err)
		return
	case "retain":
		if ids := w.ids(); len(ids) > 0 {
			_, err := w.s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{ids[op.a%len(ids)]}}, store.EraseOptions{ID: "kept " + id, Summaries: patch.KeepSummaries})
			w.must(err)
		}
		return
	case "rewind":
		_, err := w.s.Rewind(ctx, eraseKey, store.UndoOptions{}, fmt.Sprintf("i%d", op.a%(w.n/3+1)))
		w.allowed(err)
		return
	case "revert":
		var patches []string
		for _, r := range w.records() {
			if r.Patch != nil {
				patches = append(patches, r.ID())
			}
		}
		if len(patches) > 0 {
			_, err := w.s.Revert(ctx, eraseKey, store.UndoOptions{AllowOrphans: true}, patches[op.a%len(patches)])
			w.allowed(err)
		}
		return
	}
	switch {
	case count == 0:
		return
	case op.kind == "summarise":
		p = patch.NewSummarise(at, count, telling(id, at, count))
	case op.kind == "merge" && op.both && count > 1:
		p = patch.NewSplice(at, count, telling(id, at, 1), telling(id+"'", at+1, count-1)).WithState(patch.Keep)
	case op.kind == "merge":
		p = patch.NewSplice(at, count, telling(id, at, count)).WithState(patch.Keep)
	case op.kind == "splice":
		p = patch.NewSplice(at, count, lines(nil, fmt.Sprintf(`{"id":%q,"author":"user","content":{"role":"user","parts":[{"text":%q}]}}`, id, textOf(v.At(at))))...)
	case op.kind == "cut":
		p = patch.NewSplice(at, count)
		if op.keep {
			p = p.WithState(patch.Keep)
		}
	default:
		p = patch.NewPin(v.At(at).ID())
	}
	_, err := w.s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowOrphans: true, AllowPinned: true}, p.WithID("patch "+id))
	w.must(err)
}

// allowed accepts that something cannot be taken back.
func (w *lawWorld) allowed(err error) {
	w.t.Helper()
	if !errors.Is(err, fold.ErrBlocked) && !errors.Is(err, store.ErrInvalid) && !errors.Is(err, fold.ErrEventNotFound) {
		w.must(err)
	}
}

func (w *lawWorld) records() (all []patch.Record) {
	for r, err := range w.s.RawEvents(ctx, eraseKey, 1) {
		w.must(err)
		all = append(all, r)
	}
	return all
}

// ids returns the ids of the events that are not in patches.
func (w *lawWorld) ids() (ids []string) {
	for _, r := range w.records() {
		if r.Event != nil {
			ids = append(ids, r.ID())
		}
	}
	return ids
}

// log is the log without the ids that were drawn for receipts and reverts.
func (w *lawWorld) log() string {
	var b strings.Builder
	for _, r := range w.records() {
		text, err := r.MarshalJSON()
		w.must(err)
		line := string(text)
		if r.Patch != nil && r.Patch.Type() == patch.Erase {
			of, _ := r.Patch.Erasure()
			line = fmt.Sprint(r.Seq, of.Seqs, of.Within, of.Summaries, of.Closed)
		} else if strings.HasPrefix(r.ID(), "new ") {
			line = fmt.Sprint(r.Seq, "revert ", r.Patch.PatchID())
		}
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

func tokensOf(v fold.View) (n int) {
	for _, e := range v.Events() {
		n += e.EstimatedTokens()
	}
	return n
}

// The laws of erasing (docs/SEMANTICS.md, section 10), on random lives of a session.
func TestLawErase(t *testing.T) {
	reverted, grown, killed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ops := drawLawOps(t)
		w := newLawWorld(t, ops)
		ids := w.ids()
		if len(ids) == 0 {
			t.Skip("no events")
		}
		ids = rapid.SliceOfN(rapid.SampledFrom(ids), 1, 3).Draw(t, "erase")
		sel, opts := store.EraseSelection{EventIDs: ids}, store.EraseOptions{ID: "receipt", Room: rapid.SampledFrom([]int{1, 40, 10_000}).Draw(t, "room")}
		before := w.view()
		places, err := before.Places()
		w.must(err)
		done, err := w.s.Erase(ctx, eraseKey, sel, opts)
		w.must(err)
		after := w.view()
		for _, id := range ids {
			if strings.Contains(w.log(), "<"+id+">") {
				t.Fatalf("%s is in the log:\n%s", id, w.log())
			}
		}
		if fmt.Sprint(after.State()) != fmt.Sprint(before.State()) {
			t.Fatalf("the state is %v, was %v", after.State(), before.State())
		}
		w.compareVisible(before, after, places)
		if again, err := w.s.Erase(ctx, eraseKey, sel, store.EraseOptions{}); err != nil || len(again.Sessions) > 0 {
			t.Fatalf("erased twice: %+v, %v", again, err)
		}
		for p, err := range w.s.Verify(ctx, store.VerifyOptions{}) {
			t.Fatal(p, err)
		}
		if len(done.Sessions) == 0 {
			return
		}
		one := done.Sessions[0]
		reverted += len(one.Reverted)
		log := w.log()

		// A kill at any write, and a resume, give the same log.
		kill := rapid.IntRange(1, 6).Draw(t, "kill")
		other := newLawWorld(t, ops)
		c := &stepping{Backend: other.b, kill: kill}
		other.open(c)
		if _, err := other.s.Erase(ctx, eraseKey, sel, opts); err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if c.dead {
			killed++
		}
		other.open(other.b)
		must(t)(other.s.Erase(ctx, eraseKey, sel, opts))
		if got := other.log(); got != log {
			t.Fatalf("killed before write %d and resumed, the log is\n%s\nwant\n%s", kill, got, log)
		}

		// A rewind after it is a rewind alone, in state.
		to := fmt.Sprintf("i%d", rapid.IntRange(0, 5).Draw(t, "rewind"))
		alone := newLawWorld(t, ops)
		_, errA := alone.s.Rewind(ctx, eraseKey, store.UndoOptions{}, to)
		_, errB := other.s.Rewind(ctx, eraseKey, store.UndoOptions{}, to)
		alone.allowed(errA)
		if (errA == nil) != (errB == nil) || errA == nil && fmt.Sprint(alone.view().State()) != fmt.Sprint(other.view().State()) {
			t.Fatalf("rewound to %s after it, the state is %v, %v, want %v, %v", to, other.view().State(), errB, alone.view().State(), errA)
		}

		if len(one.Reverted) == 0 {
			return
		}
		records := w.records()
		redo, err := w.s.Revert(ctx, eraseKey, store.UndoOptions{AllowOrphans: true}, records[len(records)-1].ID())
		w.must(err)
		plain := strings.NewReplacer("(", "", ")", "")
		if plain.Replace(visible(redo.View)) != plain.Replace(visible(before)) || fmt.Sprint(redo.View.State()) != fmt.Sprint(before.State()) {
			t.Fatalf("redone, visible are %s, want %s", visible(redo.View), visible(before))
		}
		if growth := tokensOf(after) - tokensOf(redo.View); growth > opts.Room {
			grown++
			for i, id := range one.Reverted[1:] { // one path: each was behind the one before
				if hidden, ok := places.Of(placeOf(records, id)); !ok || hidden.HiddenBySeq != recordOf(records, one.Reverted[i]) {
					t.Fatalf("the visible log grew by %d tokens, room was for %d, and %v were reverted", growth, opts.Room, one.Reverted)
				}
			}
		}
	})
	t.Logf("%d summaries reverted, %d times beyond the room, %d kills", reverted, grown, killed)
	if !testing.Short() && (reverted == 0 || killed == 0) { // few draws may have none
		t.Error("nothing was reverted or killed: there is nothing to test")
	}
}

// compareVisible holds the visible log after an erase against the one before: what was visible stays, in order, but for
// summaries that were reverted; and what is new was represented.
func (w *lawWorld) compareVisible(before, after fold.View, places *fold.Places) {
	records := w.records()
	was := strings.Fields(strings.NewReplacer("(", "", ")", "").Replace(visible(before)))
	var kept []string
	for _, e := range after.Events() {
		if slices.Contains(was, e.ID()) {
			kept = append(kept, e.ID())
			continue
		}
		seq, index := placeOf(records, e.ID())
		if !places.Represented(seq, index, e.Branch(), e.IsolationScope()) {
			w.t.Fatalf("%s is visible, and was not represented: visible were %s, are %s", e.ID(), visible(before), visible(after))
		}
	}
	summaries := map[string]bool{}
	for _, e := range before.Entries() {
		summaries[e.Event.ID()] = e.Summary
	}
	stay := slices.DeleteFunc(slices.Clone(was), func(id string) bool { return summaries[id] && !slices.Contains(kept, id) })
	if !slices.Equal(kept, stay) {
		w.t.Fatalf("visible were %s, are %s", visible(before), visible(after))
	}
}

func placeOf(records []patch.Record, id string) (seq uint64, index int) {
	for _, r := range records {
		for i, e := range r.Events() {
			if e.ID() == id {
				return r.Seq, i
			}
		}
	}
	return 0, 0
}

func recordOf(records []patch.Record, id string) uint64 {
	seq, _ := placeOf(records, id)
	return seq
}

// oneEdition is a backend that does not tell editions of a log apart.
type oneEdition struct{ backend.Backend }

func (b oneEdition) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	news, err := b.Backend.Look(ctx, q)
	news.Edition = 0
	return news, err
}

// A draft of before the closing commit never survives, even one that has seen the receipt. That it is the edition by
// which it is found out shows a backend without: it leaks.
func TestEraseDraft(t *testing.T) {
	for name, leaks := range map[string]bool{"edition": false, "no edition": true} {
		b := backend.Backend(new(memory.Backend))
		if leaks {
			b = oneEdition{b}
		}
		s := quietly(t, b)
		createWith(t, s, eraseKey, said(t, "a", "secret"), said(t, "b", "other"))
		seen := viewOf(t, s, eraseKey)
		must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, store.EraseOptions{}))
		now := viewOf(t, s, eraseKey)
		draft := patch.NewSummarise(0, 1, said(t, "x", "it was secret")).WithBase(now.PatchSeq())
		_, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{On: seen}, draft)
		if errors.Is(err, store.ErrConflict) == leaks || len(has(t, s, eraseKey, "secret")) > 0 != leaks {
			t.Errorf("%s: %v, records %v have it", name, err, has(t, s, eraseKey, "secret"))
		}
	}
}
