package patch

import (
	"encoding/json"
	"time"
)

// EventCompaction is what a summary event says about what it stands for, under
// ADK's JSON names. Its times are written in Unix seconds, as ADK for Python does; those of
// RFC 3339, as ADK for Go writes them, are read too.
type EventCompaction struct {
	StartTimestamp   float64 `json:"startTimestamp"` // least time covered, Unix seconds
	EndTimestamp     float64 `json:"endTimestamp"`   // greatest time covered, Unix seconds
	CompactedContent Content `json:"compactedContent,omitzero"`

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
	if !c.CompactedContent.IsZero() {
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

// UnmarshalJSON reads a record of compaction.
func (c *EventCompaction) UnmarshalJSON(text []byte) error {
	type plain EventCompaction // without this method
	times := struct {
		*plain
		StartTimestamp unixSeconds `json:"startTimestamp"`
		EndTimestamp   unixSeconds `json:"endTimestamp"`
	}{plain: (*plain)(c)}
	if err := json.Unmarshal(text, &times); err != nil {
		return err
	}
	c.StartTimestamp, c.EndTimestamp = float64(times.StartTimestamp), float64(times.EndTimestamp)
	return nil
}

// UnmarshalJSON reads a reference to an event.
func (r *EventRef) UnmarshalJSON(text []byte) error {
	type plain EventRef
	times := struct {
		*plain
		Timestamp unixSeconds `json:"timestamp"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(text, &times); err != nil {
		return err
	}
	r.Timestamp = float64(times.Timestamp)
	return nil
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
