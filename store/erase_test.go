package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

func said(id, text string) *patch.Event {
	return testlog.Text(id, "i", "user", text)
}

func lines(texts ...string) (events []*patch.Event) {
	for _, text := range texts {
		events = append(events, testlog.Event(text))
	}
	return events
}

// erasable runs a test on each kind of store. The backend of the store is wrapped in a Faulty.
func erasable(t *testing.T, test func(t *testing.T, s *store.Store, faulty *storetest.Faulty)) {
	erasableAt(t, nil, test)
}

// erasableAt is erasable with the given clock.
func erasableAt(t *testing.T, clock func() time.Time, test func(t *testing.T, s *store.Store, faulty *storetest.Faulty)) {
	opts := store.Options{Snapshots: snapshot.Policy{Every: 3, MinPercent: 1}, Now: clock}
	onEachWith(t, opts, func(e *env) { test(e.T, e.store, e.backend) })
}

func inMemory(t testing.TB) *store.Store { return teststore.Memory(t, store.Options{}) }

// sibling returns the key of another session that belongs to the same user as eraseKey.
func sibling(session string) store.Key { return store.Key{App: "a", User: "u", Session: session} }

func recordsOf(t testlog.Failer, s *store.Store, key store.Key) (all []patch.Record) {
	t.Helper()
	for r, err := range s.RawEvents(ctx, key, 1) {
		testlog.NoError(t, err)
		all = append(all, r)
	}
	return all
}

func exportOf(t testlog.Failer, s *store.Store, key store.Key, opts store.ExportOptions) string {
	t.Helper()
	var b strings.Builder
	testlog.NoError(t, s.Export(ctx, key, &b, opts))
	return b.String()
}

func createWith(t testing.TB, s *store.Store, key store.Key, events ...*patch.Event) {
	t.Helper()
	must(t)(s.Create(context.Background(), key, nil, store.CreateOptions{}))
	must(t)(s.AppendEvents(context.Background(), key, events, store.AppendOptions{}))
}

// verified checks that Verify finds no problem.
func verified(t testlog.Failer, s *store.Store) {
	t.Helper()
	for p, err := range s.Verify(context.Background(), store.VerifyOptions{}) {
		testlog.NoError(t, err)
		t.Errorf("verify: %v", p)
	}
}

