package adk

import (
	"iter"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// visible is the visible log of a view as ADK's events. It never changes; its events are
// [given]'s.
type visible struct {
	view  fold.View
	given *given
}

func (v visible) Len() int { return v.view.Len() }

// At returns the event with index i, or nil if there is none.
func (v visible) At(i int) *session.Event {
	if i < 0 || i >= v.view.Len() {
		return nil
	}
	return v.given.event(v.view.At(i))
}

func (v visible) All() iter.Seq[*session.Event] {
	return func(yield func(*session.Event) bool) {
		for _, e := range v.view.Events() {
			if !yield(v.given.event(e)) {
				return
			}
		}
	}
}

// selected are some of a visible log's events, otherwise as [visible].
type selected struct {
	events []*patch.Event
	given  *given
}

func (s selected) Len() int { return len(s.events) }

// At returns the event with index i, or nil if there is none.
func (s selected) At(i int) *session.Event {
	if i < 0 || i >= len(s.events) {
		return nil
	}
	return s.given.event(s.events[i])
}

func (s selected) All() iter.Seq[*session.Event] {
	return func(yield func(*session.Event) bool) {
		for _, e := range s.events {
			if !yield(s.given.event(e)) {
				return
			}
		}
	}
}

var _, _ session.Events = visible{}, selected{}
