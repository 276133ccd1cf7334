package command

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
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

// adoptRecords puts summaries in the place of what the compaction records in a view stand for, in one commit.
func (o *outcome) adoptRecords(ctx context.Context, s *store.Store, key store.Key, v fold.View) error {
	plan := adkrecord.Adopt(v)
	o.adopt(adoptionOf(plan.Adopted, plan.Left))
	if len(plan.Patches) == 0 {
		return nil
	}
	c, err := s.ApplyPatch(ctx, key, store.PatchOptions{On: v}, plan.Patches...)
	if err != nil {
		return fmt.Errorf("imported, but the compaction records were not adopted: %w", err)
	}
	o.Added, o.Seq = o.Added+len(c.Records), c.View.Seq()
	if o.Status != migrate.Created {
		o.Status = migrate.Extended
	}
	return nil
}

// adopt adds what became of compaction records to an outcome.
func (o *outcome) adopt(d *adoption) {
	o.adoption = d
	n := len(d.Adopted) + len(d.Left)
	if n == 0 {
		o.notes = append(o.notes, "no compaction records to adopt")
		return
	}
	o.notes = append(o.notes, fmt.Sprintf("%d of %s adopted", len(d.Adopted), present.Counted(n, "compaction record")))
	for _, l := range d.Left {
		o.notes = append(o.notes, fmt.Sprintf("left: %s: %s", present.Printable(l.ID), present.Printable(l.Reason)))
	}
}
