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
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
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
func toolLoop(t *testing.T, sessions session.Service, steps int, question string, change ...func(*llmagent.Config)) [][]*genai.Content {
	t.Helper()
	var prompts recorder
	step := 0
	loop := modelFunc(func(ctx context.Context, req *model.LLMRequest) responses {
		prompts.keep(req.Contents)
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
	equal(t, "last words", lastWords(runTurn(t, newRunner(t, a, sessions), genai.NewContentFromText(question, "user"))), "done")
	return prompts.taken()
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

// A summarizer or a hook that fails, panics, never returns, refuses or takes its time with nothing to say does no harm to a
// run: the run waits no longer than the timeout in all, and what went wrong can be asked for. What was vetoed is not written.
func TestFailuresReachNoRun(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	broken := errors.New("broken")
	const timeout = 300 * time.Millisecond
	for name, c := range map[string]struct {
		summarize compaction.SummarizerFunc // nil: it succeeds
		before    func(context.Context, adk.ApproveRequest) error
		outcome   compaction.Outcome // of the first attempt
		err       error
	}{
		"fails": {func(context.Context, compaction.Request) (compaction.Response, error) {
			return compaction.Response{}, broken
		}, nil, compaction.Failed, broken},
		"panics": {func(context.Context, compaction.Request) (compaction.Response, error) { panic("no") }, nil, compaction.Failed, compaction.ErrSummarizerPanic},
		"never returns": {func(context.Context, compaction.Request) (compaction.Response, error) {
			<-release
			return compaction.Response{}, nil
		}, nil, compaction.Failed, context.DeadlineExceeded},
		"declines slowly": {func(ctx context.Context, _ compaction.Request) (compaction.Response, error) {
			select {
			case <-ctx.Done():
			case <-time.After(timeout / 3):
			}
			return compaction.Response{}, ctx.Err()
		}, nil, compaction.Declined, nil},
		"calls a function": {func(context.Context, compaction.Request) (compaction.Response, error) {
			return gemini.Response("", &genai.Content{Parts: []*genai.Part{call("x", "y", nil)}}, "", nil)
		}, nil, compaction.Failed, compaction.ErrRefusedAnswer},
		"is vetoed":          {nil, func(context.Context, adk.ApproveRequest) error { return broken }, compaction.Vetoed, broken},
		"hook panics":        {nil, func(context.Context, adk.ApproveRequest) error { panic("no") }, compaction.Failed, compaction.ErrPanic},
		"hook never returns": {nil, func(context.Context, adk.ApproveRequest) error { <-release; return nil }, compaction.Failed, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var attempts []compaction.Attempt[store.Key]
			cfg := inRun
			cfg.Summarizer, cfg.Fallback = adk.Summarizer(shortener{}), declines{}
			if c.summarize != nil {
				cfg.Summarizer = c.summarize
			}
			sessions := compacted(t, adk.Options{Compaction: cfg, CompactionTimeout: timeout, Hooks: adk.Hooks{
				BeforeSummarise: c.before,
				OnCompaction: func(a compaction.Attempt[store.Key]) {
					mu.Lock()
					defer mu.Unlock()
					attempts = append(attempts, a)
				},
			}})
			prompts := toolLoop(t, sessions, 30, "the question")
			sess := get(t, sessions, "s")
			if n := len(prompts[len(prompts)-1]); n > 1+2*30 || c.before != nil && (n < 1+2*30 || sess.Events().Len() != n+1) {
				t.Errorf("the last prompt has %d contents, and %d events are visible", n, sess.Events().Len())
			}
			// A run that waits for each of its 30 steps shows in the number of attempts.
			mu.Lock()
			if n := len(attempts); n == 0 || n > 10 || attempts[0].Outcome != c.outcome || !errors.Is(attempts[0].Err, c.err) ||
				errors.Is(attempts[0].Err, compaction.ErrVetoed) != (c.outcome == compaction.Vetoed) {
				t.Errorf("%d attempts, %+v", n, attempts)
			}
			mu.Unlock()
			last, ok := sessions.LastCompaction(sess)
			if c.before != nil && (!ok || last.Outcome != c.outcome || !errors.Is(last.Err, c.err)) {
				t.Errorf("the last attempt is %+v, %v", last, ok)
			}
			if c.before != nil && name != "hook never returns" {
				fails(t, errOf(sessions.Compact(t.Context(), sess, adk.CompactOptions{})), c.err)
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
	no(t, errOf(svc.ApplyPatch(t.Context(), get(t, svc, "s"), patch.NewSplice(0, n).WithState(patch.Keep))))
}

// Who is shown a summary before it is written sees what will be in the log, and can change
// nothing in it.
func TestBeforeSummarise(t *testing.T) {
	var mu sync.Mutex
	var drafts []adk.ApproveRequest
	svc := compacted(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})},
		Hooks: adk.Hooks{BeforeSummarise: func(_ context.Context, d adk.ApproveRequest) error {
			mu.Lock()
			defer mu.Unlock()
			kept := d
			kept.Summaries, kept.Patches = nil, slices.Clone(d.Patches)
			for _, s := range d.Summaries {
				copied := *s.Event
				content := *s.Event.Content
				copied.Content = &content
				kept.Summaries = append(kept.Summaries, adk.SummaryDraft{Event: &copied, Of: slices.Clone(s.Of)})
			}
			drafts = append(drafts, kept)
			for i, s := range d.Summaries {
				s.Event.Content.Parts = []*genai.Part{genai.NewPartFromText("forged")}
				s.Event.ID = "forged"
				for j, e := range s.Of {
					e.Content = nil
					s.Of[j] = nil
				}
				d.Summaries[i] = adk.SummaryDraft{}
			}
			clear(d.Patches)
			return nil
		}},
	})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	no(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{})))
	mu.Lock()
	defer mu.Unlock()
	if len(drafts) == 0 {
		t.Fatal("nobody was asked")
	}
	d := drafts[0]
	equal(t, "whose", []string{d.AppName, d.UserID, d.SessionID}, []string{"app", "user", "s"})
	if len(d.Summaries) != 1 || len(d.Summaries[0].Of) != d.Written.EventsBefore || d.Summaries[0].Of[0].ID != "ui0" {
		t.Errorf("the draft is %+v", d)
	}
	logged := 0
	for r, err := range svc.RawEvents(t.Context(), sess, 1) {
		no(t, err)
		if r.Patch == nil || r.ID() != d.Patches[0].ID() {
			continue
		}
		logged++
		e, err := adk.SessionEvent(r.Patch.NewEvents()[0])
		no(t, err)
		equal(t, "summary", e.Content, d.Summaries[0].Event.Content)
		equal(t, "id", e.ID, d.Summaries[0].Event.ID)
	}
	equal(t, "patches logged", logged, 1)
}

