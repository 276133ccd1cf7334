package command

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// reading is an input that calls first when it is read for the first time.
type reading struct {
	io.Reader
	first func()
}

func (r *reading) Read(p []byte) (int, error) {
	if r.first != nil {
		r.first()
		r.first = nil
	}
	return r.Reader.Read(p)
}

// While an import waits for its input, others have the database.
func TestImportWaitsWithoutLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	must(t, `{"id":"a"}`, "import", "a/u/first", "-", "--db", path)
	var out, errs strings.Builder
	used := false
	in := &reading{strings.NewReader("{\"id\":\"e\"}\n"), func() {
		s, err := store.Open(path, store.Options{})
		if err != nil {
			t.Errorf("while an import waits: %v", err)
			return
		}
		used = true
		if _, err := s.Create(context.Background(), store.Key{App: "a", User: "u", Session: "other"}, nil); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}}
	code := run(t.Context(), []string{"import", "a/u/s", "-", "--db", path}, in, &out, &errs, func(string) string { return "" })
	if code != 0 || errs.Len() > 0 || !used {
		t.Errorf("exit code %d, used %t: %s", code, used, errs.String())
	}
	if list := must(t, "", "sessions", "--db", path); !strings.Contains(list, "a/u/s") || !strings.Contains(list, "a/u/other") {
		t.Errorf("sessions:\n%s", list)
	}
}

// An input that does not end is refused at the limit, and nothing of it is taken.
func TestImportOfEndlessInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	must(t, `{"id":"a"}`, "import", "a/u/first", "-", "--db", path)
	var out, errs strings.Builder
	code := run(t.Context(), []string{"import", "a/u/s", "-", "--db", path, "--max-bytes", "100000", "--format", "lines"}, endless{}, &out, &errs, func(string) string { return "" })
	if code != exitFailed || !strings.Contains(errs.String(), "100000 bytes") || !strings.Contains(errs.String(), "stdin:") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if list := must(t, "", "sessions", "--db", path); strings.Contains(list, "a/u/s ") {
		t.Errorf("sessions:\n%s", list)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	const line = "{\"author\":\"a\"}\n"
	return copy(p, line[:min(len(line), len(p))]), nil
}
