package recall

import (
	"context"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// placed is a view, with what is known of the places of its log's events.
type placed[K comparable] struct {
	log    Log[K]
	key    K
	view   fold.View
	places *fold.Places
	told   map[hidden]bool
}

// hidden is what is hidden alike.
type hidden struct {
	by            uint64
	branch, scope string
}

// only returns what leaves out events that must not count, or nil if all do.
func (p *placed[K]) only(s Search) func(Doc) bool {
	if !s.Told && s.Sees == nil {
		return nil
	}
	return func(d Doc) bool {
		if s.Sees != nil && !s.Sees(d.Branch, d.Scope) {
			return false
		}
		if !s.Told {
			return true
		}
		place, there := p.places.Of(d.Seq, d.Index)
		if !there || place.Index >= 0 {
			return there
		}
		alike := hidden{place.HiddenBySeq, d.Branch, d.Scope}
		told, known := p.told[alike]
		if !known {
			told = p.places.Represented(d.Seq, d.Index, d.Branch, d.Scope)
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