// Who is asked before events are summarised sees them, and what it says must be kept is
// kept. A veto leaves the session as it is, and a focus reaches the summarizer.
func TestPrepare(t *testing.T) {
	var mu sync.Mutex
	var asked []adk.PrepareRequest
	var focus string
	veto := errors.New("not these")
	refuses := false
	svc := compacted(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: compaction.SummarizerFunc(
			func(_ context.Context, req compaction.Request) (compaction.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				focus = req.Focus
				return compaction.Response{Text: "They talked."}, nil
			})},
		Hooks: adk.Hooks{Prepare: func(_ context.Context, p adk.PrepareRequest) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if refuses {
				return "", veto
			}
			asked = append(asked, p)
			return "The gate code must be kept.", nil
		}},
		CompactionTimeout: -1,
	})
	mu.Lock()
	refuses = true
	mu.Unlock()
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	before := ids(get(t, svc, "s"))
	_, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	fails(t, err, compaction.ErrVetoed)
	fails(t, err, veto)
	equal(t, "events after a veto", ids(get(t, svc, "s")), before)

	mu.Lock()
	refuses = false
	mu.Unlock()
	no(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{Focus: "gate codes"})))
	mu.Lock()
	defer mu.Unlock()
	equal(t, "focus", focus, "gate codes")
	if len(asked) == 0 || len(asked[0].Events) == 0 || asked[0].Events[0].ID != before[0] || asked[0].Trigger != compaction.ByInterval || asked[0].Merge {
		t.Fatalf("asked about %+v", asked)
	}
	equal(t, "whose", []string{asked[0].AppName, asked[0].UserID, asked[0].SessionID}, []string{"app", "user", "s"})
	equal(t, "summary", get(t, svc, "s").Events().At(0).Content.Parts[0].Text, "They talked.\nThe gate code must be kept.")
}

