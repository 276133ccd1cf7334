package compaction

import (
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// Loss compares a visible summary with the raw events that it covers, directly or through other summaries. Each
// identifier is listed once, in the order of the events.
type Loss struct {
	Index   int          `json:"index"` // visible index of the summary
	Summary *patch.Event `json:"summary,omitzero"`

	Events      int `json:"events"` // number of raw events
	Invocations int `json:"invocations"`
	Tokens      int `json:"tokens"` // estimated tokens of the raw events

	Identifiers   int      `json:"identifiers"`   // number of identifiers in the raw events
	NotVisible    []string `json:"notVisible"`    // identifiers of the raw events that do not occur in the visible log
	InOtherEvents []string `json:"inOtherEvents"` // identifiers of the raw events that occur in other visible events but not in the summary
	Invented      []string `json:"invented"`      // identifiers of the summary that do not occur in the session's history
	Numbers       []string `json:"numbers"`       // numbers of the summary that do not occur in the raw events, such as sums and counts
}

// Losses returns the loss of each visible summary that covers events, in visible order. If indices are given, it
// returns only the losses of the summaries at these visible indices. The argument history is the view's history,
// as returned by [fold.View.History] or a store's History. The running time is linear in the length of the
// history.
func Losses(v fold.View, history []fold.Entry, indices ...int) []Loss {
	coveredBy := map[int][]*patch.Event{} // key: index of the visible event that replaces the events
	for _, e := range history {
		coveredBy[e.Index] = append(coveredBy[e.Index], e.Event)
	}
	var out []Loss
	var lost, invented []string
	for i, e := range v.Entries() {
		covered := coveredBy[i]
		if !e.Summary || len(covered) == 0 || covered[0] == e.Event || len(indices) > 0 && !slices.Contains(indices, i) {
			continue
		}
		l := Loss{Index: i, Summary: e.Event, Events: len(covered)}
		invocations := map[string]bool{}
		for _, raw := range covered {
			l.Tokens += raw.EstimatedTokens()
			if id := raw.InvocationID(); id != "" {
				invocations[id] = true
			}
		}
		l.Invocations = len(invocations)
		c := identifiers.Compare(identifiers.NewIndex(identifiers.Text(e.Event)), identifiers.NewIndex(identifiers.Text(covered...)))
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
		for _, e := range history { // also search the transcript, because a summarizer's prompt contains it
			if e.Index >= 0 && !(yield(identifiers.Text(e.Event)) && yield(transcript.Of([]*patch.Event{e.Event}, 0))) {
				return
			}
		}
	})
	for i := range out {
		l := &out[i]
		var notVisible []string
		for _, id := range l.NotVisible {
			if visible[id] {
				l.InOtherEvents = append(l.InOtherEvents, id)
			} else {
				notVisible = append(notVisible, id)
			}
		}
		l.NotVisible, l.Invented = notVisible, slices.DeleteFunc(l.Invented, func(id string) bool { return inHistory[id] })
	}
	return out
}
