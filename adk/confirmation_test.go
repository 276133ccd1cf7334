package adk_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/store"
)

type payment struct {
	Sum float64 `json:"sum"`
	To  string  `json:"to"`
}

// A tool that asks for confirmation runs when it comes, with the arguments that it was
// called with, though the program was started again meanwhile.
func TestConfirmationAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	var paid []payment
	turn := func(msg *genai.Content) (events []*session.Event) {
		db := opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
		defer func() { no(t, db.Close()) }()
		pay, err := functiontool.New(functiontool.Config{Name: "pay", RequireConfirmation: true},
			func(_ agent.Context, p payment) (map[string]any, error) {
				paid = append(paid, p)
				return map[string]any{"paid": p}, nil // a Go value that JSON can carry
			})
		no(t, err)
		m := &scriptedModel{agent: "app", script: func(int) []*genai.Part {
			return []*genai.Part{call("call-1", "pay", map[string]any{"sum": 12.0, "to": "x"})}
		}}
		a, err := llmagent.New(llmagent.Config{Name: "app", Model: m, Tools: []tool.Tool{pay}})
		no(t, err)
		r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: newService(t, db), AutoCreateSession: true})
		no(t, err)
		for e, err := range r.Run(t.Context(), "user", "s", msg, agent.RunConfig{}) {
			no(t, err)
			events = append(events, e)
		}
		return events
	}
	events := turn(genai.NewContentFromText("turn 1", "user"))
	ask := events[len(events)-1].Content.Parts[0].FunctionCall
	if ask == nil || ask.Name != toolconfirmation.FunctionCallName || len(paid) > 0 {
		t.Fatalf("the run ended with %v, and paid %v", ask, paid)
	}
	answer := genai.NewContentFromFunctionResponse(ask.Name, map[string]any{"confirmed": true}, "user")
	answer.Parts[0].FunctionResponse.ID = ask.ID
	events = turn(answer)
	equal(t, "paid", paid, []payment{{12, "x"}})
	equal(t, "the last words", events[len(events)-1].Content.Parts[0].Text, "app has the results")
}