// Who asks for it gets the error that no run gets, and is not made to wait after it.
func TestCompactOnRequest(t *testing.T) {
	broken := errors.New("broken")
	fail := true
	svc := compacted(t, adk.Options{Compaction: compaction.Config{
		Enabled: true, CompactionInterval: 50, TokenThreshold: 100, EventRetentionSize: 1, Fallback: declines{},
		Summarizer: compaction.SummarizerFunc(func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
			if fail {
				return compaction.Response{}, broken
			}
			return adk.Summarizer(shortener{}).Summarize(ctx, req)
		}),
	}, CompactionTimeout: -1})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	for range 3 {
		written, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
		fails(t, err, broken)
		var of *compaction.SummarizerError
		if len(written) > 0 || !errors.As(err, &of) {
			t.Errorf("%v, %v", written, err)
		}
	}
	last, ok := svc.LastCompaction(sess)
	if !ok || !errors.Is(last.Err, broken) || last.Outcome != compaction.Failed {
		t.Errorf("the last attempt is %+v, %v", last, ok)
	}
	fail = false
	before := sess.Events().Len()
	written, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	no(t, err)
	if len(written) == 0 || sess.Events().Len() >= before {
		t.Errorf("%v was written, and %d of %d events are shown", written, sess.Events().Len(), before)
	}
	last, _ = svc.LastCompaction(sess)
	equal(t, "last outcome", last.Outcome, compaction.Wrote)
	written, err = svc.Compact(t.Context(), sess, adk.CompactOptions{})
	no(t, err)
	equal(t, "written when there is nothing to do", len(written), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fails(t, errOf(svc.Compact(ctx, sess, adk.CompactOptions{})), context.Canceled)

	// Of a session that is gone nothing is known.
	no(t, svc.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
	fails(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{})), store.ErrNotFound)
	if last, ok := svc.LastCompaction(sess); ok && last.Outcome == compaction.Wrote {
		t.Errorf("the last attempt is %+v", last)
	}
	exchanges(t, svc, "app", 1)
	_, err = svc.Compact(t.Context(), sess, adk.CompactOptions{}) // created again
	fails(t, err, store.ErrNotFound)

	fails(t, errOf(svc.Compact(t.Context(), nil, adk.CompactOptions{})), patch.ErrInvalid)
	fails(t, errOf(inMemory(t).Compact(t.Context(), sess, adk.CompactOptions{})), adk.ErrCompactionOff)
	for _, s := range []*adk.Service{svc, inMemory(t)} {
		if _, ok := s.LastCompaction(nil); ok {
			t.Error("there was an attempt at no session")
		}
	}
}

func TestSummarizer(t *testing.T) {
	said := func(words string) *genai.Content { return genai.NewContentFromText(words, "model") }
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 7}
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		model modelFunc
		want  string // "": an error
		err   error
		as    string // the model's name
	}{
		{"one answer", answers(&model.LLMResponse{Content: said("short"), UsageMetadata: usage, ModelVersion: "v2"}), "short", nil, "v2"},
		{"partial ones first", answers(&model.LLMResponse{Content: said("sh"), Partial: true}, &model.LLMResponse{Content: said("short")}), "short", nil, "func"},
		{"the numbers after it", answers(&model.LLMResponse{Content: said("short")}, nil, &model.LLMResponse{UsageMetadata: usage}), "short", nil, "func"},
		{"only partial ones", answers(&model.LLMResponse{Content: said("sh"), Partial: true}), "", compaction.ErrRefusedAnswer, "func"},
		{"nothing", answers(), "", compaction.ErrRefusedAnswer, "func"},
		{"no content", answers(&model.LLMResponse{UsageMetadata: usage}), "", compaction.ErrRefusedAnswer, "func"},
		{"blocked", answers(&model.LLMResponse{ErrorCode: "SAFETY", FinishReason: genai.FinishReasonSafety}), "", compaction.ErrRefusedAnswer, "func"},
		{"broken off", answers(&model.LLMResponse{Content: said("sh"), Interrupted: true}), "", compaction.ErrRefusedAnswer, "func"},
		{"an error", func(context.Context, *model.LLMRequest) responses {
			return func(yield func(*model.LLMResponse, error) bool) { yield(nil, broken) }
		}, "", broken, "func"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := adk.Summarizer(c.model).Summarize(t.Context(), compaction.Request{Prompt: "p"})
			equal(t, "model", got.Model, c.as)
			if c.err != nil {
				fails(t, err, c.err)
				if got.Text != "" {
					t.Errorf("with the error came %q", got.Text)
				}
				return
			}
			no(t, err)
			equal(t, "answer", got.Text, c.want)
		})
	}
}

