package adk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// compacted is a service in memory that compacts.
func compacted(t *testing.T, opts adk.Options) *adk.Service {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	svc, err := adk.NewService(opened(t)(store.OpenMemory(store.Options{})), opts)
	no(t, err)
	return svc
}

// toolLoop runs one invocation that calls a tool so many times, one after the other, and
// returns the prompts.
func toolLoop(t *testing.T, sessions session.Service, steps int, question string, change ...func(*llmagent.Config)) (prompts [][]*genai.Content) {
	t.Helper()
	m := &scriptedModel{agent: "app"}
	step := 0
	loop := modelFunc(func(ctx context.Context, req *model.LLMRequest) responses {
		m.keep(req.Contents)
		part := &genai.Part{Text: "done"}
		if step++; step <= steps {
			part = call(fmt.Sprint("c", step), "lookup", map[string]any{"key": fmt.Sprint("a key that takes some room, number ", step)})
		}
		usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: int32(100 * len(req.Contents))}
		return answers(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: []*genai.Part{part}}, UsageMetadata: usage})(ctx, req)
	})
	cfg := llmagent.Config{Name: "app", Model: loop, Tools: tools(t)}
	for _, c := range change {
		c(&cfg)
	}
	a, err := llmagent.New(cfg)
	no(t, err)
	r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: sessions, AutoCreateSession: true})
	no(t, err)
	last := ""
	for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText(question, "user"), agent.RunConfig{}) {
		no(t, err)
		last = e.Content.Parts[0].Text
	}
	equal(t, "last words", last, "done")
	return m.taken()
}

var inRun = compaction.Config{Enabled: true, TokenThreshold: 800, EventRetentionSize: 2}

// One long invocation is compacted while it runs: the next prompt is the shorter one, and
// has the question.
func TestCompactionInsideARun(t *testing.T) {
	cfg := inRun
	cfg.Summarizer = adk.Summarizer(shortener{})
	sessions := compacted(t, adk.Options{Compaction: cfg})
	longest, shorter := 0, 0
	prompts := toolLoop(t, sessions, 40, "the question")
	for i, prompt := range prompts {
		checkPrompt(t, prompt)
		if !says(prompt, "the question") {
			t.Fatalf("prompt %d lacks the question", i)
		}
		longest = max(longest, len(prompt))
		if i > 0 && len(prompt) < len(prompts[i-1]) {
			shorter++
		}
	}
	if longest > 12 || shorter < 3 {
		t.Errorf("the longest prompt has %d contents, and %d were shorter than the one before", longest, shorter)
	}
	events := 0
	for r, err := range sessions.RawEvents(t.Context(), get(t, sessions, "s"), 1) {
		no(t, err)
		if r.Event != nil {
			events++
		}
	}
	equal(t, "events in the audit log", events, 1+2*40+1)
}

// An agent that is shown the turn that runs alone sees what it was asked, and what it has
// done since, though that was summarised.
func TestCompactionInsideATurnShownAlone(t *testing.T) {
	cfg := inRun
	cfg.Summarizer = adk.Summarizer(shortener{})
	sessions := compacted(t, adk.Options{Compaction: cfg})
	alone := func(c *llmagent.Config) { c.IncludeContents = llmagent.IncludeContentsNone }
	toolLoop(t, sessions, 1, "what was asked before", alone)
	summarised := 0
	for i, prompt := range toolLoop(t, sessions, 30, "the question", alone) {
		if faults := faultsOf(prompt); len(faults) > 0 {
			t.Errorf("prompt %d %s", i, faults)
		}
		if prompt[0].Parts[0].Text != "the question" {
			t.Fatalf("prompt %d begins with %q", i, prompt[0].Parts[0].Text)
		}
		if len(prompt) > 1 && isSummary(prompt[1]) {
			summarised++
		}
	}
	if summarised < 10 {
		t.Errorf("only %d prompts have a summary after the question", summarised)
	}
}

