package adk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/loadmemorytool"
	"google.golang.org/adk/v2/tool/preloadmemorytool"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// ADK's memory tools find what the user's other sessions say, after a restart too.
func TestLogMemory(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) *adk.Service{
		"a store": inMemory,
		"a base":  func(t *testing.T) *adk.Service { return wrap(t, session.InMemoryService(), adk.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			sessions := make(t)
			ctx := t.Context()
			say := func(user, id string, words ...string) session.Session {
				r, err := sessions.Create(ctx, &session.CreateRequest{AppName: "app", UserID: user, SessionID: id})
				no(t, err)
				for i, w := range words {
					no(t, sessions.AppendEvent(ctx, r.Session, text(fmt.Sprint("e", i), "user", w)))
				}
				return r.Session
			}
			old := say("user", "old", "My cat is called Mousebane", "and likes herring")
			say("user", "cut", "Mousebane, which was cut")
			say("stranger", "s", "Mousebane of a stranger")
			cut := get(t, sessions, "cut")
			_, err := sessions.ApplyPatch(ctx, cut, patch.NewSplice(0, 1))
			no(t, err)
			mem := sessions.Memory()
			no(t, mem.AddSessionToMemory(ctx, old))
			summarise(t, sessions, get(t, sessions, "old"), 2)

			var prompts []*model.LLMRequest
			n := 0
			m := modelFunc(func(ctx context.Context, req *model.LLMRequest) responses {
				prompts = append(prompts, req)
				part := &genai.Part{Text: "done"}
				if n++; n == 1 {
					part = call("c1", "load_memory", map[string]any{"query": "what is the cat called"})
				}
				return answers(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: []*genai.Part{part}}})(ctx, req)
			})
			a, err := llmagent.New(llmagent.Config{Name: "app", Model: m, Tools: []tool.Tool{loadmemorytool.New(), preloadmemorytool.New()}})
			no(t, err)
			r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: sessions, MemoryService: mem, AutoCreateSession: true})
			no(t, err)
			for _, err := range r.Run(ctx, "user", "new", genai.NewContentFromText("What is my cat called?", "user"), agent.RunConfig{}) {
				no(t, err)
			}
			loaded, err := json.Marshal(prompts[1].Contents)
			no(t, err)
			preloaded, err := json.Marshal(prompts[0].Config.SystemInstruction)
			no(t, err)
			for what, text := range map[string]string{"loaded": string(loaded), "preloaded": string(preloaded)} {
				if !strings.Contains(text, "My cat is called Mousebane") || strings.Contains(text, "which was cut") || strings.Contains(text, "of a stranger") {
					t.Errorf("%s: %s", what, text)
				}
			}
			// Its own session is left out of what an agent searches, and not of what others do.
			if strings.Contains(string(preloaded), "What is my cat called") {
				t.Errorf("preloaded: %s", preloaded)
			}
			found, err := mem.SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "cat"})
			no(t, err)
			if len(found.Memories) < 2 || found.Memories[0].CustomMetadata["session"] == "" || found.Memories[0].ID == "" {
				t.Errorf("%+v", found.Memories)
			}
			for _, query := range []string{"", "xylophone"} {
				found, err := mem.SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: query})
				if err != nil || found.Memories == nil || len(found.Memories) > 0 {
					t.Errorf("%q: %v, %v", query, found, err)
				}
			}
			_, err = mem.SearchMemory(ctx, &memory.SearchRequest{Query: "cat"})
			fails(t, err, patch.ErrInvalid)
			_, err = mem.SearchMemory(ctx, nil)
			fails(t, err, patch.ErrInvalid)
			no(t, sessions.Delete(ctx, &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "old"}))
			fails(t, mem.AddSessionToMemory(ctx, old), store.ErrNotFound)
			fails(t, mem.AddSessionToMemory(ctx, nil), patch.ErrInvalid)
			found, err = mem.SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "herring"})
			no(t, err)
			for _, m := range found.Memories {
				if m.CustomMetadata["session"] == "old" {
					t.Errorf("of a deleted session: %v", m)
				}
			}
		})
	}
}