// has returns the seqs of the session's records that contain text. It fails the test if the view, the state or a
// search shows text but no record contains it.
func has(t testing.TB, s *store.Store, key store.Key, text string) (seqs []uint64) {
	t.Helper()
	for _, r := range recordsOf(t, s, key) {
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
	hits := testlog.Must(recall.NewFinder(s, 0).Search(context.Background(), key, recall.Search{Query: text}))(t)
	for _, hit := range hits {
		if line := hit.Event.String() + hit.Snippet.Text; strings.Contains(line, text) && len(seqs) == 0 {
			t.Errorf("a search finds %s", line)
		}
	}
	return seqs
}

// receiptsOf returns the call ids and authors of a session's receipts.
func receiptsOf(t testing.TB, s *store.Store, key store.Key) (all []string) {
	t.Helper()
	for _, r := range testlog.Must(s.Receipts(ctx, key))(t) {
		of, _ := r.Patch.Erasure()
		all = append(all, strings.TrimSpace(of.CallID+" "+r.Patch.Author()))
	}
	return all
}

func whys(e store.Erasure) (all []string) {
	for _, s := range e.Sessions {
		for _, event := range s.Events {
			all = append(all, fmt.Sprintf("%s %d.%d %s: %s", s.Key.Session, event.Seq, event.Index, event.ID, event.Why))
		}
	}
	return all
}

var eraseKey = sibling("s")

// If an event is erased, its copies and the summaries that cover it are erased too, at any depth. Other content
// stays.
func TestEraseCascade(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		must(t)(s.Create(ctx, eraseKey, map[string]any{"k": "initial"}, store.CreateOptions{}))
		add := func(texts ...string) {
			t.Helper()
			must(t)(s.AppendEvents(ctx, eraseKey, lines(texts...), store.AppendOptions{}))
		}
		apply := func(patches ...*patch.PatchEvent) {
			t.Helper()
			must(t)(s.ApplyPatch(ctx, eraseKey, patches, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))
		}
		add(`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"my number is 4711"}]},"actions":{"stateDelta":{"number":"4711"}}}`,
			`{"id":"e2","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"look","args":{"x":"other"}}}]}}`,
			`{"id":"e3","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":"long"}}}]}}`,
			`{"id":"e4","author":"user","content":{"role":"user","parts":[{"text":"and more"}]}}`,
			`{"id":"e5","author":"user","content":{"role":"user","parts":[{"text":"unrelated"}]}}`)
		// These patches are applied in order. Two patches of one group summarise e1 and e4. One patch clears e3,
		// and one summarises the summary. One patch inserts a copy, and one summarises unrelated events.
		apply(patch.NewSplice(3, 1).WithID("cut").WithGroup("g").WithState(patch.Keep),
			patch.NewSummarise(0, 1, said("s1", "number 4711 and more")).WithID("sum").WithGroup("g"))
		cleared := testlog.Must(lines(`{"id":"e3","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":"long"}}}]}}`)[0].StandIn("e3short", 3, nil))(t)
		apply(patch.NewSplice(2, 1, cleared).WithID("clear").WithState(patch.Keep))
		apply(patch.NewSummarise(0, 1, said("s2", "again 4711")).WithID("sum2"))
		copied := event(`{"id":"back","content":{"role":"model","parts":[{"text":"4711 came back"}]},"customMetadata":{"patchlog":{"recalled":"e1","as":"back"}}}`)
		apply(patch.NewSplice(1, 0, copied).WithID("recall"))
		apply(patch.NewSummarise(4, 1, said("s3", "something unrelated")).WithID("sum3"))
		before := viewOf(t, s, eraseKey)

		want := []string{"s 1.0 e1: selected", "s 7.0 s1: stands for an erased event", "s 9.0 s2: stands for an erased event", "s 10.0 back: copy of an erased event"}
		planned := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{DryRun: true}))(t)
		testlog.Equal(t, "planned", whys(planned), want)
		// The summary also covers the event that another patch of its group removed.
		grouped := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e4"}}, store.EraseOptions{DryRun: true}))(t)
		testlog.Equal(t, "planned of e4", whys(grouped), []string{"s 4.0 e4: selected", want[1], want[2]})
		testlog.Equal(t, "records that have it after planning", len(has(t, s, eraseKey, "4711")), 4)
		done := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{ID: "receipt", Author: "ann", Reason: "asked for", Values: patch.NullValues, Summaries: patch.BlankSummaries}))(t)
		testlog.Equal(t, "erased", whys(done), want)
		testlog.Equal(t, "records that have it", has(t, s, eraseKey, "4711"), nil)
		for text, n := range map[string]int{"unrelated": 2, "long": 2, "other": 1, "and more": 1, "asked for": 1} {
			testlog.Equal(t, "records that have "+text, len(has(t, s, eraseKey, text)), n)
		}
		after := viewOf(t, s, eraseKey)
		if after.Len() != before.Len() || after.PatchSeq() != 12 || after.Edition() <= before.Edition() {
			t.Errorf("%d events, newest patch %d, edition %d", after.Len(), after.PatchSeq(), after.Edition())
		}
		testlog.Equal(t, "the state", after.State(), map[string]any{"k": "initial", "number": nil})
		verified(t, s)
		testlog.Equal(t, "receipts", receiptsOf(t, s, eraseKey), []string{"receipt ann"})

		// A patch that was made from a view before the erase conflicts with the receipt.
		testlog.ErrorIs(t, testlog.ErrorOf(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{On: before})), store.ErrConflict, "a patch on a view from before")
		// If an append of the erased event is repeated, it returns the event's blank.
		again := testlog.Must(s.AppendEvents(ctx, eraseKey, []*patch.Event{testlog.Text("e1", "", "user", "my number is 4711")}, store.AppendOptions{}))(t)
		if len(again.Records) != 1 || strings.Contains(again.Records[0].Event.String(), "4711") {
			t.Errorf("a retry of what was erased: %v", again.Records)
		}
		testlog.ErrorIs(t, testlog.ErrorOf(s.AppendEvents(ctx, eraseKey, lines(`{"id":"e1","author":"other"}`), store.AppendOptions{})), store.ErrDuplicateID, "another event of the same id")
		// After an erase, patches can still be reverted. A revert restores no erased content.
		testlog.WantNil(t, testlog.ErrorOf(s.Revert(ctx, eraseKey, "sum2", store.UndoOptions{AllowOrphans: true})))
		testlog.WantNil(t, testlog.ErrorOf(s.Revert(ctx, eraseKey, "sum", store.UndoOptions{AllowOrphans: true})))
		testlog.ErrorIs(t, testlog.ErrorOf(s.Revert(ctx, eraseKey, done.Sessions[0].Receipt.ID(), store.UndoOptions{})), store.ErrInvalid, "taking the receipt back")
		testlog.Equal(t, "records that have it again", has(t, s, eraseKey, "4711"), nil)
		testlog.Equal(t, "as of record 1", testlog.Must(s.ViewAt(ctx, eraseKey, 1))(t).At(0).Content().String(), `{"parts":[{"text":"[erased]"}],"role":"user"}`)
		verified(t, s)
		// If the session has an erase with the same id, the selection of the new call is ignored.
		same := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "receipt"}))(t)
		testlog.Equal(t, "sessions, and records that are left", []int{len(same.Sessions), len(has(t, s, eraseKey, "unrelated"))}, []int{1, 2})
	})
}

