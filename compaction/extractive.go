package compaction

import (
	"context"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/extractive"
	"github.com/patchlog-dev/patchlog/patch"
)

// Extractive is a [Summarizer] that uses no model and no network. It selects text from the events as described in
// docs/COMPACTION.md, and composes no text itself. It is safe for concurrent use.
//
// An answer has at most [Request.MaxTokens] tokens. Extractive has fixed budgets for sentences and facts, and ignores
// AimTokens, Focus and Prompt. It does not repeat the facts of summaries in Before. If MaxTokens is too small or the
// events have no text, it declines. It fails only if ctx has ended or an event is nil.
type Extractive struct{}

// extractiveModel is the [Response.Model] of [Extractive].
const extractiveModel = "extractive"

var _ Summarizer = Extractive{}

// Summarize implements [Summarizer].
func (Extractive) Summarize(ctx context.Context, req Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, err
	}
	if i := slices.Index(req.Events, nil); i >= 0 {
		return Response{}, fmt.Errorf("%w: event %d of the request is nil", patch.ErrInvalid, i)
	}
	text := extractive.Summarise(req.extractiveInput())
	if text == "" {
		return Response{}, nil
	}
	return Response{Text: text, Model: extractiveModel}, nil
}

// extractiveInput converts a request to the input that package extractive takes.
func (r Request) extractiveInput() extractive.Input {
	in := extractive.Input{Events: r.Events, MaxTokens: r.MaxTokens}
	if r.Merge {
		in.Events, in.OtherSummaries = r.Raw, r.OtherSummaries
		if len(r.Raw) == 0 {
			in.OtherSummaries = r.Events
		}
	}
	for _, e := range r.Before {
		if e.IsSummary() {
			in.EarlierSummaries = append(in.EarlierSummaries, e)
		}
	}
	return in
}

// maxCompression is the largest accepted ratio of the events' tokens to an answer's tokens. If the ratio is larger,
// the whole summary of Extractive is appended to the answer.
const maxCompression = 40

// supplement returns the facts that are missing from a model's answer, under a heading. These facts are the user's
// short rules, rows, and used identifiers. If the answer is far too short, it returns the whole summary of
// Extractive.
func (r *groupRequest) supplement(answer string) string {
	input := r.extractiveInput()
	answerTokens := patch.EstimateTextTokens(answer)
	covered := tokensOf(input.Events)
	if input.MaxTokens -= answerTokens + supplementHeadingTokens; len(input.Events) == 0 || covered < minSupplementTokens || input.MaxTokens < minAim {
		return ""
	}
	if answerTokens*maxCompression < covered {
		return "Also:\n" + extractive.Summarise(input)
	}
	input.MaxTokens = min(input.MaxTokens, r.MaxTokens/4)
	return extractive.MissingFacts(input, answer)
}

const (
	supplementHeadingTokens = 4     // tokens of the heading
	minSupplementTokens     = 1_000 // if the events have fewer tokens, any answer is long enough
)
