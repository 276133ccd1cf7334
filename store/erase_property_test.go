package store_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
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
	must(w.t)(w.s.Create(ctx, eraseKey, map[string]any{"k": "initial"}, store.CreateOptions{}))
	for _, op := range ops {
		w.do(op)
	}
	return w
}

func (w *lawWorld) open(b backend.Backend) {
	w.s = newStore(w.t, b, store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
		NewID: func() string { w.drawn++; return fmt.Sprintf("new %d", w.drawn) }})
}

func (w *lawWorld) view() fold.View { return viewOf(w.t, w.s, eraseKey) }

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
			says = append(says, testlog.FirstText(v.At(i)))
		}
		return event(`{"id":%q,"author":"user","content":{"role":"model","parts":[{"text":%q}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`, id, strings.Join(says, " "))
	}
	var p *patch.PatchEvent
	switch op.kind {
	case "event":
		must(w.t)(w.s.AppendEvents(ctx, eraseKey, []*patch.Event{event(`{"id":%q,"author":"user","invocationId":"i%d","content":{"role":"user","parts":[{"text":"it is <%s> %s"}]},"actions":{"stateDelta":{"k%d":%d}}}`,
			id, w.n/3, id, strings.Repeat("and so on ", op.a%7), op.a%3, w.n)}, store.AppendOptions{}))
		return
	case "retain":
		if ids := w.ids(); len(ids) > 0 {
			must(w.t)(w.s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{ids[op.a%len(ids)]}}, store.EraseOptions{ID: "kept " + id, Summaries: patch.KeepSummaries}))
		}
		return
	case "rewind":
		_, err := w.s.Rewind(ctx, eraseKey, fmt.Sprintf("i%d", op.a%(w.n/3+1)), store.UndoOptions{})
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
			_, err := w.s.Revert(ctx, eraseKey, patches[op.a%len(patches)], store.UndoOptions{AllowOrphans: true})
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
		p = patch.NewSplice(at, count, event(`{"id":%q,"author":"user","content":{"role":"user","parts":[{"text":%q}]}}`, id, testlog.FirstText(v.At(at))))
	case op.kind == "cut":
		p = patch.NewSplice(at, count)
		if op.keep {
			p = p.WithState(patch.Keep)
		}
	default:
		p = patch.NewPin(v.At(at).ID())
	}
	must(w.t)(w.s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{p.WithID("patch " + id)}, store.PatchOptions{AsOfNow: true, AllowOrphans: true, AllowPinned: true}))
}

// allowed accepts that something cannot be taken back.
func (w *lawWorld) allowed(err error) {
	w.t.Helper()
	if err != nil && !errors.Is(err, fold.ErrBlocked) && !errors.Is(err, store.ErrInvalid) && !errors.Is(err, fold.ErrEventNotFound) {
		w.t.Fatal(err)
	}
}

