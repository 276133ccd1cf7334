package compaction_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestDefaultConfig(t *testing.T) {
	c := compaction.DefaultConfig()
	if !c.Enabled || c.CompactionInterval != 5 || c.OverlapSize != 2 || !strings.Contains(c.PromptTemplate, "{conversation_history}") || c.Summarizer != nil {
		t.Errorf("%+v", c)
	}
	if c.InvocationTokens == 0 || c.TokenThreshold == 0 || c.ClearAfter == 0 {
		t.Errorf("one endless turn, or one with endless results, is not bounded by %+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if err := (compaction.Config{}).Validate(); err != nil {
		t.Error("the zero Config, in which compaction is off:", err)
	}
}

func TestConfigValidate(t *testing.T) {
	for _, row := range []struct {
		field  string // name of the invalid field, or ""
		change func(*compaction.Config)
	}{
		{"", func(c *compaction.Config) { c.PromptTemplate = "" }},
		{"CompactionInterval", func(c *compaction.Config) { c.CompactionInterval = -1 }},
		{"CompactionInterval", func(c *compaction.Config) { *c = compaction.Config{Enabled: true} }},
		{"OverlapSize", func(c *compaction.Config) { c.OverlapSize = -1 }},
		{"TokenThreshold", func(c *compaction.Config) { c.TokenThreshold = -1 }},
		{"EventRetentionSize", func(c *compaction.Config) { c.EventRetentionSize = -1 }},
		{"InvocationTokens", func(c *compaction.Config) { c.InvocationTokens = -1 }},
		{"ClearAfter", func(c *compaction.Config) { c.ClearAfter = -1 }},
		{"RetainInvocations", func(c *compaction.Config) { c.RetainInvocations = -1 }},
		{"Enabled", func(c *compaction.Config) { c.Enabled = false }}, // a configuration with triggers must be enabled
		{"Summarizer", func(c *compaction.Config) { c.Summarizer = (*scripted)(nil) }},
		{"Summarizer", func(c *compaction.Config) { c.Summarizer = compaction.SummarizerFunc(nil) }},

		// A configuration is valid with a single trigger.
		{"", func(c *compaction.Config) { *c = compaction.Config{Enabled: true, CompactionInterval: 1} }},
		{"", func(c *compaction.Config) { *c = compaction.Config{Enabled: true, TokenThreshold: 1} }},
		{"", func(c *compaction.Config) { *c = compaction.Config{Enabled: true, InvocationTokens: 1} }},
		{"", func(c *compaction.Config) { *c = compaction.Config{Enabled: true, ClearAfter: 1} }},
		{"", func(c *compaction.Config) { c.CompactionInterval = 0 }},
		{"", func(c *compaction.Config) { c.TokenThreshold = 0 }},
		{"", func(c *compaction.Config) { c.InvocationTokens = 0 }},
		{"", func(c *compaction.Config) { c.ClearAfter = 0 }},
		{"", func(c *compaction.Config) { c.TokenThreshold, c.InvocationTokens, c.EventRetentionSize = 0, 0, 1 }},
		{"PromptTemplate", func(c *compaction.Config) { c.PromptTemplate = "summarise!" }},
	} {
		c := with(compaction.DefaultConfig(), row.change)
		err := c.Validate()
		var invalid *patch.FieldError
		if (err == nil) != (row.field == "") || err != nil && (!errors.As(err, &invalid) || invalid.Field != "Config."+row.field) {
			t.Errorf("want %q: %v", row.field, err)
		}
		if _, planErr := compaction.Plan(script(t, "u1"), c, compaction.Run{}); (planErr == nil) != (err == nil) {
			t.Errorf("%s: Plan says %v", row.field, planErr)
		}
		if _, newErr := compaction.New(newSession(t, "").store, c, compaction.Options[store.Key]{}); (newErr == nil) != (err == nil) {
			t.Errorf("%s: New says %v", row.field, newErr)
		}
	}
}

func TestDisabledConfigDoesNothing(t *testing.T) {
	s := newSession(t, "u1 u2 u3")
	sum := &scripted{}
	if done := s.compact(compaction.Config{OverlapSize: 1, Summarizer: sum}); done != nil || sum.calls() != 0 {
		t.Errorf("%v, %d calls", done, sum.calls())
	}
}

func TestLargestLimits(t *testing.T) {
	s := newSession(t, "u1*50 a1*50 u2*50 a2*50 u3*50 a3*50 u4*50 a4*50")
	s.compact(compaction.Config{
		Enabled: true, CompactionInterval: 2, OverlapSize: math.MaxInt, TokenThreshold: math.MaxInt, EventRetentionSize: math.MaxInt,
		InvocationTokens: math.MaxInt, ClearAfter: math.MaxInt,
	})
	s.want("S1:user")
}

// A nil argument causes an error that names the argument.
func TestNil(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"log":                {testlog.ErrorOf(compaction.New(nil, compaction.DefaultConfig(), compaction.Options[store.Key]{})), "log"},
		"store":              {testlog.ErrorOf(compaction.New((*store.Store)(nil), compaction.DefaultConfig(), compaction.Options[store.Key]{})), "log"},
		"compactor":          {testlog.ErrorOf(compaction.NewWorker[store.Key](nil)), "compactor"},
		"event of a request": {testlog.ErrorOf(compaction.Extractive{}.Summarize(t.Context(), compaction.Request{Events: []*patch.Event{nil}})), "event 0"},
	} {
		if !errors.Is(c.err, patch.ErrInvalid) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// Functions that return no error ignore nil events. They treat the zero view as an empty session.
func TestNoEvent(t *testing.T) {
	e := testlog.Must(patch.ParseEvent([]byte(`{"author":"user","content":{"parts":[{"text":"x"}]}}`)))(t)
	events := []*patch.Event{nil, e, nil}
	if got := transcript.Of(events, 0); got != transcript.Of(events[1:2], 0) {
		t.Errorf("transcript: %q", got)
	}
	if l := compaction.LineageOf(nil); l.Level != 1 {
		t.Errorf("lineage %+v", l)
	}
	d, err := compaction.Plan(fold.View{}, compaction.DefaultConfig(), compaction.Run{})
	if err != nil || d.Window != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if patches, err := compaction.ClearToolResults(fold.View{}, 0); len(patches) > 0 || err != nil {
		t.Error(patches, err)
	}
}
