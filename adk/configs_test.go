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
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
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
		{"Extractive after the model has failed", broken, compaction.Config{Enabled: true, CompactionInterval: 1, FallbackAfter: 1}, 0, 0, ""},
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

// Each app of a service is compacted by its own configuration, in runs too.
func TestCompactionByApp(t *testing.T) {
	var general, own atomic.Int32
	often := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(counted("own", &own))}
	inside := compaction.Config{Enabled: true, TokenThreshold: 200, EventRetentionSize: 1, Summarizer: adk.Summarizer(counted("inside", &own))}
	svc := compacted(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 4}, Model: counted("general", &general),
		CompactionByApp: map[string]compaction.Config{"often": often, "never": {}, "inside": inside},
	})
	for _, c := range []struct{ app, says string }{{"other", ""}, {"often", "own"}, {"never", ""}} {
		sess := exchanges(t, svc, c.app, 3)
		svc.Settle(t)
		r, err := svc.Get(t.Context(), &session.GetRequest{AppName: c.app, UserID: "user", SessionID: "s"})
		no(t, err)
		texts := told(r.Session)
		if (c.says == "") != (len(texts) == 0) || len(texts) > 0 && !strings.HasPrefix(texts[0], c.says) {
			t.Errorf("%s: the summaries say %q", c.app, texts)
		}
		written, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
		if off := errors.Is(err, adk.ErrCompactionOff); off != (c.app == "never") || off != (err != nil) || off && written != nil {
			t.Errorf("%s: compacting says %v, %v", c.app, written, err)
		}
	}
	if general.Load() != 0 || own.Load() == 0 {
		t.Errorf("%d calls of the general model", general.Load())
	}

	// Inside a run.
	for app, shorter := range map[string]bool{"inside": true, "never": false, "often": false} {
		r, err := svc.Create(t.Context(), &session.CreateRequest{AppName: app, UserID: "user", SessionID: "run"})
		no(t, err)
		for i := range 4 {
			id := fmt.Sprint("c", i)
			no(t, svc.AppendEvent(t.Context(), r.Session, said("q"+id, "1", "app", long, calling(id, "lookup"), long2)))
			no(t, svc.AppendEvent(t.Context(), r.Session, said("r"+id, "1", "app", returning(id, "lookup", map[string]any{"x": strings.Repeat("word ", 80)}))))
		}
		if n := r.Session.Events().Len(); (n < 8) != shorter {
			t.Errorf("%s: %d events are shown in the run", app, n)
		}
	}
}

// long2 gives an event with a call a text too.
func long2(e *session.Event) {
	e.Content.Parts = append(e.Content.Parts, genai.NewPartFromText(strings.Repeat("word ", 80)))
}

// A service of which only some apps are compacted.
func TestCompactionOfOneAppAlone(t *testing.T) {
	svc := compacted(t, adk.Options{CompactionByApp: map[string]compaction.Config{"often": {Enabled: true, CompactionInterval: 1}}})
	exchanges(t, svc, "often", 3)
	exchanges(t, svc, "other", 3)
	svc.Settle(t)
	for app, shorter := range map[string]bool{"often": true, "other": false} {
		r, err := svc.Get(t.Context(), &session.GetRequest{AppName: app, UserID: "user", SessionID: "s"})
		no(t, err)
		if n := r.Session.Events().Len(); (n < 6) != shorter {
			t.Errorf("%s: %d events are visible", app, n)
		}
	}
	no(t, svc.Close(t.Context()))
}

func TestConfigurationsAreRefused(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	noModel := compaction.DefaultConfig()
	noModel.Summarizer = adk.Summarizer(nil)
	byApp := func(cfg compaction.Config) adk.Options {
		return adk.Options{CompactionByApp: map[string]compaction.Config{"fine": compaction.DefaultConfig(), "shop": cfg}}
	}
	for text, opts := range map[string]adk.Options{
		`compaction of app "shop": invalid: field "Config.MaxSummaries"`: byApp(compaction.Config{MaxSummaries: 1}),
		`app "shop": invalid summarizer`:                                 byApp(noModel),
		"Options.Model":                                                  {Model: (*nilModel)(nil)},
	} {
		err := opts.Validate()
		fails(t, err, patch.ErrInvalid)
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
		_, err = adk.NewService(db, opts)
		fails(t, err, patch.ErrInvalid)
	}
}

type nilModel struct{ model.LLM }
