// Command agent runs an ADK agent whose sessions are in a patchlog store. A script replaces the model, so the
// program needs no network. The script calls a tool to look up a price, and then answers.
package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log"
	"os"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
)

// scripted is a model. It answers a question with a tool call, and a tool result with text.
type scripted struct{}

func (scripted) Name() string { return "scripted" }

func (scripted) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	part := genai.NewPartFromFunctionCall("find", map[string]any{"what": "lamp"})
	last := req.Contents[len(req.Contents)-1].Parts
	if r := last[len(last)-1].FunctionResponse; r != nil {
		part = genai.NewPartFromText(fmt.Sprintf("I see %d messages, and the price is %v.", len(req.Contents), r.Response["price"]))
	}
	content := genai.NewContentFromParts([]*genai.Part{part}, genai.RoleModel)
	return func(yield func(*model.LLMResponse, error) bool) { yield(&model.LLMResponse{Content: content}, nil) }
}

type findArgs struct {
	What string `json:"what"`
}

type findResult struct {
	Price int `json:"price"`
}

func run(ctx context.Context, w io.Writer) error {
	find, err := functiontool.New(functiontool.Config{Name: "find", Description: "finds an item in the shop"},
		func(_ agent.Context, in findArgs) (findResult, error) { return findResult{len(in.What) * 10}, nil })
	if err != nil {
		return err
	}
	clerk, err := llmagent.New(llmagent.Config{Name: "clerk", Model: scripted{}, Tools: []tool.Tool{find}})
	if err != nil {
		return err
	}
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	sessions, err := adk.NewService(db, adk.Options{})
	if err != nil {
		return err
	}
	defer sessions.Close(ctx)
	r, err := runner.New(runner.Config{AppName: "shop", Agent: clerk, SessionService: sessions, AutoCreateSession: true})
	if err != nil {
		return err
	}
	ask := func(question string) (invocation string, err error) {
		for event, err := range r.Run(ctx, "ann", "1", genai.NewContentFromText(question, genai.RoleUser), agent.RunConfig{}) {
			if err != nil {
				return "", err
			}
			if event.Content != nil {
				for _, part := range event.Content.Parts {
					if part.Text != "" {
						fmt.Fprintln(w, part.Text)
					}
				}
			}
			invocation = event.InvocationID
		}
		return invocation, nil
	}
	if _, err := ask("What is the lamp?"); err != nil {
		return err
	}
	second, err := ask("And once more?")
	if err != nil {
		return err
	}

	// Hide the second turn from the model. The log still contains the turn.
	got, err := sessions.Get(ctx, &session.GetRequest{AppName: "shop", UserID: "ann", SessionID: "1"})
	if err != nil {
		return err
	}
	if _, err := sessions.Rewind(ctx, got.Session, second); err != nil {
		return err
	}
	fmt.Fprintln(w, got.Session.Events().Len(), "events are left")
	_, err = ask("Instead, the shade?")
	return err
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
