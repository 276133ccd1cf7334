package store

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// atHand are records of a log, ascending, that a plan needed when it was last tried.
type atHand struct {
	creation string
	records  []patch.Record
}

// of returns those that are of a view's log. A session may have been created again since.
func (a atHand) of(v fold.View) []patch.Record {
	if a.creation != v.Creation() {
		return nil
	}
	return a.records
}

// provide reads the records that a view needs, and adds them to those at hand.
func (s *Store) provide(ctx context.Context, h *handle, need *fold.NeedError, have atHand) (atHand, error) {
	c, err := s.current(ctx, h)
	if err != nil {
		return have, err
	}
	v := c.view
	// A plan has its own records at hand.
	logged := slices.DeleteFunc(slices.Clone(need.Seqs), func(seq uint64) bool { return seq > v.Seq() })
	records, err := s.pick(ctx, h.key, v.Creation(), logged)
	if err != nil {
		return have, err
	}
	records = append(slices.Clone(have.of(v)), records...)
	slices.SortStableFunc(records, func(a, b patch.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return atHand{v.Creation(), records}, nil
}

// pick reads records of a log, whose seqs ascend and are not beyond the end of the log as it was
// read before. If a server has taken over that has lost some, the error matches [errOtherLog].
func (s *Store) pick(ctx context.Context, key Key, creation string, seqs []uint64) ([]patch.Record, error) {
	records := make([]patch.Record, 0, min(len(seqs), pageRecords))
	for rechecked := false; len(seqs) > 0; {
		raw, err := s.backend.Read(ctx, key.name(), creation, seqs[:min(len(seqs), pageRecords)], pageBytes)
		if err != nil {
			return nil, fromBackend(key, err)
		}
		if len(raw) == 0 {
			damage, head := errMissing(key, seqs[0]), backend.Head{Creation: creation}
			if rechecked {
				return nil, damage
			}
			if err := s.recheck(ctx, key, &head, damage); err != nil {
				return nil, err
			}
			if head.Last < seqs[0] {
				return nil, otherLog(key)
			}
			rechecked = true
			continue
		}
		rechecked = false
		some, errs := decodeAll(key, raw, func(i int) uint64 { return seqs[i] })
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
		records = append(records, some...)
		seqs = seqs[len(raw):]
	}
	return records, nil
}

// pickAll is pick for seqs that may be far more than there are.
func (s *Store) pickAll(ctx context.Context, key Key, creation string, all iter.Seq[uint64]) ([]patch.Record, error) {
	var records []patch.Record
	var seqs []uint64
	read := func() error {
		some, err := s.pick(ctx, key, creation, seqs)
		records, seqs = append(records, some...), nil
		return err
	}
	for seq := range all {
		if seqs = append(seqs, seq); len(seqs) == pageRecords {
			if err := read(); err != nil {
				return nil, err
			}
		}
	}
	return records, read()
}

// logOf is the head of the log that a view is of, as much as reading a part of it takes.
func logOf(v fold.View) *backend.Head { return &backend.Head{Creation: v.Creation(), Last: newest} }
