package adk

import (
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// selection is what a session shows that was got with a filter: the events that the
// filter chose, as long as they are visible, and all that was logged since.
type selection struct {
	chosen map[uint64]bool // by the seqs of the records that put them in
	since  uint64          // what has a higher seq was logged since
	events []*patch.Event
	view   fold.View // that events are of
}

// choose selects those of the last n visible events whose time is not before t.
func choose(v fold.View, n int, t time.Time) *selection {
	s := &selection{chosen: map[uint64]bool{}, since: v.Seq(), view: v}
	for i := max(v.Len()-n, 0); i < v.Len(); i++ {
		if e := v.Entry(i); !e.Event.Timestamp().Before(t) {
			s.chosen[e.Seq] = true
			s.events = append(s.events, e.Event)
		}
	}
	return s
}

// advance makes the selection one of a newer view.
func (s *selection) advance(v fold.View) {
	from := s.view.Len()
	if v.PatchSeq() != s.view.PatchSeq() {
		from, s.events = 0, nil
	}
	for i := from; i < v.Len(); i++ {
		if e := v.Entry(i); e.Seq > s.since || s.chosen[e.Seq] {
			s.events = append(s.events, e.Event)
		}
	}
	s.view = v
}
