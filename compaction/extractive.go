package compaction

import (
	"context"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/extractive"
	"github.com/patchlog-dev/patchlog/patch"
)

// Extractive is a [Summarizer] that needs no model and no network: it picks what to keep,
// as docs/COMPACTION.md says, and writes nothing of its own. It is safe for concurrent
// use.
//
// An answer is never longer than the request's MaxTokens. What it tells in sentences keeps
// to AimTokens, but for what the user says at the start of the session; ids, dates, paths and the like
// take what they need. What a tool has returned and a summary in Before tells is not told
// again; the Prompt is not used. If MaxTokens is too small for anything, or if the events say
// nothing, it declines. The only errors are ctx's and that of a nil event.
type Extractive struct{}

// extractiveModel is the [Response.Model] of Extractive.
const extractiveModel = "extractive"

var _ Summarizer = Extractive{}

// Summarize picks the summary.
func (Extractive) Summarize(ctx context.Context, req Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, err
	}
	if i := slices.Index(req.Events, nil); i >= 0 {
		return Response{}, fmt.Errorf("%w: event %d of the request is nil", patch.ErrInvalid, i)
	}
	in := extractive.Input{Events: req.Events, Max: req.MaxTokens}
	if req.Merge {
		in.Events, in.Told = req.Raw, req.Told
		if req.Raw == nil {
			in.Told = req.Events
		}
	}
	for _, e := range req.Before {
		if e.IsSummary() {
			in.Before = append(in.Before, e)
		}
	}
	text := extractive.Summarise(in)
	if text == "" {
		return Response{}, nil
	}
	return Response{Text: text, Model: extractiveModel}, nil
}
