package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// fiveTurns returns the log of a session that is long enough to be compacted.
func fiveTurns() string {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, `{"id":"u%[1]d","invocationId":"i%[1]d","author":"user","content":{"role":"user","parts":[{"text":"question %[1]d %[2]s"}]}}`+"\n", i, strings.Repeat("about this and that ", 10))
		fmt.Fprintf(&b, `{"id":"a%[1]d","invocationId":"i%[1]d","author":"agent","content":{"role":"model","parts":[{"text":"answer %[1]d %[2]s"}]},"actions":{"stateDelta":{"turn":%[1]d}}}`+"\n", i, strings.Repeat("such and such ", 10))
	}
	return b.String()
}

// model is a local server that responds like Gemini.
type model struct {
	*httptest.Server
	answer  func(w http.ResponseWriter, r *http.Request)
	asked   []string // paths of the received requests
	keys    []string
	prompts []string
}

func newModel(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *model {
	m := &model{answer: answer}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.asked, m.keys, m.prompts = append(m.asked, r.URL.Path), append(m.keys, r.Header.Get("X-Goog-Api-Key")), append(m.prompts, string(body))
		m.answer(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func says(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":321,"candidatesTokenCount":12},"modelVersion":"gemini-test"}`, text)
	}
}

// compactWith runs patchlog compact on a new database that contains the session a/u/s. The environment contains
// an API key.
func compactWith(ctx context.Context, t *testing.T, m *model, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	must(t, fiveTurns(), "import", "a/u/s", "-")
	sh := newShell()
	sh.env = func(name string) string {
		return map[string]string{"GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": m.URL}[name]
	}
	var out, errs bytes.Buffer
	code = sh.app("", &out, &errs).run(ctx, append([]string{"compact", "a/u/s", "--retain-invocations", "0"}, args...))
	return code, out.String(), errs.String()
}

func TestCompactGemini(t *testing.T) {
	m := newModel(t, says("They talked about this and that."))
	code, stdout, stderr := compactWith(t.Context(), t, m, "--json", "--model", "gemini-mine")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	var doc struct {
		Key, Summarizer string
		Record          struct {
			Seq          uint64
			Start, Count int
		}
		compaction.Written
	}
	testlog.NoError(t, json.Unmarshal([]byte(stdout), &doc))
	if doc.Key != "a/u/s" || doc.Record.Seq != 11 || doc.Summarizer != byGemini || doc.Record.Start != 0 || doc.Record.Count != 10 || doc.EventsBefore != 10 ||
		doc.EventsAfter != 1 || doc.Trigger != compaction.ByInterval || doc.Usage != (compaction.Usage{Calls: 1, PromptTokens: 321, AnswerTokens: 12}) {
		t.Errorf("got %+v", doc)
	}
	if len(m.asked) != 1 || !strings.Contains(m.asked[0], "gemini-mine") || m.keys[0] != "a-key" || !strings.Contains(m.prompts[0], "question 4") {
		t.Errorf("asked %q with the key %q: %q", m.asked, m.keys, m.prompts)
	}
	if got := must(t, "", "log", "a/u/s"); !strings.Contains(got, "summary: They talked about this and that.") {
		t.Errorf("got %s", got)
	}
	var st struct{ Compaction present.CompactionStats }
	testlog.NoError(t, json.Unmarshal([]byte(must(t, "", "stats", "a/u/s", "--json")), &st))
	c := st.Compaction
	if c.Passes != 1 || c.Last == nil || c.Last.Seq != 11 || c.Last.Ratio != doc.Ratio || c.Last.Model != doc.Model || c.Summaries[1] != 1 || c.Prompt.Tokens != doc.TokensAfter {
		t.Errorf("got %+v", c)
	}
	if got := must(t, "", "stats", "a/u/s"); !strings.Contains(got, "  model asked       "+doc.Model+"\n") {
		t.Errorf("got %s", got)
	}
}

// A dry run reports whether a service would compact the session now.
func TestCompactDryRunOfAService(t *testing.T) {
	t.Chdir(t.TempDir())
	log := strings.NewReplacer("WORDS", strings.Repeat("abc ", 1_000), "MORE", strings.Repeat("abc ", 3_000)).Replace(
		`{"id":"u1","invocationId":"i1","author":"user","content":{"role":"user","parts":[{"text":"WORDS"}]}}
{"id":"a1","invocationId":"i1","author":"agent","content":{"role":"model","parts":[{"text":"WORDS"}]}}
{"id":"u2","invocationId":"i2","author":"user","content":{"role":"user","parts":[{"text":"MORE"}]}}
`)
	must(t, log, "import", "a/u/dear", "-")
	must(t, fiveTurns(), "import", "a/u/due", "-")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"A service would not compact now: the prompt has 5000 tokens; the threshold is 2000, but a pass does not pay yet: ",
			[]string{"a/u/dear", "--token-threshold", "2000", "--interval", "0", "--retain", "1"}},
		{"A service would compact now, too.", []string{"a/u/due"}},
	} {
		args := append([]string{"compact", "--dry-run", "--retain-invocations", "0"}, c.args...)
		if got := must(t, "", args...); !strings.Contains(got, c.want) || !strings.Contains(got, "\nwindow ") {
			t.Errorf("%q: want %q in\n%s", args, c.want, got)
		}
	}
	var doc struct {
		Window  *compaction.Window
		Service struct {
			Due    bool
			Reason string
		}
	}
	testlog.NoError(t, json.Unmarshal([]byte(must(t, "", "compact", "--dry-run", "a/u/dear", "--token-threshold", "2000", "--interval", "0", "--retain", "1", "--retain-invocations", "0", "--json")), &doc))
	if doc.Window == nil || doc.Service.Due || !strings.Contains(doc.Service.Reason, "does not pay yet") {
		t.Errorf("got %+v", doc)
	}
}

func TestCompactFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		{"bad key", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}`, 400)
		}, "API key not valid"},
		{"too long", says(strings.Repeat("very much ", 500)), "answer refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := compactWith(t.Context(), t, newModel(t, c.answer))
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) ||
				!strings.HasPrefix(stderr, "patchlog: session a/u/s: summary of visible events 0 to 9 (interval): ") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if got := must(t, "", "log", "a/u/s"); !strings.HasPrefix(got, "a/u/s: 10 visible events after record 10\n") {
				t.Errorf("the session has changed:\n%s", got)
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := newModel(t, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		code, stdout, stderr := compactWith(ctx, t, m)
		if code != 1 || stdout != "" || stderr != "patchlog: interrupted\n" {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
}

// The command compact explains why it stopped, for outcomes that are not errors.
func TestCompactStops(t *testing.T) {
	v := fold.New("", nil)
	for _, c := range []struct {
		done ops.Compacted
		want string
	}{
		{ops.Compacted{Stopped: "it rained"}, "a/u/s: nothing was written: it rained\n"},
		{ops.Compacted{Stopped: "it rained", Passes: make([]ops.Pass, 1)}, "stopped: it rained\na/u/s: compacted by gemini; 0 → 0 visible events, "},
		{ops.Compacted{}, "a/u/s: nothing is due\n"},
	} {
		var stdout bytes.Buffer
		a := newShell().app("", &stdout, &stdout)
		testlog.NoError(t, a.showCompacted(store.Key{App: "a", User: "u", Session: "s"}, byGemini, v, v, compaction.Decision{Reason: "nothing is due"}, c.done))
		a.out.Flush()
		if got := stdout.String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: got %q, want %q", c.done, got, c.want)
		}
	}
}

// With --redact, the prompts of the summarizer's model contain placeholders.
func TestCompactRedacted(t *testing.T) {
	m := newModel(t, says("They talked about this and that."))
	t.Chdir(t.TempDir())
	must(t, strings.ReplaceAll(fiveTurns(), "question", "ask ada@example.com"), "import", "a/u/s", "-")
	sh := newShell()
	sh.env = func(name string) string {
		return map[string]string{"GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": m.URL}[name]
	}
	if code, _, stderr := sh.try(t, "", "compact", "a/u/s", "--retain-invocations", "0", "--redact", "--focus", "ada@example.com"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
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

// With --redact, downloads contain placeholders, but pages do not.
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
