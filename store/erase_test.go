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

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
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
	opts := store.Options{Snapshots: snapshot.Policy{Every: 3, Share: 1}, Now: clock}
	t.Run("bolt", func(t *testing.T) {
		b, err := bolt.Open(t.TempDir()+"/a.db", bolt.Options{NoSync: true})
		no(t, err)
		f := &storetest.Faulty{Backend: b}
		s := newStore(t, f, opts)
		defer s.Close()
		test(t, s, f)
	})
	t.Run("memory", func(t *testing.T) {
		f := &storetest.Faulty{Backend: new(memory.Backend)}
		s := newStore(t, f, opts)
		defer s.Close()
		test(t, s, f)
	})
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
		no(t, err)
		t.Errorf("verify: %v", p)
	}
}

// has returns in which records of a session a text is, and whether its exported form, its
// snapshot or an index of it has it.
func has(t testing.TB, s *store.Store, key store.Key, text string) (seqs []uint64) {
	t.Helper()
	for r, err := range s.RawEvents(context.Background(), key, 1) {
		no(t, err)
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
	no(t, err)
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
		no(t, err)
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
		no(t, err)
		records = append(records, r)
	}
	done, err := s.Erase(ctx, eraseKey, store.EraseSelection{Seqs: []uint64{1, 3}}, store.EraseOptions{})
	no(t, err)
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
		no(t, err)
		must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{}, p))
		must(t)(s.ApplyPatch(ctx, eraseKey, store.PatchOptions{AsOfNow: true, AllowPinned: true}, patch.NewSummarise(0, 1, said(t, "s", "told")).WithID("q")))
		done, err := s.Erase(ctx, eraseKey, sel, store.EraseOptions{Values: patch.NullValues})
		no(t, err)
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
		if err != nil || fmt.Sprint(done.Shared) != "[app:a user:u]" || len(done.Sessions) != 2 || !done.Kept.IsZero() {
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
	no(t, s.Export(ctx, eraseKey, &file, store.ExportOptions{}))
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
		no(t, s.Export(ctx, eraseKey, &file, opts))
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
	no(t, err)
	head := all[0].Head
	batch := backend.Batch{Creation: head.Creation, Seen: head.Token, Next: head.Token ^ 1, Chain: head.Chain}
	for i, line := range lines {
		r, err := patch.ParseRecord([]byte(line))
		no(t, err)
		r = patch.Complete(r, nil, now)
		r.Seq = uint64(i + 1)
		data, err := patch.AppendRecord(nil, r)
		no(t, err)
		batch.Records = append(batch.Records, backend.Record{Seq: r.Seq, Sum: recordform.Checksum(data), Data: data, IDs: slices.Collect(r.IDs())})
	}
	no(t, b.Append(t.Context(), all[0].Session, batch))
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
			no(t, err)
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
