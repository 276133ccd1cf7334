package compaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// secrets returns the secrets of turn n. No secret contains another, in any turn.
func secrets(n int) []string {
	return []string{
		fmt.Sprintf("user%d@example.com", n), fmt.Sprintf("AKIA%016d", n), fmt.Sprintf("ghp_%036d", n),
		fmt.Sprintf("+49 30 %07d", n), fmt.Sprintf("pass%dword", n), fmt.Sprintf("https://app:pw%d@db.example.com/", n),
	}
}

// plant appends a turn with secrets in all fields that can contain text. It returns the secrets.
func (s *session) plant(n int) (planted []string) {
	s.t.Helper()
	p := secrets(n)
	pad := strings.Repeat("word ", 60)
	long := strings.Repeat("x", 3995) // a prompt cuts long parts after 4,000 characters
	for i, text := range []string{
		fmt.Sprintf(`{"author":"user","content":{"role":"user","parts":[{"text":%q}]}}`, pad+p[0]+" and "+p[1]),
		fmt.Sprintf(`{"author":"model","content":{"role":"model","parts":[{"functionCall":{"id":"c%d","name":"login","args":{"password":%q,"to":[%q],%q:1}}}]}}`, n, p[4], p[2], p[0]),
		fmt.Sprintf(`{"author":"model","content":{"role":"user","parts":[{"functionResponse":{"id":"c%d","name":"login","response":{"result":%q,"at":%q}}}]}}`, n, `{"k":"`+p[2]+`"}`, long+" "+p[3]),
		fmt.Sprintf(`{"author":%q,"content":{"role":"model","parts":[{"text":%q}]},"errorMessage":%q,"customMetadata":{"of":%q},"actions":{"stateDelta":{"mail%d":%q}}}`, p[0], pad+p[5]+" "+p[3], p[1], p[2], n, p[0]),
	} {
		e := testlog.Event(strings.Replace(text, "{", fmt.Sprintf(`{"id":"p%d","invocationId":"i%d",`, 4*n+i, n), 1))
		s.add(e)
	}
	return append(p, fmt.Sprintf("pw%d@", n))
}

func (s *session) raw() (lines []string) {
	for _, r := range s.records() {
		text := testlog.Must(r.MarshalJSON())(s.t)
		lines = append(lines, string(text))
	}
	return lines
}

// Secrets reach neither a model nor a summary, whether through windows, context or merges. The raw log still has
// them.
func TestNoSecretReachesASummarizer(t *testing.T) {
	for _, name := range []string{"gemini", "extractive", "scripted"} {
		t.Run(name, func(t *testing.T) {
			r := testlog.Must(redact.New(redact.Options{}))(t)
			var mu sync.Mutex
			var sent bytes.Buffer
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				_, _ = io.Copy(&sent, r.Body)
				_, _ = io.WriteString(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"It was said."}]},"finishReason":"STOP"}]}`)
			}))
			defer server.Close()
			var by compaction.Summarizer
			switch name {
			case "gemini":
				by = testlog.Must(gemini.New(t.Context(), gemini.Options{APIKey: "k", BaseURL: server.URL}))(t)
			case "extractive":
				by = compaction.Extractive{}
			case "scripted":
				by = compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
					all, err := json.Marshal(r)
					sent.Write(all)
					return says("It was said to " + r.Events[len(r.Events)-1].Author()), err
				})
			}
			s := newSession(t, "")
			var planted []string
			var before []string
			cfg := every(1, 1, by)
			cfg.Limits().Summaries, cfg.Redact = 2, r
			for n := range 6 {
				planted = append(planted, s.plant(n)...)
				before = s.raw()
				c := s.compactor(cfg)
				testlog.Must(c.Compact(t.Context(), key, compaction.Run{Force: true, Focus: "what " + secrets(n)[0] + " wants"}))(t)
				after := s.raw()
				if len(after) == len(before) || strings.Join(after[:len(before)], "\n") != strings.Join(before, "\n") {
					t.Fatal("nothing was compacted, or the log is not what it was")
				}
				for _, line := range after[len(before):] {
					sent.WriteString(line) // the line of a patch contains its summary
				}
			}
			for _, p := range planted {
				for _, form := range []string{p, strings.ReplaceAll(p, "/", `\/`)} {
					if at := strings.Index(sent.String(), form); at >= 0 {
						t.Fatalf("%q was sent: …%s…", p, sent.String()[max(0, at-100):min(sent.Len(), at+100)])
					}
				}
			}
			if !strings.Contains(sent.String(), "[email ") {
				t.Errorf("no placeholder was sent: %.300s", sent.String())
			}
		})
	}
}

// Prepare gets events that are not redacted.
func TestPrepareIsNotRedacted(t *testing.T) {
	r := testlog.Must(redact.New(redact.Options{}))(t)
	s := newSession(t, "")
	s.plant(1)
	cfg := every(1, 0, &scripted{})
	cfg.Redact = r
	shown := ""
	c := preparing(t, s, cfg, func(_ context.Context, p compaction.PrepareRequest[store.Key]) (string, error) {
		for _, e := range p.Events {
			shown += e.String()
		}
		return "", nil
	})
	s.run(c)
	if !strings.Contains(shown, secrets(1)[0]) {
		t.Errorf("shown is %s", shown)
	}
}
