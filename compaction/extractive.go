package compaction

import (
	"context"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/extractive"
	"github.com/patchlog-dev/patchlog/patch"
)

// extractiveModel is what an [Extractive] calls itself.
const extractiveModel = "extractive"

// Extractive is a [Summarizer] that needs no model and no network: it picks what to keep,
// as [extractive.Summary] does, and writes nothing of its own. It is safe for concurrent
// use.
//
// An answer is never longer than the request's AimTokens, or its MaxTokens. The request's
// Prompt and Before are not used. If MaxTokens is too small for anything, or if the events
// say nothing, it declines. The only errors are ctx's and that of a nil event.
type Extractive struct{}

var _ Summarizer = Extractive{}

// Summarize picks the summary.
func (Extractive) Summarize(ctx context.Context, req Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, err
	}
	if i := slices.Index(req.Events, nil); i >= 0 {
		return Response{}, fmt.Errorf("%w: event %d of the request is nil", patch.ErrInvalid, i)
	}
	budget := req.MaxTokens
	if req.AimTokens > 0 {
		budget = min(budget, req.AimTokens)
	}
	text := extractive.Summary(req.Events, req.Merge, runesOf(budget))
	if text == "" {
		return Response{}, nil
	}
	return Response{Text: text, Model: extractiveModel}, nil
}
