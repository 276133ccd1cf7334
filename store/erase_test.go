package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// said makes an event of a text.
func said(_ testing.TB, id, text string) *patch.Event {
	return testlog.Text(id, "i", "user", text)
}

func lines(_ testing.TB, texts ...string) (events []*patch.Event) {
	for _, text := range texts {
		events = append(events, testlog.Event(text))
	}
	return events
}

// erasable opens a store of each kind, each with its backend under Faulty.
func erasable(t *testing.T, test func(t *testing.T, s *store.Store, faulty *storetest.Faulty)) {
	erasableAt(t, nil, test)
}

// erasableAt does so with a clock.
func erasableAt(t *testing.T, clock func() time.Time, test func(t *testing.T, s *store.Store, faulty *storetest.Faulty)) {
	for name, open := range map[string]func(t *testing.T) backend.Backend{
		"bolt":   func(t *testing.T) backend.Backend { return openBoltAt(t, t.TempDir()+"/a.db") },
		"memory": func(*testing.T) backend.Backend { return new(memory.Backend) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &storetest.Faulty{Backend: open(t)}
			s := newStore(t, f, store.Options{Snapshots: snapshot.Policy{Every: 3, Share: 1}, Now: clock})
			defer s.Close()
			test(t, s, f)
		})
	}
}

func inMemory(t testing.TB) *store.Store { return teststore.Memory(t, store.Options{}) }

// createWith creates a session with events.
func createWith(t testing.TB, s *store.Store, key store.Key, events ...*patch.Event) {
	t.Helper()
	must(t)(s.Create(context.Background(), key, nil))
	must(t)(s.AppendEvents(context.Background(), key, store.AppendOptions{}, events...))
}

// verified checks that nothing is wrong.
func verified(t testing.TB, s *store.Store) {
	t.Helper()
	for p, err := range s.Verify(context.Background(), store.VerifyOptions{}) {
		testlog.NoError(t, err)
		t.Errorf("verify: %v", p)
	}
}

// has returns in which records of a session a text is, and whether its exported form, its
// snapshot or an index of it has it.
func has(t testing.TB, s *store.Store, key store.Key, text string) (seqs []uint64) {
	t.Helper()
	for r, err := range s.RawEvents(context.Background(), key, 1) {
		testlog.NoError(t, err)
		if line, _ := r.MarshalJSON(); bytes.Contains(line, []byte(text)) {
			seqs = append(seqs, r.Seq)
		}
	}
	v := viewOf(t, s, key)
	for _, e := range v.Events() {
		if strings.Contains(e.String(), text) && len(seqs) == 0 {
			t.Errorf("the view shows %s", e)
		}
	}
	for name, value := range v.Values() {
		if strings.Contains(value.String(), text) && len(seqs) == 0 {
			t.Errorf("the state has %s: %s", name, value)
		}
	}
	hits, err := s.Search(context.Background(), key, recall.Search{Query: text})
	testlog.NoError(t, err)
	for _, hit := range hits {
		if line := hit.Event.String() + hit.Snippet.Text; strings.Contains(line, text) && len(seqs) == 0 {
			t.Errorf("a search finds %s", line)
		}
	}
	return seqs
}

func whys(e store.Erasure) (all []string) {
	for _, s := range e.Sessions {
		for _, event := range s.Events {
			all = append(all, fmt.Sprintf("%s %d.%d %s: %s", s.Key.Session, event.Seq, event.Index, event.ID, event.Why))
		}
	}
	return all
}

var eraseKey = store.Key{App: "a", User: "u", Session: "s"}

