package compaction

import (
	"context"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// shownAgain returns the raw events of the last n invocations before a window's group
// that nothing but visible summaries hides, in order. What a manual patch removed is not
// among them: a summary's lineage names only what was visible when it was made.
func (l bound) shownAgain(ctx context.Context, v fold.View, g Group, n int) ([]*patch.Event, error) {
	if n == 0 {
		return nil, nil
	}
	var events []*patch.Event // of the summaries looked at so far
	for i := g.Indices[0] - 1; i >= 0; i-- {
		if !v.IsSummary(i) || groupOf(v.At(i)) != g.key() {
			continue
		}
		hidden, err := l.hiddenBy(ctx, v, i)
		if err != nil {
			return nil, err
		}
		events = append(hidden, events...)
		if last, whole := lastInvocations(events, n); whole {
			return last, nil
		}
	}
	last, _ := lastInvocations(events, n)
	return last, nil
}

// hiddenBy returns raw events that the summary with index i stands for: those of its last
// invocations, or all of a summary that was made by hand.
func (l bound) hiddenBy(ctx context.Context, v fold.View, i int) ([]*patch.Event, error) {
	lineage, said := saidLineage(v.At(i))
	seqs := lineage.Recent
	if !said {
		var err error
		if seqs, err = l.coveredByHand(ctx, v, i); err != nil {
			return nil, err
		}
	}
	if len(seqs) == 0 {
		return nil, nil
	}
	slices.SortFunc(seqs, func(a, b [2]uint64) int { return int(a[0]) - int(b[0]) })
	var events []*patch.Event
	at := 0
	for r, err := range l.raw(ctx, seqs[0][0]) {
		if err != nil {
			return nil, err
		}
		for at < len(seqs) && seqs[at][1] < r.Seq {
			at++
		}
		if at == len(seqs) {
			break
		}
		if r.Event != nil && seqs[at][0] <= r.Seq {
			events = append(events, r.Event)
		}
	}
	return events, nil
}

// coveredByHand returns the seqs of the raw events that the patch which put the summary
// with index i in took out.
func (l bound) coveredByHand(ctx context.Context, v fold.View, i int) ([][2]uint64, error) {
	seq := v.SeqOf(i)
	for r, err := range l.raw(ctx, seq) {
		if err != nil {
			return nil, err
		}
		if r.Patch == nil || r.Patch.Type() != patch.Summarise {
			return nil, nil
		}
		before, err := l.viewAt(ctx, seq-1)
		if err != nil {
			return nil, err
		}
		var seqs [][2]uint64
		for j := r.Patch.Start(); j < min(r.Patch.Start()+r.Patch.Count(), before.Len()); j++ {
			if !before.IsSummary(j) && groupOf(before.At(j)) == groupOf(v.At(i)) {
				seqs = addSeq(seqs, before.SeqOf(j))
			}
		}
		return seqs, nil
	}
	return nil, nil
}

// lastInvocations returns the events of the last n invocations, and whether there are
// older ones, so that the first of them is there as a whole. An event without
// invocation id goes with the one before it.
func lastInvocations(events []*patch.Event, n int) (last []*patch.Event, whole bool) {
	var invocations []string // of each event
	id := ""
	for _, e := range events {
		if e.InvocationID() != "" {
			id = e.InvocationID()
		}
		invocations = append(invocations, id)
	}
	seen := map[string]bool{}
	for i := len(events) - 1; i >= 0; i-- {
		if !seen[invocations[i]] && len(seen) == n {
			return events[i+1:], true
		}
		seen[invocations[i]] = true
	}
	return events, false
}
