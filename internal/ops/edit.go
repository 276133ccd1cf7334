package ops

import (
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// EditKind is the effect of an [Edit].
type EditKind string

// The kinds of edits.
const (
	Cut       EditKind = "splice"          // hides the events, or replaces them by Replacement
	Summarise EditKind = "summarise"       // replaces the events by a summary with Text
	Truncate  EditKind = "truncate_before" // hides all events before EventID
	Pin       EditKind = "pin"
	Unpin     EditKind = "unpin"
)

// Edit is a manual change of visible events.
type Edit struct {
	Kind        EditKind
	Spans       []compaction.Span // ascending spans of indices; Cut, Pin and Unpin accept several
	EventID     string            // for Truncate; Pin and Unpin accept it in place of Spans
	Base        *uint64           // base of the patches; nil means the base of the view
	Text        string
	Replacement []*patch.Event
	State       patch.StatePolicy // "" means the default of the patch type
	Author      string
	NewID       func() string // returns ids for a group and for a summary's invocation; nil means random ids
}

// EditError says why an edit of a selection is impossible.
type EditError struct {
	Problem   string
	Suggested compaction.Span // a span that can be edited instead; Count is 0 if there is none
}

func (e *EditError) Error() string { return e.Problem }

// Patches returns the patches of the edit for a view. It can be used as [Patches.Plan].
func (e Edit) Patches(v fold.View) ([]*patch.PatchEvent, error) {
	if e.NewID == nil {
		e.NewID = rand.Text
	}
	if e.EventID != "" {
		constructors := map[EditKind]func(string) *patch.PatchEvent{Truncate: patch.NewTruncateBefore, Pin: patch.NewPin, Unpin: patch.NewUnpin}
		return []*patch.PatchEvent{e.withCommonFields(constructors[e.Kind](e.EventID))}, nil
	}
	if len(e.Spans) == 0 {
		return nil, &EditError{Problem: "no event is selected"}
	}
	first, last := e.Spans[0], e.Spans[len(e.Spans)-1]
	whole := compaction.Span{Start: first.Start, Count: last.Start + last.Count - first.Start}
	var patches []*patch.PatchEvent
	switch e.Kind {
	case Cut:
		for _, s := range slices.Backward(e.Spans) { // from the end, so that earlier indices stay valid
			patches = append(patches, patch.NewSplice(s.Start, s.Count, e.Replacement...))
		}
	case Summarise:
		switch {
		case e.Text == "":
			return nil, &EditError{Problem: "the text of the summary is missing"}
		case len(e.Spans) > 1:
			return nil, &EditError{fmt.Sprintf("a summary replaces one range of events, but %d ranges are selected; select one range, or all events from %d to %d",
				len(e.Spans), first.Start, last.Start+last.Count-1), whole}
		}
		summary, err := ManualSummary(v, first, e.NewID(), e.Text)
		if err != nil {
			return nil, err
		}
		patches = append(patches, patch.NewSummarise(first.Start, first.Count, summary))
	case Pin, Unpin:
		newPatch := patch.NewPin
		if e.Kind == Unpin {
			newPatch = patch.NewUnpin
		}
		for _, s := range e.Spans {
			for n := s.Start; n < s.Start+s.Count; n++ {
				if v.IsPinned(n) != (e.Kind == Pin) {
					patches = append(patches, newPatch(v.At(n).ID()))
				}
			}
		}
		if len(patches) == 0 {
			return nil, &EditError{Problem: map[EditKind]string{Pin: "all selected events are pinned already", Unpin: "no selected event is pinned"}[e.Kind]}
		}
	}
	group := ""
	if len(patches) > 1 {
		group = e.NewID()
	}
	for n, p := range patches {
		patches[n] = e.withCommonFields(p).WithGroup(group)
	}
	return patches, nil
}

// withCommonFields sets the fields that all patches of an edit have.
func (e Edit) withCommonFields(p *patch.PatchEvent) *patch.PatchEvent {
	if e.Author != "" {
		p = p.WithAuthor(e.Author)
	}
	if e.Base != nil {
		p = p.WithBase(*e.Base)
	}
	if e.State != "" && e.Kind != Pin && e.Kind != Unpin {
		p = p.WithState(e.State)
	}
	return p
}

// ManualSummary returns a summary with a person's text, for a summarise patch of the span s in the view. The
// store assigns its id when it logs the patch. If the span is outside the view, the summary has no times, and
// the store will refuse the patch. The error matches [patch.ErrInvalid] if the text or the invocation's id is
// not UTF-8.
func ManualSummary(v fold.View, s compaction.Span, invocationID, text string) (*patch.Event, error) {
	// Some model APIs refuse two model turns in a row, so avoid the role model before a model turn.
	role := "model"
	end := s.Start + s.Count
	if s.Start >= 0 && end >= s.Start && end < v.Len() && v.At(end).Role() == role {
		role = "user"
	}
	var covered []*patch.Event
	for i := max(s.Start, 0); i < min(end, v.Len()); i++ {
		covered = append(covered, v.At(i))
	}
	c := patch.EventCompaction{CompactedContent: patch.Text("model", text)}
	c.StartTimestamp, c.EndTimestamp = summaries.Times(covered)
	summary, err := patch.NewEvent(patch.Fields{
		InvocationID: invocationID,
		Author:       "user",
		Content:      patch.Text(role, text),
		Actions:      patch.Actions{Compaction: &c},
	})
	if err != nil {
		return nil, fmt.Errorf("summary: %w", err)
	}
	return summary, nil
}