// What is erased goes with all that stands for it, at any depth, and copies; all else stays.
func TestEraseCascade(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		ctx := t.Context()
		must(t)(s.Create(ctx, eraseKey, map[string]any{"k": "initial"}))
		add := func(texts ...string) {
			t.Helper()
			must(t)(s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, lines(t, texts...)...))
		}
		apply := func(patches ...*patch.PatchEvent) {
			t.Helper()
			must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patches...))
		}
		summary := func(id, text string) *patch.Event { return said(t, id, text) }
		add(`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"my number is 4711"}]},"actions":{"stateDelta":{"number":"4711"}}}`,
			`{"id":"e2","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"look","args":{"x":"other"}}}]}}`,
			`{"id":"e3","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":"long"}}}]}}`,
			`{"id":"e4","author":"user","content":{"role":"user","parts":[{"text":"and more"}]}}`,
			`{"id":"e5","author":"user","content":{"role":"user","parts":[{"text":"unrelated"}]}}`)
		// 6: in place of e1 and e4, apart; 7: clears e3; 8: over the summary; 9: a copy; 10: over other things.
		apply(patch.NewSplice(3, 1).WithID("cut").WithGroup("g").WithState(patch.Keep),
			patch.NewSummarise(0, 1, summary("s1", "number 4711 and more")).WithID("sum").WithGroup("g"))
		cleared, err := lines(t, `{"id":"e3","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":"long"}}}]}}`)[0].StandIn("e3short", 3, nil)
		testlog.NoError(t, err)
		apply(patch.NewSplice(2, 1, cleared).WithID("clear").WithState(patch.Keep))
		apply(patch.NewSummarise(0, 1, summary("s2", "again 4711")).WithID("sum2"))
		copied := lines(t, `{"id":"back","content":{"role":"model","parts":[{"text":"4711 came back"}]},"customMetadata":{"patchlog":{"recalled":"e1","as":"back"}}}`)[0]
		apply(patch.NewSplice(1, 0, copied).WithID("recall"))
		apply(patch.NewSummarise(4, 1, summary("s3", "something unrelated")).WithID("sum3"))
		before := viewOf(t, s, eraseKey)

		want := []string{"s 1.0 e1: selected", "s 7.0 s1: stands for an erased event", "s 9.0 s2: stands for an erased event", "s 10.0 back: copy of an erased event"}
		planned, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{DryRun: true})
		if err != nil || !slices.Equal(whys(planned), want) {
			t.Fatalf("planned %q, want %q, %v", whys(planned), want, err)
		}
		// What another patch of the group took out, the summary stands for too.
		grouped, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e4"}}, store.EraseOptions{DryRun: true})
		if of := []string{"s 4.0 e4: selected", want[1], want[2]}; err != nil || !slices.Equal(whys(grouped), of) {
			t.Fatalf("planned %q, want %q, %v", whys(grouped), of, err)
		}
		if got := has(t, s, eraseKey, "4711"); len(got) != 4 {
			t.Fatalf("planning erased: %v", got)
		}
		done, err := s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{ID: "receipt", Author: "ann", Reason: "asked for", Values: patch.NullValues, Salt: []byte("salt"), Summaries: patch.BlankSummaries})
		if err != nil || !slices.Equal(whys(done), want) || string(done.Salt) != "salt" {
			t.Fatalf("%q, %v", whys(done), err)
		}
		if got := has(t, s, eraseKey, "4711"); len(got) != 0 {
			t.Errorf("it is left in %v", got)
		}
		for text, n := range map[string]int{"unrelated": 2, "long": 2, "other": 1, "and more": 1, "asked for": 1} {
			if got := has(t, s, eraseKey, text); len(got) != n {
				t.Errorf("%q is left in %v, want %d", text, got, n)
			}
		}
		after, err := s.View(ctx, eraseKey)
		if err != nil || after.Len() != before.Len() || after.PatchSeq() != 12 || after.Edition() <= before.Edition() {
			t.Errorf("%d events, newest patch %d, edition %d, %v", after.Len(), after.PatchSeq(), after.Edition(), err)
		}
		if v, _ := after.Value("number"); v.Any() != nil {
			t.Errorf("number is %v", v)
		}
		if v, _ := after.Value("k"); v.Any() != "initial" {
			t.Errorf("k is %v", v)
		}
		verified(t, s)
		receipts, err := s.Receipts(ctx, eraseKey)
		if err != nil || len(receipts) != 1 || receipts[0].ID() != "receipt" || receipts[0].Patch.Author() != "ann" {
			t.Errorf("receipts %v, %v", receipts, err)
		}

		// What a summary was made from is a conflict, as is a patch of a view from before.
		_, err = s.ApplyPatch(ctx, eraseKey, store.PatchOptions{On: before}, patch.NewSplice(0, 1))
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("a patch on a view from before: %v", err)
		}
		// A retry returns what is there.
		again, err := s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, lines(t, `{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"my number is 4711"}]}}`)...)
		if err != nil || len(again.Records) != 1 || strings.Contains(again.Records[0].Event.String(), "4711") {
			t.Errorf("a retry of what was erased: %v, %v", again.Records, err)
		}
		if _, err = s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, lines(t, `{"id":"e1","author":"other"}`)...); !errors.Is(err, store.ErrDuplicateID) {
			t.Errorf("another event of the same id: %v", err)
		}
		// Taking back works on, and brings nothing back.
		if _, err := s.Revert(ctx, eraseKey, store.UndoOptions{AllowOrphans: true}, "sum2"); err != nil {
			t.Error(err)
		}
		if _, err := s.Revert(ctx, eraseKey, store.UndoOptions{AllowOrphans: true}, "sum"); err != nil {
			t.Error(err)
		}
		if _, err := s.Revert(ctx, eraseKey, store.UndoOptions{}, "receipt"); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("taking the receipt back: %v", err)
		}
		if got := has(t, s, eraseKey, "4711"); len(got) != 0 {
			t.Errorf("it is back in %v", got)
		}
		if v, err := s.ViewAt(ctx, eraseKey, 1); err != nil || v.At(0).Content().String() != `{"parts":[{"text":"[erased]"}],"role":"user"}` {
			t.Errorf("as of record 1: %v, %v", v.At(0), err)
		}
		verified(t, s)
		// With an id that is there nothing else is selected.
		same, err := s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "receipt"})
		if err != nil || len(has(t, s, eraseKey, "unrelated")) != 2 || same.Salt != nil || len(same.Sessions) != 1 {
			t.Errorf("with the same id: %+v, %v", same, err)
		}
		if _, err := s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "e5"}); !errors.Is(err, store.ErrDuplicateID) {
			t.Errorf("with another record's id: %v", err)
		}
	})
}

