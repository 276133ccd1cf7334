package compaction

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// origin says of an event with cleared results in whose place it stands, in its
// customMetadata["patchlog"]. Ids are unique in a log, so that no copy of the event, edited
// or in another log, passes for it.
type origin struct {
	As     string `json:"as"`     // the id of the event that says so
	ID     string `json:"id"`     // of the event in whose place it stands
	Seq    uint64 `json:"seq"`    // of the record that brought that one
	Tokens int    `json:"tokens"` // what was logged takes
}

// originKey is where an event says its origin.
const originKey = "cleared"

// originOf makes the origin of the event that will stand in the place of another.
func originOf(of fold.Entry, as string) origin {
	return origin{as, of.Event.ID(), of.Seq, loggedTokens(of.Event)}
}

// saidOrigin returns what an event says of its origin, if it does.
func saidOrigin(e *patch.Event) (origin, bool) {
	text, _ := e.Field("customMetadata")
	if !bytes.Contains(text, []byte(`"`+originKey+`"`)) {
		return origin{}, false
	}
	var said struct{ Cleared origin }
	ok := record.Own(text, &said) && said.Cleared.As != "" && said.Cleared.As == e.ID()
	return said.Cleared, ok
}

// loggedTokens is what an event takes without anything cleared.
func loggedTokens(e *patch.Event) int {
	if o, ok := saidOrigin(e); ok {
		return max(o.Tokens, e.EstimatedTokens())
	}
	return e.EstimatedTokens()
}

// in returns an event's custom metadata with the origin in it.
func (o origin) in(customMetadata json.RawMessage) (json.RawMessage, error) {
	all, own := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if len(customMetadata) > 0 {
		if err := json.Unmarshal(customMetadata, &all); err != nil {
			return nil, err
		}
	}
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	if json.Unmarshal(all[record.OwnKey], &own) != nil || own == nil {
		own = map[string]json.RawMessage{}
	}
	var err error
	if own[originKey], err = json.Marshal(o); err != nil {
		return nil, err
	}
	if all[record.OwnKey], err = json.Marshal(own); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// logged is an event as it was logged, and the seq of its record.
type logged struct {
	event *patch.Event
	seq   uint64
}

// original returns what was logged of an event that the record with the given seq brought,
// before results in it were cleared. What says of itself that it was cleared, and was not by
// a patch of this log, is what was logged.
func (l bound) original(ctx context.Context, e *patch.Event, seq uint64) (logged, error) {
	was := logged{e, seq}
	for at := was; ; {
		o, ok := saidOrigin(at.event)
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
		if _, again := saidOrigin(at.event); !again {
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
			if _, ok := saidOrigin(e.Event); !ok {
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
