package compaction

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/patch"
)

// revertBlanks reverts the patches of visible summaries whose content was erased, so that their remaining events are
// summarised again. In one pass, the visible log grows by at most the input limit of a summarizer. The next pass
// reverts further blanks.
func (c *Compactor[K]) revertBlanks(ctx context.Context, key K, v fold.View) (fold.View, error) {
	if len(blanks.VisibleSummaries(v, nil)) == 0 {
		return v, nil
	}
	c.mu.Lock()
	checked := c.backoffOf(key, v).blanksCheckedSeq == v.PatchSeq()
	c.mu.Unlock()
	if checked {
		return v, nil
	}
	plan, err := blanks.PlanReverts(v, blanks.Options{MaxGrowth: c.cfg.limits.InputTokens, Read: func(seqs []uint64) ([]patch.Record, error) {
		return c.readRecords(ctx, key, seqs)
	}})
	if err != nil {
		return v, err
	}
	if len(plan.Reverts) == 0 {
		c.mu.Lock()
		b := c.backoffOf(key, v)
		b.blanksCheckedSeq = v.PatchSeq()
		c.backoff[key] = b
		c.mu.Unlock()
		return v, nil
	}
	done, err := c.log.ApplyPatch(ctx, key, groupPatches(plan.Reverts, patch.CompactionAuthor, uuid.NewString), fold.PatchOptions{On: v, AllowOrphans: true})
	return done.View, err
}

// readRecords reads the records with the given seqs, which must be in ascending order.
func (c *Compactor[K]) readRecords(ctx context.Context, key K, seqs []uint64) (out []patch.Record, err error) {
	for len(seqs) > 0 {
		n := len(out)
		for r, err := range c.log.RawEvents(ctx, key, seqs[0]) {
			if err != nil {
				return nil, err
			}
			if len(seqs) == 0 || r.Seq != seqs[0] { // the next record is not adjacent, so start again at seqs[0]
				break
			}
			out, seqs = append(out, r), seqs[1:]
		}
		if len(out) == n {
			return nil, fmt.Errorf("%w: the log has no record %d", patch.ErrCorrupt, seqs[0])
		}
	}
	return out, nil
}