// A digest proves what was there, to who has it and the salt.
func TestErasureDigest(t *testing.T) {
	s := inMemory(t)
	ctx := t.Context()
	createWith(t, s, eraseKey, said(t, "e1", "one"), said(t, "e2", "two"), said(t, "e3", "three"))
	var records []patch.Record
	for r, err := range s.RawEvents(ctx, eraseKey, 1) {
		testlog.NoError(t, err)
		records = append(records, r)
	}
	done, err := s.Erase(ctx, eraseKey, store.EraseSelection{Seqs: []uint64{1, 3}}, store.EraseOptions{})
	testlog.NoError(t, err)
	of, ok := done.Sessions[0].Receipt.Patch.Erasure()
	if !ok || len(done.Salt) != 32 {
		t.Fatalf("%+v", done)
	}
	if is, err := store.ErasureDigest(done.Salt, records[0], records[2]); err != nil || !bytes.Equal(is, of.Digest) {
		t.Errorf("the digest is %x, the receipt says %x, %v", is, of.Digest, err)
	}
	for _, wrong := range [][]patch.Record{{records[2], records[0]}, {records[0]}, {records[0], records[1]}} {
		if is, err := store.ErasureDigest(done.Salt, wrong...); err != nil || bytes.Equal(is, of.Digest) {
			t.Errorf("%v have the same digest, %v", wrong, err)
		}
	}
	if is, _ := store.ErasureDigest(nil, records[0], records[2]); bytes.Equal(is, of.Digest) {
		t.Error("without the salt it is the same")
	}
}

