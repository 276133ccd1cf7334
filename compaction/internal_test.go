package compaction

import (
	"fmt"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
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
