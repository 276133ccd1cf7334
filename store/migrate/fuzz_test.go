package migrate_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// Any input is either refused or migrated. Migrating the same input again adds nothing.
func FuzzREST(f *testing.F) {
	for _, seed := range []string{
		python, "[" + python + "," + strings.Replace(python, `"set":2`, `"set":3`, 1) + "]",
		python + strings.Replace(python, `"events":[`, `"events":[{"id":"e0","author":"a"},`, 1),
		`{"id":"1","appName":"a","userId":"u","state":{"k":1,"app:x":null},"events":[{},{},{"id":"e"},{"id":"e","actions":{"stateDelta":{"k":2}}},` + compactionRecord("c", 1, 0, 9, "x") + `]}`,
		`{"id":"1","appName":"a","userId":"u","state":{},"events":[{"id":"e","author":"user","customMetadata":{"patchlog":{"migration":"state"}}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		s := testlog.Must(store.OpenMemory(store.Options{}))(t)
		defer s.Close()
		var bad bool
		opts := migrate.Options{Session: func(r migrate.Result) error {
			bad = bad || r.Err != nil
			return nil
		}}
		_, err := migrate.Run(t.Context(), s, migrate.NewREST(bytes.NewReader(input), "input"), opts)
		bad = bad || err != nil // two sessions with the same key but different content conflict in each run
		before := dump(t, s)
		report, again := migrate.Run(t.Context(), s, migrate.NewREST(bytes.NewReader(input), "input"), opts)
		if (err == nil) != (again == nil) {
			t.Errorf("first %v, then %v", err, again)
		}
		if !bad && (report.Added > 0 || report.SharedAdded > 0 || len(report.SharedDifferent) > 0 || dump(t, s) != before) {
			t.Errorf("again: %+v\n%s\nbefore\n%s", report, dump(t, s), before)
		}
	})
}
