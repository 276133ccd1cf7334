package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// writeFiles writes files, by path relative to the working directory, and creates their folders.
func writeFiles(t *testing.T, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		testlog.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
		testlog.NoError(t, os.WriteFile(name, []byte(text), 0o666))
	}
}

const aQuestion = `{"role":"user","content":"Which day is it?"}`

// The name of a folder expands to the files in it, and a pattern to the files that match it. Any other name stands
// for itself.
func TestInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, map[string]string{"logs/.git/HEAD": "x", "logs/a/b.jsonl": "x", "logs/c.jsonl": "x", "d1.json": "x", "d2.json": "x"})
	got := fmt.Sprint(migrate.Inputs([]string{"logs", "d*.json", "none", "-"}))
	equal(t, "inputs", got, "[{logs/a/b.jsonl logs} {logs/c.jsonl logs} {d1.json } {d2.json } {none } {- }]")
}

// migrateAll migrates files. It returns the report and the errors that RunAll passed to its argument failed.
func migrateAll(t *testing.T, target func(context.Context) (*store.Store, error), names ...string) (report migrate.Report, failed []string, err error) {
	t.Helper()
	open := func(_ context.Context, in migrate.Input) (migrate.Source, error) {
		text, err := os.ReadFile(in.Name)
		if err != nil {
			return nil, err
		}
		return migrate.OpenFile(text, migrate.FileOptions{Name: in.Name, Folder: in.Folder})
	}
	report, err = migrate.RunAll(t.Context(), migrate.Inputs(names), migrate.Openers{Source: open, Target: target}, func(err error) error {
		failed = append(failed, err.Error())
		return nil
	}, migrate.Options{})
	return report, failed, err
}

// Files of unknown format are listed as unread, and all other files are migrated. If such a file was named itself,
// and not its folder, the file also counts as a failure.
func TestRunAll(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, map[string]string{"logs/a.jsonl": aQuestion, "logs/one.txt": "words", "logs/two.txt": "words", "b.jsonl": aQuestion, "notes.txt": "words"})
	testlog.NoError(t, os.Symlink("none", "logs/link"))
	s := openMemory(t)
	into := func(context.Context) (*store.Store, error) { return s, nil }
	report, failed, err := migrateAll(t, into, "logs", "b.jsonl", "notes.txt", "missing")
	testlog.NoError(t, err)
	equal(t, "errors", fmt.Sprint(failed), "[open missing: no such file or directory]")
	equal(t, "sessions", fmt.Sprint(report.Sessions), "map[created:2 failed:1]")
	equal(t, "unread", fmt.Sprint(report.Unread), "map[its format is unknown:[logs/one.txt logs/two.txt notes.txt]]")
	equal(t, "problems", report.Problems(migrate.Options{}), 2)
	equal(t, "first line", report.UnreadText()[0], "not imported (its format is unknown): 3 files: logs/one.txt, logs/two.txt, notes.txt")
}

// If there is only one input, RunAll returns its error. If the target cannot be opened, RunAll returns that error,
// even if the input is a file in a folder.
func TestRunAllFails(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, map[string]string{"logs/a.jsonl": aQuestion, "notes.txt": "words"})
	var unknown *migrate.UnknownFormatError
	if _, _, err := migrateAll(t, nil, "notes.txt"); !errors.As(err, &unknown) {
		t.Errorf("an unknown format gives %v", err)
	}
	locked := func(context.Context) (*store.Store, error) { return nil, store.ErrLocked }
	if _, _, err := migrateAll(t, locked, "logs"); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a locked target gives %v", err)
	}
}
