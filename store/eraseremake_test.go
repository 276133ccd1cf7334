package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// textOf is what an event says in its first text.
func textOf(e *patch.Event) string {
	for _, p := range e.Content().Parts() {
		if p.Kind == patch.PartText {
			return p.Text
		}
	}
	return e.Content().String()
}

// retelling tells what it is given, and remembers it.
type retelling struct {
	calls []string
	fails map[string]error // by the summary's id
}

func (r *retelling) text(_ context.Context, summary *patch.Event, events []*patch.Event) (string, error) {
	var told []string
	for _, e := range events {
		told = append(told, textOf(e))
	}
	text := "of (" + strings.Join(told, ", ") + ")"
	r.calls = append(r.calls, summary.ID()+" "+text)
	return text, r.fails[summary.ID()]
}

func (r *retelling) opts(id string) store.EraseOptions {
	return store.EraseOptions{ID: id, Summaries: store.RemakeSummaries, Resummarise: r.text}
}

// told logs a to f, s1 over a and b, s2 over c and d, m over s1 and s2, and s3 over e.
func told(t testing.TB, s *store.Store) {
	t.Helper()
	var events []*patch.Event
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		events = append(events, said(t, id, "text "+id))
	}
	createWith(t, s, eraseKey, events...)
	for _, p := range []*patch.PatchEvent{
		patch.NewSummarise(0, 2, said(t, "s1", "text a, text b")),
		patch.NewSummarise(1, 2, said(t, "s2", "text c, text d")),
		patch.NewSummarise(0, 2, said(t, "m", "text a to text d")),
		patch.NewSummarise(1, 1, said(t, "s3", "text e")),
	} {
		if _, err := s.ApplyPatch(t.Context(), eraseKey, store.PatchOptions{AsOfNow: true}, p); err != nil {
			t.Fatal(err)
		}
	}
}

// saysNow returns what the events of a session say, by their ids.
func saysNow(t testing.TB, s *store.Store, key store.Key) map[string]string {
	t.Helper()
	says := map[string]string{}
	for r, err := range s.RawEvents(t.Context(), key, 1) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events() {
			says[e.ID()] = textOf(e)
		}
	}
	return says
}

func summariesSay(t testing.TB, s *store.Store, want map[string]string) {
	t.Helper()
	says := saysNow(t, s, eraseKey)
	for id, text := range want {
		if says[id] != text {
			t.Errorf("%s says %q, want %q", id, says[id], text)
		}
	}
}

