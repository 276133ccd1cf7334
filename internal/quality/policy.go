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

// Policy is how a session is kept short.
type Policy struct {
	Name  string
	start func(l *log, f *Figures) (step, error)
}

// step applies a policy at a moment. invocation is the running one, or "".
type step func(ctx context.Context, at moment, invocation string) error

type moment int

const (
	beforeTurn      moment = iota // the prompt is about to be made
	afterInvocation               // an invocation has ended
)

// None leaves a session as it is.
func None() Policy {
	return Policy{"none", func(*log, *Figures) (step, error) {
		return func(context.Context, moment, string) error { return nil }, nil
	}}
}

// Truncate keeps, before each turn, the newest events within the given tokens, and the first
// event, which is the task.
func Truncate(tokens int) Policy {
	return Policy{fmt.Sprintf("truncated to %d", tokens), func(l *log, _ *Figures) (step, error) {
		return func(ctx context.Context, at moment, _ string) error {
			v := l.view()
			first, left := v.Len(), tokens
			for first > 1 && left >= v.At(first-1).EstimatedTokens() {
				first--
				left -= v.At(first).EstimatedTokens()
			}
			start, count := legal(v, patch.NewSplice(1, first-1))
			if at != beforeTurn || count <= 0 {
				return nil
			}
			_, err := l.ApplyPatch(ctx, "", []*patch.PatchEvent{patch.NewSplice(start, count).WithState(patch.Keep)}, fold.PatchOptions{})
			return err
		}, nil
	}}
}

// legal returns the span of a patch, or the smallest one around it that splits no call from its
// response and takes no open one; none if that is the whole log.
func legal(v fold.View, p *patch.PatchEvent) (start, count int) {
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

// Clear replaces the results of tools before each turn, except the given number of last ones, if that
// saves at least the given tokens.
func Clear(last, least int) Policy {
	return Policy{fmt.Sprintf("cleared by %d", least), func(l *log, _ *Figures) (step, error) {
		return func(ctx context.Context, at moment, _ string) error {
			v := l.view()
			patches, err := compaction.ClearToolResults(v, last)
			if err != nil || at != beforeTurn || len(patches) == 0 {
				return err
			}
			saved := 0
			for _, p := range patches {
				saved += v.At(p.Start()).EstimatedTokens() - p.NewEvents()[0].EstimatedTokens()
			}
			if saved < least {
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

// Roll keeps one summary of all but the last events, and replaces it by a summary of itself and the
// later events when the visible log takes the given tokens. Agents without tiers work like this.
func Roll(name string, tokens, last int, s compaction.Summarizer) Policy {
	return Policy{name, func(l *log, f *Figures) (step, error) {
		s := counted{s, f}
		return func(ctx context.Context, at moment, _ string) error {
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
			start, count := legal(v, patch.NewSummarise(0, v.Len()-last, e))
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

// Compact compacts by a configuration, as adk's service does with its plugin: before a
// turn inside an invocation by tokens and clearing alone, and after each invocation. Summaries that
// cannot be used leave the session as it is.
func Compact(name string, cfg compaction.Config) Policy {
	return Policy{name, func(l *log, f *Figures) (step, error) {
		cfg := cfg
		cfg.Summarizer = counted{cmp.Or[compaction.Summarizer](cfg.Summarizer, compaction.Extractive{}), f}
		opts := compaction.Options[string]{Logger: slog.New(slog.DiscardHandler)}
		after, err := compaction.New(l, cfg, opts)
		if err != nil {
			return nil, err
		}
		inRun := after
		inside := cfg.TokenThreshold+cfg.InvocationTokens+cfg.ClearAfter > 0
		if inside {
			cfg.CompactionInterval = 0
			if inRun, err = compaction.New(l, cfg, opts); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, at moment, invocation string) error {
			var err error
			switch {
			case at == afterInvocation:
				_, err = after.MaybeCompact(ctx, "")
			case inside:
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
