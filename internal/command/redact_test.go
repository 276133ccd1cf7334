package command

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// With --redact a model is given placeholders.
func TestCompactRedacted(t *testing.T) {
	m := newModel(t, says("They talked about this and that."))
	t.Chdir(t.TempDir())
	must(t, strings.ReplaceAll(fiveTurns(), "question", "ask ada@example.com"), "import", "a/u/s", "-")
	sh := newShell()
	sh.env = func(name string) string {
		return map[string]string{"GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": m.URL}[name]
	}
	var out, errs bytes.Buffer
	if code := sh.app("", &out, &errs).run(t.Context(), []string{"compact", "a/u/s", "--redact", "--focus", "ada@example.com"}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if len(m.prompts) == 0 {
		t.Fatal("no model was asked")
	}
	for _, p := range m.prompts {
		if strings.Contains(p, "@example") || !strings.Contains(p, "ask [email ") {
			t.Errorf("asked was %.300s", p)
		}
	}
}

// With --redact what is downloaded is redacted, and the pages are not.
func TestServeRedacted(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, strings.ReplaceAll(twoEvents, "hello", "hello ada@example.com"), "import", "a/u/s", "-")
	s := startServe(t, nil, "--addr", "127.0.0.1:0", "--redact")
	for path, want := range map[string]bool{"/session?key=a/u/s": true, "/export?key=a/u/s": false, "/export?key=a/u/s&form=visible": false} {
		status, body := s.get(path, "127.0.0.1", "")
		if got := strings.Contains(body, "ada@example.com"); status != http.StatusOK || got != want || got == strings.Contains(body, "hello [email ") {
			t.Errorf("%s: status %d\n%.500s", path, status, body)
		}
	}
}