// It can be left to the background.
func TestNoCompactionInsideARun(t *testing.T) {
	cfg := inRun
	cfg.Summarizer = adk.Summarizer(shortener{})
	sessions := compacted(t, adk.Options{Compaction: cfg, CompactionTimeout: -1})
	prompts := toolLoop(t, sessions, 12, "the question")
	equal(t, "contents of the last prompt", len(prompts[len(prompts)-1]), 1+2*12)
	no(t, sessions.Close(t.Context()))
	if n := get(t, sessions, "s").Events().Len(); n > 12 {
		t.Errorf("%d events are visible", n)
	}
}

// A summarizer that fails, panics, never returns or takes its time with nothing to say
// does no harm to a run, and keeps it waiting no longer than the timeout in all.
func TestSummarizersThatDoNoHarm(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	broken := errors.New("broken")
	const timeout = 300 * time.Millisecond
	for _, c := range []struct {
		name      string
		summarize compaction.SummarizerFunc
		want      error // of the attempts
	}{
		{"fails", func(context.Context, compaction.Request) (compaction.Response, error) {
			return compaction.Response{}, broken
		}, broken},
		{"panics", func(context.Context, compaction.Request) (compaction.Response, error) { panic("no") }, compaction.ErrSummarizerPanic},
		{"never returns", func(context.Context, compaction.Request) (compaction.Response, error) {
			<-release
			return compaction.Response{}, nil
		}, context.DeadlineExceeded},
		{"declines slowly", func(ctx context.Context, _ compaction.Request) (compaction.Response, error) {
			select {
			case <-ctx.Done():
			case <-time.After(timeout / 3):
			}
			return compaction.Response{}, ctx.Err()
		}, nil},
		{"calls a function", func(context.Context, compaction.Request) (compaction.Response, error) {
			return gemini.Response("", &genai.Content{Parts: []*genai.Part{call("x", "y", nil)}}, "", nil)
		}, compaction.ErrRefusedAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var seen []compaction.Attempt[store.Key]
			cfg := inRun
			cfg.Summarizer = c.summarize
			sessions := compacted(t, adk.Options{Compaction: cfg, CompactionTimeout: timeout, Hooks: adk.Hooks{OnCompaction: func(a compaction.Attempt[store.Key]) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, a)
			}}})
			prompts := toolLoop(t, sessions, 30, "the question")
			equal(t, "contents of the last prompt", len(prompts[len(prompts)-1]), 1+2*30)
			// A run that waits for each of its 30 steps shows in the number of attempts.
			mu.Lock()
			attempts := slices.Clone(seen)
			mu.Unlock()
			if n := len(attempts); n == 0 || n > 10 || !errors.Is(attempts[0].Err, c.want) {
				t.Errorf("%d attempts, %+v", n, attempts)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := sessions.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}

// long gives an event a text that can be summarised.
func long(e *session.Event) { e.Content.Parts[0].Text += strings.Repeat(" word", 80) }

// What the user has just asked is never summarised by the background, though it comes
// while a summary of what was before is being made.
func TestBackgroundLeavesTheQuestion(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: compaction.SummarizerFunc(
		func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
			once.Do(func() {
				close(asked)
				<-goOn
			})
			return adk.Summarizer(shortener{}).Summarize(ctx, req)
		})}
	sessions := compacted(t, adk.Options{Compaction: cfg})
	sess := create(t, sessions, "s", nil)
	for i := range 3 {
		inv := fmt.Sprint("inv", i)
		no(t, sessions.AppendEvent(t.Context(), sess, said("u"+inv, inv, "user", long)))
		no(t, sessions.AppendEvent(t.Context(), sess, said("a"+inv, inv, "app", long)))
	}
	<-asked
	run := get(t, sessions, "s")
	no(t, sessions.AppendEvent(t.Context(), run, said("q", "inv9", "user", long)))
	close(goOn)
	sessions.Settle(t)
	visible := ids(get(t, sessions, "s"))
	if !slices.Contains(visible, "q") || slices.Contains(visible, "uinv0") {
		t.Errorf("visible: %v", visible)
	}
	// The session of the run shows it with the next event.
	no(t, sessions.AppendEvent(t.Context(), run, said("a", "inv9", "app", long)))
	if shown := ids(run); slices.Contains(shown, "uinv0") || !slices.Contains(shown, "q") {
		t.Errorf("shown: %v", shown)
	}
	no(t, sessions.Close(t.Context()))
	no(t, sessions.Close(t.Context()))
	no(t, sessions.AppendEvent(t.Context(), run, said("after", "inv10", "app")))
}

