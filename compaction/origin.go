package compaction

import (
	"context"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// logged is an event as it was logged, and the seq of its record.
type logged struct {
	event *patch.Event
	seq   uint64
}

func eventsOf(all []logged) []*patch.Event {
	events := make([]*patch.Event, len(all))
	for i, of := range all {
		events[i] = of.event
	}
	return events
}

// original returns what was logged of an event that the record with the given seq brought,
// before results in it were cleared. What says of itself that it was cleared, and was not by
// a patch of this log, is what was logged.
func (l bound) original(ctx context.Context, e *patch.Event, seq uint64) (logged, error) {
	was := logged{e, seq}
	for at := was; ; {
		o, ok := at.event.Origin()
		if !ok || o.Seq >= at.seq {
			return was, nil
		}
		by, err := l.record(ctx, at.seq)
		if err != nil || by.Patch == nil {
			return was, err
		}
		from, err := l.record(ctx, o.Seq)
		if err != nil {
			return was, err
		}
		if from.Event != nil && from.Event.ID() == o.ID {
			return logged{from.Event, o.Seq}, nil
		}
		if from.Patch == nil {
			return was, nil
		}
		put := from.Patch.NewEvents()
		i := slices.IndexFunc(put, func(e *patch.Event) bool { return e.ID() == o.ID })
		if i < 0 {
			return was, nil
		}
		at = logged{put[i], o.Seq}
		if _, again := at.event.Origin(); !again {
			return at, nil // somebody put it in by hand
		}
	}
}

// record returns the record with a seq, or none if the log has none there.
func (l bound) record(ctx context.Context, seq uint64) (patch.Record, error) {
	for r, err := range l.raw(ctx, seq) {
		if err == nil && r.Seq != seq {
			break
		}
		return r, err
	}
	return patch.Record{}, nil
}

// originals finds out what was logged of a window's events that have cleared results.
func (l bound) originals(ctx context.Context, s *visible, w *Window) (err error) {
	s.originals = map[int]logged{}
	for _, g := range w.Groups {
		for _, i := range g.Indices {
			e := s.entries[i]
			if _, ok := e.Event.Origin(); !ok {
				continue
			}
			if s.originals[i], err = l.original(ctx, e.Event, e.Seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// shown returns the visible event with index i as a summarizer is shown it: as it was logged,
// whatever was cleared since.
func (s *visible) shown(i int) logged {
	if o, ok := s.originals[i]; ok {
		return o
	}
	return logged{s.entries[i].Event, s.entries[i].Seq}
}