func TestEraseSelections(t *testing.T) {
	texts := []string{
		`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"Needle"}]}}`,
		`{"id":"e2","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{"deep":["a needle"]}}}]}}`,
		`{"id":"e3","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"needle":1}}}]}}`,
		`{"id":"e4","author":"user","content":{"parts":[{"inlineData":{"mimeType":"text/plain","data":"YSBuZWVkbGUgaW5zaWRl"}}]}}`,
		`{"id":"e5","author":"user","customMetadata":{"x":"\u006eeedle"}}`,
		`{"id":"e6","author":"needle","branch":"needle","invocationId":"needle"}`,
		`{"id":"e7","author":"user","actions":{"stateDelta":{"k":"needle"}}}`,
		`{"id":"e8","author":"user","content":{"parts":[{"text":"12345"}]},"usageMetadata":{"promptTokenCount":12345}}`,
	}
	for want, sel := range map[string]store.EraseSelection{
		"[2 3 4 5 7 9]":          {Match: "needle"},
		"[1 2 3 4 5 7 9]":        {Match: "NEEDLE", IgnoreCase: true},
		"[8]":                    {Match: "12345"},
		"[]":                     {Match: "nothing has it"},
		"[1 4 5 7 8 10]":         {Author: "user"},
		"[1 10]":                 {EventIDs: []string{"e1", "nobody"}},
		"[9]":                    {EventIDs: []string{"p"}},
		"[10]":                   {Seqs: []uint64{10, 99}},
		"[1 2 3 4 5 6 7 8 9 10]": {All: true},
	} {
		s := inMemory(t)
		ctx := t.Context()
		createWith(t, s, eraseKey, lines(t, texts...)...)
		p, err := patch.NewPin("e1").WithID("p").WithCustomMetadata(map[string]any{"why": "the needle"})
		testlog.NoError(t, err)
		must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{}, p))
		must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowPinned: true}, patch.NewSummarise(0, 1, said(t, "s", "told")).WithID("q")))
		done, err := s.Erase(ctx, eraseKey, sel, store.EraseOptions{Values: patch.NullValues})
		testlog.NoError(t, err)
		seqs := []uint64{}
		for _, session := range done.Sessions {
			for _, e := range session.Events {
				seqs = append(seqs, e.Seq)
			}
		}
		// The summary goes with e1.
		if sel.Author == "user" || sel.All || sel.IgnoreCase {
			want = strings.Replace(want, "[1 2 3 4 5 7 9]", "[1 2 3 4 5 7 9 10]", 1)
		}
		seqs = slices.Compact(seqs)
		if got := fmt.Sprint(seqs); got != want {
			t.Errorf("%+v erased %s, want %s", sel, got, want)
		}
		verified(t, s)
	}
}

// A text is matched where an erase can remove it, and not in names, roles and ids that stay.
func TestEraseMatchPlaces(t *testing.T) {
	const call = `{"id":"e1","author":"model","content":{"role":"model","parts":[{"text":"a"},{"functionCall":{"id":"call","name":"look","args":{"x":"b"}}},{"text":"c"}]},"actions":{"stateDelta":{"key":"d"}}}`
	for match, want := range map[string]bool{
		"a": true, "b": true, "c": true, "d": true, "x": true,
		"model": false, "role": false, "look": false, "call": false, "key": false, "text": false, "parts": false, "stateDelta": false,
	} {
		s := inMemory(t)
		createWith(t, s, eraseKey, lines(t, call)...)
		plan, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{Match: match}, store.EraseOptions{DryRun: true})
		if got := len(plan.Sessions) > 0; err != nil || got != want {
			t.Errorf("%q matches: %t, %v", match, got, err)
		}
	}
	// Bytes in base64, and fields that only a patch has a meaning for.
	for _, event := range []string{
		`{"id":"e1","author":"u","content":{"parts":[{"inlineData":{"mimeType":"text/plain","data":"Pz8/IG5lZWRsZSA/Pz8+"}}]}}`,
		`{"id":"e1","author":"u","group":"needle"}`,
		`{"id":"e1","author":"u","base":["needle"]}`,
	} {
		s := inMemory(t)
		createWith(t, s, eraseKey, lines(t, event)...)
		done, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{Match: "needle"}, store.EraseOptions{})
		if err != nil || len(done.Sessions) != 1 {
			t.Errorf("%s: %+v, %v", event, done, err)
		}
	}
}

