package peers

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

const (
	turns = 200
	calls = 2 // tool calls per turn; a turn has 2 + 2·calls events
)

// BenchmarkTurns runs 200 turns of an agent that calls a tool twice per turn, which makes 1,200 events. The metric
// service-ms/turn is the time spent in the session service and in its lists of events.
func BenchmarkTurns(b *testing.B) {
	for _, p := range append(slices.Clone(all), patchlogMemory, patchlogCompacted) {
		b.Run("service="+p.name, func(b *testing.B) {
			var spent time.Duration
			for b.Loop() {
				s, done := p.open(b, b.TempDir(), false)
				spent += play(b, s)
				done()
			}
			b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N*turns), "service-ms/turn")
		})
	}
}

var patchlogMemory = peer{name: "patchlog-memory", open: func(tb testing.TB, _ string, _ bool) (session.Service, func()) {
	db, err := store.OpenMemory(store.Options{})
	no(tb, err)
	svc, err := adk.NewService(db, adk.Options{})
	no(tb, err)
	return svc, func() { no(tb, db.Close()) }
}}

var patchlogCompacted = peer{name: "patchlog-compacted", open: func(tb testing.TB, dir string, _ bool) (session.Service, func()) {
	db, err := store.Open(filepath.Join(dir, "sessions.db"), store.Options{})
	no(tb, err)
	svc, err := adk.NewService(db, adk.Options{Compaction: compaction.DefaultConfig()})
	no(tb, err)
	return svc, func() {
		no(tb, svc.Close(ctx))
		no(tb, db.Close())
	}
}}

// play runs the turns and returns the time spent in the service.
func play(tb testing.TB, s session.Service) time.Duration {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	lookup, err := functiontool.New(functiontool.Config{Name: "lookup", Description: "looks up"}, func(agent.Context, map[string]any) (map[string]any, error) {
		return map[string]any{"found": fmt.Sprintf("%0200d", 1)}, nil
	})
	no(tb, err)
	a, err := llmagent.New(llmagent.Config{Name: "clerk", Model: &caller{}, Tools: []tool.Tool{lookup}})
	no(tb, err)
	timed := &timedService{Service: s}
	r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: timed, AutoCreateSession: true})
	no(tb, err)
	for i := range turns {
		for _, err := range r.Run(ctx, "user", "s", genai.NewContentFromText(fmt.Sprint("question ", i), "user"), agent.RunConfig{}) {
			no(tb, err)
		}
	}
	if timed.appended != turns*(2+2*calls) {
		tb.Fatalf("%d events", timed.appended)
	}
	return timed.spent
}

// caller is a model that calls the tool and then answers.
type caller struct{ step int }

func (*caller) Name() string { return "caller" }

func (c *caller) GenerateContent(context.Context, *model.LLMRequest, bool) iter.Seq2[*model.LLMResponse, error] {
	c.step++
	content := genai.NewContentFromText(fmt.Sprintf("answer %0200d", c.step), "model")
	if c.step%(calls+1) != 0 {
		content = genai.NewContentFromFunctionCall("lookup", map[string]any{"n": c.step}, "model")
	}
	return func(yield func(*model.LLMResponse, error) bool) { yield(&model.LLMResponse{Content: content}, nil) }
}

// timedService measures the calls of a service and the reads of its sessions' events.
type timedService struct {
	session.Service
	spent    time.Duration
	appended int
}

func (s *timedService) time(began time.Time) { s.spent += time.Since(began) }

func (s *timedService) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	defer s.time(time.Now())
	r, err := s.Service.Get(ctx, req)
	if err != nil {
		return nil, err
	}
	return &session.GetResponse{Session: &timedSession{r.Session, s}}, nil
}

func (s *timedService) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	defer s.time(time.Now())
	r, err := s.Service.Create(ctx, req)
	if err != nil {
		return nil, err
	}
	return &session.CreateResponse{Session: &timedSession{r.Session, s}}, nil
}

func (s *timedService) AppendEvent(ctx context.Context, sess session.Session, e *session.Event) error {
	defer s.time(time.Now())
	s.appended++
	return s.Service.AppendEvent(ctx, sess.(*timedSession).Session, e)
}

type timedSession struct {
	session.Session
	service *timedService
}

// Events returns a copy of the events. The time of copying counts.
func (s *timedSession) Events() session.Events {
	defer s.service.time(time.Now())
	return timedEvents{s.Session.Events(), s.service}
}

type timedEvents struct {
	session.Events
	service *timedService
}

func (e timedEvents) Len() int { return e.Events.Len() }

func (e timedEvents) At(i int) *session.Event {
	defer e.service.time(time.Now())
	return e.Events.At(i)
}

func (e timedEvents) All() iter.Seq[*session.Event] {
	return func(yield func(*session.Event) bool) {
		began := time.Now()
		all := make([]*session.Event, 0, e.Events.Len())
		for event := range e.Events.All() {
			all = append(all, event)
		}
		e.service.time(began)
		for _, event := range all {
			if !yield(event) {
				return
			}
		}
	}
}
