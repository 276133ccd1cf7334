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
	"testing/synctest"
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

func newQuietService(t *testing.T, opts adk.Options) *adk.Service {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	svc, err := adk.NewService(inMemoryStore(t), opts)
	noError(t, err)
	return svc
}

// toolLoop runs one invocation in which the model calls a tool in each step. It checks that each prompt contains
// the question and would be accepted by a model's API. It returns the prompts.
func toolLoop(t *testing.T, sessions session.Service, steps int, question string, change ...func(*llmagent.Config)) [][]*genai.Content {
	t.Helper()
	var prompts recorder
	step := 0
	loop := modelFunc(func(ctx context.Context, req *model.LLMRequest) responses {
		prompts.record(req.Contents)
		part := &genai.Part{Text: "done"}
		if step++; step <= steps {
			part = call(fmt.Sprint("c", step), "lookup", map[string]any{"key": fmt.Sprint("a key that takes some room, number ", step)})
		}
		usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: int32(100 * len(req.Contents))}
		return responseModel(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: []*genai.Part{part}}, UsageMetadata: usage})(ctx, req)
	})
	cfg := llmagent.Config{Name: "app", Model: loop, Tools: tools(t)}
	for _, c := range change {
		c(&cfg)
	}
	a, err := llmagent.New(cfg)
	noError(t, err)
	equal(t, "last words", lastWords(runTurn(t, newRunner(t, a, sessions), genai.NewContentFromText(question, "user"))), "done")
	all := prompts.drain()
	for i, prompt := range all {
		checkPrompt(t, prompt)
		if !hasPart(prompt, question) {
			t.Fatalf("prompt %d lacks the question", i)
		}
	}
	return all
}

var inRun = compaction.Config{Enabled: true, TokenThreshold: 800, EventRetentionSize: 2, Summarizer: adk.Summarizer(shortener{})}

// A long invocation is compacted while it runs. The next prompt is shorter, and it still contains the question.
func TestCompactionDuringRun(t *testing.T) {
	sessions := newQuietService(t, adk.Options{Compaction: inRun})
	longest, shorter := 0, 0
	prompts := toolLoop(t, sessions, 40, "the question")
	for i, prompt := range prompts {
		longest = max(longest, len(prompt))
		if i > 0 && len(prompt) < len(prompts[i-1]) {
			shorter++
		}
	}
	if longest > 12 || shorter < 3 {
		t.Errorf("the longest prompt has %d contents, and %d were shorter than the one before", longest, shorter)
	}
	equal(t, "events in the audit log", loggedEvents(t, sessions, get(t, sessions, "s")), 1+2*40+1)
}