func TestEraseSelections(t *testing.T) {
	texts := []string{
		`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"Needle"}]}}`,
		`{"id":"e2","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{"deep":["a needle"]}}}]}}`,
		`{"id":"e3","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"needle":1}}}]}}`,
		`{"id":"e4","author":"user","content":{"parts":[{"inlineData":{"mimeType":"text/plain","data":"YSBuZWVkbGUgaW5zaWRl"}}]}}`,
		`{"id":"e5","author":"user","customMetadata":{"x":"\u006eeedle"}}`,
		`{"id":"e6","author":"needle","branch":"needle","invocationId":"needle","content":{"role":"needle","parts":[{"functionCall":{"id":"needle","name":"needle","args":{}}}]},"actions":{"stateDelta":{"needle":1}}}`,
		`{"id":"e7","author":"user","actions":{"stateDelta":{"k":"needle"}}}`,
		`{"id":"e8","author":"user","content":{"parts":[{"text":"12345"}]},"usageMetadata":{"promptTokenCount":12345}}`,
	}
	for want, sel := range map[string]store.EraseSelection{
		"[2 3 4 5 7 9]":          {Match: "needle"},
		"[1 2 3 4 5 7 9]":        {Match: "NEEDLE", IgnoreCase: true},
		"[8]":                    {Match: "12345"},
		"[]":                     {Match: "parts"}, // name of a field
		"[1 4 5 7 8 10]":         {Author: "user"},
		"[1 10]":                 {EventIDs: []string{"e1", "nobody"}},
		"[9]":                    {EventIDs: []string{"p"}},
		"[10]":                   {Seqs: []uint64{10, 99}},
		"[1 2 3 4 5 6 7 8 9 10]": {All: true},
	} {
		s := inMemory(t)
		createWith(t, s, eraseKey, lines(texts...)...)
		p := testlog.Must(patch.NewPin("e1").WithID("p").WithCustomMetadata(map[string]any{"why": "the needle"}))(t)
		must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{p}, store.PatchOptions{}))
		must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSummarise(0, 1, said("s", "told")).WithID("q")}, store.PatchOptions{AsOfNow: true, AllowPinned: true}))
		done := testlog.Must(s.Erase(ctx, eraseKey, sel, store.EraseOptions{Values: patch.NullValues}))(t)
		seqs := []uint64{}
		for _, session := range done.Sessions {
			for _, e := range session.Events {
				seqs = append(seqs, e.Seq)
			}
		}
		// The summary is erased with e1.
		if sel.Author == "user" || sel.All || sel.IgnoreCase {
			want = strings.Replace(want, "[1 2 3 4 5 7 9]", "[1 2 3 4 5 7 9 10]", 1)
		}
		seqs = slices.Compact(seqs)
		testlog.Equal(t, fmt.Sprintf("erased of %+v", sel), fmt.Sprint(seqs), want)
		verified(t, s)
	}
}

// Match finds a text in the keys of arguments, in base64 data, and in fields that only patches have.
func TestEraseMatchPlaces(t *testing.T) {
	for _, event := range []string{
		`{"id":"e1","author":"u","content":{"parts":[{"functionCall":{"id":"c","name":"f","args":{"needle":1}}}]}}`,
		`{"id":"e1","author":"u","content":{"parts":[{"inlineData":{"mimeType":"text/plain","data":"Pz8/IG5lZWRsZSA/Pz8+"}}]}}`,
		`{"id":"e1","author":"u","group":"needle"}`,
		`{"id":"e1","author":"u","base":["needle"]}`,
	} {
		s := inMemory(t)
		createWith(t, s, eraseKey, lines(event)...)
		done := testlog.Must(s.Erase(t.Context(), eraseKey, store.EraseSelection{Match: "needle"}, store.EraseOptions{}))(t)
		testlog.Equal(t, "sessions with "+event, len(done.Sessions), 1)
	}
}

// If Match finds a text only in the initial state, Erase erases the text there, in the initial states of forks,
// and in the shared state. If a value is kept, Erase counts it, and a later erase can select it again.
func TestEraseMatchOutsideEvents(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		state := map[string]any{"k": "needle", "user:u": "a needle", "app:a": []any{"needle"}, "other": "x", "user:other": "x"}
		must(t)(s.Create(ctx, eraseKey, state, store.CreateOptions{}))
		must(t)(s.AppendEvents(ctx, eraseKey, []*patch.Event{said("e1", "unrelated")}, store.AppendOptions{}))
		fork := store.Key{App: "a", User: "v", Session: "fork"}
		must(t)(s.Fork(ctx, eraseKey, fork, store.ForkOptions{}))
		match := store.EraseSelection{Match: "needle"}
		erased := func(values patch.ValuePolicy) string {
			done := testlog.Must(s.Erase(ctx, eraseKey, match, store.EraseOptions{Values: values}))(t)
			return fmt.Sprintf("%d sessions, %s, %d matches remain", len(done.Sessions), done.Shared, done.RemainingMatches)
		}
		testlog.Equal(t, "kept", erased(patch.KeepValues), "0 sessions, [], 3 matches remain")
		testlog.Equal(t, "erased", erased(""), "2 sessions, [app:a user:u], 0 matches remain")
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

// The store refuses events, patches and imports with a receipt or a mark of an erasure.
func TestEraseIsNotForged(t *testing.T) {
	s := inMemory(t)
	createWith(t, s, eraseKey, said("e1", "one"))
	blank := said("e2", "two").Blank("r", patch.KeepValues)
	testlog.ErrorIs(t, testlog.ErrorOf(s.AppendEvents(ctx, eraseKey, []*patch.Event{blank}, store.AppendOptions{})), store.ErrInvalid, "an event that says that it was erased")
	for _, p := range []*patch.PatchEvent{
		patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}}),
		patch.NewSplice(0, 0, blank),
		patch.NewPin("e1").WithID("p").Blank("r", patch.KeepValues, func(int) bool { return true }),
	} {
		testlog.ErrorIs(t, testlog.ErrorOf(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true})), store.ErrInvalid, "%s", p)
	}
	receipt := patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}}).WithID("r")
	for text, key := range map[string]store.Key{
		exportOf(t, s, eraseKey, store.ExportOptions{}) + receipt.String(): eraseKey, // the next erase would erase the events that this receipt covers
		blank.String():        eraseKey,
		blank.String() + "\n": sibling("other"),
	} {
		testlog.ErrorIs(t, testlog.ErrorOf(s.Import(ctx, key, strings.NewReader(text), store.ImportOptions{})), store.ErrInvalid, "import of %s", text)
	}
	testlog.Equal(t, "record", testlog.Must(s.View(ctx, eraseKey))(t).Seq(), 1)
	verified(t, s)
}

