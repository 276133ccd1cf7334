package main

import (
	"context"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/patch"
)

// Summarizers that are compared: the offline one, one that says nothing, and one that cuts
// what it is shown. The latter two stand for models that do badly, and are paid like models.
var summarizers = []struct {
	name string
	make compaction.Summarizer
}{
	{"offline", compaction.Extractive{}},
	{"says …", model(func(context.Context, compaction.Request) (compaction.Response, error) {
		return compaction.Response{Text: "…"}, nil
	})},
	{"truncates", model(func(_ context.Context, req compaction.Request) (compaction.Response, error) {
		runes := []rune(req.Prompt)
		most := max(1, req.AimTokens-1) * patch.RunesPerToken
		return compaction.Response{Text: string(runes[max(0, len(runes)-most):])}, nil
	})},
}

// model is a summarizer that is paid like a model.
type model func(context.Context, compaction.Request) (compaction.Response, error)

func (m model) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	return m(ctx, req)
}

func (model) Price() (read, written float64) { return price.Read, price.Written }

// Configurations that are compared.
var (
	byDefault  = compaction.DefaultConfig()
	byInterval = compaction.Config{Enabled: true, CompactionInterval: 2, OverlapSize: 1, TokenThreshold: 4_000, EventRetentionSize: 6, MaxSummaryTokens: 600}
	byTokens   = compaction.Config{Enabled: true, TokenThreshold: 4_000, EventRetentionSize: 10}
	bySize     = compaction.Config{Enabled: true, TokenThreshold: 16_000, EventRetentionSize: 10}
)

// policies are all that is compared. None comes first.
func policies() []quality.Policy {
	all := []quality.Policy{quality.None(), quality.Truncate(4_000), quality.Clear(3, 0), quality.Clear(3, 5_000)}
	for _, s := range summarizers {
		with := func(name string) string {
			if s.name == "offline" {
				return name
			}
			return name + ", " + s.name
		}
		of := func(cfg compaction.Config) compaction.Config {
			cfg.Summarizer = s.make
			return cfg
		}
		all = append(all,
			quality.Roll(with("rolling summary, 4k"), 4_000, 6, s.make),
			quality.Compact(with("default"), of(byDefault)),
			quality.Compact(with("interval 2, tokens 4k"), of(byInterval)),
			quality.Compact(with("tokens 4k"), of(byTokens)),
			quality.Compact(with("tokens 16k"), of(bySize)))
	}
	return all
}