// Summaries are made anew of what is left, those inside others first, and once; after another
// erasing they are made anew of what that has left.
func TestRemakeSummaries(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		ctx := t.Context()
		told(t, s)
		r := &retelling{}
		erase := func(id string, opts store.EraseOptions) store.Erasure {
			t.Helper()
			done, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{id}}, opts)
			if err != nil {
				t.Fatal(err)
			}
			if got := has(t, s, eraseKey, "text "+id); len(got) != 0 {
				t.Errorf("text %s is left in %v", id, got)
			}
			verified(t, s)
			return done
		}
		planned, err := s.PlanErase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, r.opts("r1"))
		if err != nil || len(r.calls) != 0 || !slices.Equal(planned.Sessions[0].Remade, []string{"s1", "m"}) {
			t.Fatalf("planned %+v with %q, %v", planned, r.calls, err)
		}
		done := erase("a", r.opts("r1"))
		if got := done.Sessions[0]; !slices.Equal(got.Remade, []string{"s1", "m"}) || got.Blank != nil {
			t.Errorf("made anew: %q, and not %q", got.Remade, got.Blank)
		}
		if want := []string{"s1 of (text b)", "m of (of (text b), text c, text d)"}; !slices.Equal(r.calls, want) {
			t.Errorf("asked %q, want %q", r.calls, want)
		}
		summariesSay(t, s, map[string]string{"s1": "of (text b)", "m": "of (of (text b), text c, text d)", "s2": "text c, text d", "s3": "text e"})
		if v, err := s.View(ctx, eraseKey); err != nil || textOf(v.At(0)) != "of (of (text b), text c, text d)" {
			t.Errorf("the view shows %v, %v", v.At(0), err)
		}
		// Once: what is done is not asked for again.
		r.calls = nil
		for _, opts := range []store.EraseOptions{r.opts("r1"), r.opts("")} {
			if again, err := s.Erase(ctx, eraseKey, store.EraseSelection{}, opts); err != nil || len(r.calls) != 0 {
				t.Errorf("once more: %+v, %v, asked %q", again, err, r.calls)
			}
		}
		// What was made anew is erased with what it was made of. Nothing is left for s1.
		erase("b", r.opts("r2"))
		summariesSay(t, s, map[string]string{"s1": patch.ErasedText, "m": "of (text c, text d)"})
		// The receipt of before is finished still.
		for _, id := range []string{"r1", "r2"} {
			if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{}, r.opts(id)); err != nil {
				t.Error(err)
			}
			summariesSay(t, s, map[string]string{"m": "of (text c, text d)"})
		}
		// Blanked, as is the default, it stays blank, whatever the receipts of before say.
		erase("c", store.EraseOptions{})
		r.calls = nil
		if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{}, r.opts("")); err != nil || len(r.calls) != 0 {
			t.Errorf("asked %q, %v", r.calls, err)
		}
		summariesSay(t, s, map[string]string{"s2": patch.ErasedText, "m": patch.ErasedText, "s3": "text e"})
		// A summary that is itself selected is not made anew of the same.
		if done := erase("s3", r.opts("")); done.Sessions[0].Remade != nil {
			t.Errorf("%q were made anew", done.Sessions[0].Remade)
		}
		if len(has(t, s, eraseKey, "text d")) != 1 {
			t.Error("what was not erased is gone")
		}
	})
}

// What is exported of the visible events, with a summary that was made anew twice, is a session
// that has the receipts of it.
func TestExportRemade(t *testing.T) {
	s := inMemory(t)
	ctx := t.Context()
	told(t, s)
	r := &retelling{}
	for _, id := range []string{"a", "c", "f"} {
		if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{id}}, r.opts("of "+id)); err != nil {
			t.Fatal(err)
		}
	}
	var file strings.Builder
	if err := s.Export(ctx, eraseKey, &file, store.ExportOptions{Visible: true}); err != nil {
		t.Fatal(err)
	}
	copied := eraseKey
	copied.Session = "copy"
	if _, err := s.Import(ctx, copied, strings.NewReader(file.String()), store.ImportOptions{}); err != nil {
		t.Fatalf("%v\n%s", err, file.String())
	}
	if says := saysNow(t, s, copied); says["m"] != "of (of (text b), of (text d))" || says["f"] != patch.ErasedText {
		t.Errorf("the copy says %q", says)
	}
	verified(t, s)
}

// The newest receipt says whether a summary is to be made anew.
func TestRemakeNewestSays(t *testing.T) {
	s := inMemory(t)
	told(t, s)
	r := &retelling{}
	erase := func(id string, opts store.EraseOptions) {
		t.Helper()
		if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{id}}, opts); err != nil {
			t.Fatal(err)
		}
	}
	erase("a", r.opts(""))
	erase("c", store.EraseOptions{})
	r.calls = nil
	if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{}, r.opts("")); err != nil || r.calls != nil {
		t.Errorf("asked %q, %v", r.calls, err)
	}
	summariesSay(t, s, map[string]string{"s1": "of (text b)", "m": patch.ErasedText})
	verified(t, s)
}