// The export of a session with erased content can be imported as a complete session.
func TestExportErased(t *testing.T) {
	s := inMemory(t)
	createWith(t, s, eraseKey, said("e1", "one"), said("e2", "two"), said("e3", "three"), said("e4", "four"))
	must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{AsOfNow: true}))
	for i, ids := range [][]string{{"e1", "e2"}, {"e4"}} {
		opts := store.EraseOptions{ID: fmt.Sprint("r", i), Author: "ann", Reason: "asked for"}
		if opts.Summaries = patch.KeepSummaries; i == 0 {
			opts.Summaries = patch.BlankSummaries
		}
		must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: ids}, opts))
	}
	for i, opts := range []store.ExportOptions{{}, {Visible: true}} {
		file, copied := exportOf(t, s, eraseKey, opts), sibling(fmt.Sprint("copy ", i))
		for range 2 { // the second import adds nothing
			must(t)(s.Import(ctx, copied, strings.NewReader(file), store.ImportOptions{}))
		}
		testlog.Equal(t, "records that have what was not erased", len(has(t, s, copied, "three")), 1)
		testlog.Equal(t, "receipts", receiptsOf(t, s, copied), []string{"r0 ann", "r1 ann"})
		of, _ := testlog.Must(s.Receipts(ctx, copied))(t)[1].Patch.Erasure()
		testlog.Equal(t, "summaries, by the second", of.Summaries, patch.KeepSummaries)
	}
	verified(t, s)
}

// logged returns a store whose log has records that no call of a store would write.
func logged(t *testing.T, lines ...string) *store.Store {
	t.Helper()
	b := new(memory.Backend)
	s := quietly(t, b)
	createWith(t, s, eraseKey)
	all := testlog.Must(b.List(t.Context(), "", "", 1))(t)
	head := all[0].Head
	batch := backend.Batch{Creation: head.Creation, ExpectedToken: head.Token, Next: head.Token ^ 1, Chain: head.Chain}
	for i, line := range lines {
		r := testlog.Must(patch.ParseRecord([]byte(strings.Replace(line, "SESSION", head.Creation, 1))))(t)
		r = patch.Complete(r, nil, now)
		r.Seq = uint64(i + 1)
		data := testlog.Must(patch.AppendRecord(nil, r))(t)
		batch.Records = append(batch.Records, backend.Record{Seq: r.Seq, Sum: recordform.Checksum(data), Data: data, IDs: slices.Collect(r.IDs())})
	}
	testlog.NoError(t, b.Append(t.Context(), all[0].Session, batch))
	return s
}

// Verify reports a log that contradicts its receipts. The next erase finishes an interrupted erase.
func TestVerifyErasures(t *testing.T) {
	blank := said("e1", "one").Blank("r", patch.KeepValues).String()
	receipt := patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}, ClosedAt: 2, Session: "SESSION"}).WithID("r").String()
	open := strings.Replace(receipt, `,"closed":2`, "", 1)
	for name, c := range map[string]struct {
		lines []string
		want  []string // key, seq and text of each problem
	}{
		"whole":            {[]string{blank, receipt}, nil},
		"no receipt":       {[]string{blank}, []string{"a/u/s 1 record 1: corrupt"}},
		"another receipt":  {[]string{blank, strings.Replace(receipt, `"r"`, `"q"`, 1)}, []string{"a/u/s 1 record 1: corrupt"}},
		"about another":    {[]string{said("e0", "zero").String(), blank, receipt}, []string{"a/u/s 2 record 2: corrupt", "a/u/s 3 record 3: corrupt"}},
		"not erased":       {[]string{said("e1", "one").String(), receipt}, []string{"a/u/s 2 record 2: corrupt"}},
		"not closed":       {[]string{blank, open}, []string{"a/u/s 2 record 2: the erase of this receipt is unfinished"}},
		"not begun":        {[]string{said("e1", "one").String(), open}, []string{"a/u/s 2 record 2: the erase of this receipt is unfinished"}},
		"about the future": {[]string{receipt, said("e1", "one").String()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := logged(t, c.lines...)
			e := &env{T: t, store: s}
			e.problems(e.verify(store.VerifyOptions{}), c.want)
			if !strings.Contains(fmt.Sprint(c.want), "is unfinished") {
				return
			}
			done := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{}, store.EraseOptions{}))(t)
			if len(done.Sessions) != 1 || done.Sessions[0].Receipt.ID() != "r" {
				t.Errorf("%+v", done)
			}
			testlog.Equal(t, "records that have it", has(t, s, eraseKey, "one"), nil)
			verified(t, s)
		})
	}
}

