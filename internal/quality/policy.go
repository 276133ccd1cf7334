package quality

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// Policy is a way to keep a session short.
type Policy struct {
	Name  string
	start func(l *log, f *Figures) (step, error)
}

// step applies a policy. The argument invocation is the id of the running invocation, or "".
type step func(ctx context.Context, at phase, invocation string) error

type phase int

const (
	beforeTurn      phase = iota // before the prompt of a turn is made
	afterInvocation              // after an invocation has ended
)

// None is a policy that does nothing.
func None() Policy {
	return Policy{"none", func(*log, *Figures) (step, error) {
		return func(context.Context, phase, string) error { return nil }, nil
	}}
}

// Truncate is a policy that removes old events before each turn. It keeps the first event, which states the task, and
// the newest events up to the given number of tokens.
func Truncate(tokens int) Policy {
	return Policy{fmt.Sprintf("truncated to %d", tokens), func(l *log, _ *Figures) (step, error) {
		return func(ctx context.Context, at phase, _ string) error {
			v := l.view()
			first, remaining := v.Len(), tokens
			for first > 1 && remaining >= v.At(first-1).EstimatedTokens() {
				first--
				remaining -= v.At(first).EstimatedTokens()
			}
			start, count := validSpan(v, patch.NewSplice(1, first-1))
			if at != beforeTurn || count <= 0 {
				return nil
			}
			_, err := l.ApplyPatch(ctx, "", []*patch.PatchEvent{patch.NewSplice(start, count).WithState(patch.Keep)}, fold.PatchOptions{})
			return err
		}, nil
	}}
}

// validSpan returns the span of a patch if the patch is valid. Otherwise, it enlarges the span as little as
// necessary, until the span separates no call from its response and contains no open call. If the enlarged span
// reaches the end of the log, validSpan returns an empty span.
func validSpan(v fold.View, p *patch.PatchEvent) (start, count int) {
	if p.Count() <= 0 {
		return 0, 0
	}
	err := v.Check(p, fold.CheckOptions{})
	var orphans *fold.OrphanError
	switch {
	case err == nil:
		return p.Start(), p.Count()
	case errors.As(err, &orphans) && orphans.Suggested && orphans.Start+orphans.Count < v.Len():
		return orphans.Start, orphans.Count
	}
	return 0, 0
}

// Clear is a policy that clears old tool results before each turn, if this saves at least minSaved tokens. It never
// clears the newest keepLast results.
func Clear(keepLast, minSaved int) Policy {
	return Policy{fmt.Sprintf("cleared by %d", minSaved), func(l *log, _ *Figures) (step, error) {
		return func(ctx context.Context, at phase, _ string) error {
			v := l.view()
			patches, err := compaction.ClearToolResults(v, keepLast)
			if err != nil || at != beforeTurn || len(patches) == 0 {
				return err
			}
			saved := 0
			for _, p := range patches {
				saved += v.At(p.Start()).EstimatedTokens() - p.NewEvents()[0].EstimatedTokens()
			}
			if saved < minSaved {
				return nil
			}
			for i, p := range patches {
				patches[i] = p.WithGroup(fmt.Sprint("clear-", v.Seq()))
			}
			_, err = l.ApplyPatch(ctx, "", patches, fold.PatchOptions{})
			return err
		}, nil
	}}
}

// Roll is a policy that keeps a single summary of all events except the last keepLast. When the visible log reaches
// the given number of tokens, a new summary replaces the old summary and the later events. Agents without tiers of
// summaries work in this way.
func Roll(name string, tokens, keepLast int, s compaction.Summarizer) Policy {
	return Policy{name, func(l *log, f *Figures) (step, error) {
		s := countingSummarizer{s, f}
		return func(ctx context.Context, at phase, _ string) error {
			v := l.view()
			size := 0
			for _, e := range v.Events() {
				size += e.EstimatedTokens()
			}
			if at != beforeTurn || size < tokens {
				return nil
			}
			summary := func(id, text string) (*patch.Event, error) {
				return patch.NewEvent(patch.Fields{ID: id, Author: "user", Content: patch.Text("user", text)})
			}
			e, err := summary("", "-")
			if err != nil {
				return err
			}
			start, count := validSpan(v, patch.NewSummarise(0, v.Len()-keepLast, e))
			if count <= 1 {
				return nil
			}
			req := compaction.Request{MaxTokens: 2_000, AimTokens: min(2_000, tokens/8)}
			for i := start; i < start+count; i++ {
				req.Events = append(req.Events, v.At(i))
				req.Prompt += identifiers.Text(v.At(i))
			}
			resp, err := s.Summarize(ctx, req)
			if err != nil || resp.Text == "" {
				return err
			}
			if e, err = summary(fmt.Sprint("summary-", v.Seq()), resp.Text); err != nil {
				return err
			}
			_, err = l.ApplyPatch(ctx, "", []*patch.PatchEvent{patch.NewSummarise(start, count, e)}, fold.PatchOptions{})
			return err
		}, nil
	}}
}

// Compact is a policy that compacts with a configuration at the same moments as ADK's plugin. After each invocation,
// it uses all triggers. Before a turn of an invocation, it uses all triggers except the interval. If a summary is
// refused, the session stays unchanged.
func Compact(name string, cfg compaction.Config) Policy {
	return Policy{name, func(l *log, f *Figures) (step, error) {
		cfg := cfg
		cfg.Summarizer = countingSummarizer{cmp.Or[compaction.Summarizer](cfg.Summarizer, compaction.Extractive{}), f}
		opts := compaction.Options[string]{Logger: slog.New(slog.DiscardHandler)}
		afterRun, err := compaction.New(l, cfg, opts)
		if err != nil {
			return nil, err
		}
		inRun := afterRun
		compactsInRun := cfg.TokenThreshold+cfg.InvocationTokens+cfg.ClearAfter > 0
		if compactsInRun {
			cfg.CompactionInterval = 0
			if inRun, err = compaction.New(l, cfg, opts); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, at phase, invocation string) error {
			var err error
			switch {
			case at == afterInvocation:
				_, err = afterRun.MaybeCompact(ctx, "")
			case compactsInRun:
				_, err = inRun.Compact(ctx, "", compaction.Run{Invocation: invocation})
			}
			if errors.As(err, new(*compaction.SummarizerError)) {
				return nil
			}
			return err
		}, nil
	}}
}

func isOffline(s compaction.Summarizer) bool {
	_, ok := s.(compaction.Extractive)
	return ok || s == nil
}