// An agent whose prompts contain only the current turn still gets its question after the turn was compacted.
func TestCompactionWithCurrentTurnOnly(t *testing.T) {
	sessions := newQuietService(t, adk.Options{Compaction: inRun})
	currentTurnOnly := func(c *llmagent.Config) { c.IncludeContents = llmagent.IncludeContentsNone }
	toolLoop(t, sessions, 1, "what was asked before", currentTurnOnly)
	summarised := 0
	for i, prompt := range toolLoop(t, sessions, 30, "the question", currentTurnOnly) {
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

func TestNoCompactionDuringRun(t *testing.T) {
	sessions := newQuietService(t, adk.Options{Compaction: inRun, CompactionTimeout: -1})
	prompts := toolLoop(t, sessions, 12, "the question")
	equal(t, "contents of the last prompt", len(prompts[len(prompts)-1]), 1+2*12)
	noError(t, sessions.Close(t.Context()))
	if n := get(t, sessions, "s").Events().Len(); n > 12 {
		t.Errorf("%d events are visible", n)
	}
}

// A run succeeds even if a summarizer or a hook fails, panics, does not return, or declines slowly. CompactionTimeout
// limits the total wait. LastCompaction reports the failure. After a veto, nothing is written.
func TestCompactionFailureDoesNotFailRun(t *testing.T) {
	var release chan struct{}
	broken := errors.New("broken")
	const timeout = 300 * time.Millisecond
	for name, c := range map[string]struct {
		summarize compaction.SummarizerFunc // nil: a summarizer that succeeds
		before    func(context.Context, compaction.ApproveRequest[store.Key]) error
		outcome   compaction.Outcome // outcome of the first attempt
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
		"is vetoed":          {nil, func(context.Context, compaction.ApproveRequest[store.Key]) error { return broken }, compaction.Vetoed, broken},
		"hook panics":        {nil, func(context.Context, compaction.ApproveRequest[store.Key]) error { panic("no") }, compaction.Failed, compaction.ErrPanic},
		"hook never returns": {nil, func(context.Context, compaction.ApproveRequest[store.Key]) error { <-release; return nil }, compaction.Failed, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				t.Cleanup(func() { close(release) })
				var attempts []compaction.Attempt[store.Key]
				cfg, steps := inRun, 30
				if c.summarize != nil {
					cfg.Summarizer, steps = c.summarize, 60
					cfg.TokenThreshold = 10_100 // the prompt of 12,100 tokens exceeds the threshold by so little that the fallback summarizer does not run
				}
				sessions := newQuietService(t, adk.Options{
					Compaction: cfg, CompactionTimeout: timeout,
					Approve: c.before,
					Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { attempts = append(attempts, a) },
				})
				began := time.Now()
				prompts := toolLoop(t, sessions, steps, "the question")
				if waited := time.Since(began); waited > timeout {
					t.Errorf("the run has waited for %v", waited)
				}
				synctest.Wait() // wait for background compaction
				sess := get(t, sessions, "s")
				if n := len(prompts[len(prompts)-1]); n > 1+2*steps || c.before != nil && (n < 1+2*steps || sess.Events().Len() != n+1) {
					t.Errorf("the last prompt has %d contents, and %d events are visible", n, sess.Events().Len())
				}
				if n := len(attempts); n == 0 || n > 10 || attempts[0].Outcome != c.outcome || !errors.Is(attempts[0].Err, c.err) ||
					errors.Is(attempts[0].Err, compaction.ErrVetoed) != (c.outcome == compaction.Vetoed) {
					t.Errorf("%d attempts, %+v", n, attempts)
				}
				last, ok := sessions.LastCompaction(sess)
				if c.before != nil && (!ok || last.Outcome != c.outcome || !errors.Is(last.Err, c.err)) {
					t.Errorf("the last attempt is %+v, %v", last, ok)
				}
				if c.before != nil && name != "hook never returns" {
					wantError(t, errOf(sessions.Compact(t.Context(), sess, adk.CompactOptions{})), c.err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				if err := sessions.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		})
	}
}

// withLongText makes an event's text too long to be copied into a summary, so that the service calls the
// summarizer.
func withLongText(e *session.Event) { e.Content.Parts[0].Text += strings.Repeat(" word", 120) }

// Background compaction never summarises the user's newest question, even if the question arrives while a summary is
// being written.
func TestBackgroundKeepsNewestQuestion(t *testing.T) {
	asked, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: compaction.SummarizerFunc(
		func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
			once.Do(func() {
				close(asked)
				<-proceed
			})
			return adk.Summarizer(shortener{}).Summarize(ctx, req)
		})}
	sessions := newQuietService(t, adk.Options{Compaction: cfg})
	sess := create(t, sessions, "s", nil)
	for i := range 3 {
		inv := fmt.Sprint("inv", i)
		appendAll(t, sessions, sess, newEvent("u"+inv, inv, "user", withLongText), newEvent("a"+inv, inv, "app", withLongText))
	}
	<-asked
	run := get(t, sessions, "s")
	noError(t, sessions.AppendEvent(t.Context(), run, newEvent("q", "inv9", "user", withLongText)))
	close(proceed)
	sessions.WaitForCompaction(t)
	visible := ids(get(t, sessions, "s"))
	if !slices.Contains(visible, "q") || slices.Contains(visible, "uinv0") {
		t.Errorf("visible: %v", visible)
	}
	// After its next append, the session of the run shows the summary.
	noError(t, sessions.AppendEvent(t.Context(), run, newEvent("a", "inv9", "app", withLongText)))
	if shown := ids(run); slices.Contains(shown, "uinv0") || !slices.Contains(shown, "q") {
		t.Errorf("shown: %v", shown)
	}
	sessions.WaitForCompaction(t) // without the plugin, the newest invocation may still be running
	visible = ids(get(t, sessions, "s"))
	equal(t, "the newest invocation", visible[len(visible)-2:], []string{"q", "a"})
	noError(t, sessions.Close(t.Context()))
	noError(t, sessions.Close(t.Context()))
	noError(t, sessions.AppendEvent(t.Context(), run, newEvent("after", "inv10", "app")))
}

// If a run starts with the user's answer to a call, compaction does not start until the run has read the call from
// the log.
func TestNoCompactionBeforeAnswerIsRead(t *testing.T) {
	cfg := inRun
	cfg.TokenThreshold = 100
	db := inMemoryStore(t)
	plain := newService(t, db)
	sess := create(t, plain, "s", nil)
	for i := range 6 {
		noError(t, plain.AppendEvent(t.Context(), sess, newEvent(fmt.Sprint("u", i), fmt.Sprint(i), "user", withLongText)))
	}
	noError(t, plain.AppendEvent(t.Context(), sess, newEvent("ask", "9", "app", withCall("c", "slow", "c"))))
	sessions, err := adk.NewService(db, adk.Options{Compaction: cfg})
	noError(t, err)
	run := get(t, sessions, "s")
	noError(t, sessions.AppendEvent(t.Context(), run, newEvent("yes", "9", "user", withResponse("c", "slow", nil))))
	equal(t, "shown with the answer", run.Events().Len(), 6+2)
	appendAll(t, sessions, run, newEvent("go", "9", "app", withCall("d", "lookup")), newEvent("got", "9", "app", withResponse("d", "lookup", nil)))
	if n := run.Events().Len(); n >= 6+4 {
		t.Errorf("%d events are shown after a tool's answer", n)
	}
}

// While a workflow node runs, a session's list of events only grows, even if patches are logged.
func TestSessionGrowsInNodes(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		t.Run(fmt.Sprint("filtered ", filtered), func(t *testing.T) {
			svc := inMemory(t)
			sess := create(t, svc, "s", nil)
			for i := range 4 {
				noError(t, svc.AppendEvent(t.Context(), sess, newEvent(fmt.Sprint("e", i), "1", "user")))
			}
			req := &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"}
			before := []string{"e0", "e1", "e2", "e3"}
			if filtered {
				req.NumRecentEvents, before = 3, before[1:]
			}
			r, err := svc.Get(t.Context(), req)
			noError(t, err)
			run := r.Session
			noError(t, svc.AppendEvent(t.Context(), run, newEvent("n0", "1", "n", withNode)))
			equal(t, "without a patch", ids(run), append(slices.Clone(before), "n0"))
			hideFirst(t, svc, 3)
			n1 := newEvent("n1", "1", "n", withNode)
			n1.Actions.StateDelta = map[string]any{"k": 1}
			noError(t, svc.AppendEvent(t.Context(), run, n1))
			noError(t, svc.AppendEvent(t.Context(), run, n1)) // retry
			equal(t, "in the node", ids(run), append(slices.Clone(before), "n0", "n1"))
			equal(t, "state", stateOf(run), map[string]any{"k": 1})
			hideFirst(t, svc, 1)
			noError(t, svc.AppendEvent(t.Context(), run, newEvent("n2", "1", "n", withNode)))
			equal(t, "in the node", ids(run), append(slices.Clone(before), "n0", "n1", "n2"))
			equal(t, "view", run.(*adk.Session).View().Len(), 3)
			noError(t, svc.AppendEvent(t.Context(), run, newEvent("a", "1", "app")))
			equal(t, "after it", ids(run), []string{"n0", "n1", "n2", "a"})
		})
	}
}