// told appends events a to f. Then it logs the summaries s1 of a and b, s2 of c and d, m of s1 and s2, and s3 of e.
func told(t testing.TB, s *store.Store) {
	t.Helper()
	var events []*patch.Event
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		events = append(events, said(id, "text "+id))
	}
	createWith(t, s, eraseKey, events...)
	applied(t, s, eraseKey,
		patch.NewSummarise(0, 2, said("s1", "text a, text b")),
		patch.NewSummarise(1, 2, said("s2", "text c, text d")),
		patch.NewSummarise(0, 2, said("m", "text a to text d")).WithID("merge"),
		patch.NewSummarise(1, 1, said("s3", "text e")))
}

func applied(t testing.TB, s *store.Store, key store.Key, patches ...*patch.PatchEvent) {
	t.Helper()
	for _, p := range patches {
		must(t)(s.ApplyPatch(context.Background(), key, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))
	}
}

// visible returns the ids of the visible events, with the blank ones in brackets.
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

// An erase reverts visible blank summaries, starting with the newest, within the growth that MaxGrowth allows.
func TestEraseReverts(t *testing.T) {
	for name, c := range map[string]struct {
		ids   []string
		opts  store.EraseOptions
		after []*patch.PatchEvent // patches that are applied after told
		want  string
	}{
		"the newest blank last":  {[]string{"a", "b", "c", "d", "e"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSummarise(0, 1, said("n", "text a"))}, "(n) (s3) f; [] [s3 n]"},
		"two paths":              {[]string{"a", "c"}, store.EraseOptions{}, nil, "(a) b (c) d s3 f; [m s2 s1] []"},
		"no room for another":    {[]string{"a", "c"}, store.EraseOptions{MaxGrowth: 1}, nil, "(s1) (c) d s3 f; [m s2] [s1]"},
		"in a splice that drops": {[]string{"f"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(1, 2, said("x", "text f")).WithState(patch.Drop)}, "m (x); [] []"},
		"with an event":          {[]string{"f"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(1, 2, sum("y"), said("x", "text f")).WithState(patch.Keep)}, "m (y) (x); [] [y]"},
		"a summary that drops":   {[]string{"f"}, store.EraseOptions{}, []*patch.PatchEvent{patch.NewSplice(1, 2, sum("y")).WithState(patch.Drop)}, "m (y); [] [y]"},
	} {
		s := inMemory(t)
		told(t, s)
		applied(t, s, eraseKey, c.after...)
		done := testlog.Must(s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: c.ids}, c.opts))(t)
		one := done.Sessions[0]
		testlog.Equal(t, fmt.Sprintf("%s: visible, reverted and blank", name), fmt.Sprintf("%s; %v %v", visible(viewOf(t, s, eraseKey)), one.Reverted, one.Blank), c.want)
	}
}

// sum returns a summary event like the summaries that compaction makes.
func sum(id string) *patch.Event {
	return event(`{"id":%q,"author":"user","content":{"role":"model","parts":[{"text":"told"}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`, id)
}

// If a summarizer read a raw event, its summary is erased with the event. Summaries that merge this summary are
// erased too.
func TestEraseShown(t *testing.T) {
	s := inMemory(t)
	createWith(t, s, eraseKey, said("a", "one"), said("b", "two"), said("c", "three"))
	shown := event(`{"id":"s2","content":{"role":"user","parts":[{"text":"two, after one"}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}},"customMetadata":{"patchlog":{"level":1,"windows":1,"passes":1,"events":1,"shown":[[1,1]]}}}`)
	applied(t, s, eraseKey, patch.NewSummarise(0, 1, said("s1", "one")), patch.NewSummarise(1, 1, shown), patch.NewSummarise(1, 2, said("m", "one, two, three")))
	want := []string{"s 1.0 a: selected", "s 4.0 s1: stands for an erased event", "s 5.0 s2: " + "summarizer was shown an erased event or summary", "s 6.0 m: stands for an erased event"}
	testlog.Equal(t, "erased", eraseIDs(t, s, eraseKey, store.EraseOptions{}, "a"), want)
	testlog.Equal(t, "visible", visible(testlog.Must(s.View(t.Context(), eraseKey))(t)), "(s1) b c")
}

