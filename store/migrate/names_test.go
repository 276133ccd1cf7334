package migrate_test

import (
	"errors"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// If FileOptions.Folder is set, two files with the same name become two sessions, named after their paths. If Folder
// is not set, the second file is a conflict and is not imported.
func TestFilesWithSameName(t *testing.T) {
	const one = `{"id":"a1","author":"user","content":{"parts":[{"text":"one"}]}}` + "\n"
	const two = `{"id":"b1","author":"user","content":{"parts":[{"text":"two"}]}}` + "\n"
	s := teststore.Memory(t, store.Options{})
	run := func(text string, opts migrate.FileOptions) migrate.Result {
		t.Helper()
		source := testlog.Must(migrate.OpenFile([]byte(text), opts))(t)
		var got migrate.Result
		_, err := migrate.Run(t.Context(), s, source, migrate.Options{Session: func(r migrate.Result) error { got = r; return nil }})
		testlog.NoError(t, err)
		return got
	}
	for _, c := range []struct {
		text   string
		opts   migrate.FileOptions
		key    string
		status migrate.Status
	}{
		{one, migrate.FileOptions{Name: "x/in.jsonl"}, "adk/user/in", migrate.Created},
		{two, migrate.FileOptions{Name: "y/in.jsonl"}, "adk/user/in", migrate.Conflict},
		{one + two, migrate.FileOptions{Name: "x/in.jsonl"}, "adk/user/in", migrate.Extended},
		{one, migrate.FileOptions{Name: "x/in.jsonl"}, "adk/user/in", migrate.Ahead},
		{two, migrate.FileOptions{Name: "f/y/z/in.jsonl", Folder: "f"}, "adk/user/y.z.in", migrate.Created},
		{one, migrate.FileOptions{Name: "f/top.jsonl", Folder: "f"}, "adk/user/top", migrate.Created},
		{two, migrate.FileOptions{Name: "y/in.jsonl", Key: store.Key{App: "adk", User: "user", Session: "in"}}, "adk/user/in", migrate.Ahead},
	} {
		got := run(c.text, c.opts)
		if got.Key.String() != c.key || got.Status != c.status || (c.status == migrate.Conflict) != errors.Is(got.Err, store.ErrConflict) {
			t.Errorf("%+v became %s, %s, %v, want %s, %s", c.opts, got.Key, got.Status, got.Err, c.key, c.status)
		}
	}
}

// Gemini CLI writes several files with the same session id. Each file becomes a session.
func TestFilesWithSameID(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	for _, status := range []migrate.Status{migrate.Created, migrate.Unchanged} {
		for _, c := range [][2]string{{"session-1.json", "gemini-cli/user/g1"}, {"session-2.json", "gemini-cli/user/session-2"}} {
			text := `{"sessionId":"g1","projectHash":"p","messages":[{"id":"` + c[0] + `","type":"user","content":"Hello","timestamp":"2026-01-01T00:00:00Z"}]}`
			source := testlog.Must(migrate.OpenFile([]byte(text), migrate.FileOptions{Name: c[0]}))(t)
			testlog.Must(migrate.Run(t.Context(), s, source, migrate.Options{Session: func(r migrate.Result) error {
				testlog.Equal(t, "key", r.Key.String(), c[1])
				testlog.Equal(t, "status", r.Status, status)
				return r.Err
			}}))(t)
		}
	}
}