func (w *lawWorld) records() []patch.Record { return recordsOf(w.t, w.s, eraseKey) }

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
	var receipts []string // ids, which differ from session to session, and names for them
	for i, r := range testlog.Must(w.s.Receipts(ctx, eraseKey))(w.t) {
		receipts = append(receipts, r.ID(), fmt.Sprint("receipt ", i))
	}
	named := strings.NewReplacer(receipts...)
	for _, r := range w.records() {
		text := testlog.Must(r.MarshalJSON())(w.t)
		line := named.Replace(string(text))
		if r.Patch != nil && r.Patch.Type() == patch.Erase {
			of, _ := r.Patch.Erasure()
			line = fmt.Sprint(r.Seq, of.Seqs, of.EventIndices, of.Summaries, of.ClosedAt)
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
		sel, opts := store.EraseSelection{EventIDs: ids}, store.EraseOptions{ID: "receipt", MaxGrowth: rapid.SampledFrom([]int{1, 40, 10_000}).Draw(t, "room")}
		before := w.view()
		places := testlog.Must(before.Places())(w.t)
		done := testlog.Must(w.s.Erase(ctx, eraseKey, sel, opts))(w.t)
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
		verified(t, w.s)
		if len(done.Sessions) == 0 {
			return
		}
		one := done.Sessions[0]
		reverted += len(one.Reverted)
		log := w.log()

		// A kill at any write, and a resume, give the same log.
		kill := rapid.IntRange(1, 6).Draw(t, "kill")
		other := newLawWorld(t, ops)
		c := &storetest.Faulty{Backend: other.b}
		c.Plan(storetest.Plan{Write: kill, Then: 1 << 20})
		other.open(c)
		if _, err := other.s.Erase(ctx, eraseKey, sel, opts); err != nil && !errors.Is(err, storetest.ErrInjected) {
			t.Fatal(err)
		}
		if c.Writes() == kill {
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
		_, errA := alone.s.Rewind(ctx, eraseKey, to, store.UndoOptions{})
		_, errB := other.s.Rewind(ctx, eraseKey, to, store.UndoOptions{})
		alone.allowed(errA)
		if (errA == nil) != (errB == nil) || errA == nil && fmt.Sprint(alone.view().State()) != fmt.Sprint(other.view().State()) {
			t.Fatalf("rewound to %s after it, the state is %v, %v, want %v, %v", to, other.view().State(), errB, alone.view().State(), errA)
		}

		if len(one.Reverted) == 0 {
			return
		}
		records := w.records()
		redo := testlog.Must(w.s.Revert(ctx, eraseKey, records[len(records)-1].ID(), store.UndoOptions{AllowOrphans: true}))(w.t)
		plain := strings.NewReplacer("(", "", ")", "")
		if plain.Replace(visible(redo.View)) != plain.Replace(visible(before)) || fmt.Sprint(redo.View.State()) != fmt.Sprint(before.State()) {
			t.Fatalf("redone, visible are %s, want %s", visible(redo.View), visible(before))
		}
		if growth := tokensOf(after) - tokensOf(redo.View); growth > opts.MaxGrowth {
			grown++
			for i, id := range one.Reverted[1:] { // one path: each was behind the one before
				by, _ := placeOf(records, one.Reverted[i])
				if hidden, ok := places.Of(placeOf(records, id)); !ok || hidden.HiddenBySeq != by {
					t.Fatalf("the visible log grew by %d tokens, room was for %d, and %v were reverted", growth, opts.MaxGrowth, one.Reverted)
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
		if !places.IsRepresented(seq, index, e.Branch(), e.IsolationScope()) {
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
		if i := slices.IndexFunc(r.Events(), func(e *patch.Event) bool { return e.ID() == id }); i >= 0 {
			return r.Seq, i
		}
	}
	return 0, 0
}

// A draft of before the closing commit never survives, even one that has seen the receipt. That it is the edition by
// which it is found out shows a backend without: it leaks.
func TestEraseDraft(t *testing.T) {
	for name, leaks := range map[string]bool{"edition": false, "no edition": true} {
		b := backend.Backend(new(memory.Backend))
		if leaks {
			b = &hooked{Backend: b, fetched: func(_ backend.Query, news *backend.Fetched) { news.Edition = 0 }}
		}
		s := quietly(t, b)
		createWith(t, s, eraseKey, said("a", "secret"), said("b", "other"))
		seen := viewOf(t, s, eraseKey)
		must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, store.EraseOptions{}))
		now := viewOf(t, s, eraseKey)
		draft := patch.NewSummarise(0, 1, said("x", "it was secret")).WithBase(now.PatchSeq())
		_, err := s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{draft}, store.PatchOptions{On: seen})
		if errors.Is(err, store.ErrConflict) == leaks || len(has(t, s, eraseKey, "secret")) > 0 != leaks {
			t.Errorf("%s: %v, records %v have it", name, err, has(t, s, eraseKey, "secret"))
		}
	}
}

// eraseWorld is sessions of two users that fork and copy each other, over a backend that fails as planned.
type eraseWorld struct {
	t       *testing.T
	r       *rapid.T
	backend *storetest.Faulty
	store   *store.Store
	texts   map[store.Key][]string // of each session's events, in order
	n       int                    // texts so far
}

func newEraseWorld(t *testing.T, r *rapid.T) *eraseWorld {
	w := &eraseWorld{t: t, r: r, backend: &storetest.Faulty{Backend: new(memory.Backend)}, texts: map[store.Key][]string{}}
	w.open()
	return w
}

// open begins anew with what the backend has, as a process does after another was killed.
func (w *eraseWorld) open() {
	w.store = newStore(w.r, w.backend, store.Options{Snapshots: snapshot.Policy{Every: 3, MinPercent: 1}, Logger: slog.New(slog.DiscardHandler)})
}

func (w *eraseWorld) keys() []store.Key {
	return slices.SortedFunc(maps.Keys(w.texts), func(a, b store.Key) int { return strings.Compare(a.String(), b.String()) })
}

// places are those where a text can be in an event.
var places = []string{
	`"content":{"role":"user","parts":[{"text":"is %s"}]}`,
	`"content":{"role":"model","parts":[{"text":"see"},{"functionCall":{"id":"c%[2]d","name":"f","args":{"deep":["%[1]s"]}}}]}`,
	`"content":{"role":"user","parts":[{"functionResponse":{"id":"c%[2]d","name":"f","response":{"%[1]s":1}}}]}`,
	`"actions":{"stateDelta":{"k%[2]d":"%[1]s"}}`,
	`"actions":{"stateDelta":{"k":{"deep":["in %[1]s"]}}}`,
	`"actions":{"stateDelta":{"user:k%[2]d":"%[1]s","app:k":"%[1]s"}}`,
	`"customMetadata":{"note":"%s"}`,
	`"group":"%s"`,
	`"count":{"x":"%s"},"errorMessage":"none"`,
	`"usageMetadata":{"note":"%s"}`,
}

// add appends an event with a text to a session.
func (w *eraseWorld) add(r *rapid.T, key store.Key, text string) {
	w.t.Helper()
	w.n++
	place := rapid.SampledFrom(places).Draw(r, "place")
	fields, _, _ := strings.Cut(fmt.Sprintf(place, text, w.n), "%!(EXTRA")
	must(w.r)(w.store.AppendEvents(ctx, key, []*patch.Event{event(`{"id":"e%d","author":"user","invocationId":"i%d",%s}`, w.n, w.n, fields)}, store.AppendOptions{}))
	w.texts[key] = append(w.texts[key], text)
}

// build draws sessions: new ones, forks and copies of those that are there, with more events, summaries and splices.
func (w *eraseWorld) build(r *rapid.T, text func() string) {
	key := func() store.Key {
		return store.Key{App: "a", User: rapid.SampledFrom([]string{"ann", "bob"}).Draw(r, "user"), Session: rapid.StringMatching(`[a-f]`).Draw(r, "session")}
	}
	some := func() store.Key { return rapid.SampledFrom(w.keys()).Draw(r, "of") }
	for range rapid.IntRange(4, 20).Draw(r, "steps") {
		to := key()
		_, there := w.texts[to]
		step := rapid.SampledFrom([]string{"new", "fork", "fork", "copy", "add", "add", "add", "cut"}).Draw(r, "step")
		switch {
		case len(w.texts) == 0 || step == "new" && !there:
			must(w.r)(w.store.Create(ctx, to, map[string]any{"first": text()}, store.CreateOptions{}))
			w.texts[to] = nil
		case (step == "fork" || step == "copy") && !there:
			from := some()
			info := infoOf(w.r, w.store, from)
			at := uint64(rapid.IntRange(0, int(info.Seq)).Draw(r, "at"))
			if step == "copy" {
				at = info.Seq
				must(w.r)(w.store.Fork(ctx, from, to, store.ForkOptions{}))
			} else {
				must(w.r)(w.store.Fork(ctx, from, to, store.ForkOptions{At: &at}))
			}
			w.texts[to] = nil
			for _, t := range w.texts[from] {
				if w.records(to, t+`"`) > 0 {
					w.texts[to] = append(w.texts[to], t)
				}
			}
		case step == "cut":
			of := some()
			v := testlog.Must(w.store.View(ctx, of))(w.r)
			if v.Len() < 2 {
				continue
			}
			w.n++
			p := patch.NewSummarise(rapid.IntRange(0, v.Len()-2).Draw(r, "start"), 2, said(fmt.Sprint("s", w.n), "told"))
			must(w.r)(w.store.ApplyPatch(ctx, of, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))
		default:
			w.add(r, some(), text())
		}
	}
}

// untilDone calls an erase that is interrupted: a write fails, or nobody knows whether it did, and all that the
// process would do then; until it is not.
func (w *eraseWorld) untilDone(r *rapid.T, erase func() error) {
	w.t.Helper()
	for range rapid.IntRange(0, 4).Draw(r, "interruptions") {
		w.backend.Plan(storetest.Plan{
			Write:   rapid.IntRange(1, 12).Draw(r, "write"),
			Failure: rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}).Draw(r, "failure"),
			Then:    1 << 20,
		})
		if err := erase(); err != nil && !errors.Is(err, storetest.ErrInjected) {
			r.Fatal(err)
		}
		w.backend.Plan(storetest.Plan{})
		w.open()
	}
	testlog.NoError(r, erase())
}

