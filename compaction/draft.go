package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Draft is what a pass of compaction is about to log.
type Draft[K comparable] struct {
	Key K

	// View is what the pass was planned on. Events may have been appended since.
	View fold.View

	// Summaries will take the place of other events. There are none where these say
	// nothing, such as changes of state, and where results are cleared.
	Summaries []DraftSummary

	// Patches are all that will be logged, in this order, or nothing is.
	Patches []*patch.PatchEvent

	// Written are the figures. Took is not known yet.
	Written Written
}

// DraftSummary is a summary that is about to be logged, and what it will stand for.
type DraftSummary struct {
	Event *patch.Event
	Of    []*patch.Event // raw events as they were logged, or summaries if the pass merges some
}

// ErrVetoed: [Options.Prepare] was against summarising, or [Options.Approve] against what
// would have been logged.
var ErrVetoed = errors.New("vetoed")

// errApprovalBusy: too many calls of Approve have not returned.
var errApprovalBusy = errors.New("Options.Approve does not return")

func draftOf[K comparable](key K, s *visible, w *Window, summaries []*patch.Event, patches []*patch.PatchEvent, figures Written) Draft[K] {
	d := Draft[K]{Key: key, View: s.view, Patches: slices.Clone(patches), Written: figures}
	for i, g := range w.Groups {
		d.Summaries = append(d.Summaries, DraftSummary{Event: summaries[i], Of: s.events(g)})
	}
	return d
}

// approve asks whether a draft may be logged.
func (c *Compactor[K]) approve(ctx context.Context, by *settings, d Draft[K]) error {
	if c.opts.Approve == nil {
		return nil
	}
	veto, err := await(ctx, c, &c.approving, by.cfg.Timeout, ErrPanic, errApprovalBusy, func(ctx context.Context) (error, error) {
		return c.opts.Approve(ctx, d), nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("approval of a summary: %w", err)
	case veto != nil:
		return fmt.Errorf("%w: %w", ErrVetoed, veto)
	}
	return nil
}
