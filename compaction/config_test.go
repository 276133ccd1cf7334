package compaction_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
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
		field  string // at fault; "" is none
		change func(*compaction.Config)
	}{
		{"", func(c *compaction.Config) { c.TokenThreshold, c.EventRetentionSize = 100, 1 }},
		{"", func(c *compaction.Config) { c.CompactionInterval, c.TokenThreshold, c.EventRetentionSize = 0, 100, 1 }},
		{"", func(c *compaction.Config) { c.PromptTemplate = "" }},
		{"CompactionInterval", func(c *compaction.Config) { c.CompactionInterval = -1 }},
		{"CompactionInterval", func(c *compaction.Config) { *c = compaction.Config{Enabled: true} }},
		{"OverlapSize", func(c *compaction.Config) { c.OverlapSize = -1 }},
		{"TokenThreshold", func(c *compaction.Config) { c.TokenThreshold = -1 }},
		{"TokenThreshold", func(c *compaction.Config) { c.TokenThreshold, c.InvocationTokens, c.EventRetentionSize = 0, 0, 1 }},
		{"EventRetentionSize", func(c *compaction.Config) {
			c.TokenThreshold, c.InvocationTokens, c.EventRetentionSize = 1, 0, 0
		}},
		{"EventRetentionSize", func(c *compaction.Config) { c.EventRetentionSize = -1 }},
		{"", func(c *compaction.Config) { *c = clearing(1, 0) }},
		{"", func(c *compaction.Config) { c.ClearAfter, c.ClearTools, c.KeepTools = 1, []string{"a"}, []string{"b"} }},
		{"", func(c *compaction.Config) { c.TokenThreshold, c.InvocationTokens, c.EventRetentionSize = 0, 1, 1 }},
		{"InvocationTokens", func(c *compaction.Config) { c.InvocationTokens = -1 }},
		{"EventRetentionSize", func(c *compaction.Config) {
			c.TokenThreshold, c.InvocationTokens, c.EventRetentionSize = 0, 1, 0
		}},
		{"ClearAfter", func(c *compaction.Config) { c.ClearAfter = -1 }},
		{"ClearKeep", func(c *compaction.Config) { c.ClearAfter, c.ClearKeep = 1, -1 }},
		{"ClearAfter", func(c *compaction.Config) { c.ClearAfter, c.ClearKeep = 0, 1 }},
		{"ClearAfter", func(c *compaction.Config) { c.ClearAfter, c.ClearKeep, c.ClearTools = 0, 0, []string{"a"} }},
		{"ClearAfter", func(c *compaction.Config) { c.ClearAfter, c.ClearKeep, c.KeepTools = 0, 0, []string{"a"} }},
		{"ClearTools", func(c *compaction.Config) { c.ClearAfter, c.ClearTools = 1, []string{""} }},
		{"KeepTools", func(c *compaction.Config) { c.ClearAfter, c.KeepTools = 1, []string{""} }},
		{"", func(c *compaction.Config) { c.Cost = compaction.DefaultCost() }},
		{"", func(c *compaction.Config) { c.Cost = compaction.Cost{Turns: 1} }},
		{"", func(c *compaction.Config) { c.Cost = compaction.Cost{Turns: 1, Cached: 1, Fresh: 1} }},
		{"Cost.Turns", func(c *compaction.Config) { c.Cost.Turns = -1 }},
		{"Cost.Turns", func(c *compaction.Config) { c.Cost.Risk = 0.1 }},
		{"Cost.Turns", func(c *compaction.Config) { c.Cost.Written = 1 }},
		{"Cost.Risk", func(c *compaction.Config) { c.Cost.Turns, c.Cost.Risk = 1, -0.1 }},
		{"Cost.Risk", func(c *compaction.Config) { c.Cost.Turns, c.Cost.Risk = 1, math.NaN() }},
		{"Cost.Read", func(c *compaction.Config) { c.Cost.Turns, c.Cost.Read = 1, math.Inf(1) }},
		{"Cost.Fresh", func(c *compaction.Config) { c.Cost.Turns, c.Cost.Cached = 1, 1 }},
		{"MaxInputTokens", func(c *compaction.Config) { c.MaxInputTokens = -1 }},
		{"MaxInputTokens", func(c *compaction.Config) { c.MaxInputTokens = 99 }},
		{"MaxSummaries", func(c *compaction.Config) { c.MaxSummaries = -1 }},
		{"MaxSummaries", func(c *compaction.Config) { c.MaxSummaries = 1 }},
		{"MaxSummaryTokens", func(c *compaction.Config) { c.MaxSummaryTokens = -1 }},
		{"MaxOpenCalls", func(c *compaction.Config) { c.MaxOpenCalls = -1 }},
		{"MaxInvented", func(c *compaction.Config) { c.MaxInvented = -2 }},
		{"", func(c *compaction.Config) { c.MaxInvented = compaction.NotVerified }},
		{"FallbackAfter", func(c *compaction.Config) { c.FallbackAfter = -1 }},
		{"Timeout", func(c *compaction.Config) { c.Timeout = -time.Second }},
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

func TestOffMeansOff(t *testing.T) {
	s := newSession(t, "u1 u2 u3")
	sum := &scripted{}
	if done := s.compact(compaction.Config{CompactionInterval: 1, Summarizer: sum}); done != nil || sum.calls() != 0 {
		t.Errorf("%v, %d calls", done, sum.calls())
	}
}