// records returns how many records of a session have a text.
func (w *eraseWorld) records(key store.Key, text string) (n int) {
	for _, rec := range recordsOf(w.r, w.store, key) {
		if line, _ := rec.MarshalJSON(); strings.Contains(string(line), text) {
			n++
		}
	}
	return n
}

// keysWith returns how many keys of a session's initial state, and of the state that it shares with others, have a text.
func (w *eraseWorld) keysWith(key store.Key, text string) (n int) {
	session := sessionOf(w.r, w.store, key)
	initial := testlog.Must(w.store.ViewAt(ctx, key, 0))(w.r)
	for _, v := range initial.Values() {
		if strings.Contains(v.String(), text) {
			n++
		}
	}
	for name, v := range session.Values() {
		if shared := strings.HasPrefix(name, "app:") || strings.HasPrefix(name, "user:"); shared && strings.Contains(v.String(), text) {
			n++
		}
	}
	return n
}

// shows reports whether anything that the store gives of a session has a text.
func (w *eraseWorld) shows(key store.Key, text string) bool {
	var out strings.Builder
	fmt.Fprintln(&out, exportOf(w.r, w.store, key, store.ExportOptions{}))
	session := sessionOf(w.r, w.store, key)
	for _, e := range session.View.Events() {
		fmt.Fprintln(&out, e)
	}
	for name, v := range session.Values() {
		fmt.Fprintln(&out, name, v)
	}
	hits := testlog.Must(recall.NewFinder(w.store, 0).Search(ctx, key, recall.Search{Query: text}))(w.r)
	for _, hit := range hits {
		fmt.Fprintln(&out, hit.Event, hit.Snippet.Text)
	}
	return w.records(key, text) > 0 || strings.Contains(out.String(), text)
}

