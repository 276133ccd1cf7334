package compaction

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// What is remembered of failures has a bound, past which all is forgotten.
func TestBackoffIsForgotten(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	v := fold.New("creation", nil)
	for key := range maxRemembered {
		c.failed(key, v, nil, fmt.Errorf("no answer"))
	}
	if len(c.backoff) != 1<<16 || !c.waits(0, v) {
		t.Fatalf("%d sessions are remembered, want %d; the first waits: %v", len(c.backoff), 1<<16, c.waits(0, v))
	}
	c.failed(7, v, nil, fmt.Errorf("no answer"))
	if c.backoff[7].failures != 2 {
		t.Errorf("a session that is remembered has failed %d times, want 2", c.backoff[7].failures)
	}
	c.failed(maxRemembered, v, nil, fmt.Errorf("no answer"))
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
		{"Timeout", int(got.Timeout), int(DefaultTimeout)},
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
	c := &Compactor[int]{backoff: map[int]backoff{}, cfg: Config{FallbackAfter: 2}}
	v := viewOf(t, `{"id":"a"}`, `{"id":"b"}`)
	w := &Window{Groups: []Group{{Indices: []int{0}}}}
	c.failed(1, v, w, errDeclined)
	if got := c.passedOver(1, v); len(got) != 0 {
		t.Errorf("after one failure %q are passed over", got)
	}
	c.failed(1, v, w, errDeclined)
	c.succeeded(1)
	if got := c.passedOver(1, v); len(got) != 1 || got[0] != "a" {
		t.Errorf("passed over are %q, want a", got)
	}
	if c.waits(1, v) {
		t.Error("after a success it waits")
	}
	c.failed(1, v, nil, errors.New("no answer"))
	if b := c.backoff[1]; b.failures != 1 || b.until != v.Seq()+1 {
		t.Errorf("after a success one failure is counted as %d, and lasts until %d", b.failures, b.until)
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

func TestRetryInfo(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "1ns": 1, "45.8s": 45_800 * time.Millisecond} {
		d, ok := retryInfo(genai.APIError{Details: []map[string]any{{"x": "1s"}, {"retryDelay": text}}})
		if d != want || !ok {
			t.Errorf("%s is a delay of %v, %v", text, d, ok)
		}
	}
	for _, value := range []any{"-1s", "soon", 5, nil} {
		if d, ok := retryInfo(genai.APIError{Details: []map[string]any{{"retryDelay": value}}}); ok {
			t.Errorf("%v is a delay of %v", value, d)
		}
	}
	if d, ok := retryInfo(errors.New("no answer")); ok {
		t.Errorf("another error says %v", d)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"0": 0, "10": 10 * time.Second, "120": 2 * time.Minute,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if d, ok := retryAfter(header, now); d != want || !ok {
			t.Errorf("%q is a delay of %v, %v, want %v", header, d, ok, want)
		}
	}
	for _, header := range []string{"", "-1", "1.5", "soon", "99999999999"} {
		if d, ok := retryAfter(header, now); ok {
			t.Errorf("%q is a delay of %v", header, d)
		}
	}
}

// A client's own rule for redirects stays; one without follows none.
func TestWatchedClient(t *testing.T) {
	mine := errors.New("mine")
	own := watched(&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return mine }})
	if err := own.CheckRedirect(nil, nil); !errors.Is(err, mine) {
		t.Errorf("the client's own rule became one that says %v", err)
	}
	for _, c := range []*http.Client{nil, {}} {
		if err := watched(c).CheckRedirect(nil, nil); !errors.Is(err, http.ErrUseLastResponse) {
			t.Errorf("redirects: %v", err)
		}
	}
}

func TestCutRunes(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		cut   bool
	}{
		{"äöü", 3, false}, {"äöü", 2, true}, {"äöü", 4, false}, {"abc", 3, false}, {"abc", 2, true}, {"äöü", 0, false}, {"äöü", -1, false}, {"", 1, false},
	} {
		if got := cutRunes(c.text, c.limit); (got != c.text) != c.cut {
			t.Errorf("%q cut to %d is %q", c.text, c.limit, got)
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

// The pause doubles with each attempt up to a bound; its second half is left to chance.
func TestPauseAfterAttempts(t *testing.T) {
	g := &Gemini{delay: time.Second}
	for attempt := 1; attempt <= 12; attempt++ {
		whole := min(time.Second<<(attempt-1), maxRetryDelay)
		for range 20 {
			if d := g.pauseAfter(attempt, exchange{}, errors.New("no answer")); d < whole/2 || d > whole {
				t.Errorf("after attempt %d the pause is %v, want from %v to %v", attempt, d, whole/2, whole)
			}
		}
	}
	if d := g.pauseAfter(1, exchange{retryAfter: "7"}, errors.New("no answer")); d != 7*time.Second {
		t.Errorf("asked for 7 s, the pause is %v", d)
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb": "a b", "a\tb\n": `a b\n`, "\r": `\r`, "a\u2028\x1b": `a\u2028\u001b`, "plain": "plain",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q is written as %q, want %q", text, got, want)
		}
	}
}