// A message of the user that answers a call begins a run, which reads from the log what
// was answered: nothing is compacted before that.
func TestAnswerOfTheUserIsLeft(t *testing.T) {
	cfg := inRun
	cfg.TokenThreshold, cfg.Summarizer = 100, adk.Summarizer(shortener{})
	db := opened(t)(store.OpenMemory(store.Options{}))
	plain := newService(t, db)
	sess := create(t, plain, "s", nil)
	for i := range 6 {
		no(t, plain.AppendEvent(t.Context(), sess, said(fmt.Sprint("u", i), fmt.Sprint(i), "user", long)))
	}
	no(t, plain.AppendEvent(t.Context(), sess, said("ask", "9", "app", calling("c", "slow", "c"))))
	sessions, err := adk.NewService(db, adk.Options{Compaction: cfg})
	no(t, err)
	run := get(t, sessions, "s")
	no(t, sessions.AppendEvent(t.Context(), run, said("yes", "9", "user", returning("c", "slow", nil))))
	equal(t, "shown with the answer", run.Events().Len(), 6+2)
	no(t, sessions.AppendEvent(t.Context(), run, said("go", "9", "app", calling("d", "lookup"))))
	no(t, sessions.AppendEvent(t.Context(), run, said("got", "9", "app", returning("d", "lookup", nil))))
	if n := run.Events().Len(); n >= 6+4 {
		t.Errorf("%d events are shown after a tool's answer", n)
	}
}

// Inside a workflow's node what a session shows only grows, whatever is patched meanwhile.
func TestSessionGrowsInsideNodes(t *testing.T) {
	node := func(e *session.Event) { e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1"} }
	for _, filtered := range []bool{false, true} {
		t.Run(fmt.Sprint("filtered ", filtered), func(t *testing.T) {
			svc := inMemory(t)
			sess := create(t, svc, "s", nil)
			for i := range 4 {
				no(t, svc.AppendEvent(t.Context(), sess, said(fmt.Sprint("e", i), "1", "user")))
			}
			req := &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"}
			before := []string{"e0", "e1", "e2", "e3"}
			if filtered {
				req.NumRecentEvents, before = 3, before[1:]
			}
			r, err := svc.Get(t.Context(), req)
			no(t, err)
			run := r.Session
			no(t, svc.AppendEvent(t.Context(), run, said("n0", "1", "n", node)))
			equal(t, "without a patch", ids(run), append(slices.Clone(before), "n0"))
			cut(t, svc, 3)
			n1 := said("n1", "1", "n", node)
			n1.Actions.StateDelta = map[string]any{"k": 1}
			no(t, svc.AppendEvent(t.Context(), run, n1))
			no(t, svc.AppendEvent(t.Context(), run, n1)) // again
			equal(t, "in the node", ids(run), append(slices.Clone(before), "n0", "n1"))
			equal(t, "state", stateOf(run), map[string]any{"k": 1})
			cut(t, svc, 1)
			no(t, svc.AppendEvent(t.Context(), run, said("n2", "1", "n", node)))
			equal(t, "in the node", ids(run), append(slices.Clone(before), "n0", "n1", "n2"))
			equal(t, "view", run.(*adk.Session).View().Len(), 3)
			no(t, svc.AppendEvent(t.Context(), run, said("a", "1", "app")))
			equal(t, "after it", ids(run), []string{"n0", "n1", "n2", "a"})
		})
	}
}

// cut takes out events from the start, by a session of its own.
func cut(t *testing.T, svc *adk.Service, n int) {
	t.Helper()
	_, err := svc.ApplyPatch(t.Context(), get(t, svc, "s"), patch.NewSplice(0, n).WithState(patch.Keep))
	no(t, err)
}