func (w *eraseWorld) length() (n uint64) {
	for _, key := range w.keys() {
		n += infoOf(w.r, w.store, key).Seq
	}
	return n
}

// Whatever forks and copies there are, of whichever users and in whichever order, and however often the erase is
// interrupted: once it succeeds, nothing that a session of the user has is in any session, all else is, and once more does nothing.
func TestPropertyEraseUser(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newEraseWorld(t, r)
		texts := 0
		w.build(r, func() string { texts++; return fmt.Sprintf("t%dt", texts) })
		gone := map[string]bool{}
		for key, texts := range w.texts {
			for _, text := range texts {
				gone[text] = gone[text] || key.User == "ann"
			}
		}
		opts := store.EraseOptions{ID: "receipt"}
		if rapid.IntRange(0, 3).Draw(r, "values") == 0 {
			opts.Values = patch.KeepValues
		}
		w.untilDone(r, func() error {
			_, err := w.store.EraseUser(ctx, "a", "ann", opts)
			return err
		})
		if opts.Values == patch.KeepValues {
			opts = store.EraseOptions{ID: "another"}
			w.untilDone(r, func() error {
				_, err := w.store.EraseUser(ctx, "a", "ann", opts)
				return err
			})
		}
		verified(t, w.store)
		for text, is := range gone {
			var in []string
			for _, key := range w.keys() {
				if w.records(key, text+`"`) > 0 {
					in = append(in, key.String())
				}
			}
			if is != (len(in) == 0) {
				r.Fatalf("%s is in %q, and shall be gone: %t; sessions: %v", text, in, is, w.texts)
			}
		}
		n := w.length()
		for _, id := range []string{opts.ID, "", "other"} {
			must(w.r)(w.store.EraseUser(ctx, "a", "ann", store.EraseOptions{ID: id}))
		}
		if again := w.length(); again != n {
			r.Fatalf("once more logs %d records; sessions: %v", again-n, w.texts)
		}
	})
}