// hideFirst hides the first n events of the log through another Session value.
func hideFirst(t *testing.T, svc *adk.Service, n int) {
	t.Helper()
	noError(t, errOf(svc.ApplyPatch(t.Context(), get(t, svc, "s"), []*patch.PatchEvent{patch.NewSplice(0, n).WithState(patch.Keep)}, store.PatchOptions{})))
}

// Approve receives the summary that will be logged. It cannot change the summary.
func TestApprove(t *testing.T) {
	var drafts []compaction.ApproveRequest[store.Key]
	svc := newQuietService(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})},
		Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error {
			kept := d
			kept.Summaries, kept.Patches = slices.Clone(d.Summaries), slices.Clone(d.Patches)
			drafts = append(drafts, kept)
			clear(d.Summaries)
			clear(d.Patches)
			return nil
		},
	})
	sess := appendExchanges(t, svc, "app", 3)
	svc.WaitForCompaction(t)
	noError(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{})))
	if len(drafts) == 0 {
		t.Fatal("the hook was not called")
	}
	d := drafts[0]
	equal(t, "whose", d.Key, testKey)
	if len(d.Summaries) != 1 || len(d.Summaries[0].Events) != d.Written.EventsBefore || d.Summaries[0].Events[0].ID() != "ui0" {
		t.Errorf("the draft is %+v", d)
	}
	logged := 0
	for r, err := range svc.RawEvents(t.Context(), sess, 1) {
		noError(t, err)
		if r.Patch == nil || r.ID() != d.Patches[0].ID() {
			continue
		}
		logged++
		e := r.Patch.NewEvents()[0]
		equal(t, "summary", e.ID()+e.Content().String(), d.Summaries[0].Event.ID()+d.Summaries[0].Event.Content().String())
	}
	equal(t, "patches logged", logged, 1)
}

