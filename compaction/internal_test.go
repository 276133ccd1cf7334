package compaction

import (
	"errors"
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// The compactor keeps the backoffs of a limited number of sessions. If there are more, it discards all of them.
func TestBackoffIsForgotten(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	v := fold.New("creation", nil)
	rests := func(key int) bool {
		all, _ := c.backoffStatus(key, v)
		return all
	}
	for key := range maxBackoffSessions {
		c.recordFailure(key, v, nil, fmt.Errorf("no answer"))
	}
	if len(c.backoff) != 1<<16 || !rests(0) {
		t.Fatalf("%d sessions are remembered, want %d; the first waits: %v", len(c.backoff), 1<<16, rests(0))
	}
	c.recordFailure(7, v, nil, fmt.Errorf("no answer"))
	if c.backoff[7].failures != 2 {
		t.Errorf("a session that is remembered has failed %d times, want 2", c.backoff[7].failures)
	}
	c.recordFailure(maxBackoffSessions, v, nil, fmt.Errorf("no answer"))
	if len(c.backoff) != 1 || rests(0) || !rests(maxBackoffSessions) {
		t.Errorf("%d sessions are remembered, want the new one alone", len(c.backoff))
	}
}

// Limits that are not set get their defaults, and limits that are set do not change.
func TestDefaults(t *testing.T) {
	got := Config{}.withDefaults()
	if got.EventRetentionSize != 10 || got.limits != defaultLimits ||
		got.PromptTemplate != DefaultPromptTemplate || got.Summarizer != (Extractive{}) || got.fallback != (Extractive{}) {
		t.Errorf("%+v", got)
	}
	set := Config{EventRetentionSize: 31, limits: limits{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	if got = set.withDefaults(); got.EventRetentionSize != 31 || got.limits != set.limits {
		t.Errorf("what was set became %+v", got)
	}
}

func viewOf(t *testing.T, texts ...string) fold.View {
	t.Helper()
	v := fold.New("creation", nil)
	for _, text := range texts {
		e := testlog.Must(patch.ParseEvent([]byte(text)))(t)
		v = testlog.Must(v.Apply(patch.Record{Seq: v.Seq() + 1, Event: e}))(t)
	}
	return v
}

// A success of the summarizer ends the backoff of the session, but skipped windows stay skipped. A success of the
// fallback does not end the backoff.
func TestSuccessForgetsFailures(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	v := viewOf(t, `{"id":"a"}`, `{"id":"b"}`)
	p := &pass[int]{key: 1, planner: newPlanner(v, Run{}), window: &Window{Groups: []Group{{Indices: []int{0}}}}}
	failed := &SummarizerError{Err: errDeclined}
	c.recordFailure(1, v, p, failed)
	if got := c.skippedIDs(1, v); len(got) != 0 {
		t.Errorf("before the fallback was asked %q are skipped", got)
	}
	if rests, backsOff := c.backoffStatus(1, v); rests || !backsOff {
		t.Errorf("after a failure of the summarizer the session rests: %v, and the summarizer: %v", rests, backsOff)
	}
	p.overLimit, p.written.UsedFallback = true, true
	c.recordFailure(1, v, p, failed)
	if rests, backsOff := c.backoffStatus(1, v); !rests || !backsOff {
		t.Errorf("after a failure of the fallback the session rests: %v, and the summarizer: %v", rests, backsOff)
	}
	p.summarizerErr = errDeclined
	c.recordSuccess(p)
	if b := c.backoff[1]; b.failures != 3 {
		t.Errorf("after a success of the fallback's %d failures are counted", b.failures)
	}
	p.summarizerErr, p.answerAccepted = nil, true
	c.recordSuccess(p)
	if got := c.skippedIDs(1, v); len(got) != 1 || got[0] != "a" {
		t.Errorf("skipped are %q, want a", got)
	}
	if rests, backsOff := c.backoffStatus(1, v); rests || backsOff {
		t.Error("after a success it waits")
	}
}

// A window that is repeatedly vetoed does not prevent summaries of other windows.
func TestVetoedWindowsAreSkipped(t *testing.T) {
	c := &Compactor[int]{backoff: map[int]backoff{}}
	v := viewOf(t, `{"id":"a"}`, `{"id":"b"}`)
	p := &pass[int]{key: 1, planner: newPlanner(v, Run{}), window: &Window{Groups: []Group{{Indices: []int{1}}}}}
	for n := range maxVetoes {
		if got := c.skippedIDs(1, v); len(got) != 0 {
			t.Errorf("after %d vetoes %q are skipped", n, got)
		}
		c.recordFailure(1, v, p, wrapVeto(errors.New("no")))
	}
	if got := c.skippedIDs(1, v); len(got) != 1 || got[0] != "b" {
		t.Errorf("skipped are %q, want b", got)
	}
}
