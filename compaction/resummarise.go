package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Resummariser returns a function that makes summaries anew, as a [Compactor] makes them by the
// configuration: store.EraseOptions.Resummarise. It is given a summary, of which it takes nothing,
// and what is left of what that stands for: raw events, or summaries. What takes fewer than 32
// tokens it says word for word; else it asks the configuration's summarizer, and the fallback, if
// there is one, where the answer cannot be used. It returns no text if the summarizer declines.
//
// The function is safe for concurrent use. Its errors are those of [Compactor.MaybeCompact] about
// summarizers, and match [patch.ErrInvalid] if there are no events, or one is nil. The error of
// Resummariser is that of [Config.Validate].
func Resummariser(cfg Config) (func(ctx context.Context, summary *patch.Event, events []*patch.Event) (string, error), error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Compactor[struct{}]{}
	own := newSettings(cfg)
	cfg.Summarizer, cfg.Fallback = cfg.Fallback, nil
	fallback := newSettings(cfg)
	return func(ctx context.Context, _ *patch.Event, events []*patch.Event) (string, error) {
		req, covered, err := again(own.cfg, events)
		if err != nil {
			return "", err
		}
		text, err := c.text(ctx, struct{}{}, own, req, covered, &patchMetadata{})
		if err != nil && !errors.Is(err, errDeclined) && own.cfg.Fallback != nil && ctx.Err() == nil {
			text, err = c.text(ctx, struct{}{}, fallback, req, covered, &patchMetadata{})
		}
		switch {
		case errors.Is(err, errDeclined):
			return "", nil
		case err != nil:
			return "", err
		}
		return text, nil
	}, nil
}

// again makes what a summarizer is asked for a summary that is made anew, and returns how many
// tokens that stands for.
func again(cfg Config, events []*patch.Event) (r Request, covered int, err error) {
	if i := slices.Index(events, nil); i >= 0 || len(events) == 0 {
		return r, 0, fmt.Errorf("%w: there are no events to summarise, or one of them is nil", patch.ErrInvalid)
	}
	r = Request{Events: slices.Clone(events), Merge: true}
	for _, e := range events {
		covered += e.EstimatedTokens()
		_, said := SaidLineage(e)
		r.Merge = r.Merge && (said || e.IsSummary())
	}
	if r.MaxTokens = max(covered/2, leastAim); r.Merge {
		r.MaxTokens = longestMerged(covered)
	}
	r.MaxTokens = min(r.MaxTokens, cfg.MaxSummaryTokens)
	return r, covered, r.ask(cfg)
}