// A text that is in the initial state alone goes there in forks too, and in the state that sessions share; kept values are
// counted, and matched again.
func TestEraseMatchOutsideEvents(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		ctx := t.Context()
		state := map[string]any{"k": "needle", "user:u": "a needle", "app:a": []any{"needle"}, "other": "x", "user:other": "x"}
		must(t)(s.Create(ctx, eraseKey, state))
		must(t)(s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, said(t, "e1", "unrelated")))
		fork := store.Key{App: "a", User: "v", Session: "fork"}
		must(t)(s.Fork(ctx, eraseKey, fork, store.ForkOptions{}))
		match := store.EraseSelection{Match: "needle"}
		kept, err := s.Erase(ctx, eraseKey, match, store.EraseOptions{})
		if err != nil || fmt.Sprint(kept.Kept) != "{0 [k] [app:a user:u]}" || len(kept.Sessions)+len(kept.Shared) != 0 {
			t.Errorf("kept: %+v, %v", kept, err)
		}
		done, err := s.Erase(ctx, eraseKey, match, store.EraseOptions{Values: patch.NullValues})
		if err != nil || fmt.Sprint(done.Shared) != "[app:a user:u]" || len(done.Sessions) != 2 || fmt.Sprint(done.Kept) != "{0 [] []}" {
			t.Errorf("erased: %+v, %v", done, err)
		}
		for _, key := range []store.Key{eraseKey, fork} {
			session := sessionOf(t, s, key)
			for name, v := range session.Values() {
				if strings.Contains(v.String(), "needle") || strings.Contains(name, "other") && v.Any() != "x" {
					t.Errorf("%s: %s is %s", key, name, v)
				}
			}
		}
		verified(t, s)
	})
}

// Whoever has no receipt logged may not say that something was erased.
func TestEraseIsNotForged(t *testing.T) {
	s := inMemory(t)
	ctx := t.Context()
	createWith(t, s, eraseKey, said(t, "e1", "one"))
	blank := said(t, "e2", "two").Blank("r", patch.KeepValues)
	if _, err := s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, blank); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an event that says that it was erased: %v", err)
	}
	for _, p := range []*patch.PatchEvent{
		patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}}),
		patch.NewSplice(0, 0, blank),
		patch.NewPin("e1").WithID("p").Blank("r", patch.KeepValues, func(int) bool { return true }),
	} {
		if _, err := s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true}, p); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", p, err)
		}
	}
	receipt := patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}}).WithID("r")
	var file strings.Builder
	testlog.NoError(t, s.Export(ctx, eraseKey, &file, store.ExportOptions{}))
	other := eraseKey
	other.Session = "other"
	for text, key := range map[string]store.Key{
		file.String() + receipt.String(): eraseKey, // by which the next erasing would erase what was there
		blank.String():                   eraseKey,
		blank.String() + "\n":            other,
	} {
		if _, err := s.Import(ctx, key, strings.NewReader(text), store.ImportOptions{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("import of %s: %v", text, err)
		}
	}
	if v, err := s.View(ctx, eraseKey); err != nil || v.Seq() != 1 {
		t.Errorf("record %d, %v", v.Seq(), err)
	}
	verified(t, s)
}

// What is exported of a session of which something was erased is a whole session elsewhere.
func TestExportErased(t *testing.T) {
	s := inMemory(t)
	ctx := t.Context()
	createWith(t, s, eraseKey, said(t, "e1", "one"), said(t, "e2", "two"), said(t, "e3", "three"), said(t, "e4", "four"))
	must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true}, patch.NewSplice(0, 1)))
	for i, ids := range [][]string{{"e1", "e2"}, {"e4"}} {
		opts := store.EraseOptions{ID: fmt.Sprint("r", i), Author: "ann", Reason: "asked for"}
		if opts.Summaries = patch.KeepSummaries; i == 0 {
			opts.Summaries = patch.BlankSummaries
		}
		must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: ids}, opts))
	}
	for i, opts := range []store.ExportOptions{{}, {Visible: true}} {
		var file strings.Builder
		testlog.NoError(t, s.Export(ctx, eraseKey, &file, opts))
		copied := eraseKey
		copied.Session = fmt.Sprint("copy ", i)
		for range 2 { // the second time it finds what is there
			must(t)(s.Import(ctx, copied, strings.NewReader(file.String()), store.ImportOptions{}))
		}
		if got := has(t, s, copied, "three"); len(got) != 1 {
			t.Errorf("%+v: records %v have what was not erased", opts, got)
		}
		if r, err := s.Receipts(ctx, copied); err != nil || len(r) != 2 || r[0].Patch.Author() != "ann" {
			t.Errorf("%+v: receipts %v, %v", opts, r, err)
		} else if of, _ := r[1].Patch.Erasure(); of.Summaries != patch.KeepSummaries {
			t.Errorf("%+v: the second receipt is %s", opts, r[1].Patch)
		}
	}
	verified(t, s)
}

