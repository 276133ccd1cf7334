package compaction_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
)

// A window of one unit over the limit is taken whole, and its transcript cut to fit, with
// a note of it.
func TestTranscriptFits(t *testing.T) {
	s := newSession(t, "c1(x)*3000 r1(x)*3000 u2 a2")
	sum := &scripted{}
	s.compact(with(every(2, 0, sum), func(c *compaction.Config) { c.Limits().Input = 500; c.PromptTemplate = compaction.History }))
	r := sum.requests[0]
	if got := ids(r.Events); got != "e0 e1" {
		t.Errorf("covered are %s", got)
	}
	if n := patch.EstimateTextTokens(r.Prompt); n > 500 || n < 100 {
		t.Errorf("the prompt takes %d tokens, the limit is 500", n)
	}
	if !strings.Contains(r.Prompt, "more characters]") {
		t.Errorf("it does not say what is missing: %s", r.Prompt)
	}
	// Texts are cut next, and something of each event is shown.
	s = newSession(t, "u1*3000 u2")
	sum = &scripted{}
	s.compact(with(every(2, 0, sum), func(c *compaction.Config) { c.Limits().Input = 500; c.PromptTemplate = compaction.History }))
	if r := sum.requests[0]; patch.EstimateTextTokens(r.Prompt) > 550 || !strings.Contains(r.Prompt, "more characters]") {
		t.Errorf("%d tokens: %.300s", patch.EstimateTextTokens(r.Prompt), r.Prompt)
	}
}

// Only where there are too many events to show something of each is the middle left out.
func TestTranscriptOfTooManyEvents(t *testing.T) {
	s := newSession(t, "c1(x) "+strings.Repeat("a1 ", 500)+"r1(x) u2 a2")
	sum := &scripted{}
	s.compact(with(every(2, 0, sum), func(c *compaction.Config) { c.Limits().Input = 500; c.PromptTemplate = compaction.History }))
	if r := sum.requests[0]; len(r.Events) != 502 || patch.EstimateTextTokens(r.Prompt) > 550 || !strings.Contains(r.Prompt, "characters of the transcript are left out") {
		t.Errorf("%d events, %d tokens: %.300s", len(r.Events), patch.EstimateTextTokens(r.Prompt), r.Prompt)
	}
}

func TestPromptTemplate(t *testing.T) {
	s := newSession(t, "u1*3 a1*3 u2*30")
	sum := &scripted{}
	s.compact(with(every(2, 0, sum), func(c *compaction.Config) { c.PromptTemplate = "<<" + compaction.History + ">>" }))
	if got, want := sum.requests[0].Prompt, "<<user: abc abc abc\nagent: abc abc abc\nuser: abc"+strings.Repeat(" abc", 29)+"\n>>"; got != want {
		t.Errorf("the prompt is %q, want %q", got, want)
	}
}