// Prepare receives the events before they are summarised, and the summary contains the text that Prepare returns. A
// veto leaves the session unchanged. The summarizer receives the focus.
func TestPrepare(t *testing.T) {
	var asked []compaction.PrepareRequest[store.Key]
	var focus string
	veto := errors.New("not these")
	refuses := true
	svc := newQuietService(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: compaction.SummarizerFunc(
			func(_ context.Context, req compaction.Request) (compaction.Response, error) {
				focus = req.Focus
				return compaction.Response{Text: "They talked."}, nil
			})},
		Prepare: func(_ context.Context, p compaction.PrepareRequest[store.Key]) (string, error) {
			if refuses {
				return "", veto
			}
			asked = append(asked, p)
			return "The gate code must be kept.", nil
		},
		CompactionTimeout: -1,
	})
	sess := appendExchanges(t, svc, "app", 3)
	svc.WaitForCompaction(t)
	before := ids(get(t, svc, "s"))
	_, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	wantError(t, err, compaction.ErrVetoed)
	wantError(t, err, veto)
	equal(t, "events after a veto", ids(get(t, svc, "s")), before)

	refuses = false
	noError(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{Focus: "gate codes"})))
	equal(t, "focus", focus, "gate codes")
	if len(asked) == 0 || len(asked[0].Events) == 0 || asked[0].Events[0].ID() != before[0] || asked[0].Trigger != compaction.ByInterval || asked[0].Merge {
		t.Fatalf("the hook received %+v", asked)
	}
	equal(t, "whose", asked[0].Key, testKey)
	equal(t, "summary", get(t, svc, "s").Events().At(0).Content.Parts[0].Text, "They talked.\nThe gate code must be kept.")
}