// Where a text cannot be had the summary stays blank, and what stands for it; the next time finishes it.
func TestRemakeFails(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		ctx := t.Context()
		told(t, s)
		fork := eraseKey
		fork.Session = "fork"
		if _, err := s.Fork(ctx, eraseKey, fork, store.ForkOptions{}); err != nil {
			t.Fatal(err)
		}
		failure := errors.New("no network")
		r := &retelling{fails: map[string]error{"s1": failure}}
		done, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a", "c"}}, r.opts("r"))
		if !errors.Is(err, store.ErrNotRemade) || !errors.Is(err, failure) || len(done.Sessions) != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		for _, one := range done.Sessions {
			if !slices.Equal(one.Remade, []string{"s2"}) || !slices.Equal(one.Blank, []string{"s1", "m"}) {
				t.Errorf("%s: made anew: %q, and not %q", one.Key, one.Remade, one.Blank)
			}
		}
		verified(t, s)
		summariesSay(t, s, map[string]string{"s1": patch.ErasedText, "s2": "of (text d)", "m": patch.ErasedText, "s3": "text e"})
		// An erasing that does not make anew leaves it.
		if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{}, store.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
		r.fails, r.calls = nil, nil
		if done, err = s.Erase(ctx, eraseKey, store.EraseSelection{}, r.opts("")); err != nil || !slices.Equal(done.Sessions[0].Remade, []string{"s1", "m"}) {
			t.Errorf("%+v, %v", done, err)
		}
		// A fork that says the same is not asked for again.
		if want := []string{"s1 of (text b)", "m of (of (text b), of (text d))"}; !slices.Equal(r.calls, want) {
			t.Errorf("asked %q, want %q", r.calls, want)
		}
		for _, key := range []store.Key{eraseKey, fork} {
			if says := saysNow(t, s, key); says["m"] != "of (of (text b), of (text d))" {
				t.Errorf("%s: m says %q", key, says["m"])
			}
			if receipts, err := s.Receipts(ctx, key); err != nil || len(receipts) != 1 {
				t.Errorf("%s has %d receipts, %v", key, len(receipts), err)
			}
		}
		verified(t, s)
	})
}

// No text is no failure: what stands for the summary is made without it.
func TestRemakeDeclined(t *testing.T) {
	s := inMemory(t)
	told(t, s)
	r := &retelling{}
	opts := r.opts("r")
	opts.Resummarise = func(ctx context.Context, summary *patch.Event, events []*patch.Event) (string, error) {
		text, err := r.text(ctx, summary, events)
		if summary.ID() == "s1" {
			text = " \n"
		}
		return text, err
	}
	done, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, opts)
	if got := done.Sessions[0]; err != nil || !slices.Equal(got.Remade, []string{"m"}) || !slices.Equal(got.Blank, []string{"s1"}) {
		t.Errorf("%+v, %v", done, err)
	}
	summariesSay(t, s, map[string]string{"s1": patch.ErasedText, "m": "of (text c, text d)"})
	verified(t, s)
	for _, wrong := range []store.EraseOptions{{Summaries: "new"}, {Summaries: store.RemakeSummaries}} {
		if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{}, wrong); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// Whatever fails at whichever write, once more finishes it, with one receipt.
func TestRemakeFailingWrites(t *testing.T) {
	for write := 1; write < 7; write++ {
		for _, failure := range []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed} {
			erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
				told(t, s)
				r := &retelling{}
				sel := store.EraseSelection{EventIDs: []string{"a"}}
				faulty.Plan(storetest.Plan{Write: write, Failure: failure})
				_, err := s.Erase(t.Context(), eraseKey, sel, r.opts("r"))
				if faulty.Writes() >= write && failure == storetest.Refused && err == nil {
					t.Errorf("write %d failed, and nobody says so", write)
				}
				faulty.Plan(storetest.Plan{})
				if _, err := s.Erase(t.Context(), eraseKey, sel, r.opts("r")); err != nil {
					t.Fatal(err)
				}
				summariesSay(t, s, map[string]string{"a": patch.ErasedText, "s1": "of (text b)", "m": "of (of (text b), text c, text d)"})
				if receipts, err := s.Receipts(t.Context(), eraseKey); err != nil || len(receipts) != 1 {
					t.Errorf("write %d %v: %d receipts, %v", write, failure, len(receipts), err)
				}
				verified(t, s)
			})
		}
	}
}