// The model gets the prompt and nothing of an agent.
func TestSummarizerRequest(t *testing.T) {
	var got *model.LLMRequest
	m := modelFunc(func(_ context.Context, req *model.LLMRequest) responses {
		got = req
		return func(yield func(*model.LLMResponse, error) bool) {
			yield(&model.LLMResponse{Content: genai.NewContentFromText("cut", "model"), FinishReason: genai.FinishReasonMaxTokens}, nil)
		}
	})
	resp, err := adk.Summarizer(m).Summarize(t.Context(), compaction.Request{Prompt: "the prompt", MaxTokens: 3})
	no(t, err)
	equal(t, "finish reason", resp.FinishReason, compaction.FinishReason("MAX_TOKENS"))
	equal(t, "request", got, &model.LLMRequest{
		Model:    "func",
		Contents: []*genai.Content{genai.NewContentFromText("the prompt", "user")},
		Config:   &genai.GenerateContentConfig{},
	})
}

func TestOptionsAreRefused(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	none := compaction.DefaultConfig()
	none.Summarizer = adk.Summarizer(nil)
	fallback := compaction.DefaultConfig()
	fallback.Fallback = adk.Summarizer(nil)
	for name, opts := range map[string]adk.Options{
		"no model":          {Compaction: none},
		"no fallback model": {Compaction: fallback},
		"bad config":        {Compaction: compaction.Config{Enabled: true}},
		"model alone":       {Model: shortener{}},
		"nil model":         {Model: (*nilModel)(nil), Compaction: compaction.DefaultConfig()},
		"share of nothing":  {ContextWindow: adk.ContextWindow{Share: 0.5}, Compaction: compaction.DefaultConfig(), Model: shortener{}},
		"share above 1":     {ContextWindow: adk.ContextWindow{Share: 1.5, Tokens: 1}, Compaction: compaction.DefaultConfig()},
		"window alone":      {ContextWindow: adk.ContextWindow{Tokens: 1}, Compaction: compaction.DefaultConfig()},
	} {
		t.Run(name, func(t *testing.T) {
			fails(t, opts.Validate(), patch.ErrInvalid)
			fails(t, errOf(adk.NewService(db, opts)), patch.ErrInvalid)
		})
	}
	fails(t, errOf(adk.Summarizer(nil).Summarize(t.Context(), compaction.Request{})), patch.ErrInvalid)
}

// A summarizer that was written for ADK's own compaction serves this one.
func TestEventsSummarizer(t *testing.T) {
	broken := errors.New("broken")
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 7, CandidatesTokenCount: 3, ThoughtsTokenCount: 2}
	var content *genai.Content
	var err error
	var got []*session.Event
	s := adk.EventsSummarizer(func(_ context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
		got = events
		for _, e := range events {
			e.Content.Parts[0].Text = "forged"
		}
		return content, usage, err
	})
	svc := compacted(t, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: s}})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	last, _ := svc.LastCompaction(sess)
	equal(t, "outcome", last.Outcome, compaction.Declined)
	for want, c := range map[error]*genai.Content{
		broken:                      nil,
		compaction.ErrRefusedAnswer: {Parts: []*genai.Part{call("x", "y", nil)}},
	} {
		if content, err = c, nil; c == nil {
			err = want
		}
		_, failure := svc.Compact(t.Context(), sess, adk.CompactOptions{})
		fails(t, failure, want)
	}
	content, err = genai.NewContentFromText("as told", "model"), nil
	written, failure := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	no(t, failure)
	equal(t, "usage", written[0].Usage, compaction.Usage{Calls: 1, PromptTokens: 7, AnswerTokens: 5})
	equal(t, "told", told(sess), []string{"as told"})
	if len(got) == 0 || got[0].ID != "ui0" {
		t.Errorf("%d events were to be summarised", len(got))
	}
	for e := range sess.Events().All() {
		if e.Content.Parts[0].Text == "forged" {
			t.Error("a summarizer has changed an event")
		}
	}
}

