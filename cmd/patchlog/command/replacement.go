package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// replacement reads events, one JSON object a line. Unlike in a whole log, an event
// without an id gets a new one each time, so that a file can be used again.
func (a *app) replacement(ctx context.Context, name string) ([]*patch.Event, error) {
	in, err := a.input(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.close()
	var events []*patch.Event
	r := bufio.NewReader(in.r)
	for line := 1; ; line++ {
		text, readErr := r.ReadBytes('\n')
		if readErr != nil && readErr != io.EOF {
			return nil, fmt.Errorf("%s: %w", in.name, readErr)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			e, err := patch.ParseEvent(text)
			if err == nil {
				if _, header := e.Field("patchlog"); header {
					err = fmt.Errorf("%w: this is the header of a log, not an event", patch.ErrInvalid)
				}
			}
			if err != nil {
				return nil, &patch.LineError{File: in.name, Line: line, Err: err}
			}
			events = append(events, e)
		}
		if readErr == io.EOF {
			return events, nil
		}
	}
}

// summarise makes a patch that puts a summary in the place of visible events. A span
// that is out of range is the engine's to refuse.
func (a *app) summarise(v fold.View, start, count int, text string) (*patch.PatchEvent, error) {
	// Two model turns in a row are what a model's API refuses.
	role := "model"
	end := start + count
	if start >= 0 && end >= start && end < v.Len() && v.At(end).Role() == role {
		role = "user"
	}
	c := patch.EventCompaction{CompactedContent: patch.Text("model", text)}
	c.StartTimestamp, c.EndTimestamp = timesOf(v, start, end)
	newID := a.options.NewID
	if newID == nil {
		newID = uuid.NewString
	}
	summary, err := patch.NewEvent(patch.Fields{
		InvocationID: newID(),
		Author:       "user",
		Content:      patch.Text(role, text),
		Actions:      patch.Actions{Compaction: &c},
	})
	if err != nil {
		return nil, fmt.Errorf("summary: %w", err)
	}
	return patch.NewSummarise(start, count, summary), nil
}

// timesOf returns the least and the greatest time that the visible events from start
// up to end cover, in Unix seconds. A summary covers what it says that it covers.
func timesOf(v fold.View, start, end int) (least, greatest float64) {
	least, greatest = math.Inf(1), math.Inf(-1)
	for i, e := range v.EventsFrom(start) {
		if i >= end {
			break
		}
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
