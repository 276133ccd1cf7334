package keyvalue

import (
	"context"
	"fmt"
	"log"
	"testing"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func Example() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	ctx := context.Background()
	sessions, err := adk.Wrap(&Service{}, adk.Options{})
	check(err)
	created, err := sessions.Create(ctx, &session.CreateRequest{AppName: "shop", UserID: "ann", SessionID: "chat"})
	check(err)
	for _, text := range []string{"My card is 4711.", "Is there a lamp?"} {
		response := model.LLMResponse{Content: genai.NewContentFromText(text, genai.RoleUser)}
		check(sessions.AppendEvent(ctx, created.Session, &session.Event{Author: "user", LLMResponse: response}))
	}
	_, err = sessions.ApplyPatch(ctx, created.Session, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})
	check(err)
	again, err := sessions.Get(ctx, &session.GetRequest{AppName: "shop", UserID: "ann", SessionID: "chat"})
	check(err)
	for e := range again.Session.Events().All() {
		fmt.Println(e.Author, "said:", e.Content.Parts[0].Text)
	}
	// Output: user said: Is there a lamp?
}

// The wrapped service passes ADK's test suite for session services.
func TestSuite(t *testing.T) {
	sessiontestsuite.RunServiceTests(t, sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}, func(t *testing.T) session.Service {
		s, err := adk.Wrap(&Service{}, adk.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
