package present_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var key = store.Key{App: "a", User: "u", Session: "s"}

// open returns a store in memory with a fixed clock.
func open(t *testing.T) *store.Store {
	t.Helper()
	made := 0
	return teststore.Memory(t, store.Options{
		Now:   func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC) },
		NewID: func() string { made++; return fmt.Sprint("made-", made) },
	})
}

func add(t *testing.T, s *store.Store, lines ...string) {
	t.Helper()
	testlog.Must(s.Import(t.Context(), key, strings.NewReader(strings.Join(lines, "\n")), store.ImportOptions{}))(t)
}

// viewsOf folds lines. It returns the records, the view before the first one, and the view after each.
func viewsOf(t *testing.T, lines ...string) ([]patch.Record, []fold.View) {
	t.Helper()
	var records []patch.Record
	views := []fold.View{fold.New("", nil)}
	for i, line := range lines {
		r := testlog.Record(line)
		r.Seq = uint64(i + 1)
		v := testlog.Must(views[i].WithRecords(records).Apply(r))(t)
		records, views = append(records, r), append(views, v)
	}
	return records, views
}

func said(id, author, text string) string {
	return fmt.Sprintf(`{"id":%q,"invocationId":"i-%[1]s","author":%q,"content":{"role":%q,"parts":[{"text":%q}]}}`,
		id, author, map[bool]string{true: "user", false: "model"}[author == "user"], text)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text := testlog.Must(json.Marshal(v))(t)
	return string(text)
}
