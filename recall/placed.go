package recall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// placed is a view, with what is known of the places of its log's events.
type placed[K comparable] struct {
	log     Log[K]
	key     K
	view    fold.View
	places  *fold.Places
	records []patch.Record // at hand, for the places
	told    map[hidden]bool
	err     error // why a question could not be answered
}

// hidden is what is hidden alike.
type hidden struct {
	by            uint64
	branch, scope string
}

// only returns what leaves out events that must not count, or nil if all do.
func (p *placed[K]) only(ctx context.Context, s Search) func(Doc) bool {
	if !s.Told && s.Sees == nil {
		return nil
	}
	return func(d Doc) bool {
		if p.err != nil || s.Sees != nil && !s.Sees(d.Branch, d.Scope) {
			return false
		}
		if !s.Told {
			return true
		}
		place, there := p.places.Of(d.Seq, d.Index)
		if !there || place.Visible() {
			return there
		}
		alike := hidden{place.HiddenBySeq, d.Branch, d.Scope}
		told, known := p.told[alike]
		if !known {
			told, p.err = p.isTold(ctx, d)
			p.told[alike] = told
		}
		return told
	}
}

// place finds out the places of the log's events.
func (p *placed[K]) place() (err error) {
	p.places, err = p.view.Places()
	return err
}

// isTold asks whether an event is told of, and hands in the patches that it takes to answer.
func (p *placed[K]) isTold(ctx context.Context, d Doc) (bool, error) {
	for {
		told, err := p.places.Told(d.Seq, d.Index, d.Branch, d.Scope)
		var need *fold.NeedError
		if !errors.As(err, &need) {
			return told, err
		}
		lacking := slices.DeleteFunc(need.Seqs, func(seq uint64) bool {
			return slices.ContainsFunc(p.records, func(r patch.Record) bool { return r.Seq == seq })
		})
		if len(lacking) == 0 {
			return false, err
		}
		more, err := p.log.Records(ctx, p.key, p.view, lacking)
		if err == nil && len(more) != len(lacking) {
			err = fmt.Errorf("the log gave %d records for %d, from record %d on", len(more), len(lacking), lacking[0])
		}
		if err != nil {
			return false, err
		}
		for i := range more {
			if more[i].Seq != lacking[i] {
				return false, fmt.Errorf("the log gave record %d in place of record %d", more[i].Seq, lacking[i])
			}
		}
		p.records = append(p.records, more...)
		p.places = p.places.With(p.records)
	}
}

// complete gives what was found its events.
func (p *placed[K]) complete(ctx context.Context, hits []Hit[K]) ([]Hit[K], error) {
	if len(hits) == 0 {
		return nil, nil
	}
	seqs := make([]uint64, len(hits))
	for i, h := range hits {
		seqs[i] = h.Seq
	}
	slices.Sort(seqs)
	records, err := p.log.Records(ctx, p.key, p.view, slices.Compact(seqs))
	if err != nil {
		return nil, err
	}
	events := map[uint64][]*patch.Event{}
	for _, r := range records {
		events[r.Seq] = r.Events()
	}
	for i := range hits {
		h := &hits[i]
		if h.Index >= len(events[h.Seq]) {
			return nil, fmt.Errorf("record %d has no event %d, which was found in it", h.Seq, h.Index)
		}
		h.Event = events[h.Seq][h.Index]
	}
	return hits, nil
}