// What somebody else erases while a summary is made of it is not in that summary.
func TestRemakeBesideErasing(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		told(t, s)
		r := &retelling{}
		opts := r.opts("r")
		once := false
		opts.Resummarise = func(ctx context.Context, summary *patch.Event, events []*patch.Event) (string, error) {
			if !once {
				once = true
				if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"b", "d"}}, store.EraseOptions{ID: "other"}); err != nil {
					t.Error(err)
				}
			}
			return r.text(ctx, summary, events)
		}
		if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, opts); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"text a", "text b", "text d"} {
			if got := has(t, s, eraseKey, text); len(got) != 0 {
				t.Errorf("%s is left in %v", text, got)
			}
		}
		verified(t, s)
	})
}

// What another call has made anew meanwhile is not made a second time.
func TestRemakeBesideRemake(t *testing.T) {
	s := inMemory(t)
	told(t, s)
	other := &retelling{}
	calls := 0
	opts := store.EraseOptions{ID: "r", Summaries: store.RemakeSummaries, Resummarise: func(ctx context.Context, summary *patch.Event, _ []*patch.Event) (string, error) {
		calls++
		_, err := s.Erase(ctx, eraseKey, store.EraseSelection{}, other.opts("r"))
		return "late", err
	}}
	if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, opts); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	summariesSay(t, s, map[string]string{"s1": "of (text b)", "m": "of (of (text b), text c, text d)"})
	verified(t, s)
}

// listing calls a function each time that sessions are listed, as planning does.
type listing struct {
	backend.Backend
	mu     sync.Mutex
	listed func()
}

func (l *listing) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	l.mu.Lock()
	f := l.listed
	l.listed = nil
	l.mu.Unlock()
	if f != nil {
		f()
	}
	return l.Backend.List(ctx, prefix, after, limit)
}

// An erasing that was planned while a summary was blank finds that it was made since.
func TestErasingBesideRemake(t *testing.T) {
	for name, b := range map[string]backend.Backend{"bolt": openBoltAt(t, t.TempDir()+"/a.db"), "memory": new(memory.Backend)} {
		t.Run(name, func(t *testing.T) { erasingBesideRemake(t, b) })
	}
}

func erasingBesideRemake(t *testing.T, b backend.Backend) {
	l := &listing{Backend: b}
	s, err := store.New(l, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	told(t, s)
	ctx := t.Context()
	planned, goOn, done := make(chan bool), make(chan bool), make(chan error)
	r := &retelling{}
	opts := r.opts("r")
	opts.Resummarise = func(ctx context.Context, summary *patch.Event, events []*patch.Event) (string, error) {
		switch summary.ID() {
		case "s1": // which is blank still
			l.mu.Lock()
			l.listed = func() { planned <- true; <-goOn }
			l.mu.Unlock()
			go func() {
				_, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"b"}}, store.EraseOptions{})
				done <- err
			}()
			<-planned
		case "m": // and s1 was made anew
			if len(r.calls) == 1 {
				close(goOn)
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		return r.text(ctx, summary, events)
	}
	if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, opts); err != nil {
		t.Fatal(err)
	}
	if got := has(t, s, eraseKey, "text b"); len(got) != 0 || !slices.Contains(r.calls, "s1 of (text b)") {
		t.Errorf("text b is left in %v; asked %q", got, r.calls)
	}
	summariesSay(t, s, map[string]string{"s2": "text c, text d"})
	verified(t, s)
}