// With the option Context, an erase also erases a later summary if its summarizer read an erased summary of the
// same branch. It does not erase a summary that merges other summaries.
func TestEraseContext(t *testing.T) {
	s := inMemory(t)
	var events []*patch.Event
	for i := range 5 {
		events = append(events, said(fmt.Sprint("e", i), "text"))
	}
	createWith(t, s, eraseKey, events...)
	sum := func(id string, events, windows int) *patch.Event {
		return event(`{"id":%q,"author":"user","content":{"parts":[{"text":"x"}]},"customMetadata":{"patchlog":{"events":%d,"windows":%d}}}`, id, events, windows)
	}
	for _, p := range []*patch.PatchEvent{
		patch.NewSummarise(0, 1, sum("before0", 1, 1)), patch.NewSummarise(1, 1, sum("before1", 1, 1)),
		patch.NewSummarise(2, 1, sum("of it", 1, 1)), patch.NewSummarise(0, 2, sum("merged", 2, 2)),
		patch.NewSummarise(2, 1, sum("after", 1, 1)), patch.NewSummarise(3, 1, said("by hand", "x")),
	} {
		must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true}))
	}
	want := []string{"s 3.0 e2: selected", "s 8.0 of it: stands for an erased event", "s 10.0 after: summarizer was shown an erased event or summary"}
	testlog.Equal(t, "erased", eraseIDs(t, s, eraseKey, store.EraseOptions{Context: true}, "e2"), want)
}

// If a tool copied text from an event, an erase of the event also erases the copied text and the summaries of it.
// This is so even if the calls and results were erased before and the summary was kept.
func TestEraseBrought(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) { testEraseBrought(t, kept) })
	}
}

func testEraseBrought(t *testing.T, kept bool) {
	s := inMemory(t)
	createWith(t, s, eraseKey, lines(
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
	must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSummarise(2, 2, said("s", "secret told"))}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))
	brought := ": brought by a tool from an erased event"
	want := []string{"s 1.0 e1: selected", "s 4.0 f1" + brought, "s 6.0 f2" + brought, "s 9.0 f4" + brought, "s 11.0 s: stands for an erased event"}
	if kept {
		eraseIDs(t, s, eraseKey, keeping, "e1", "f1", "c2", "c3")
	}
	done := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{}))(t)
	testlog.Equal(t, "erased", whys(done), want)
	testlog.Equal(t, "records that have it", has(t, s, eraseKey, "secret"), nil)
	verified(t, s)
}

func eraseIDs(t testing.TB, s *store.Store, key store.Key, opts store.EraseOptions, ids ...string) []string {
	t.Helper()
	sel := store.EraseSelection{EventIDs: ids}
	dry := opts
	dry.DryRun = true
	planned := testlog.Must(s.Erase(t.Context(), key, sel, dry))(t)
	done := testlog.Must(s.Erase(t.Context(), key, sel, opts))(t)
	testlog.Equal(t, "planned", whys(planned), whys(done))
	verified(t, s)
	return whys(done)
}

var keeping = store.EraseOptions{Summaries: patch.KeepSummaries}

// If retention erased an event in a fork and kept the summary there, a later erase of the event in either session
// also erases the summary.
func TestEraseWhatWasKeptInForks(t *testing.T) {
	for _, first := range []bool{true, false} {
		clock := now
		erasableAt(t, func() time.Time { return clock }, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
			clock = now
			createWith(t, s, eraseKey, said("a", "secret"), said("b", "other"))
			fork := sibling("fork")
			must(t)(s.Fork(t.Context(), eraseKey, fork, store.ForkOptions{}))
			p := patch.NewSummarise(0, 2, said("s", "secret told in the fork"))
			must(t)(s.ApplyPatch(t.Context(), fork, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true}))
			clock = now.Add(day)
			testlog.Equal(t, "kept", done(t, s, store.Retention{EraseHiddenAfter: day}, false), []string{"fork false  2"})
			key := map[bool]store.Key{true: fork, false: eraseKey}[first]
			testlog.Equal(t, "events that were erased", len(eraseIDs(t, s, key, store.EraseOptions{}, "a")), 3)
			for _, key := range []store.Key{eraseKey, fork} {
				testlog.Equal(t, fmt.Sprint("records that have it of ", key), has(t, s, key, "secret"), nil)
				testlog.Equal(t, "records that have other", len(has(t, s, eraseKey, "other")), 1)
			}
		})
	}
}

// If another session has an event with the id and seq of an erased event, but with other content, that event
// stays.
func TestEraseSameIDInAFork(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		createWith(t, s, eraseKey, said("a", "secret"))
		fork := sibling("fork")
		must(t)(s.Fork(t.Context(), eraseKey, fork, store.ForkOptions{}))
		must(t)(s.AppendEvents(t.Context(), eraseKey, []*patch.Event{said("b", "secret too")}, store.AppendOptions{}))
		must(t)(s.AppendEvents(t.Context(), fork, []*patch.Event{said("b", "other")}, store.AppendOptions{}))
		testlog.Equal(t, "events that were erased", len(eraseIDs(t, s, eraseKey, store.EraseOptions{}, "a", "b")), 3)
		testlog.Equal(t, "records that have other", has(t, s, fork, "other"), []uint64{2})
	})
}

