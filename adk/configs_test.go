package adk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
)

// counted is a model that summarises and counts its calls.
func counted(says string, calls *atomic.Int32) modelFunc {
	return func(ctx context.Context, req *model.LLMRequest) responses {
		calls.Add(1)
		return answers(&model.LLMResponse{Content: genai.NewContentFromText(says, "model")})(ctx, req)
	}
}

// exchanges appends so many exchanges of some length to a session of an app.
func exchanges(t *testing.T, svc *adk.Service, app string, n int) session.Session {
	t.Helper()
	r, err := svc.Create(t.Context(), &session.CreateRequest{AppName: app, UserID: "user", SessionID: "s"})
	no(t, err)
	for i := range n {
		inv := fmt.Sprint("i", i)
		no(t, svc.AppendEvent(t.Context(), r.Session, said("u"+inv, inv, "user", long)))
		no(t, svc.AppendEvent(t.Context(), r.Session, said("a"+inv, inv, "app", long)))
	}
	return r.Session
}

// told are the texts of a session's summaries, which none of the events begin with.
func told(sess session.Session) (texts []string) {
	for e := range sess.Events().All() {
		if text := e.Content.Parts[0].Text; !strings.HasPrefix(text, "words of") {
			texts = append(texts, text)
		}
	}
	return texts
}

// Who summarises: what the configuration names, else the options' model, else Extractive.
func TestWhoSummarises(t *testing.T) {
	var models, named atomic.Int32
	broken := modelFunc(func(context.Context, *model.LLMRequest) responses {
		return func(yield func(*model.LLMResponse, error) bool) { yield(nil, errors.New("broken")) }
	})
	explicit := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(counted("by the one that is named", &named))}
	for _, c := range []struct {
		name          string
		model         model.LLM
		cfg           compaction.Config
		models, named int32
		says          string
	}{
		{"the model", counted("by the model", &models), compaction.DefaultConfig(), 1, 0, "by the model"},
		{"the one that is named", counted("by the model", &models), explicit, 0, 1, "by the one that is named"},
		{"neither", nil, compaction.DefaultConfig(), 0, 0, ""},
		{"Extractive after the model has failed", broken, compaction.Config{Enabled: true, CompactionInterval: 1, TokenThreshold: 1}, 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			models.Store(0)
			named.Store(0)
			c.cfg.CompactionInterval = 2
			svc := compacted(t, adk.Options{Model: c.model, Compaction: c.cfg})
			sess := exchanges(t, svc, "app", 3)
			svc.Settle(t)
			_, _ = svc.Compact(t.Context(), sess, adk.CompactOptions{})
			_, _ = svc.Compact(t.Context(), sess, adk.CompactOptions{})
			texts := told(get(t, svc, "s"))
			if len(texts) == 0 || c.says != "" && texts[0] != c.says {
				t.Errorf("the summaries say %q", texts)
			}
			if c.models > 0 != (models.Load() > 0) || c.named > 0 != (named.Load() > 0) {
				t.Errorf("%d calls of the model and %d of the one that is named", models.Load(), named.Load())
			}
		})
	}
}

// A session is compacted at a share of the context window that the model, or the options, say.
func TestContextWindow(t *testing.T) {
	for name, opts := range map[string]adk.Options{
		"the model":   {Model: windowed{shortener{}}, ContextWindow: adk.ContextWindow{Share: 0.5}},
		"the options": {Model: windowed{shortener{}}, ContextWindow: adk.ContextWindow{Share: 0.001, Tokens: 200_000}},
		"neither":     {Model: windowed{shortener{}}},
	} {
		opts.Compaction = compaction.Config{Enabled: true, CompactionInterval: 1000}
		svc := compacted(t, opts)
		sess := exchanges(t, svc, "app", 10)
		svc.Settle(t)
		no(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{})))
		if compacts := len(told(get(t, svc, "s"))) > 0; compacts != (name != "neither") {
			t.Errorf("%s: compacted %v", name, compacts)
		}
	}
}

type windowed struct{ model.LLM }

func (windowed) ContextWindow() int { return 400 }

type nilModel struct{ model.LLM }