// Compact returns the summarizer's error. The next call of Compact tries again at once.
func TestCompact(t *testing.T) {
	broken := errors.New("broken")
	fail := true
	svc := newQuietService(t, adk.Options{Compaction: compaction.Config{
		Enabled: true, CompactionInterval: 2,
		Summarizer: compaction.SummarizerFunc(func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
			if fail {
				return compaction.Response{}, broken
			}
			return adk.Summarizer(shortener{}).Summarize(ctx, req)
		}),
	}, CompactionTimeout: -1})
	sess := appendExchanges(t, svc, "app", 3)
	svc.WaitForCompaction(t)
	for range 3 {
		written, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
		wantError(t, err, broken)
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
	noError(t, err)
	if len(written) == 0 || sess.Events().Len() >= before {
		t.Errorf("%v were written, and %d of %d events are visible", written, sess.Events().Len(), before)
	}
	last, _ = svc.LastCompaction(sess)
	equal(t, "last outcome", last.Outcome, compaction.Wrote)
	written, err = svc.Compact(t.Context(), sess, adk.CompactOptions{})
	noError(t, err)
	equal(t, "written when there is nothing to do", len(written), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, errOf(svc.Compact(ctx, sess, adk.CompactOptions{})), context.Canceled)

	// After a session is deleted, LastCompaction does not report its compactions.
	noError(t, svc.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
	wantError(t, errOf(svc.Compact(t.Context(), sess, adk.CompactOptions{})), store.ErrNotFound)
	if last, ok := svc.LastCompaction(sess); ok && last.Outcome == compaction.Wrote {
		t.Errorf("the last attempt is %+v", last)
	}
	appendExchanges(t, svc, "app", 1)
	_, err = svc.Compact(t.Context(), sess, adk.CompactOptions{}) // the deleted session was created again
	wantError(t, err, store.ErrNotFound)

	wantError(t, errOf(svc.Compact(t.Context(), nil, adk.CompactOptions{})), patch.ErrInvalid)
	wantError(t, errOf(inMemory(t).Compact(t.Context(), sess, adk.CompactOptions{})), adk.ErrCompactionOff)
	for _, s := range []*adk.Service{svc, inMemory(t)} {
		if _, ok := s.LastCompaction(nil); ok {
			t.Error("a nil session has a last attempt")
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
		want  string // the wanted answer; "": an error is wanted
		err   error
		as    string
	}{
		{"one answer", responseModel(&model.LLMResponse{Content: said("short"), UsageMetadata: usage, ModelVersion: "v2"}), "short", nil, "v2"},
		{"partial ones first", responseModel(&model.LLMResponse{Content: said("sh"), Partial: true}, &model.LLMResponse{Content: said("short")}), "short", nil, "func"},
		{"the numbers after it", responseModel(&model.LLMResponse{Content: said("short")}, nil, &model.LLMResponse{UsageMetadata: usage}), "short", nil, "func"},
		{"only partial ones", responseModel(&model.LLMResponse{Content: said("sh"), Partial: true}), "", compaction.ErrRefusedAnswer, "func"},
		{"nothing", responseModel(), "", compaction.ErrRefusedAnswer, "func"},
		{"no content", responseModel(&model.LLMResponse{UsageMetadata: usage}), "", compaction.ErrRefusedAnswer, "func"},
		{"blocked", responseModel(&model.LLMResponse{ErrorCode: "SAFETY", FinishReason: genai.FinishReasonSafety}), "", compaction.ErrRefusedAnswer, "func"},
		{"broken off", responseModel(&model.LLMResponse{Content: said("sh"), Interrupted: true}), "", compaction.ErrRefusedAnswer, "func"},
		{"an error", func(context.Context, *model.LLMRequest) responses {
			return func(yield func(*model.LLMResponse, error) bool) { yield(nil, broken) }
		}, "", broken, "func"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := adk.Summarizer(c.model).Summarize(t.Context(), compaction.Request{Prompt: "p"})
			equal(t, "model", got.Model, c.as)
			if c.err != nil {
				wantError(t, err, c.err)
				if got.Text != "" {
					t.Errorf("the response with the error has the text %q", got.Text)
				}
				return
			}
			noError(t, err)
			equal(t, "answer", got.Text, c.want)
		})
	}
}

// countCleared counts the tool results in a prompt that are cleared, and those that are whole.
func countCleared(prompt []*genai.Content) (cleared, whole int) {
	for _, c := range prompt {
		for _, p := range c.Parts {
			if p.FunctionResponse == nil {
				continue
			}
			if p.FunctionResponse.Response["result"] == compaction.ClearedResult {
				cleared++
			} else {
				whole++
			}
		}
	}
	return cleared, whole
}

// Old tool results are cleared during a long invocation, without a summarizer. The calls stay visible, and the
// history contains the results.
func TestClearingDuringRun(t *testing.T) {
	cfg := compaction.Config{Enabled: true, ClearAfter: 20, Summarizer: compaction.SummarizerFunc(
		func(context.Context, compaction.Request) (compaction.Response, error) { panic("asked") })}
	sessions := newQuietService(t, adk.Options{Compaction: cfg})
	maxComplete, breaks, before := 0, 0, 0
	for i, prompt := range toolLoop(t, sessions, 30, "the question") {
		equal(t, "contents of a prompt", len(prompt), 1+2*i)
		cleared, whole := countCleared(prompt)
		maxComplete = max(maxComplete, whole)
		if cleared > before {
			breaks++
		}
		before = cleared
	}
	if before < 20 || maxComplete >= 20 || breaks < 2 || breaks > 25 {
		t.Errorf("%d results are cleared at the end, at most %d were complete at a time, and they were cleared in %d batches", before, maxComplete, breaks)
	}
	got, err := sessions.Get(adk.WithHistory(t.Context()), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	noError(t, err)
	for e := range got.Session.Events().All() {
		for _, p := range e.Content.Parts {
			if r := p.FunctionResponse; r != nil && r.Response["value"] == nil {
				t.Fatalf("the history has %v", r.Response)
			}
		}
	}
}

// The default configuration limits the length of the prompts of an endless turn.
func TestDefaultConfigBoundsTurn(t *testing.T) {
	cfg := compaction.DefaultConfig()
	cfg.InvocationTokens = 1_000
	sessions := newQuietService(t, adk.Options{Compaction: cfg})
	longest := 0
	for _, prompt := range toolLoop(t, sessions, 80, "the question") {
		longest = max(longest, len(prompt))
	}
	if longest > 90 { // without compaction, the longest prompt has 161 contents
		t.Errorf("the longest prompt has %d contents", longest)
	}
}

// countingModel is a model that writes summaries and counts its calls.
func countingModel(says string, calls *atomic.Int32) modelFunc {
	return func(ctx context.Context, req *model.LLMRequest) responses {
		calls.Add(1)
		return responseModel(&model.LLMResponse{Content: genai.NewContentFromText(says, "model")})(ctx, req)
	}
}

// appendExchanges appends n questions and answers to a session of an app.
func appendExchanges(t *testing.T, svc *adk.Service, app string, n int) session.Session {
	t.Helper()
	r, err := svc.Create(t.Context(), &session.CreateRequest{AppName: app, UserID: "user", SessionID: "s"})
	noError(t, err)
	for i := range n {
		inv := fmt.Sprint("i", i)
		noError(t, svc.AppendEvent(t.Context(), r.Session, newEvent("u"+inv, inv, "user", withLongText)))
		noError(t, svc.AppendEvent(t.Context(), r.Session, newEvent("a"+inv, inv, "app", withLongText)))
	}
	return r.Session
}

// summaryTexts returns the texts of a session's summaries. A text that no event of the session has is the text of a
// summary.
func summaryTexts(sess session.Session) (texts []string) {
	for e := range sess.Events().All() {
		if text := e.Content.Parts[0].Text; !strings.HasPrefix(text, "words of") {
			texts = append(texts, text)
		}
	}
	return texts
}

// The configuration's Summarizer takes precedence over the Model in the options. If neither is set,
// [compaction.Extractive] is used.
func TestSummarizerPrecedence(t *testing.T) {
	var models, named atomic.Int32
	broken := modelFunc(func(context.Context, *model.LLMRequest) responses {
		return func(yield func(*model.LLMResponse, error) bool) { yield(nil, errors.New("broken")) }
	})
	explicit := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(countingModel("by the one that is named", &named))}
	for _, c := range []struct {
		name          string
		model         model.LLM
		cfg           compaction.Config
		models, named int32
		says          string
	}{
		{"the model", countingModel("by the model", &models), compaction.DefaultConfig(), 1, 0, "by the model"},
		{"the one that is named", countingModel("by the model", &models), explicit, 0, 1, "by the one that is named"},
		{"neither", nil, compaction.DefaultConfig(), 0, 0, ""},
		{"Extractive after the model has failed", broken, compaction.Config{Enabled: true, CompactionInterval: 1, TokenThreshold: 1}, 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			models.Store(0)
			named.Store(0)
			c.cfg.CompactionInterval = 2
			svc := newQuietService(t, adk.Options{Model: c.model, Compaction: c.cfg})
			sess := appendExchanges(t, svc, "app", 3)
			svc.WaitForCompaction(t)
			_, _ = svc.Compact(t.Context(), sess, adk.CompactOptions{})
			_, _ = svc.Compact(t.Context(), sess, adk.CompactOptions{})
			texts := summaryTexts(get(t, svc, "s"))
			if len(texts) == 0 || c.says != "" && texts[0] != c.says {
				t.Errorf("the summaries say %q", texts)
			}
			if c.models > 0 != (models.Load() > 0) || c.named > 0 != (named.Load() > 0) {
				t.Errorf("%d calls of Model and %d of Summarizer", models.Load(), named.Load())
			}
		})
	}
}

type nilModel struct{ model.LLM }