// logged returns a store with a log that no call writes.
func logged(t *testing.T, lines ...string) *store.Store {
	t.Helper()
	b := new(memory.Backend)
	s := newStore(t, b, store.Options{})
	t.Cleanup(func() { _ = s.Close() })
	createWith(t, s, eraseKey)
	all, err := b.List(t.Context(), "", "", 1)
	testlog.NoError(t, err)
	head := all[0].Head
	batch := backend.Batch{Creation: head.Creation, Seen: head.Token, Next: head.Token ^ 1, Chain: head.Chain}
	for i, line := range lines {
		r, err := patch.ParseRecord([]byte(line))
		testlog.NoError(t, err)
		r = patch.Complete(r, nil, now)
		r.Seq = uint64(i + 1)
		data, err := patch.AppendRecord(nil, r)
		testlog.NoError(t, err)
		batch.Records = append(batch.Records, backend.Record{Seq: r.Seq, Sum: recordform.Checksum(data), Data: data, IDs: slices.Collect(r.IDs())})
	}
	testlog.NoError(t, b.Append(t.Context(), all[0].Session, batch))
	return s
}

// A log that is not as its receipts say is reported, and an erasing that was cut short is
// finished by the next.
func TestVerifyErasures(t *testing.T) {
	ctx := t.Context()
	blank := said(t, "e1", "one").Blank("r", patch.KeepValues).String()
	receipt := patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}, Closed: 2}).WithID("r").String()
	open := strings.Replace(receipt, `,"closed":2`, "", 1)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"whole":            {[]string{blank, receipt}, ""},
		"no receipt":       {[]string{blank}, "record 1: corrupt"},
		"another receipt":  {[]string{blank, strings.Replace(receipt, `"r"`, `"q"`, 1)}, "record 1: corrupt"},
		"about another":    {[]string{said(t, "e0", "zero").String(), blank, receipt}, "record 2: corrupt|record 3: corrupt"},
		"not erased":       {[]string{said(t, "e1", "one").String(), receipt}, "record 2: corrupt"},
		"not closed":       {[]string{blank, open}, "record 2: the erasing"},
		"not begun":        {[]string{said(t, "e1", "one").String(), open}, "record 2: the erasing"},
		"about the future": {[]string{receipt, said(t, "e1", "one").String()}, ""},
	} {
		s := logged(t, c.lines...)
		var found []string
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			testlog.NoError(t, err)
			found = append(found, p.String())
		}
		wants := strings.Split(c.want, "|")
		if c.want == "" {
			wants = nil
		}
		if len(found) != len(wants) {
			t.Errorf("%s: %q, want %q", name, found, wants)
			continue
		}
		for i := range wants {
			if !strings.Contains(found[i], wants[i]) {
				t.Errorf("%s: %q, want %q", name, found, wants)
			}
		}
		if !strings.Contains(c.want, "the erasing") {
			continue
		}
		done, err := s.Erase(ctx, eraseKey, store.EraseSelection{}, store.EraseOptions{})
		if err != nil || len(done.Sessions) != 1 || done.Sessions[0].Receipt.ID() != "r" {
			t.Errorf("%+v, %v", done, err)
		}
		if got := has(t, s, eraseKey, "one"); len(got) != 0 {
			t.Errorf("left in %v", got)
		}
		verified(t, s)
	}
}

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
		testlog.NoError(t, err)
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
			testlog.NoError(t, err)
			done, err := s.Erase(t.Context(), eraseKey, sel, c.opts)
			testlog.NoError(t, err)
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
		testlog.NoError(t, err)
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

