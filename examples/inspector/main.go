// Command inspector runs an agent in ADK's web launcher and adds patchlog's session inspector to the
// launcher's pages. The inspector runs in the process that has opened the database, so it shows new events
// immediately. A script replaces the model, so the program needs no network.
//
//	go run ./inspector web api inspector
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/gorilla/mux"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/cmd/launcher"
	"google.golang.org/adk/v2/cmd/launcher/universal"
	"google.golang.org/adk/v2/cmd/launcher/web"
	"google.golang.org/adk/v2/cmd/launcher/web/api"
	"google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/store"
)

// historyAPI is ADK's API with two additions. It can return the history of a session, and it has routes that
// rewind and fork sessions.
type historyAPI struct {
	web.Sublauncher
	sessions *adk.Service
}

// SetupSubrouters adds patchlog's handlers and the routes of ADK's API.
func (p historyAPI) SetupSubrouters(router *mux.Router, config *launcher.Config) error {
	router.Use(adk.HistoryHandler, p.sessions.RESTHandler)
	return p.Sublauncher.SetupSubrouters(router, config)
}

// inspectorPages adds the inspector to the launcher.
type inspectorPages struct {
	db    *store.Store
	token string
}

// SetupSubrouters adds the inspector's route. The inspector requires a token, because the launcher also
// accepts connections from other machines.
func (p inspectorPages) SetupSubrouters(router *mux.Router, _ *launcher.Config) error {
	i, err := inspector.New(p.db, inspector.Options{Token: p.token})
	if err != nil {
		return err
	}
	router.PathPrefix("/inspector/").Handler(http.StripPrefix("/inspector", i))
	return nil
}

func (p inspectorPages) UserMessage(url string, printer func(...any)) {
	printer("inspector: " + url + "/inspector/?token=" + p.token)
}

func (inspectorPages) Keyword() string                       { return "inspector" }
func (inspectorPages) Parse(args []string) ([]string, error) { return args, nil }
func (inspectorPages) CommandLineSyntax() string             { return "" }
func (inspectorPages) SimpleDescription() string             { return "shows the sessions in a browser" }

// scripted is a model that answers with the number of messages in its prompt.
type scripted struct{}

func (scripted) Name() string { return "scripted" }

func (scripted) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	content := genai.NewContentFromText(fmt.Sprintf("I see messages: %d.", len(req.Contents)), genai.RoleModel)
	return func(yield func(*model.LLMResponse, error) bool) { yield(&model.LLMResponse{Content: content}, nil) }
}

// configure returns a launcher configuration with an agent whose sessions are in the given service.
func configure(sessions *adk.Service) (*launcher.Config, error) {
	clerk, err := llmagent.New(llmagent.Config{Name: "clerk", Model: scripted{}})
	if err != nil {
		return nil, err
	}
	return &launcher.Config{SessionService: sessions, AgentLoader: agent.NewSingleLoader(clerk)}, nil
}

func run(ctx context.Context, args []string) error {
	db, err := store.Open("sessions.db", store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	sessions, err := adk.NewService(db, adk.Options{})
	if err != nil {
		return err
	}
	defer sessions.Close(context.WithoutCancel(ctx))
	config, err := configure(sessions)
	if err != nil {
		return err
	}
	l := universal.NewLauncher(web.NewLauncher(historyAPI{api.NewLauncher(), sessions}, inspectorPages{db, rand.Text()}))
	return l.Execute(ctx, config, args)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
