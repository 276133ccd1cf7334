package compaction

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// Loss says what a visible summary does not say of the events that it stands for, at any
// depth. The names are in the order in which they stand in the events, each once.
type Loss struct {
	Index   int // of the summary in the visible log
	Summary *patch.Event

	Events      int // raw events
	Invocations int
	Tokens      int // estimated, of the events

	Held      int      // identifiers that the events have
	Gone      []string // of these, those that stand nowhere in the visible log
	Elsewhere []string // those that the summary has not, but another visible event
	Invented  []string // that the summary has, and neither these events nor others of the session's history
	Numbers   []string // that the summary has and these events have not: sums, counts and the like
}

// Losses returns the losses of each visible summary that stands for events, in the order of
// the visible log. parts are the view's history ([fold.View.History]) by the index of its entries, as of a
// store's HistoryParts. The error matches [patch.ErrInvalid] if these are not as many as the
// view has visible events. It takes time linear in the history.
func Losses(v fold.View, parts [][]fold.Entry) ([]Loss, error) {
	if len(parts) != v.Len() {
		return nil, fmt.Errorf("%w: a history in %d parts, of a view with %d visible events", patch.ErrInvalid, len(parts), v.Len())
	}
	var seen []*patch.Event
	for _, e := range v.Events() {
		seen = append(seen, e)
	}
	visible := identifiers.NewIndex(identifiers.Text(seen...))
	var all *identifiers.Index // of the history, as a summarizer is shown it; made when it is asked for
	var out []Loss
	for i, e := range v.Events() {
		if !v.Entry(i).Summary || len(parts[i]) == 0 || parts[i][0].Event == e {
			continue
		}
		l := Loss{Index: i, Summary: e, Events: len(parts[i])}
		var of []*patch.Event
		invocations := map[string]bool{}
		for _, raw := range parts[i] {
			of = append(of, raw.Event)
			l.Tokens += raw.Event.EstimatedTokens()
			if id := raw.Event.InvocationID(); id != "" {
				invocations[id] = true
			}
		}
		l.Invocations = len(invocations)
		c := identifiers.Compare(identifiers.NewIndex(identifiers.Text(e)), identifiers.NewIndex(identifiers.Text(of...)))
		l.Held, l.Invented, l.Numbers = c.Held, c.Invented, c.Numbers
		for _, id := range c.Lost {
			if visible.Has(id) {
				l.Elsewhere = append(l.Elsewhere, id)
			} else {
				l.Gone = append(l.Gone, id)
			}
		}
		if len(l.Invented) > 0 {
			if all == nil {
				all = historyIndex(parts)
			}
			l.Invented = slices.DeleteFunc(l.Invented, all.Has)
		}
		out = append(out, l)
	}
	return out, nil
}

func historyIndex(parts [][]fold.Entry) *identifiers.Index {
	var events []*patch.Event
	for _, part := range parts {
		for _, e := range part {
			events = append(events, e.Event)
		}
	}
	return identifiers.NewIndex(identifiers.Text(events...) + transcript.Of(events, 0))
}
