package ops

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// SummaryByHand returns a summary of visible events whose text a person has written, for a summarise of
// the same stretch of the same view. It has no id, so that it gets one when it is logged. Of a
// stretch outside the view it returns one that covers no time: the patch is refused later.
// The error matches [patch.ErrInvalid] if the text or the invocation's id is not UTF-8.
func SummaryByHand(v fold.View, s compaction.Span, invocationID, text string) (*patch.Event, error) {
	// A model's API refuses two model turns in a row.
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
