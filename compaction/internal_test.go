package compaction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// What is remembered of failures has a bound, past which all is forgotten.
func TestBackoffIsForgotten(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	v := fold.New("creation", nil)
	for key := range maxRemembered {
		c.failed(key, Config{}, v, nil, fmt.Errorf("no answer"))
	}
	if len(c.backoff) != 1<<16 || !c.waits(0, v) {
		t.Fatalf("%d sessions are remembered, want %d; the first waits: %v", len(c.backoff), 1<<16, c.waits(0, v))
	}
	c.failed(7, Config{}, v, nil, fmt.Errorf("no answer"))
	if c.backoff[7].failures != 2 {
		t.Errorf("a session that is remembered has failed %d times, want 2", c.backoff[7].failures)
	}
	c.failed(maxRemembered, Config{}, v, nil, fmt.Errorf("no answer"))
	if len(c.backoff) != 1 || c.waits(0, v) || !c.waits(maxRemembered, v) {
		t.Errorf("%d sessions are remembered, want the new one alone", len(c.backoff))
	}
}

// Every default is filled in, and nothing that was set is changed.
func TestDefaults(t *testing.T) {
	got := Config{}.withDefaults()
	for _, d := range []struct {
		name      string
		got, want int
	}{
		{"FallbackAfter", got.FallbackAfter, DefaultFallbackAfter},
		{"MaxInputTokens", got.MaxInputTokens, DefaultMaxInputTokens},
		{"MaxSummaries", got.MaxSummaries, DefaultMaxSummaries},
		{"MaxSummaryTokens", got.MaxSummaryTokens, DefaultMaxSummaryTokens},
		{"MaxOpenCalls", got.MaxOpenCalls, DefaultMaxOpenCalls},
		{"MaxWaitingCalls", got.MaxWaitingCalls, DefaultMaxWaitingCalls},
		{"Timeout", int(got.Timeout.Seconds()), int(DefaultTimeout.Seconds())},
	} {
		if d.got != d.want {
			t.Errorf("%s is %d, want %d", d.name, d.got, d.want)
		}
	}
	if got.PromptTemplate == "" || got.Summarizer == nil {
		t.Errorf("the prompt is %q, the summarizer %v", got.PromptTemplate, got.Summarizer)
	}
	set := Config{FallbackAfter: 31, MaxInputTokens: 32, MaxSummaries: 33, MaxSummaryTokens: 34, MaxOpenCalls: 35, MaxWaitingCalls: 36, Timeout: 37 * time.Second}
	got = set.withDefaults()
	if got.FallbackAfter != 31 || got.MaxInputTokens != 32 || got.MaxSummaries != 33 || got.MaxSummaryTokens != 34 || got.MaxOpenCalls != 35 || got.MaxWaitingCalls != 36 || got.Timeout != 37*time.Second {
		t.Errorf("what was set became %+v", got)
	}
}

func viewOf(t *testing.T, texts ...string) fold.View {
	t.Helper()
	v := fold.New("creation", nil)
	for _, text := range texts {
		e, err := patch.ParseEvent([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if v, err = v.Apply(patch.Record{Seq: v.Seq() + 1, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// After a success failures are counted anew, while what is passed over stays so.
func TestSuccessForgetsFailures(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	cfg := Config{FallbackAfter: 2}
	v := viewOf(t, `{"id":"a"}`, `{"id":"b"}`)
	w := &Window{Groups: []Group{{Indices: []int{0}}}}
	c.failed(1, cfg, v, w, errDeclined)
	if got := c.passedOver(1, v); len(got) != 0 {
		t.Errorf("after one failure %q are passed over", got)
	}
	c.failed(1, cfg, v, w, errDeclined)
	c.succeeded(1)
	if got := c.passedOver(1, v); len(got) != 1 || got[0] != "a" {
		t.Errorf("passed over are %q, want a", got)
	}
	if c.waits(1, v) {
		t.Error("after a success it waits")
	}
	c.failed(1, cfg, v, nil, errors.New("no answer"))
	if b := c.backoff[1]; b.failures != 1 || b.until != v.Seq()+1 {
		t.Errorf("after a success one failure is counted as %d, and lasts until %d", b.failures, b.until)
	}
}

// A window that is vetoed again and again keeps the others waiting no more than one that no
// summarizer can answer.
func TestVetoedWindowsArePassedOver(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	v := viewOf(t, `{"id":"a"}`, `{"id":"b"}`)
	for range 2 {
		c.failed(1, Config{FallbackAfter: 2}, v, &Window{Groups: []Group{{Indices: []int{1}}}}, fmt.Errorf("%w: no", ErrVetoed))
	}
	if got := c.passedOver(1, v); len(got) != 1 || got[0] != "b" {
		t.Errorf("passed over are %q, want b", got)
	}
	if c.backoff[1].answers != 0 {
		t.Error("a veto counts as an answer of the summarizer's")
	}
}

// What an event takes in a transcript is its content, and on each line who says it and
// which call it is.
func TestShownTokens(t *testing.T) {
	for text, runes := range map[string]int{
		`{"author":"agent"}`: len("agent: \n"),
		`{"author":"bot","content":{"parts":[{"functionCall":{"id":"call-1","name":"f"}}]}}`:                                                          len("bot: \n") + len("botcall-1 returns () to : (never answered)\n"),
		`{"author":"bot","content":{"parts":[{"functionResponse":{"id":"c","name":"f"}},{"functionResponse":{"id":"","name":"f"}},{"text":"told"}]}}`: len("bot: \n") + len("botc returns () to : (never answered)\n") + len("bot returns () to : (never answered)\n"),
	} {
		e := viewOf(t, text).At(0)
		if got, want := shownTokens(e), e.EstimatedTokens()+(runes+3)/4; got != want {
			t.Errorf("%s is shown in %d tokens, want %d", text, got, want)
		}
	}
}

func TestWorkerDefaults(t *testing.T) {
	w, err := NewWorker(&Compactor[int]{}, WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.cancel()
	if w.parallel != DefaultParallel || w.capacity != DefaultQueue {
		t.Errorf("%d at a time, %d that wait; want %d and %d", w.parallel, w.capacity, DefaultParallel, DefaultQueue)
	}
}
