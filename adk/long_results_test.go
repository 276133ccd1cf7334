package adk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A long result is shown in short in every prompt, over a base too, and reads whole, byte for byte.
func TestLongResults(t *testing.T) {
	report := longReport() + "\"quoted\" é 東京 😀 \x01 end"
	results := map[string]map[string]any{
		"text":   {"output": report},
		"record": {"id": 7, "body": report, "price": json.Number("1.50"), "big": json.Number("9007199254740993")},
		"list":   {"rows": strings.Split(report, "\n")},
	}
	for name, make := range map[string]func(t *testing.T, opts adk.Options) *adk.Service{
		"a store": compacted,
		"a base":  func(t *testing.T, opts adk.Options) *adk.Service { return wrap(t, session.InMemoryService(), opts) },
		"SQLite": func(t *testing.T, opts adk.Options) *adk.Service {
			return wrap(t, onSQLite(t, t.TempDir()+"/s.db"), opts)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sessions := make(t, adk.Options{MaxResultTokens: 500})
			recalls, err := sessions.RecallTools(adk.RecallOptions{CallTokens: 1000, TurnTokens: 1 << 20})
			no(t, err)
			for kind, result := range results {
				fetch, err := functiontool.New(functiontool.Config{Name: "fetch_" + kind, Description: "fetches"},
					func(agent.Context, struct{}) (map[string]any, error) { return result, nil })
				no(t, err)
				got := callTools(t, sessions, "user", kind, append([]tool.Tool{fetch}, recalls...), call("", "fetch_"+kind, nil))
				raw, err := json.Marshal(got[0])
				no(t, err)
				if n := patch.EstimateTextTokens(string(raw)); n > 500 {
					t.Errorf("%s: the prompt has %d tokens of it", kind, n)
				}
				note, _ := got[0]["shortened"].(string)
				handle := regexp.MustCompile(`handle "([^"]+)"`).FindStringSubmatch(note)
				if handle == nil {
					t.Fatalf("%s: no handle in %s", kind, raw)
				}
				if kind == "record" && fmt.Sprint(got[0]["id"]) != "7" {
					t.Errorf("%s: %s", kind, raw)
				}
				sess := get(t, sessions, kind)
				want := ""
				for r, err := range sessions.RawEvents(t.Context(), sess, 1) {
					no(t, err)
					if r.Event == nil {
						continue
					}
					for p := range r.Event.FunctionParts() {
						if p.Response && p.Name == "fetch_"+kind {
							want = originalOf(t, r.Event, p.Index)
						}
					}
				}
				var read strings.Builder
				for offset := 0.; ; {
					page := callTools(t, sessions, "user", kind, recalls, call("", "recall_read", map[string]any{"handle": handle[1], "offset": offset}))[0]
					if page["text"] == nil {
						t.Fatalf("%s: %v", kind, page)
					}
					read.WriteString(page["text"].(string))
					next, more := page["nextOffset"].(float64)
					if !more {
						break
					}
					offset = next
				}
				if read.String() != want || kind == "text" && want != report {
					t.Errorf("%s: %d bytes were read, of %d", kind, read.Len(), len(want))
				}
				// People see all of it, and what is taken back is in sight again.
				if s := get(t, sessions, kind).(*adk.Session); s.View().PatchSeq() > 0 {
					var shortened string
					for r, err := range sessions.RawEvents(t.Context(), sess, 1) {
						no(t, err)
						if r.Patch != nil && shortened == "" {
							shortened = r.ID()
						}
					}
					_, err := sessions.Revert(t.Context(), s, shortened)
					no(t, err)
					raw, err := json.Marshal(s.Events().At(2).Content)
					no(t, err)
					if len(raw) < len(report) {
						t.Errorf("%s: taken back, it has %d bytes", kind, len(raw))
					}
				} else {
					t.Errorf("%s: no patch was logged", kind)
				}
			}
		})
	}
}

