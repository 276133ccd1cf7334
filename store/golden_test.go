package store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// writeGolden makes the test write new golden files. It may be set only before v0.1.0.
var writeGolden = flag.Bool("write-golden", false, "write the golden database and its export")

const (
	goldenDB   = "testdata/golden.db.gz" // a database
	goldenText = "testdata/golden.jsonl" // the export of its session
)

var (
	goldenKey  = store.Key{App: "app", User: "a user/b", Session: "golden"}
	goldenFork = store.Key{App: "app", User: "a user/b", Session: "fork"} // fork of the first session, with an erase, and so long that its ids are stored sorted
)

const goldenForkEvents = 512 // events "f1" to "f512"; "f2" is erased

// The golden database can be read: Go types, ids, shared state and a snapshot.
func TestGoldenFile(t *testing.T) {
	if *writeGolden {
		makeGolden(t)
	}
	ctx := context.Background()
	s := openStore(t, teststore.Gunzip(t, goldenDB), store.Options{})
	defer s.Close()
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v (%v)", p, err)
	}
	var text bytes.Buffer
	testlog.NoError(t, s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	want := readFile(t, goldenText)
	if !bytes.Equal(text.Bytes(), want) {
		t.Errorf("it exports\n%s\nwant\n%s", text.Bytes(), want)
	}
	session := sessionOf(t, s, goldenKey)
	testlog.Equal(t, "count, an int", session.State()["count"], any(7))
	if v, ok := session.Value("user:name"); !ok || v.Any() != "Ann" {
		t.Errorf("user:name is %v", v)
	}
	// The store recognises a repeated append by the ids in the database.
	e, err := patch.NewEvent(patch.Fields{ID: "e1", InvocationID: "inv1", Author: "user", Content: patch.Text("user", "hello")})
	testlog.NoError(t, err)
	c, err := s.AppendEvents(ctx, goldenKey, []*patch.Event{e}, store.AppendOptions{})
	if err != nil || c.Records[0].Seq != 1 {
		t.Errorf("a retry: %v, %v", c.Records, err)
	}
}

// The golden database contains a fork that can be read: its sorted ids, a blank and its receipt, and its lineage.
func TestGoldenFork(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, teststore.Gunzip(t, goldenDB), store.Options{})
	defer s.Close()
	origin, fork := sessionOf(t, s, goldenKey), sessionOf(t, s, goldenFork)
	first := origin.View.Seq() + 1
	c, err := s.AppendEvents(ctx, goldenFork, []*patch.Event{goldenForkEvent(t, 300)}, store.AppendOptions{})
	if err != nil || c.Records[0].Seq != first+299 {
		t.Errorf("a retry: %v, %v", c.Records, err)
	}
	receipts := 0
	for r, err := range s.RawEvents(ctx, goldenFork, first) {
		testlog.NoError(t, err)
		if r.Patch != nil && r.Patch.Type() == patch.Erase {
			receipts++
		}
	}
	second := fork.View.At(origin.View.Len() + 1)
	if _, erased := second.ErasedBy(); receipts != 1 || !erased || second.ID() != "f2" {
		t.Errorf("there are %d receipts, and the second event of the fork is %s", receipts, second.ID())
	}
	erasure, err := s.Erase(ctx, goldenFork, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{DryRun: true})
	testlog.NoError(t, err)
	testlog.Equal(t, "sessions that have the first event", len(erasure.Sessions), 2)
}

func goldenForkEvent(t *testing.T, i int) *patch.Event {
	t.Helper()
	return testlog.Must(patch.NewEvent(patch.Fields{ID: fmt.Sprint("f", i), Author: "user", Content: patch.Text("user", fmt.Sprint("text ", i)),
		Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}))(t)
}

func makeGolden(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	s, path := teststore.File(t, store.Options{Snapshots: snapshot.Policy{Every: 5}})
	testlog.Must(s.Create(ctx, goldenKey, map[string]any{"tenant": "t1", "tags": []string{"a", "b"}, "user:name": "Ann"}, store.CreateOptions{}))(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_007, time.UTC)
	event := func(f patch.Fields) *patch.Event {
		if f.Timestamp.IsZero() {
			f.Timestamp = at
		}
		return testlog.Must(patch.NewEvent(f))(t)
	}
	part := func(role, kind string, v map[string]any) map[string]any {
		return map[string]any{"role": role, "parts": []any{map[string]any{kind: v}}}
	}
	for _, e := range []*patch.Event{
		event(patch.Fields{ID: "e1", InvocationID: "inv1", Author: "user", Content: patch.Text("user", "hello")}),
		event(patch.Fields{ID: "e2", InvocationID: "inv1", Author: "agent", Branch: "a.b", LongRunningToolIDs: []string{},
			Content: part("model", "functionCall", map[string]any{"id": "c1", "name": "look", "args": map[string]any{"n": 3}})}),
		event(patch.Fields{ID: "e3", InvocationID: "inv1", Author: "agent",
			Content: part("user", "functionResponse", map[string]any{"id": "c1", "name": "look", "response": map[string]any{"found": true}})}),
		event(patch.Fields{ID: "e4", InvocationID: "inv2", Author: "agent", Actions: patch.Actions{StateDelta: map[string]any{"count": 7, "x": nil}}}),
		event(patch.Fields{ID: "e5", Author: "agent", Timestamp: time.Date(2023, 11, 14, 22, 13, 20, 250_000_000, time.UTC),
			Content: json.RawMessage(`{"parts":[],"novel":[1.0,1e2,9007199254740993]}`), Extra: map[string]any{"unknown": map[string]any{"a": map[string]any{}}}}),
	} {
		testlog.Must(s.AppendEvents(ctx, goldenKey, []*patch.Event{e}, store.AppendOptions{}))(t)
	}
	summary := event(patch.Fields{ID: "s1", Author: "user", Content: patch.Text("user", "they looked"),
		Actions: patch.Actions{Compaction: &patch.EventCompaction{StartTimestamp: 1, EndTimestamp: 2.5}}})
	for _, p := range []*patch.PatchEvent{
		patch.NewSummarise(1, 2, summary).WithID("p1"), patch.NewTruncateBefore("s1").WithID("p2").WithState(patch.Keep),
	} {
		testlog.Must(s.ApplyPatch(ctx, goldenKey, []*patch.PatchEvent{p.WithTimestamp(at)}, store.PatchOptions{AsOfNow: true}))(t)
	}
	var text bytes.Buffer
	testlog.NoError(t, s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	testlog.NoError(t, os.WriteFile(goldenText, text.Bytes(), 0o644))

	testlog.Must(s.Fork(ctx, goldenKey, goldenFork, store.ForkOptions{}))(t)
	var events []*patch.Event
	for i := range goldenForkEvents {
		events = append(events, goldenForkEvent(t, i+1))
	}
	testlog.Must(s.AppendEvents(ctx, goldenFork, events, store.AppendOptions{}))(t)
	testlog.Must(s.Erase(ctx, goldenFork, store.EraseSelection{EventIDs: []string{"f2"}}, store.EraseOptions{ID: "call", Author: "ann", Reason: "golden"}))(t)
	testlog.NoError(t, s.Close())
	var packed bytes.Buffer
	w := testlog.Must(gzip.NewWriterLevel(&packed, gzip.BestCompression))(t)
	testlog.Must(w.Write(readFile(t, path)))(t)
	testlog.NoError(t, w.Close())
	testlog.NoError(t, os.WriteFile(goldenDB, packed.Bytes(), 0o644))
}
