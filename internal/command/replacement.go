package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

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