func originalOf(t *testing.T, e *patch.Event, index int) string {
	t.Helper()
	for i, p := range e.Content().Parts() {
		if i != index {
			continue
		}
		if members := p.Response.Members(); len(members) == 1 {
			for _, v := range members {
				if text, ok := v.Any().(string); ok {
					return text
				}
			}
		}
		return p.Response.String()
	}
	return ""
}

// Results are shortened by default where sessions are compacted, and only there.
func TestLongResultsByDefault(t *testing.T) {
	result := func(sessions *adk.Service) int {
		sess := create(t, sessions, "s", nil)
		e := text("e1", "app", "")
		e.Content = genai.NewContentFromFunctionResponse("f", map[string]any{"out": strings.Repeat("long ", 10_000)}, "user")
		no(t, sessions.AppendEvent(t.Context(), sess, e))
		raw, err := json.Marshal(sess.Events().At(0).Content)
		no(t, err)
		return len(raw)
	}
	// A retry leaves what was taken back as it is, over a base too.
	for _, sessions := range []*adk.Service{compacted(t, adk.Options{MaxResultTokens: 500}), wrap(t, session.InMemoryService(), adk.Options{MaxResultTokens: 500})} {
		sess := create(t, sessions, "s", nil).(*adk.Session)
		e := text("e1", "app", "")
		e.Content = genai.NewContentFromFunctionResponse("f", map[string]any{"out": strings.Repeat("long ", 10_000)}, "user")
		no(t, sessions.AppendEvent(t.Context(), sess, e))
		for r, err := range sessions.RawEvents(t.Context(), sess, 2) {
			no(t, err)
			_, err := sessions.Revert(t.Context(), sess, r.ID())
			no(t, err)
		}
		no(t, sessions.AppendEvent(t.Context(), sess, e))
		equal(t, "event", sess.Events().At(0).ID, "e1")
	}
	if n := result(inMemory(t)); n < 50_000 {
		t.Errorf("without compaction it has %d bytes", n)
	}
	if n := result(compacted(t, adk.Options{Compaction: compaction.DefaultConfig()})); n > 4*adk.DefaultMaxResultTokens || n < 10_000 {
		t.Errorf("with compaction it has %d bytes", n)
	}
	if n := result(compacted(t, adk.Options{Compaction: compaction.DefaultConfig(), MaxResultTokens: -1})); n < 50_000 {
		t.Errorf("switched off it has %d bytes", n)
	}
	if _, err := adk.NewService(opened(t)(store.OpenMemory(store.Options{})), adk.Options{MaxResultTokens: 7}); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("a limit that is too low: %v", err)
	}
}

// Inside a workflow's node, where the list of events only grows, a long result is added in short.
func TestLongResultsInNodes(t *testing.T) {
	sessions := compacted(t, adk.Options{MaxResultTokens: 500})
	sess := create(t, sessions, "s", nil)
	for i := range 3 {
		e := text(fmt.Sprint("call", i), "app", "")
		e.Branch = "node"
		e.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call(fmt.Sprint("c", i), "f", nil)}}
		no(t, sessions.AppendEvent(t.Context(), sess, e))
		e = text(fmt.Sprint("result", i), "app", "")
		e.Branch = "node"
		e.Content = genai.NewContentFromFunctionResponse("f", map[string]any{"out": strings.Repeat("long ", 1000)}, "user")
		e.Content.Parts[0].FunctionResponse.ID = fmt.Sprint("c", i)
		no(t, sessions.AppendEvent(t.Context(), sess, e))
		no(t, sessions.AppendEvent(t.Context(), sess, e)) // again
		equal(t, "events", sess.Events().Len(), 2*i+2)
		for at := range sess.Events().Len() {
			raw, err := json.Marshal(sess.Events().At(at).Content)
			no(t, err)
			if len(raw) > 2200 {
				t.Errorf("event %d has %d bytes", at, len(raw))
			}
		}
	}
}
