package adk_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/store"
)

// Recorded events are read as ADK reads them, whether they went through the service or
// were imported as they are.
func TestCorpus(t *testing.T) {
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) { readAsADKDoes(t, set.Sample(t, 9)) })
	}
}

func readAsADKDoes(t *testing.T, files []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.db")
	db := opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
	svc := newService(t, db)
	want := map[string][]*session.Event{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		no(t, err)
		sess := create(t, svc, file, nil)
		for line := range bytes.Lines(text) {
			var e session.Event
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			no(t, d.Decode(&e))
			want[file] = append(want[file], &e)
			no(t, svc.AppendEvent(t.Context(), sess, &e))
		}
		key := store.Key{App: "app", User: "user", Session: "imported " + file}
		no(t, errOf(db.Import(t.Context(), key, bytes.NewReader(text), store.ImportOptions{Name: file})))
	}
	no(t, db.Close())
	db = opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
	svc, err := adk.NewService(db, adk.Options{}.WithCache(-1))
	no(t, err)
	for file, events := range want {
		for _, id := range []string{file, "imported " + file} {
			got := get(t, svc, id).Events()
			equal(t, id, got.Len(), len(events))
			for i, e := range events {
				equal(t, id, got.At(i), e)
			}
		}
	}
}