// EraseUser erases the events of all sessions of a user, and the copies of these events in sessions of other
// users. Each session gets one receipt, and other content stays. TestMachineErase and TestKilledEraseWithAFork
// also test interruptions.
func TestEraseUser(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		key := func(user, session string) store.Key { return store.Key{App: "a", User: user, Session: session} }
		state := map[string]any{"k": "secret", "user:k": "secret", "app:k": "shared"}
		for _, name := range []string{"s1", "s2"} {
			must(t)(s.Create(ctx, key("ann", name), state, store.CreateOptions{}))
			events := append(lines(`{"id":"first","author":"user","content":{"role":"user","parts":[{"text":"the secret of `+name+`"}]},"actions":{"stateDelta":{"x":"secret","user:x":"secret"}}}`), said("second", "secret too"))
			must(t)(s.AppendEvents(ctx, key("ann", name), events, store.AppendOptions{}))
		}
		at := uint64(1)
		must(t)(s.Fork(ctx, key("ann", "s1"), key("bob", "of ann"), store.ForkOptions{At: &at}))
		must(t)(s.AppendEvents(ctx, key("bob", "of ann"), []*patch.Event{said("own", "of bob")}, store.AppendOptions{}))
		opts := store.EraseOptions{ID: "r"}
		dry := opts
		dry.DryRun = true
		planned := testlog.Must(s.EraseUser(ctx, "a", "ann", dry))(t)
		testlog.Equal(t, "records that have it after planning", len(has(t, s, key("ann", "s1"), "secret")), 2)
		done := testlog.Must(s.EraseUser(ctx, "a", "ann", opts))(t)
		testlog.Equal(t, "erased", whys(done), whys(planned))
		testlog.Equal(t, "events that were erased", len(whys(done)), 5)
		testlog.Equal(t, "shared keys", done.Shared, []string{"user:k", "user:x"})
		testlog.Equal(t, "planned", planned.Shared, done.Shared)
		for _, k := range []store.Key{key("ann", "s1"), key("ann", "s2"), key("bob", "of ann")} {
			testlog.Equal(t, "receipts", receiptsOf(t, s, k), []string{"r"})
			testlog.Equal(t, "records that have it of "+k.String(), has(t, s, k, "secret"), nil)
		}
		testlog.Equal(t, "the state", sessionOf(t, s, key("ann", "s1")).State(), map[string]any{"user:k": nil, "user:x": nil, "app:k": "shared", "x": nil, "k": nil})
		verified(t, s)
		testlog.ErrorIs(t, testlog.ErrorOf(s.EraseUser(ctx, "a", "", store.EraseOptions{})), store.ErrInvalid, "no user")
	})
}

// A session with an unfinished erase can be backed up, and the erase can be finished in the backup.
func TestBackupOfAHalfErasedSession(t *testing.T) {
	dir := t.TempDir()
	b := openBoltAt(t, filepath.Join(dir, "log.db"))
	faulty := &storetest.Faulty{Backend: b}
	s := newStore(t, faulty, store.Options{})
	createWith(t, s, eraseKey, said("e1", "secret"))
	faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Refused})
	testlog.ErrorIs(t, testlog.ErrorOf(s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "r"})), storetest.ErrInjected)
	testlog.NoError(t, s.Close())

	open := func(name string) *store.Store {
		s := openStore(t, filepath.Join(dir, name), store.Options{})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var copied bytes.Buffer
	testlog.NoError(t, open("log.db").Backup(t.Context(), &copied))
	testlog.NoError(t, os.WriteFile(filepath.Join(dir, "copy.db"), copied.Bytes(), 0o600))
	s = open("copy.db")
	must(t)(s.Erase(t.Context(), eraseKey, store.EraseSelection{}, store.EraseOptions{ID: "r"}))
	testlog.Equal(t, "records of the copy that have it", has(t, s, eraseKey, "secret"), nil)
	verified(t, s)
}

// If another process writes directly before a backend call of Verify or another read, the read reports no damage.
func TestVerifyBesideOthers(t *testing.T) {
	for name, act := range map[string]func(s *store.Store) error{
		"append": func(s *store.Store) error {
			return errOf(s.AppendEvents(ctx, eraseKey, says("b", 5), store.AppendOptions{}))
		},
		"patch": func(s *store.Store) error {
			return errOf(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 10)}, asOfNow))
		},
		"erase": func(s *store.Store) error {
			return errOf(s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{}))
		},
		"delete": func(s *store.Store) error { return s.Delete(ctx, eraseKey) },
		"create again": func(s *store.Store) error {
			return errors.Join(s.Delete(ctx, eraseKey), errOf(s.Create(ctx, eraseKey, nil, store.CreateOptions{})), errOf(s.AppendEvents(ctx, eraseKey, []*patch.Event{say("new")}, store.AppendOptions{})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at, done := 1, false; !done; at++ {
				for _, look := range []func(s *store.Store){
					func(s *store.Store) { verified(t, s) },
					func(s *store.Store) {
						if err := errOf(s.View(ctx, eraseKey)); err != nil && !errors.Is(err, store.ErrNotFound) {
							t.Errorf("before call %d: %v", at, err)
						}
					},
				} {
					first, calls := &memory.Backend{}, 0
					other := func(act func(s *store.Store) error) { // calls act with another store, which writes its own snapshots
						s := newStore(t, first.Peer(), store.Options{Snapshots: eager})
						testlog.NoError(t, errors.Join(act(s), s.Close()))
					}
					other(func(s *store.Store) error {
						createWith(t, s, eraseKey, says("a", 20)...)
						return errOf(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 5)}, asOfNow))
					})
					look(quietly(t, &hooked{Backend: first, serve: func(context.Context, string) (backend.Backend, error) {
						if calls++; calls == at {
							other(act)
						}
						return nil, nil
					}}))
					done = calls < at
				}
			}
		})
	}
}

