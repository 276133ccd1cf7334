package patch

import (
	"encoding/json"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// EventCompaction is what a summary event says about what it stands for, under
// ADK's JSON names. Its times are written in Unix seconds, as ADK for Python does; those of
// RFC 3339, as ADK for Go writes them, are read too.
type EventCompaction struct {
	StartTimestamp   float64 `json:"startTimestamp"` // least time covered, Unix seconds
	EndTimestamp     float64 `json:"endTimestamp"`   // greatest time covered, Unix seconds
	CompactedContent Value   `json:"compactedContent,omitzero"`

	// ExcludedEvents are the events whose times lie in the range and for which the summary
	// does not stand.
	ExcludedEvents []EventRef `json:"excludedEvents,omitempty"`
}

// EventRef names an event by what every store keeps of it, under ADK's JSON names.
type EventRef struct {
	InvocationID string  `json:"invocationId"`
	Timestamp    float64 `json:"timestamp"` // Unix seconds
}

func (c *EventCompaction) members() []orderedField {
	fields := []orderedField{{"startTimestamp", c.StartTimestamp}, {"endTimestamp", c.EndTimestamp}}
	if c.CompactedContent.text != nil {
		fields = append(fields, orderedField{"compactedContent", c.CompactedContent})
	}
	if len(c.ExcludedEvents) > 0 {
		excluded := make([]any, len(c.ExcludedEvents))
		for i, r := range c.ExcludedEvents {
			excluded[i] = map[string]any{"invocationId": r.InvocationID, "timestamp": r.Timestamp}
		}
		fields = append(fields, orderedField{"excludedEvents", excluded})
	}
	return fields
}

// parseCompaction reads a record of compaction, but for its content, which it checks.
func parseCompaction(text []byte) (*EventCompaction, error) {
	var said struct {
		StartTimestamp, EndTimestamp unixSeconds
		ExcludedEvents               []struct {
			InvocationID string
			Timestamp    unixSeconds
		}
	}
	if err := decodeTyped("actions/compaction", text, notes{}, &said); err != nil {
		return nil, err
	}
	if err := contentShape.check(jsontext.Member(text, "compactedContent")); err != nil {
		return nil, err.within("/actions/compaction/compactedContent")
	}
	c := &EventCompaction{StartTimestamp: float64(said.StartTimestamp), EndTimestamp: float64(said.EndTimestamp)}
	for _, r := range said.ExcludedEvents {
		c.ExcludedEvents = append(c.ExcludedEvents, EventRef{r.InvocationID, float64(r.Timestamp)})
	}
	return c, nil
}

// unixSeconds is a time in Unix seconds, or by RFC 3339.
type unixSeconds float64

func (s *unixSeconds) UnmarshalJSON(text []byte) error {
	if len(text) == 0 || text[0] != '"' {
		return json.Unmarshal(text, (*float64)(s))
	}
	var t time.Time
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*s = unixSeconds(float64(t.Unix()) + float64(t.Nanosecond())/1e9)
	return nil
}
