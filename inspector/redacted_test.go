package inspector_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

var placeholders = regexp.MustCompile(`\[[a-z]+ [0-9a-f]{8}\]`)

// A redacted report is the report, with placeholders, of the session and of what it shares.
func TestRedactedReport(t *testing.T) {
	s, err := store.OpenMemory(store.Options{Now: func() time.Time { return time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	write := func(key store.Key, mail, card string) {
		if _, err := s.Create(t.Context(), key, map[string]any{"mail": mail, "user:card": card}); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{
			`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"write to ` + mail + `"}]}}`,
			`{"id":"e2","author":"a","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"pay","args":{"card":"` + card + `"}}}]},"actions":{"stateDelta":{"paid":"` + card + `"}}}`,
			`{"id":"e3","author":"a","content":{"role":"model","parts":[{"text":"done for ` + mail + `"}]}}`,
		} {
			e, err := patch.ParseEvent([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.AppendEvents(t.Context(), key, store.AppendOptions{}, e); err != nil {
				t.Fatal(err)
			}
		}
		summary, err := ops.SummaryByHand(viewOf(t, s, key), compaction.Span{Start: 0, Count: 2}, "", "paid for "+mail)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ApplyPatch(t.Context(), key, store.PatchOptions{On: viewOf(t, s, key)}, patch.NewSummarise(0, 2, summary).WithID("p").WithAuthor(mail)); err != nil {
			t.Fatal(err)
		}
	}
	by, err := redact.New(redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const mail, card = "ada@example.com", "4111 1111 1111 1111"
	key := store.Key{App: "shop", User: mail, Session: "1"}
	write(key, mail, card)
	page := reportOf(t, s, key, inspector.ReportOptions{Redact: by})
	for _, secret := range []string{mail, "ada%40", card, "4111"} {
		if at := strings.Index(page, secret); at >= 0 {
			t.Errorf("the report has %q: …%s…", secret, page[max(0, at-80):at+80])
		}
	}
	for _, want := range []string{by.Text(card), by.Text(mail)} {
		if !strings.Contains(page, want) {
			t.Errorf("the report has no %s", want)
		}
	}
	// But for the secrets it is the report.
	plain := reportOf(t, s, key, inspector.ReportOptions{})
	words := func(page string) string {
		text := placeholders.ReplaceAllString(shownText(page), "[…]")
		for _, secret := range []string{"ada@example.com", "ada%40example.com", "4111 1111 1111 1111", "%5Bemail%20" + by.Text(mail)[len("[email "):len("[email ")+8] + "%5D"} {
			text = strings.ReplaceAll(text, secret, "[…]")
		}
		created, log := strings.Index(text, "Created "), strings.Index(text, "Raw log 4 records")
		return text[created:created+len("created 2025-01-01T00:00:00Z")] +
			regexp.MustCompile("index 0, level .*? State |[0-9]+ tokens|[0-9]+ so far").ReplaceAllString(text[log:], "…") // sizes are others, and identifiers
	}
	if got, want := words(page), words(plain); got != want {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Errorf("redacted it goes on\n%.200s\nand plain\n%.200s", got[max(0, i-40):], want[max(0, i-40):])
	}
}

// What can be downloaded is redacted, its name too; and what a summarizer is given.
func TestRedactedDownloads(t *testing.T) {
	by, err := redact.New(redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	a := newActing(t, inspector.Options{Write: true, Redact: by, Compaction: compaction.Config{
		Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
			asked += r.Prompt
			return compaction.Response{}, nil
		}),
	}})
	a.append(`{"invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"write to bob@example.com"}]}}`)
	a.fill(10)
	a.must(200, a.form(a.must(200, a.fields("compact")), "Do it"))
	if !strings.Contains(asked, by.Text("bob@example.com")) || strings.Contains(asked, "@example") {
		t.Errorf("the summarizer was asked %.300q", asked)
	}
	key := store.Key{App: "shop", User: "ada@example.com", Session: "1"}
	if _, err := a.store.Fork(t.Context(), a.key, key, store.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"jsonl", "html"} {
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?form="+form+"&key="+url.QueryEscape(key.String()), nil))
		body, name := w.Body.String(), w.Header().Get("Content-Disposition")
		if w.Code != http.StatusOK || strings.Contains(body, "@example") || !strings.Contains(body, by.Text("bob@example.com")) || strings.Contains(name, "ada") {
			t.Errorf("%s: %d, named %s: %.300s", form, w.Code, name, body)
		}
	}
}

func viewOf(t *testing.T, s *store.Store, key store.Key) fold.View {
	t.Helper()
	v, err := s.View(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
