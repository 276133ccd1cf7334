package compaction

import (
	"cmp"
	"context"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// shownAgain returns the raw events of the last n invocations before a window's group
// that nothing but visible summaries hides, in order. What a manual patch removed is not
// among them: only what was visible when a summary was made is named or looked up.
func (l bound) shownAgain(ctx context.Context, v fold.View, g Group, n int) ([]logged, error) {
	if n == 0 {
		return nil, nil
	}
	var events []logged // of the summaries looked at so far
	for i := g.Indices[0] - 1; i >= 0; i-- {
		if !v.Entry(i).Summary || groupOf(v.At(i)) != g.key() {
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
// invocations, or all of one of which the log does not say which these are. A summary that
// no patch of this log put in stands for nothing here.
func (l bound) hiddenBy(ctx context.Context, v fold.View, i int) ([]logged, error) {
	p, err := l.patchOf(ctx, v, i)
	if p == nil || err != nil {
		return nil, err
	}
	if r, said := saidRecent(p, v.At(i).ID()); said {
		events, err := l.named(ctx, r)
		if events != nil || err != nil {
			return events, err
		}
	}
	return l.tookOut(ctx, v, i, p)
}

// patchOf returns the patch that put the visible event with index i in, or nil.
func (l bound) patchOf(ctx context.Context, v fold.View, i int) (*patch.PatchEvent, error) {
	r, err := l.record(ctx, v.Entry(i).Seq)
	return r.Patch, err
}

// named returns the events that are named as recent, or nil if the log has others there.
func (l bound) named(ctx context.Context, of recent) ([]logged, error) {
	seqs := slices.Clone(of.Seqs)
	slices.SortFunc(seqs, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	var events []logged
	byOrder := map[uint64]string{}
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
			events = append(events, logged{r.Event, r.Seq})
			byOrder[r.Seq] = r.Event.ID()
		}
	}
	var there []recentEvent
	for _, s := range of.Seqs {
		for seq := s[0]; seq <= s[1] && len(there) < len(byOrder); seq++ {
			there = append(there, recentEvent{seq, byOrder[seq]})
		}
	}
	if recentOf(there).IDs != of.IDs {
		return nil, nil
	}
	return events, nil
}

// tookOut returns the raw events of its group that the summary with index i took the place
// of in the log before its patch.
func (l bound) tookOut(ctx context.Context, v fold.View, i int, p *patch.PatchEvent) ([]logged, error) {
	if p.Type() != patch.Summarise && p.Type() != patch.Splice {
		return nil, nil
	}
	before, err := l.viewAt(ctx, v.Entry(i).Seq-1)
	if err != nil {
		return nil, err
	}
	var events []logged
	for j := p.Start(); j < min(p.Start()+p.Count(), before.Len()); j++ {
		if before.Entry(j).Summary || groupOf(before.At(j)) != groupOf(v.At(i)) {
			continue
		}
		of, err := l.original(ctx, before.At(j), before.Entry(j).Seq)
		if err != nil {
			return nil, err
		}
		events = append(events, of)
	}
	return events, nil
}

// lastInvocations returns the events of the last n invocations, and whether there are
// older ones, so that the first of them is there as a whole. An event without
// invocation id goes with the one before it.
func lastInvocations(events []logged, n int) (last []logged, whole bool) {
	var invocations []string // of each event
	id := ""
	for _, e := range events {
		if e.event.InvocationID() != "" {
			id = e.event.InvocationID()
		}
		invocations = append(invocations, id)
	}
	from := lastOf(invocations, n)
	return events[from:], from > 0
}

// lastOf returns from which index on there are the last n different ones.
func lastOf[K comparable](all []K, n int) int {
	seen := map[K]bool{}
	for i, one := range slices.Backward(all) {
		if !seen[one] && len(seen) == n {
			return i + 1
		}
		seen[one] = true
	}
	return 0
}
