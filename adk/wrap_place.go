package adk

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// place is where a patch applies: the visible events that it takes out, by their ids, and
// those around them. Indices mean little in a base that may give events of one time in
// another order at each read.
type place struct {
	Before string   `json:"before,omitempty"` // the event in front; "": the visible log begins here
	Events []string `json:"events,omitempty"`
	After  string   `json:"after,omitempty"` // the event behind; "": any, since what comes at the end comes later
}

// placeOf returns where a patch that was made from a view applies; nil if it says so itself.
func placeOf(v fold.View, p *patch.PatchEvent) (*place, error) {
	start, count := p.Start(), p.Count()
	switch p.Type() {
	case patch.Splice, patch.Summarise:
	case patch.TruncateBefore:
		start = 0
		count, _ = v.Find(p.EventID())
	default:
		return nil, nil
	}
	out := &place{}
	if start > 0 {
		out.Before = v.At(start - 1).ID()
	}
	for _, e := range v.EventsFrom(start) {
		if len(out.Events) == count {
			out.After = e.ID()
			break
		}
		out.Events = append(out.Events, e.ID())
	}
	// Ids that the base holds twice may stand elsewhere too.
	if at, ok := out.in(v); !ok || at != start {
		return nil, fmt.Errorf("%w: the base holds an event id twice, so that ids do not say where patch %q applies", patch.ErrInvalid, p.ID())
	}
	return out, nil
}

func (p *place) names(id string) bool {
	return p.Before == id || p.After == id || slices.Contains(p.Events, id)
}

// in returns the index at which exactly the events of the place stand together in a view,
// between those around them: in their order, or with events of one time in another. ok is
// false if they do not.
func (p *place) in(v fold.View) (start int, ok bool) {
	visible := make([]*patch.Event, 0, v.Len())
	for _, e := range v.Events() {
		visible = append(visible, e)
	}
	n := len(p.Events)
	permuted := -1
	for i := 0; i+n <= len(visible); i++ {
		if p.Before == "" && i > 0 {
			break
		}
		if p.Before != "" && (i == 0 || visible[i-1].ID() != p.Before) ||
			p.After != "" && (i+n == len(visible) || visible[i+n].ID() != p.After) {
			continue
		}
		run := visible[i : i+n]
		if slices.EqualFunc(run, p.Events, func(e *patch.Event, id string) bool { return e.ID() == id }) {
			return i, true
		}
		if permuted < 0 && isPermutation(run, p.Events) {
			permuted = i
		}
	}
	return permuted, permuted >= 0
}

// isPermutation reports whether a run has exactly the events with the ids, each among those
// of its own time.
func isPermutation(run []*patch.Event, ids []string) bool {
	at := make(map[string]*patch.Event, len(run))
	for _, e := range run {
		at[e.ID()] = e
	}
	if len(at) != len(ids) {
		return false
	}
	for i, id := range ids {
		e := at[id]
		if e == nil || !e.Timestamp().Equal(run[i].Timestamp()) {
			return false
		}
		delete(at, id)
	}
	return true
}
