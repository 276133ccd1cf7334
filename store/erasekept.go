package store

import (
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// erased is what an event says of its erasing.
type erased struct {
	receipt string
	remade  bool // it is a summary that was made anew since
}

func receiptsOf(records []patch.Record) []receipt {
	all := make([]receipt, len(records))
	for i, r := range records {
		all[i] = receiptOf(r)
	}
	return all
}

// settle takes out of what is to be erased what is blank, unless what stands for it was kept and now is
// not to be: that is covered again. What is kept is enough if a receipt covers it that is not finished.
func (e *erasing) settle(p *erasePlan, c *scan, receipts []receipt) {
	open := receiptsOf(p.open)
	p.again = map[fold.Ref]bool{}
	for ref := range c.blank {
		if ref.Index >= 0 && !p.of.KeepsSummaries && keptAt(receipts, ref) {
			delete(c.blank, ref)
			p.again[ref] = true
		}
	}
	maps.DeleteFunc(c.set, func(ref fold.Ref, _ string) bool {
		return c.blank[ref] && ref.Index >= 0 || p.of.KeepsSummaries && slices.ContainsFunc(open, func(r receipt) bool {
			return r.ID() != e.opts.ID && r.of.CoversEvent(ref.Seq, ref.Index)
		})
	})
}

// keptAt reports whether the newest receipt about an event says that what stands for it was kept.
func keptAt(receipts []receipt, ref fold.Ref) bool {
	for _, r := range slices.Backward(receipts) {
		if r.of.CoversEvent(ref.Seq, ref.Index) {
			return r.of.KeepsSummaries
		}
	}
	return false
}

// isWithout reports whether what a patch put in is a summary that was made anew after an event that it
// stands for was blank. at says where the receipts are.
func (c *scan) isWithout(put, ref fold.Ref, at map[string]uint64) bool {
	summary, of := c.by[put], c.by[ref]
	return summary.remade && of.receipt != "" && !of.remade && at[of.receipt] <= at[summary.receipt]
}
