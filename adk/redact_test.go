package adk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

// With a redactor no summarizer is told a secret, of whatever configuration, and neither the tools that
// recall nor the memory tell one. The session has what was said.
func TestRedact(t *testing.T) {
	by, err := redact.New(redact.Options{})
	no(t, err)
	const mail = "ada@example.com"
	asked := ""
	summarizer := adk.EventsSummarizer(func(_ context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
		text, err := json.Marshal(events)
		asked += string(text)
		return genai.NewContentFromText("They wrote.", "model"), nil, err
	})
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: summarizer}
	sessions := compacted(t, adk.Options{Redact: by, Compaction: cfg})
	sess := create(t, sessions, "s", nil)
	ctx := t.Context()
	for i := range 3 {
		e := text(fmt.Sprint("e", i), "user", "needle: write to "+mail+strings.Repeat(" and so on", 40))
		e.InvocationID = fmt.Sprint("i", i)
		no(t, sessions.AppendEvent(ctx, sess, e))
	}
	no(t, errOf(sessions.Compact(ctx, sess, adk.CompactOptions{})))
	if strings.Contains(asked, mail) || !strings.Contains(asked, by.Text(mail)) {
		t.Errorf("the summarizer was asked %.300s", asked)
	}
	recalls, err := sessions.RecallTools(adk.RecallOptions{})
	no(t, err)
	got := callTools(t, sessions, "user", "s", recalls, call("", "recall_search", map[string]any{"query": "needle"}), call("", "recall_read", map[string]any{"handle": "1"}))
	found, err := sessions.Memory().SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "needle"})
	no(t, err)
	told, err := json.Marshal([]any{got, found})
	no(t, err)
	if len(got) != 2 || len(found.Memories) == 0 || strings.Contains(string(told), mail) || strings.Count(string(told), by.Text(mail)) < 3 {
		t.Errorf("told was %s", told)
	}
	history := ""
	for r, err := range sessions.RawEvents(ctx, sess, 1) {
		no(t, err)
		history += fmt.Sprint(r.Event, r.Patch)
	}
	if strings.Count(history, mail) < 3 {
		t.Errorf("the log has %s", history)
	}
}