func eraseIDs(t testing.TB, s *store.Store, key store.Key, opts store.EraseOptions, ids ...string) []string {
	t.Helper()
	sel := store.EraseSelection{EventIDs: ids}
	dry := opts
	dry.DryRun = true
	planned, err := s.Erase(t.Context(), key, sel, dry)
	testlog.NoError(t, err)
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

// An erase that is planned again, since another writer came first, reports all of its result.
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

// What a user has said is gone from all sessions of the user and what others have of them, and
// nothing else is. Whatever fails on the way, once more finishes it, with one receipt each.
func TestEraseUser(t *testing.T) {
	for write := 0; write < 14; write += 2 {
		erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
			ctx := t.Context()
			key := func(user, session string) store.Key { return store.Key{App: "a", User: user, Session: session} }
			state := map[string]any{"k": "secret", "user:k": "secret", "app:k": "shared"}
			for _, name := range []string{"s1", "s2"} {
				must(t)(s.Create(ctx, key("ann", name), state))
				events := append(lines(t, `{"id":"first","author":"user","content":{"parts":[{"text":"the secret of `+name+`"}]},"actions":{"stateDelta":{"x":"secret","user:x":"secret"}}}`), said(t, "second", "secret too"))
				must(t)(s.AppendEvents(ctx, key("ann", name), store.AppendOptions{}, events...))
			}
			at := uint64(1)
			must(t)(s.Fork(ctx, key("ann", "s1"), key("bob", "of ann"), store.ForkOptions{At: &at}))
			must(t)(s.AppendEvents(ctx, key("bob", "of ann"), store.AppendOptions{}, said(t, "own", "of bob")))
			createWith(t, s, key("bob", "own"), said(t, "first", "of bob"), said(t, "second", "secret of bob"))
			must(t)(s.Create(ctx, key("ann", "empty"), nil))

			opts := store.EraseOptions{ID: "r", Salt: []byte("salt")}
			dry := opts
			dry.DryRun = true
			planned, err := s.EraseUser(ctx, "a", "ann", dry)
			if err != nil || len(has(t, s, key("ann", "s1"), "secret")) != 2 {
				t.Fatalf("planning erased: %v", err)
			}
			faulty.Plan(storetest.Plan{Write: write, Failure: []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}[write%3]})
			done, err := s.EraseUser(ctx, "a", "ann", opts)
			if failed := faulty.Writes() >= write && write%3 == 0 && write > 0; failed != (err != nil) && write%3 != 1 {
				t.Errorf("write %d fails: %v", write, err)
			}
			faulty.Plan(storetest.Plan{})
			if write == 0 {
				if got, want := whys(done), whys(planned); !slices.Equal(got, want) || len(got) != 5 {
					t.Errorf("erased %q, planned %q", got, want)
				}
				if fmt.Sprint(done.Shared) != "[user:k user:x]" || fmt.Sprint(planned.Shared) != "[user:k user:x]" {
					t.Errorf("shared %q, planned %q", done.Shared, planned.Shared)
				}
			}
			must(t)(s.EraseUser(ctx, "a", "ann", opts))
			for _, k := range []store.Key{key("ann", "s1"), key("ann", "s2"), key("bob", "of ann")} {
				if got := has(t, s, k, "secret"); len(got) != 0 {
					t.Errorf("write %d: %s has it in %v", write, k, got)
				}
				if receipts, err := s.Receipts(ctx, k); err != nil || len(receipts) != 1 || receipts[0].ID() != "r" {
					t.Errorf("write %d: %s has receipts %v, %v", write, k, receipts, err)
				}
				if initial, err := s.InitialState(ctx, k); err != nil || initial["k"].Any() != nil {
					t.Errorf("write %d: %s has the initial state %v, %v", write, k, initial, err)
				}
			}
			for k, want := range map[store.Key][]uint64{key("bob", "own"): {2}, key("bob", "of ann"): nil} {
				if got := has(t, s, k, "secret of bob"); !slices.Equal(got, want) {
					t.Errorf("write %d: %s has what bob said in %v", write, k, got)
				}
			}
			if got := has(t, s, key("bob", "of ann"), "of bob"); !slices.Equal(got, []uint64{2}) {
				t.Errorf("write %d: what bob said in the fork is in %v", write, got)
			}
			session := sessionOf(t, s, key("ann", "s1"))
			for name, want := range map[string]any{"user:k": nil, "user:x": nil, "app:k": "shared", "x": nil, "k": nil} {
				if v, ok := session.Value(name); !ok || v.Any() != want {
					t.Errorf("write %d: %s is %v, %v", write, name, v, ok)
				}
			}
			verified(t, s)
		})
	}
	s := inMemory(t)
	if _, err := s.EraseUser(t.Context(), "a", "", store.EraseOptions{}); err == nil {
		t.Error("no user was erased")
	}
	createWith(t, s, eraseKey, said(t, "e", "kept"))
	if _, err := s.EraseUser(t.Context(), "a", "u", store.EraseOptions{Values: patch.KeepValues, ID: "e"}); err == nil {
		t.Error("the receipt took an event's id")
	}
}