// A summary is made of results as they were logged, before they were cleared, and stays blank if
// its text has no room; summaries that a group put in say who stands for what, or stay blank.
func TestRemakeOf(t *testing.T) {
	s, err := store.OpenMemory(store.Options{MaxRecordBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	result := `{"id":"e2","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":"long"}}}]}}`
	createWith(t, s, eraseKey, lines(t, `{"id":"e1","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"look"}}]}}`, result,
		`{"id":"e3","author":"user","content":{"parts":[{"text":"three"}]}}`, `{"id":"e4","author":"user","content":{"parts":[{"text":"four"}]}}`)...)
	short, err := lines(t, result)[0].StandIn("short", 2, map[int]json.RawMessage{0: json.RawMessage(`{"functionResponse":{"id":"c","name":"look","response":{"x":"…"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(patches ...*patch.PatchEvent) {
		t.Helper()
		if _, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patches...); err != nil {
			t.Fatal(err)
		}
	}
	apply(patch.NewSplice(1, 1, short).WithState(patch.Keep))
	// One text for what stands apart: from the end of the log.
	apply(patch.NewSplice(3, 1).WithGroup("g").WithState(patch.Keep), patch.NewSummarise(0, 2, said(t, "s", "long")).WithGroup("g"))
	r := &retelling{}
	opts := r.opts("r")
	opts.Resummarise = func(ctx context.Context, summary *patch.Event, events []*patch.Event) (string, error) {
		text, err := r.text(ctx, summary, events)
		return text + strings.Repeat(" more", 800), err
	}
	sel := store.EraseSelection{EventIDs: []string{"e1"}}
	if done, err := s.Erase(ctx, eraseKey, sel, opts); !errors.Is(err, store.ErrNotRemade) || !errors.Is(err, store.ErrTooLarge) || !slices.Equal(done.Sessions[0].Blank, []string{"s"}) {
		t.Errorf("%+v, %v", done, err)
	}
	r.calls = nil
	if _, err := s.Erase(ctx, eraseKey, sel, r.opts("r")); err != nil || len(r.calls) != 1 || !strings.Contains(r.calls[0], `"x":"long"`) || !strings.HasSuffix(r.calls[0], ", four)") {
		t.Errorf("asked %q, %v", r.calls, err)
	}
	verified(t, s)
	if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e2"}}, r.opts("")); err != nil {
		t.Fatal(err)
	}
	summariesSay(t, s, map[string]string{"s": "of (four)"})
	// Two that nobody can tell apart stay blank, and so does what is no summary.
	apply(patch.NewSplice(0, 2, lines(t, `{"id":"A","content":{"parts":[{"text":"a"}]},"actions":{"compaction":{}}}`, `{"id":"B","content":{"parts":[{"text":"b"}]},"actions":{"compaction":{}}}`)...))
	if done, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e3"}}, r.opts("")); err != nil || len(done.Sessions[0].Events) != 3 || done.Sessions[0].Remade != nil {
		t.Errorf("%+v, %v", done, err)
	}
	verified(t, s)
}

// A summary that says that it was made anew is taken only where a receipt says it.
func TestVerifyRemade(t *testing.T) {
	ctx := t.Context()
	sum := patch.NewSummarise(0, 1, said(t, "s", "secret")).WithID("p").Blank("r", patch.KeepValues, func(int) bool { return true }).Remade(0, "new", "r")
	receipt := func(e patch.Erasure) string {
		e.Seqs = []patch.Span{{From: 1, To: 2}}
		return patch.NewErase(e).WithID("r").String()
	}
	remade := map[uint64][]int{2: {0}}
	for name, c := range map[string]struct {
		sum, receipt string
		want         int
	}{
		"whole":             {sum.String(), receipt(patch.Erasure{Remade: remade}), 0},
		"not to be":         {sum.String(), receipt(patch.Erasure{}), 1},
		"another event":     {sum.String(), receipt(patch.Erasure{Remade: map[uint64][]int{2: {1}}}), 1},
		"not about it":      {sum.String(), receipt(patch.Erasure{Remade: remade, Within: map[uint64][]int{2: {}}}), 1},
		"another receipt":   {sum.Remade(0, "new", "q").String(), receipt(patch.Erasure{Remade: remade}), 2}, // and r's erasing is not finished
		"one more receipt":  {sum.Remade(0, "new", "q", "r").String(), receipt(patch.Erasure{Remade: remade}), 1},
		"blank, and not to": {sum.Blank("q", patch.KeepValues, func(int) bool { return true }).String(), receipt(patch.Erasure{Remade: remade}), 1},
	} {
		s := logged(t, said(t, "e", "one").Blank("r", patch.KeepValues).String(), c.sum, c.receipt)
		var found []string
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, p.String())
		}
		if len(found) != c.want {
			t.Errorf("%s: %q, want %d problems", name, found, c.want)
		}
	}
	s := inMemory(t)
	createWith(t, s, eraseKey, said(t, "e", "one"))
	if _, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true}, sum); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a summary that says that it was made anew: %v", err)
	}
}

// Each event is a summary's of its branch, where compaction's figures say so.
func TestEraseOfBranches(t *testing.T) {
	event := func(id, branch string) *patch.Event {
		return lines(t, fmt.Sprintf(`{"id":%q,"author":"x","branch":%q,"content":{"parts":[{"text":"text %s"}]}}`, id, branch, id))[0]
	}
	sum := func(id, branch string, events, windows int) *patch.Event {
		return lines(t, fmt.Sprintf(`{"id":%q,"author":"user","branch":%q,"content":{"role":"user","parts":[{"text":"all of %s"}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}},"customMetadata":{"patchlog":{"level":1,"events":%d,"windows":%d}}}`, id, branch, id, events, windows))[0]
	}
	for name, c := range map[string]struct {
		put     []*patch.Event
		context bool
		want    string
	}{
		"figures fit":           {[]*patch.Event{sum("A", "x", 2, 1), sum("B", "y", 1, 1)}, false, "[a1 A M] [A M]"},
		"figures do not fit":    {[]*patch.Event{sum("A", "x", 1, 1), sum("B", "y", 2, 1)}, false, "[a1 A B M L] []"},
		"no figures":            {[]*patch.Event{sum("A", "x", 0, 0), sum("B", "y", 0, 0)}, false, "[a1 A B M L] []"},
		"one branch":            {[]*patch.Event{sum("A", "x", 2, 1), sum("B", "x", 1, 1)}, false, "[a1 A B M L] []"},
		"one of another branch": {[]*patch.Event{sum("A", "x", 2, 1), sum("B", "z", 1, 1)}, false, "[a1 A B M L] []"},
		"one says nothing":      {[]*patch.Event{sum("A", "x", 2, 1), sum("B", "y", 1, 1), sum("Z", "z", 0, 0)}, false, "[a1 A B Z C M L] []"},
		"with context":          {[]*patch.Event{sum("A", "x", 2, 1), sum("B", "y", 1, 1)}, true, "[a1 A C M] [A C M]"},
	} {
		s := inMemory(t)
		ctx := t.Context()
		createWith(t, s, eraseKey, event("a1", "x@1"), event("b1", "y"), event("a2", "x"), event("c", "x"), event("d", "y"))
		for _, p := range []*patch.PatchEvent{
			patch.NewSplice(0, 3, c.put...).WithID("p"),
			patch.NewSummarise(2, 1, sum("C", "x", 1, 1)).WithID("q"),
			patch.NewSummarise(3, 1, sum("D", "y", 1, 1)).WithID("q2"),
			patch.NewSplice(0, 2, sum("M", "x", 2, 2), sum("L", "y", 1, 2)).WithID("o"),
		} {
			if _, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true}, p.WithState(patch.Keep)); err != nil {
				t.Fatal(name, err)
			}
		}
		r := &retelling{}
		opts := r.opts("r")
		opts.Context = c.context
		done, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a1"}}, opts)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, e := range done.Sessions[0].Events {
			ids = append(ids, e.ID)
		}
		if got := fmt.Sprint(ids, " ", done.Sessions[0].Remade); got != c.want {
			t.Errorf("%s: erased and made anew %s, want %s", name, got, c.want)
		}
		verified(t, s)
	}
}

// A summarizer is shown the summaries of the branch that were there before; not so one that merges.
func TestEraseContext(t *testing.T) {
	s := inMemory(t)
	ctx := t.Context()
	var events []*patch.Event
	for i := range 5 {
		events = append(events, said(t, fmt.Sprint("e", i), "text"))
	}
	createWith(t, s, eraseKey, events...)
	sum := func(id string, events, windows int) *patch.Event {
		return lines(t, fmt.Sprintf(`{"id":%q,"author":"user","content":{"parts":[{"text":"x"}]},"customMetadata":{"patchlog":{"events":%d,"windows":%d}}}`, id, events, windows))[0]
	}
	for i, p := range []*patch.PatchEvent{
		patch.NewSummarise(0, 1, sum("before0", 1, 1)), patch.NewSummarise(1, 1, sum("before1", 1, 1)),
		patch.NewSummarise(2, 1, sum("of it", 1, 1)), patch.NewSummarise(0, 2, sum("merged", 2, 2)),
		patch.NewSummarise(2, 1, sum("after", 1, 1)), patch.NewSummarise(3, 1, said(t, "by hand", "x")),
	} {
		if _, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true}, p); err != nil {
			t.Fatal(i, err)
		}
	}
	planned, err := s.PlanErase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e2"}}, store.EraseOptions{Context: true})
	want := []string{"s 3.0 e2: selected", "s 8.0 of it: stands for an erased event", "s 10.0 after: " + store.ErasedShown}
	if got := whys(planned); err != nil || !slices.Equal(got, want) {
		t.Errorf("planned %q, want %q, %v", got, want, err)
	}
}

// What the tools have brought of an erased event goes with it, and so does what stands for that, also
// if the calls and results were erased before, and the summary kept.
func TestEraseBrought(t *testing.T) {
	t.Run("all there", func(t *testing.T) { testEraseBrought(t, false) })
	t.Run("kept", func(t *testing.T) { testEraseBrought(t, true) })
}

func testEraseBrought(t *testing.T, kept bool) {
	s := inMemory(t)
	ctx := t.Context()
	createWith(t, s, eraseKey, lines(t,
		`{"id":"e1","author":"user","content":{"parts":[{"text":"secret"}]}}`,
		`{"id":"e2","author":"user","content":{"parts":[{"text":"other"}]}}`,
		`{"id":"c1","author":"a","content":{"parts":[{"functionCall":{"id":"1","name":"recall_search","args":{"query":"number"}}}]}}`,
		`{"id":"f1","author":"a","content":{"parts":[{"functionResponse":{"id":"1","name":"recall_search","response":{"note":"","results":[{"handle":"2","record":2,"text":"other"},{"handle":"1","record":1,"text":"secret"}]}}}]}}`,
		`{"id":"c2","author":"a","content":{"parts":[{"functionCall":{"id":"2","name":"recall_read","args":{"handle":" 1/0 "}}},{"functionCall":{"id":"3","name":"recall_read","args":{"handle":"2"}}}]}}`,
		`{"id":"f2","author":"a","content":{"parts":[{"functionResponse":{"id":"2","name":"recall_read","response":{"text":"secret"}}}]}}`,
		`{"id":"f3","author":"a","content":{"parts":[{"functionResponse":{"id":"3","name":"recall_read","response":{"text":"other"}}}]}}`,
		`{"id":"c3","author":"a","content":{"parts":[{"functionCall":{"id":"4","name":"recall_read","args":{"handle":"6"}}}]}}`,
		`{"id":"f4","author":"a","content":{"parts":[{"functionResponse":{"id":"4","name":"recall_read","response":{"text":"secret again"}}}]}}`,
		`{"id":"f5","author":"a","content":{"parts":[{"functionResponse":{"id":"1","name":"other","response":{"results":[{"handle":"1"}]}}}]}}`,
	)...)
	if _, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patch.NewSummarise(2, 2, said(t, "s", "secret told"))); err != nil {
		t.Fatal(err)
	}
	brought := ": brought by a tool from an erased event"
	want := []string{"s 1.0 e1: selected", "s 4.0 f1" + brought, "s 6.0 f2" + brought, "s 9.0 f4" + brought, "s 11.0 s: stands for an erased event"}
	if kept {
		eraseIDs(t, s, eraseKey, keeping, "e1", "f1", "c2", "c3")
	}
	done, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{})
	if got := whys(done); err != nil || !slices.Equal(got, want) {
		t.Errorf("erased %q, want %q, %v", got, want, err)
	}
	if got := has(t, s, eraseKey, "secret"); len(got) != 0 {
		t.Errorf("left in %v", got)
	}
	verified(t, s)
}
