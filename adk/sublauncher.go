package adk

import "github.com/gorilla/mux"

// Sublauncher is web.Sublauncher of ADK's package cmd/launcher/web, whose dependencies programs
// without a launcher do not need. C is *launcher.Config.
type Sublauncher[C any] interface {
	Keyword() string
	Parse(args []string) ([]string, error)
	CommandLineSyntax() string
	SimpleDescription() string
	SetupSubrouters(router *mux.Router, config C) error
	UserMessage(webURL string, printer func(v ...any))
}

// HistorySublauncher returns a sublauncher, such as ADK's api, with [HistoryHandler] in front, so that
// ADK's web server shows people the history of sessions:
//
//	web.NewLauncher(adk.HistorySublauncher(api.NewLauncher()), webui.NewLauncher())
func HistorySublauncher[C any](of Sublauncher[C]) Sublauncher[C] { return withHistory[C]{of} }

type withHistory[C any] struct{ Sublauncher[C] }

// SetupSubrouters adds the handler and the sublauncher's routes.
func (h withHistory[C]) SetupSubrouters(router *mux.Router, config C) error {
	router.Use(HistoryHandler)
	return h.Sublauncher.SetupSubrouters(router, config)
}