// If an event sets a shared value to the selected text during an erase, this value becomes null too.
func TestEraseBesideSharedValues(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
		must(t)(s.Create(ctx, eraseKey, map[string]any{"app:a": "secret one"}, store.CreateOptions{}))
		must(t)(s.AppendEvents(ctx, eraseKey, []*patch.Event{said("e1", "secret"), said("b", "other")}, store.AppendOptions{}))
		faulty.Plan(storetest.Plan{Before: func(write int) { // the write of the shared values
			if write == 1 {
				later := lines(`{"id":"e2","author":"a","actions":{"stateDelta":{"user:b":"secret two"}}}`)
				must(t)(s.AppendEvents(ctx, eraseKey, later, store.AppendOptions{}))
				must(t)(s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{patch.NewSplice(0, 1)}, asOfNow))
			}
		}})
		done := testlog.Must(s.Erase(ctx, eraseKey, store.EraseSelection{Match: "secret"}, store.EraseOptions{Values: patch.NullValues}))(t)
		testlog.Equal(t, "keys whose values are null", done.Shared, []string{"app:a", "user:b"})
	})
}

// If two processes erase parts of one session while other goroutines write and read it, both erases succeed.
// Afterwards no view shows either part.
func TestErasesBesideEachOther(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		var events []*patch.Event
		for i := range 400 {
			events = append(events, said(fmt.Sprint("e", i), fmt.Sprintf("secret of %d", i%2)))
		}
		createWith(t, s, eraseKey, events...)
		var erasing, writing sync.WaitGroup
		for i := range 2 {
			erasing.Go(func() {
				of := store.EraseSelection{Match: fmt.Sprintf("secret of %d", i)}
				testlog.WantNil(t, testlog.ErrorOf(s.Erase(t.Context(), eraseKey, of, store.EraseOptions{ID: fmt.Sprint("r", i)})))
			})
		}
		over := make(chan struct{})
		writing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				if _, err := s.AppendEvents(t.Context(), eraseKey, []*patch.Event{said(fmt.Sprint("w", n), "more")}, store.AppendOptions{}); err != nil {
					t.Error(err)
					return
				}
				testlog.WantNil(t, testlog.ErrorOf(s.Get(t.Context(), eraseKey)))
			}
		})
		erasing.Wait()
		close(over)
		writing.Wait()
		testlog.Equal(t, "records that have it", has(t, s, eraseKey, "secret"), nil)
		testlog.Equal(t, "receipts", len(testlog.Must(s.Receipts(t.Context(), eraseKey))(t)), 2)
		verified(t, s)
	})
}

func quietly(t testing.TB, b backend.Backend) *store.Store {
	t.Helper()
	return newStore(t, b, store.Options{Logger: slog.New(slog.DiscardHandler)})
}

// If another call writes a shared value just before an erase or a copy writes it, the newer value is kept.
func TestSharedValueWrittenMeanwhile(t *testing.T) {
	key := store.Key{App: "a", User: "ann", Session: "s"}
	for name, erase := range map[string]func(s *store.Store) error{
		"Erase": func(s *store.Store) error {
			done, err := s.Erase(ctx, key, store.EraseSelection{Match: "secret"}, store.EraseOptions{Values: "null"})
			if err == nil && fmt.Sprint(done.Shared) != "[user:k]" {
				err = fmt.Errorf("shared: %q", done.Shared)
			}
			return err
		},
		"CopyFrom": func(s *store.Store) error {
			from := quietly(t, new(memory.Backend))
			if _, err := from.Create(ctx, key, map[string]any{"user:x": "copied"}, store.CreateOptions{}); err != nil {
				return err
			}
			if _, err := s.CopyFrom(ctx, store.Key{}, from, store.CopyOptions{OverwriteShared: true}); !errors.Is(err, store.ErrConflict) {
				return fmt.Errorf("a copy that overtakes another write: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared := new(memory.Backend)
			other := quietly(t, shared)
			must(t)(other.Create(ctx, key, map[string]any{"user:k": "secret", "user:x": "secret"}, store.CreateOptions{}))
			c := &storetest.Faulty{Backend: shared}
			c.Plan(storetest.Plan{Before: func(write int) {
				if write == 1 { // the write of the shared values
					must(t)(other.AppendEvents(ctx, key, []*patch.Event{sets("later", `{"user:x":"new"}`)}, store.AppendOptions{}))
				}
			}})
			s := quietly(t, c)
			testlog.WantNil(t, erase(s))
			testlog.Equal(t, "the value", sessionOf(t, s, key).State()["user:x"], "new")
		})
	}
}
