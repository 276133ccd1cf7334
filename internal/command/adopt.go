package command

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// adoption is what became of the compaction records of a foreign log.
type adoption struct {
	Adopted []string     `json:"adopted"` // ids of records that gave way to a summary
	Left    []leftRecord `json:"left"`
}

// leftRecord is a compaction record that stays as it is.
type leftRecord struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

func adoptionOf(adopted []string, left []adkrecord.LeftRecord) *adoption {
	out := &adoption{append([]string{}, adopted...), make([]leftRecord, len(left))}
	for i, l := range left {
		out.Left[i] = leftRecord{l.EventID, l.Reason}
	}
	return out
}

// adopt puts summaries in the place of what the compaction records in a view stand for,
// in one commit, and returns the view after it.
func adopt(ctx context.Context, s *store.Store, key store.Key, v fold.View) (*adoption, fold.View, error) {
	plan := adkrecord.Adopt(v)
	done := adoptionOf(plan.Adopted, plan.Left)
	if len(plan.Patches) == 0 {
		return done, v, nil
	}
	c, err := s.ApplyPatch(ctx, key, store.PatchOptions{On: v}, plan.Patches...)
	if err != nil {
		return nil, v, fmt.Errorf("imported, but the compaction records were not adopted: %w", err)
	}
	return done, c.View, nil
}

// showAdoption says what became of each record that was not adopted, too.
func (a *app) showAdoption(d *adoption) error {
	n := len(d.Adopted) + len(d.Left)
	if n == 0 {
		return a.out.line("no compaction records to adopt")
	}
	if err := a.out.linef("%d of %s adopted", len(d.Adopted), present.Counted(n, "compaction record")); err != nil {
		return err
	}
	for _, l := range d.Left {
		if err := a.out.linef("  left: %s: %s", present.Printable(l.ID), present.Printable(l.Reason)); err != nil {
			return err
		}
	}
	return nil
}
