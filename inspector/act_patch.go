package inspector

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// patches are what the act logs, made of the selected events where they stand in a view. They are
// the same whenever they are made of the same view, so that a retry adds nothing.
func (a *asked) patches(v fold.View) ([]*patch.PatchEvent, error) {
	indices, err := a.selected(v)
	if err != nil {
		return nil, err
	}
	patches, err := a.unnamed(v, indices)
	if err != nil {
		return nil, err
	}
	for n, p := range patches {
		p = p.WithID(a.drawn("patch", n))
		if a.author != "" {
			p = p.WithAuthor(a.author)
		}
		if len(patches) > 1 {
			p = p.WithGroup(a.drawn("group", 0))
		}
		if a.state != "" && p.Type() != patch.Pin && p.Type() != patch.Unpin {
			p = p.WithState(a.state)
		}
		patches[n] = p
	}
	return patches, nil
}

// selected are the indices of the selected events, in order.
func (a *asked) selected(v fold.View) ([]int, error) {
	if len(a.ids) == 0 {
		return nil, &unfit{text: "No event is selected. Tick events of what the model sees, or name the first and the last index of a stretch."}
	}
	at := places(v)
	var indices []int
	for _, id := range a.ids {
		n, visible := at[id]
		if !visible {
			return nil, fmt.Errorf("%w: event %q was not visible after record %d", store.ErrEventNotFound, clip(id, 80), v.Seq())
		}
		indices = append(indices, n)
	}
	slices.Sort(indices)
	return slices.Compact(indices), nil
}

// unnamed are the patches without what makes them findable.
func (a *asked) unnamed(v fold.View, indices []int) ([]*patch.PatchEvent, error) {
	spans := stretches(indices)
	first := spans[0]
	switch a.act {
	case "replace", "summarise":
		switch {
		case a.text == "":
			return nil, &unfit{text: "The text is missing that is to stand in the place of the events."}
		case len(spans) > 1:
			end := indices[len(indices)-1]
			return nil, &unfit{
				text: fmt.Sprintf("A text takes the place of one stretch of events, and the selected ones are %d stretches. Select one of them, or all from %d to %d.", len(spans), first.Start, end),
				ids:  idsOf(v, first.Start, end+1),
			}
		}
	case "truncate":
		if first.Start == 0 {
			return nil, &unfit{text: "Nothing stands before the first visible event. Select the event that is to be the first one."}
		}
	}
	var patches []*patch.PatchEvent
	switch a.act {
	case "splice":
		for _, s := range slices.Backward(spans) { // so that indices stay what they are
			patches = append(patches, patch.NewSplice(s.Start, s.Count))
		}
	case "replace":
		e, err := a.replacement(v, first)
		if err != nil {
			return nil, err
		}
		patches = append(patches, patch.NewSplice(first.Start, first.Count, e))
	case "truncate":
		patches = append(patches, patch.NewTruncateBefore(v.At(first.Start).ID()))
	case "summarise":
		e, err := compaction.ByHand(v, first, a.drawn("invocation", 0), a.text)
		if err != nil {
			return nil, err
		}
		patches = append(patches, patch.NewSummarise(first.Start, first.Count, e))
	case "pin", "unpin":
		make, is := patch.NewPin, "pinned already"
		if a.act == "unpin" {
			make, is = patch.NewUnpin, "not pinned"
		}
		for _, n := range indices {
			if v.IsPinned(n) != (a.act == "pin") {
				patches = append(patches, make(v.At(n).ID()))
			}
		}
		if len(patches) == 0 {
			return nil, &unfit{text: "All that is selected is " + is + "."}
		}
	}
	return patches, nil
}

// replacement is an event that a person puts in the place of others. It goes where the first of
// them did: to its invocation, its branch and its scope.
func (a *asked) replacement(v fold.View, s compaction.Span) (*patch.Event, error) {
	first := v.At(s.Start)
	role, author := "user", "user"
	if a.role == "model" {
		role, author = "model", "model"
		for n := s.Start; n < s.Start+s.Count; n++ { // whoever of the agents spoke there
			if e := v.At(n); e.Role() == "model" && e.Author() != "user" && e.Author() != "" {
				author = e.Author()
				break
			}
		}
	}
	return patch.NewEvent(patch.Fields{
		InvocationID: first.InvocationID(), Author: author, Branch: first.Branch(), IsolationScope: first.IsolationScope(),
		Content: patch.Text(role, a.text),
	})
}

// stretches are the indices, which ascend, as stretches of neighbours.
func stretches(indices []int) []compaction.Span {
	var spans []compaction.Span
	for _, n := range indices {
		if last := len(spans) - 1; last >= 0 && spans[last].Start+spans[last].Count == n {
			spans[last].Count++
		} else {
			spans = append(spans, compaction.Span{Start: n, Count: 1})
		}
	}
	return spans
}

func idsOf(v fold.View, from, end int) []string {
	var ids []string
	for n := from; n < end; n++ {
		ids = append(ids, v.At(n).ID())
	}
	return ids
}

// widened is a selection around the refused one that passes, if one is known.
func (a *asked) widened(v fold.View, refused *fold.OrphanError) (ids []string) {
	indices, err := a.selected(v)
	if err != nil {
		return nil
	}
	if n, found := v.Find(refused.EventID); refused.Suggested && refused.EventID != "" && found {
		indices = []int{n}
	}
	// Stretches that go together are suggested none, but each of them for itself may be.
	check := fold.CheckOptions{AllowPinned: a.pinned, AsOfNow: true}
	wider := slices.Clone(indices)
	for _, s := range stretches(indices) {
		if refused.Suggested && refused.Count > 0 {
			s = compaction.Span{Start: refused.Start, Count: refused.Count}
		} else if alone := (*fold.OrphanError)(nil); errors.As(v.Check(patch.NewSplice(s.Start, s.Count), check), &alone) && alone.Suggested {
			s = compaction.Span{Start: alone.Start, Count: alone.Count}
		}
		for n := range s.Count {
			wider = append(wider, s.Start+n)
		}
	}
	slices.Sort(wider)
	asked := *a
	for _, n := range slices.Compact(wider) {
		ids = append(ids, v.At(n).ID())
	}
	asked.ids = ids
	patches, err := asked.patches(v)
	if err != nil {
		return nil
	}
	if _, err := v.CheckAll(patches, check); err != nil {
		return nil
	}
	return ids
}
