package patch

import (
	"encoding/json"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// EventCompaction describes the events that a summary event covers, under ADK's JSON names. Times are written in Unix
// seconds, as by ADK for Python. RFC 3339 times, as by ADK for Go, are read too.
type EventCompaction struct {
	StartTimestamp   float64 `json:"startTimestamp"` // least time covered, Unix seconds
	EndTimestamp     float64 `json:"endTimestamp"`   // greatest time covered, Unix seconds
	CompactedContent Value   `json:"compactedContent,omitzero"`

	// ExcludedEvents are events with times in the range that the summary does not cover.
	ExcludedEvents []EventRef `json:"excludedEvents,omitempty"`
}

// EventRef names an event by fields that every store keeps, under ADK's JSON names.
type EventRef struct {
	InvocationID string  `json:"invocationId"`
	Timestamp    float64 `json:"timestamp"` // Unix seconds
}

// parseCompaction parses actions.compaction. It checks the content but keeps its JSON.
func parseCompaction(text []byte) (*EventCompaction, error) {
	var record struct {
		StartTimestamp, EndTimestamp unixSeconds
		ExcludedEvents               []struct {
			InvocationID string
			Timestamp    unixSeconds
		}
	}
	if err := decodeTyped("actions/compaction", text, nil, &record); err != nil {
		return nil, err
	}
	if err := contentShape.check(jsonvalue.Member(text, "compactedContent")); err != nil {
		return nil, err.within("/actions/compaction/compactedContent")
	}
	c := &EventCompaction{StartTimestamp: float64(record.StartTimestamp), EndTimestamp: float64(record.EndTimestamp)}
	for _, r := range record.ExcludedEvents {
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
