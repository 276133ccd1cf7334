package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
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

// told logs a to f, s1 over a and b, s2 over c and d, m over s1 and s2, and s3 over e.
func told(t testing.TB, s *store.Store) {
	t.Helper()
	var events []*patch.Event
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		events = append(events, said(t, id, "text "+id))
	}
	createWith(t, s, eraseKey, events...)
	applied(t, s, eraseKey,
		patch.NewSummarise(0, 2, said(t, "s1", "text a, text b")),
		patch.NewSummarise(1, 2, said(t, "s2", "text c, text d")),
		patch.NewSummarise(0, 2, said(t, "m", "text a to text d")).WithID("merge"),
		patch.NewSummarise(1, 1, said(t, "s3", "text e")))
}

// applied logs patches, one after the other.
func applied(t testing.TB, s *store.Store, key store.Key, patches ...*patch.PatchEvent) {
	t.Helper()
	for _, p := range patches {
		must(t)(s.ApplyPatch(context.Background(), key, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, p))
	}
}

// visible returns the ids of the visible events, in brackets those that are blank.
func visible(v fold.View) string {
	var ids []string
	for _, e := range v.Events() {
		id := e.ID()
		if e.IsBlank(patch.KeepValues) {
			id = "(" + id + ")"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func summariesSay(t testing.TB, s *store.Store, want map[string]string) {
	t.Helper()
	says := map[string]string{}
	for r, err := range s.RawEvents(t.Context(), eraseKey, 1) {
		no(t, err)
		for _, e := range r.Events() {
			says[e.ID()] = textOf(e)
		}
	}
	for id, text := range want {
		if says[id] != text {
			t.Errorf("%s says %q, want %q", id, says[id], text)
		}
	}
}

// Visible blank summaries make way for what is left behind them, newest first, as far as there is room.
func TestEraseReverts(t *testing.T) {
	for name, c := range map[string]struct {
		ids   []string
		opts  store.EraseOptions
		after []*patch.PatchEvent // after what told logs
		want  string
	}{
		"a path down":            {[]string{"a"}, store.EraseOptions{}, nil, "(a) b s2 s3 f; [m s1] []"},
		"nothing is left of e":   {[]string{"a", "e"}, store.EraseOptions{}, nil, "(a) b s2 (s3) f; [m s1] [s3]"},
		"all of one branch":      {[]string{"a", "b"}, store.EraseOptions{}, nil, "(s1) s2 s3 f; [m] [s1]"},
		"nothing is left":        {[]string{"a", "b", "c", "d"}, store.EraseOptions{}, nil, "(m) s3 f; [] [m]"},
		"the newest blank last":  {[]string{"a", "b", "c", "d", "e"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSummarise(0, 1, said(t, "n", "text a"))}, "(n) (s3) f; [] [s3 n]"},
		"two paths":              {[]string{"a", "c"}, store.EraseOptions{}, nil, "(a) b (c) d s3 f; [m s2 s1] []"},
		"no room for another":    {[]string{"a", "c"}, store.EraseOptions{Room: 1}, nil, "(s1) (c) d s3 f; [m s2] [s1]"},
		"blank":                  {[]string{"a"}, store.EraseOptions{Summaries: patch.BlankSummaries}, nil, "(m) s3 f; [] [m]"},
		"kept":                   {[]string{"a"}, store.EraseOptions{Summaries: patch.KeepSummaries}, nil, "m s3 f; [] []"},
		"pinned":                 {[]string{"a"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewPin("m")}, "(a) b s2 s3 f; [m s1] []"},
		"cut away":               {[]string{"a"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(0, 1)}, "s3 f; [] []"},
		"in a splice that drops": {[]string{"f"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(1, 2, said(t, "x", "text f")).WithState(patch.Drop)}, "m (x); [] []"},
		"with an event":          {[]string{"f"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(1, 2, sum("y"), said(t, "x", "text f")).WithState(patch.Keep)}, "m (y) (x); [] [y]"},
		"a summary that drops":   {[]string{"f"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(1, 2, sum("y")).WithState(patch.Drop)}, "m (y); [] [y]"},
	} {
		erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
			told(t, s)
			applied(t, s, eraseKey, c.after...)
			before := viewOf(t, s, eraseKey)
			c.opts.Author = "ann"
			sel := store.EraseSelection{EventIDs: c.ids}
			dry := c.opts
			dry.DryRun = true
			planned, err := s.Erase(t.Context(), eraseKey, sel, dry)
			no(t, err)
			done, err := s.Erase(t.Context(), eraseKey, sel, c.opts)
			no(t, err)
			v, err := s.View(t.Context(), eraseKey)
			one := done.Sessions[0]
			if got := fmt.Sprintf("%s; %v %v", visible(v), one.Reverted, one.Blank); err != nil || got != c.want {
				t.Errorf("%s: visible, reverted and blank are %s, want %s, %v", name, got, c.want, err)
			}
			if p := planned.Sessions[0]; c.opts.Summaries != patch.BlankSummaries && (!slices.Equal(p.Reverted, one.Reverted) || !slices.Equal(p.Blank, one.Blank)) {
				t.Errorf("%s: planned were %v, %v", name, p.Reverted, p.Blank)
			}
			verified(t, s)
			if len(one.Reverted) == 0 {
				return
			}
			last := recordsFrom(t, s, eraseKey, v.Seq())[0]
			if last.Patch.Author() != "ann" {
				t.Errorf("%s: the last record is %v", name, last.Patch)
			}
			// The reverts are one: a redo of all of them gives what was visible before, with blanks.
			redo, err := s.Revert(t.Context(), eraseKey, store.UndoOptions{AllowOrphans: true}, last.ID())
			if err != nil || strings.NewReplacer("(", "", ")", "").Replace(visible(redo.View)) != visible(before) {
				t.Errorf("%s: redone, visible are %s, want %s, %v", name, visible(redo.View), visible(before), err)
			}
			verified(t, s)
		})
	}
}

func recordsFrom(t testing.TB, s *store.Store, key store.Key, seq uint64) (all []patch.Record) {
	t.Helper()
	for r, err := range s.RawEvents(context.Background(), key, seq) {
		no(t, err)
		all = append(all, r)
	}
	return all
}

// sum is a summary as compaction makes it.
func sum(id string) *patch.Event {
	return lines(nil, fmt.Sprintf(`{"id":%q,"author":"user","content":{"role":"model","parts":[{"text":"told"}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`, id))[0]
}

// All summaries that a patch put in go, of whichever branch.
func TestEraseOfBranches(t *testing.T) {
	s := inMemory(t)
	event := func(id, branch string) *patch.Event {
		return lines(t, fmt.Sprintf(`{"id":%q,"author":"x","branch":%q,"content":{"parts":[{"text":"text"}]}}`, id, branch))[0]
	}
	createWith(t, s, eraseKey, event("a1", "x"), event("b1", "y"))
	applied(t, s, eraseKey, patch.NewSplice(0, 2, sum("A"), sum("B")).WithState(patch.Keep))
	if got := eraseIDs(t, s, eraseKey, store.EraseOptions{}, "a1"); len(got) != 3 {
		t.Errorf("erased %q", got)
	}
	if v, err := s.View(t.Context(), eraseKey); err != nil || visible(v) != "(a1) b1" {
		t.Errorf("visible are %s, %v", visible(v), err)
	}
}

// A summary whose summarizer was shown a raw event of before goes with it, and what is merged of that.
func TestEraseShown(t *testing.T) {
	s := inMemory(t)
	createWith(t, s, eraseKey, said(t, "a", "one"), said(t, "b", "two"), said(t, "c", "three"))
	shown := lines(t, `{"id":"s2","content":{"role":"user","parts":[{"text":"two, after one"}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}},"customMetadata":{"patchlog":{"level":1,"windows":1,"passes":1,"events":1,"shown":[[1,1]]}}}`)[0]
	applied(t, s, eraseKey, patch.NewSummarise(0, 1, said(t, "s1", "one")), patch.NewSummarise(1, 1, shown), patch.NewSummarise(1, 2, said(t, "m", "one, two, three")))
	want := []string{"s 1.0 a: selected", "s 4.0 s1: stands for an erased event", "s 5.0 s2: " + store.ErasedShown, "s 6.0 m: stands for an erased event"}
	if got := eraseIDs(t, s, eraseKey, store.EraseOptions{}, "a"); !slices.Equal(got, want) {
		t.Errorf("erased %q, want %q", got, want)
	}
	if v, err := s.View(t.Context(), eraseKey); err != nil || visible(v) != "(s1) b c" {
		t.Errorf("visible are %s, %v", visible(v), err)
	}
}

// A summary that was made after an event was blank does not go for it, whatever is erased of the event again.
func TestEraseAfterBlank(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		createWith(t, s, eraseKey, lines(t, `{"id":"a","content":{"parts":[{"text":"secret"}]},"actions":{"stateDelta":{"k":"v"}}}`, `{"id":"b","content":{"parts":[{"text":"two"}]}}`)...)
		applied(t, s, eraseKey, patch.NewSummarise(0, 2, said(t, "old", "secret, two")).WithID("sum"))
		for i, c := range []struct {
			opts store.EraseOptions
			want []string
		}{
			{keeping, []string{"s 1.0 a: selected"}},
			{store.EraseOptions{}, []string{"s 1.0 a: selected", "s 3.0 old: stands for an erased event"}},
			{store.EraseOptions{}, nil},
			{store.EraseOptions{Values: patch.NullValues}, []string{"s 1.0 a: selected"}},
		} {
			if got := eraseIDs(t, s, eraseKey, c.opts, "a"); !slices.Equal(got, c.want) {
				t.Errorf("%d: erased %q, want %q", i, got, c.want)
			}
			v := viewOf(t, s, eraseKey)
			if v.Len() == 2 { // it was reverted
				applied(t, s, eraseKey, patch.NewSummarise(0, 2, said(t, fmt.Sprint("new", i), "two")))
			}
		}
		summariesSay(t, s, map[string]string{"a": patch.ErasedText, "old": patch.ErasedText, "new1": "two"})
	})
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
	planned, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e2"}}, store.EraseOptions{Context: true, DryRun: true})
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
	must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patch.NewSummarise(2, 2, said(t, "s", "secret told"))))
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
