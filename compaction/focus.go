package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// MaxFocus is how many runes of [Run.Focus] a summarizer is told.
const MaxFocus = 1_000

// Proposal is what is about to be summarised in one text.
type Proposal[K comparable] struct {
	Key     K
	View    fold.View // what the pass was planned on
	Trigger Trigger

	// Events are what the summary will stand for, as they were logged: raw events of one
	// branch and isolation scope, or, if Merge is set, summaries. The slice is the callee's
	// own.
	Events []*patch.Event
	Merge  bool
}

// errPreparationBusy: too many calls of Prepare have not returned.
var errPreparationBusy = errors.New("Options.Prepare does not return")

// prepare asks whether events may be summarised, and returns what must be kept of them.
func (c *Compactor[K]) prepare(ctx context.Context, key K, by *settings, s *visible, w *Window, events []*patch.Event) (keep string, err error) {
	if c.opts.Prepare == nil {
		return "", nil
	}
	type answer struct {
		keep string
		veto error
	}
	p := Proposal[K]{key, s.view, w.Trigger, slices.Clone(events), w.Merge}
	a, err := await(ctx, c, &c.preparing, by.cfg.Timeout, ErrPanic, errPreparationBusy, func(ctx context.Context) (answer, error) {
		keep, veto := c.opts.Prepare(ctx, p)
		return answer{keep, veto}, nil
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("preparation of a summary: %w", err)
	case a.veto != nil:
		return "", fmt.Errorf("%w: %w", ErrVetoed, a.veto)
	}
	return strings.TrimSpace(record.Clean(a.keep)), nil
}

// reserve makes room for what must be kept, at most half of the answer, and returns what of it
// is kept.
func (r *Request) reserve(keep string) string {
	keep = cutRunes(keep, r.MaxTokens/2*patch.RunesPerToken)
	if keep == "" {
		return ""
	}
	r.MaxTokens -= patch.EstimateTextTokens(keep + "\n")
	r.AimTokens = min(r.AimTokens, r.MaxTokens)
	return keep
}

// inFocus puts what a summary should keep above all before a prompt.
func inFocus(focus, prompt string) string {
	if focus == "" {
		return prompt
	}
	return "Above all, keep what concerns this: " + focus + "\n\n" + prompt
}

// focusOf is a focus as a summarizer is told it: one line, of at most [MaxFocus] runes.
func focusOf(text string) string {
	return cutRunes(strings.Join(strings.Fields(record.Clean(text)), " "), MaxFocus)
}

// cutRunes returns a text of at most so many runes.
func cutRunes(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	if most < 2 {
		return ""
	}
	return string(runes[:most-1]) + "…"
}