// After an erase by match with null in place of state values no record, view, state, search result or export of
// the session, or of another one that has its events, has the text, wherever it was; all else stays.
func TestPropertyEraseMatch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newEraseWorld(t, r)
		texts := 0
		w.build(r, func() string {
			texts++
			if rapid.Bool().Draw(r, "is secret") {
				return fmt.Sprintf("SECRETx%dt", texts)
			}
			return fmt.Sprintf("t%dt", texts)
		})
		key := rapid.SampledFrom(w.keys()).Draw(r, "erase")
		selection := store.EraseSelection{Match: "SECRET"}
		erase := func(opts store.EraseOptions) (done store.Erasure) {
			t.Helper()
			w.untilDone(r, func() (err error) {
				done, err = w.store.Erase(ctx, key, selection, opts)
				return err
			})
			return done
		}
		if rapid.Bool().Draw(r, "keeps values first") {
			planned := testlog.Must(w.store.Erase(ctx, key, selection, store.EraseOptions{DryRun: true}))(w.r)
			erase(store.EraseOptions{ID: "kept"})
			again := testlog.Must(w.store.Erase(ctx, key, selection, store.EraseOptions{DryRun: true}))(w.r)
			if planned.RemainingMatches != again.RemainingMatches {
				r.Fatalf("%d matches remain, and planned were %d", again.RemainingMatches, planned.RemainingMatches)
			}
			if n := w.records(key, "SECRET") + w.keysWith(key, "SECRET"); n != again.RemainingMatches {
				r.Fatalf("%d records and keys have the text, and %d are reported", n, again.RemainingMatches)
			}
		}
		erase(store.EraseOptions{ID: "nulls", Values: patch.NullValues})
		verified(t, w.store)
		if w.shows(key, "SECRET") {
			r.Fatalf("%s shows the text; sessions: %v", key, w.texts)
		}
		for of, texts := range w.texts {
			for _, text := range texts {
				secret := strings.Contains(text, "SECRET") && slices.Contains(w.texts[key], text)
				if secret != (w.records(of, text+`"`) == 0) {
					r.Fatalf("%s is gone of %s: %t; erased of %s; sessions: %v", text, of, !secret, key, w.texts)
				}
			}
		}
		if done, err := w.store.Erase(ctx, key, selection, store.EraseOptions{Values: patch.NullValues}); err != nil || len(done.Sessions)+len(done.Shared) > 0 {
			r.Fatalf("once more: %+v, %v", done, err)
		}
	})
}
