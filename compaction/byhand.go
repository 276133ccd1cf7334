package compaction

import (
	"fmt"
	"math"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// ByHand returns a summary of visible events whose text a person has written, for a summarise of
// the same stretch of the same view. It has no id, so that it gets one when it is logged. Of a
// stretch that is not there it returns one that covers no time: the patch is what gets refused.
// The error matches [patch.ErrInvalid] if the text or the invocation's id is not UTF-8.
func ByHand(v fold.View, s Span, invocationID, text string) (*patch.Event, error) {
	// Two model turns in a row are what a model's API refuses.
	role := "model"
	end := s.Start + s.Count
	if s.Start >= 0 && end >= s.Start && end < v.Len() && v.At(end).Role() == role {
		role = "user"
	}
	c := patch.EventCompaction{CompactedContent: patch.Text("model", text)}
	c.StartTimestamp, c.EndTimestamp = timesOf(v, s.Start, end)
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

// timesOf returns the least and the greatest time that the visible events from start up to end
// cover, in Unix seconds. A summary covers what it says that it covers.
func timesOf(v fold.View, start, end int) (least, greatest float64) {
	least, greatest = math.Inf(1), math.Inf(-1)
	for i := max(start, 0); i < min(end, v.Len()); i++ {
		e := v.At(i)
		t := e.Timestamp()
		from := float64(t.Unix()) + float64(t.Nanosecond())/1e9
		to := from
		if c, err := e.Compaction(); err == nil && c != nil {
			from, to = c.StartTimestamp, c.EndTimestamp
		}
		least, greatest = min(least, from), max(greatest, to)
	}
	if least > greatest {
		return 0, 0
	}
	return least, greatest
}
