package compaction

import (
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// Loss compares a visible summary with the raw events that it covers, at any depth. Identifiers are in the order of the
// events, each once.
type Loss struct {
	Index   int          `json:"index"` // of the summary in the visible log
	Summary *patch.Event `json:"summary,omitzero"`

	Events      int `json:"events"` // raw events
	Invocations int `json:"invocations"`
	Tokens      int `json:"tokens"` // estimated, of the events

	Identifiers   int      `json:"identifiers"`   // identifiers that the events have
	NotVisible    []string `json:"notVisible"`    // identifiers of the events that do not occur in the visible log
	InOtherEvents []string `json:"inOtherEvents"` // identifiers of the events that occur in other visible events and not in the summary
	Invented      []string `json:"invented"`      // identifiers of the summary that occur nowhere in the session's history
	Numbers       []string `json:"numbers"`       // numbers of the summary that do not occur in the events: sums, counts and the like
}

// Losses returns the loss of each visible summary that covers events, in the order of the visible log; if indices are
// given, only of the summaries at these indices. history is the view's history, from [fold.View.History] or a store's
// History. Losses takes time linear in the history's length.
func Losses(v fold.View, history []fold.Entry, indices ...int) []Loss {
	parts := map[int][]*patch.Event{} // by the index of the visible event that replaces them
	for _, e := range history {
		parts[e.Index] = append(parts[e.Index], e.Event)
	}
	var out []Loss
	var lost, invented []string
	for i, e := range v.Entries() {
		part := parts[i]
		if !e.Summary || len(part) == 0 || part[0] == e.Event || len(indices) > 0 && !slices.Contains(indices, i) {
			continue
		}
		l := Loss{Index: i, Summary: e.Event, Events: len(part)}
		invocations := map[string]bool{}
		for _, raw := range part {
			l.Tokens += raw.EstimatedTokens()
			if id := raw.InvocationID(); id != "" {
				invocations[id] = true
			}
		}
		l.Invocations = len(invocations)
		c := identifiers.Compare(identifiers.NewIndex(identifiers.Text(e.Event)), identifiers.NewIndex(identifiers.Text(part...)))
		l.Identifiers, l.NotVisible, l.Invented, l.Numbers = c.Identifiers, c.Lost, c.Invented, c.Numbers
		out = append(out, l)
		lost, invented = append(lost, c.Lost...), append(invented, c.Invented...)
	}
	visible := identifiers.NewSet(lost).Occurring(func(yield func(string) bool) {
		for _, e := range v.Events() {
			if !yield(identifiers.Text(e)) {
				return
			}
		}
	})
	inHistory := identifiers.NewSet(invented).Occurring(func(yield func(string) bool) {
		for _, e := range history { // and its transcript, which is in a summarizer's prompt
			if e.Index >= 0 && !(yield(identifiers.Text(e.Event)) && yield(transcript.Of([]*patch.Event{e.Event}, 0))) {
				return
			}
		}
	})
	for i := range out {
		l := &out[i]
		var gone []string
		for _, id := range l.NotVisible {
			if visible[id] {
				l.InOtherEvents = append(l.InOtherEvents, id)
			} else {
				gone = append(gone, id)
			}
		}
		l.NotVisible, l.Invented = gone, slices.DeleteFunc(l.Invented, func(id string) bool { return inHistory[id] })
	}
	return out
}
