package store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// With this flag the golden file is written anew, which is for a change of the format.
var writeGolden = flag.Bool("write-golden", false, "write the golden database and its export")

const (
	goldenDB   = "testdata/golden.db.gz" // a database
	goldenText = "testdata/golden.jsonl" // what the session in it exports
)

var goldenKey = store.Key{App: "app", User: "a user/b", Session: "golden"}

// A database reads as it was written: Go types, ids, shared state, a snapshot.
func TestGoldenFile(t *testing.T) {
	if *writeGolden {
		makeGolden(t, filepath.Join(t.TempDir(), "golden.db"))
	}
	ctx := context.Background()
	s := openStore(t, teststore.Unpack(t, goldenDB), store.Options{})
	defer s.Close()
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v (%v)", p, err)
	}
	var text bytes.Buffer
	no(t, s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	want := readFile(t, goldenText)
	if !bytes.Equal(text.Bytes(), want) {
		t.Errorf("it exports\n%s\nwant\n%s", text.Bytes(), want)
	}
	session := sessionOf(t, s, goldenKey)
	if state := fmt.Sprintf("%#v", session.State()["count"]); state != "7" {
		t.Errorf("count is %s, want an int 7", state)
	}
	if v, ok := session.Value("user:name"); !ok || v.Any() != "Ann" {
		t.Errorf("user:name is %v", v)
	}
	// A retry finds the ids.
	e, err := patch.NewEvent(patch.Fields{ID: "e1", InvocationID: "inv1", Author: "user", Content: patch.Text("user", "hello")})
	no(t, err)
	c, err := s.AppendEvents(ctx, goldenKey, store.AppendOptions{}, e)
	if err != nil || c.Records[0].Seq != 1 {
		t.Errorf("a retry: %v, %v", c.Records, err)
	}
}

func makeGolden(t *testing.T, path string) {
	t.Helper()
	ctx := context.Background()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_000_007, time.UTC)
	s := openStore(t, path, store.Options{Snapshots: snapshot.Policy{Every: 6, Share: 1}, Now: func() time.Time { return now }})
	check := func(err error) {
		t.Helper()
		no(t, err)
	}
	_, err := s.Create(ctx, goldenKey, map[string]any{"tenant": "t1", "user:name": "Ann", "tags": []string{"a", "b"}})
	check(err)
	event := func(f patch.Fields) *patch.Event {
		e, err := patch.NewEvent(f)
		check(err)
		return e
	}
	call := map[string]any{"role": "model", "parts": []any{map[string]any{"functionCall": map[string]any{"id": "c1", "name": "look", "args": map[string]any{"n": int8(3)}}}}}
	_, err = s.AppendEvents(ctx, goldenKey, store.AppendOptions{},
		event(patch.Fields{ID: "e1", InvocationID: "inv1", Author: "user", Content: patch.Text("user", "hello")}),
		event(patch.Fields{ID: "e2", InvocationID: "inv1", Author: "agent", Branch: "a.b", Content: call, LongRunningToolIDs: []string{}}),
		event(patch.Fields{ID: "e3", InvocationID: "inv1", Author: "agent", Content: json.RawMessage(`{"parts":[{"functionResponse":{"id":"c1","name":"look","response":{"found":true}}}],"role":"user"}`)}),
		event(patch.Fields{ID: "e4", InvocationID: "inv2", Author: "agent", Actions: patch.Actions{StateDelta: map[string]any{"count": 7, "x": nil}}}),
	)
	check(err)
	foreign, err := patch.ParseEvent([]byte(`{"id":"e5","author":"agent","timestamp":"2023-11-14T22:13:20.25Z","content":{"parts":[],"novel":[1.0,1e2,9007199254740993]},"unknown":{"a":{}}}`))
	check(err)
	_, err = s.AppendEvents(ctx, goldenKey, store.AppendOptions{}, foreign)
	check(err)
	summary := event(patch.Fields{ID: "s1", Author: "user", Content: patch.Text("user", "they looked"),
		Actions: patch.Actions{Compaction: &patch.EventCompaction{StartTimestamp: 1, EndTimestamp: 2.5}}})
	_, err = s.ApplyPatch(ctx, goldenKey, store.PatchOptions{AsOfNow: true},
		patch.NewSummarise(1, 2, summary).WithID("p1"), patch.NewTruncateBefore("s1").WithID("p2").WithState(patch.Keep))
	check(err)
	check(s.Close())

	s, err = store.Open(path, store.Options{})
	check(err)
	var text bytes.Buffer
	check(s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	check(s.Close())
	check(os.WriteFile(goldenText, text.Bytes(), 0o600))
	data, err := os.ReadFile(path)
	check(err)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(data)
	check(err)
	check(w.Close())
	check(os.WriteFile(goldenDB, packed.Bytes(), 0o600))
}
