package figures_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var key = store.Key{App: "a", User: "u", Session: "s"}

// open returns a store in memory whose clock stands still.
func open(t *testing.T) *store.Store {
	t.Helper()
	made := 0
	s, err := store.OpenMemory(store.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now:    func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC) },
		NewID:  func() string { made++; return fmt.Sprint("made-", made) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// add puts lines into the session.
func add(t *testing.T, s *store.Store, lines ...string) {
	t.Helper()
	if _, err := s.Import(t.Context(), key, strings.NewReader(strings.Join(lines, "\n")), store.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
}

// viewsOf folds lines, and returns the records and the view before the first and after each.
func viewsOf(t *testing.T, lines ...string) ([]patch.Record, []fold.View) {
	t.Helper()
	var records []patch.Record
	views := []fold.View{fold.New("", nil)}
	for i, line := range lines {
		r, err := patch.ParseRecord([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		r.Seq = uint64(i + 1)
		v, err := views[i].Apply(r)
		if err != nil {
			t.Fatal(err)
		}
		records, views = append(records, r), append(views, v)
	}
	return records, views
}

func event(t *testing.T, line string) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// said is an event that says a text.
func said(id, author, text string) string {
	return fmt.Sprintf(`{"id":%q,"invocationId":"i-%[1]s","author":%q,"content":{"role":%q,"parts":[{"text":%q}]}}`,
		id, author, map[bool]string{true: "user", false: "model"}[author == "user"], text)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %#v\nwant %#v", what, got, want)
	}
}
