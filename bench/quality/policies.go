package main

import (
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/quality"
)

// byTokens is a configuration whose only trigger is a small token threshold.
var byTokens = compaction.Config{Enabled: true, TokenThreshold: 4_000}

// The configurations of docs/SETTINGS.md other than the default.
func chat() compaction.Config {
	cfg := compaction.DefaultConfig()
	cfg.RetainInvocations = 4
	cfg.ClearAfter = 0
	return cfg
}

func coding() compaction.Config {
	cfg := compaction.DefaultConfig()
	cfg.InvocationTokens = 10_000
	return cfg
}

// policies returns the policies to compare. The first is [quality.None].
func policies() []quality.Policy {
	return []quality.Policy{
		quality.None(), quality.Truncate(4_000), quality.Clear(3, 5_000),
		quality.Roll("rolling summary, 4k", 4_000, 6, compaction.Extractive{}),
		quality.Compact("default", compaction.DefaultConfig()),
		quality.Compact("tokens 4k", byTokens), quality.Compact("chat", chat()), quality.Compact("coding", coding()),
	}
}