// A summarizer of this module serves ADK's own compaction.
func TestSummarizeEvents(t *testing.T) {
	broken := errors.New("broken")
	var asked compaction.Request
	resp, err := compaction.Response{Text: " as told\x07", Usage: compaction.Tokens{Prompt: 7, Answer: 5}}, error(nil)
	s := compaction.SummarizerFunc(func(_ context.Context, req compaction.Request) (compaction.Response, error) {
		asked = req
		return resp, err
	})
	events := []*session.Event{said("u", "1", "user", long), nil, said("a", "1", "app", long)}
	content, usage, failure := adk.SummarizeEvents(t.Context(), s, compaction.Config{PromptTemplate: "Sum up: " + compaction.History}, events)
	no(t, failure)
	equal(t, "content", content, genai.NewContentFromText("as told", "model"))
	equal(t, "usage", usage, &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 7, CandidatesTokenCount: 5, TotalTokenCount: 12})
	if !strings.HasPrefix(asked.Prompt, "Sum up: user: words of u") || len(asked.Events) != 2 {
		t.Errorf("asked was %q", asked.Prompt)
	}
	for _, c := range []struct {
		resp compaction.Response
		err  error
		want error
	}{
		{compaction.Response{}, nil, nil},
		{compaction.Response{Text: "told"}, broken, broken},
		{compaction.Response{Text: "--"}, nil, compaction.ErrRefusedAnswer},
		{compaction.Response{Text: "told", FinishReason: "MAX_TOKENS"}, nil, compaction.ErrRefusedAnswer},
		{compaction.Response{Text: strings.Repeat("word ", 400)}, nil, compaction.ErrRefusedAnswer},
	} {
		resp, err = c.resp, c.err
		content, usage, failure := adk.SummarizeEvents(t.Context(), s, compaction.Config{}, events)
		if content != nil || usage != nil || !errors.Is(failure, c.want) {
			t.Errorf("%+v: %v, %v, %v", c, content, usage, failure)
		}
	}
	_, _, failure = adk.SummarizeEvents(t.Context(), nil, compaction.Config{}, events)
	fails(t, failure, patch.ErrInvalid)
	_, _, failure = adk.SummarizeEvents(t.Context(), s, compaction.Config{}, nil)
	fails(t, failure, patch.ErrInvalid)
	_, _, failure = adk.SummarizeEvents(t.Context(), s, compaction.Config{}, []*session.Event{delta("d", map[string]any{"k": make(chan int)})})
	fails(t, failure, patch.ErrInvalid)
}

// cleared counts the results in a prompt that were cleared, and those that were not.
func cleared(prompt []*genai.Content) (gone, whole int) {
	for _, c := range prompt {
		for _, p := range c.Parts {
			if p.FunctionResponse == nil {
				continue
			}
			if p.FunctionResponse.Response["result"] == compaction.Cleared {
				gone++
			} else {
				whole++
			}
		}
	}
	return gone, whole
}

// Old results are cleared while one long invocation runs, with no summarizer; calls stay, and
// people see what the tools returned.
func TestClearingInsideARun(t *testing.T) {
	cfg := compaction.Config{Enabled: true, ClearAfter: 20, Summarizer: compaction.SummarizerFunc(
		func(context.Context, compaction.Request) (compaction.Response, error) { panic("asked") })}
	sessions := compacted(t, adk.Options{Compaction: cfg})
	most, breaks, before := 0, 0, 0
	for i, prompt := range toolLoop(t, sessions, 30, "the question") {
		checkPrompt(t, prompt)
		equal(t, "contents of a prompt", len(prompt), 1+2*i)
		gone, whole := cleared(prompt)
		most = max(most, whole)
		if gone > before {
			breaks++
		}
		before = gone
	}
	if before < 20 || most >= 20 || breaks < 2 || breaks > 25 {
		t.Errorf("%d results were cleared in the end, at most %d were whole, in %d batches", before, most, breaks)
	}
	got, err := sessions.Get(adk.WithHistory(t.Context()), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	no(t, err)
	for e := range got.Session.Events().All() {
		for _, p := range e.Content.Parts {
			if r := p.FunctionResponse; r != nil && r.Response["value"] == nil {
				t.Fatalf("the history has %v", r.Response)
			}
		}
	}
}

// By default one endless turn is bounded.
func TestDefaultBoundsOneTurn(t *testing.T) {
	cfg := compaction.DefaultConfig()
	cfg.InvocationTokens = 1_000
	sessions := compacted(t, adk.Options{Compaction: cfg})
	longest := 0
	for _, prompt := range toolLoop(t, sessions, 80, "the question") {
		checkPrompt(t, prompt)
		if !says(prompt, "the question") {
			t.Fatal("a prompt lacks the question")
		}
		longest = max(longest, len(prompt))
	}
	if longest > 90 { // of 161
		t.Errorf("the longest prompt has %d contents", longest)
	}
}

// counted is a model that summarises and counts its calls.
func counted(says string, calls *atomic.Int32) modelFunc {
	return func(ctx context.Context, req *model.LLMRequest) responses {
		calls.Add(1)
		return answers(&model.LLMResponse{Content: genai.NewContentFromText(says, "model")})(ctx, req)
	}
}

// exchanges appends n questions with their answers to a session of an app.
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
