package patch

import (
	"encoding/json"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// EventCompaction describes the events that a summary event covers. Its JSON names are those of ADK. Times are
// written in Unix seconds, as in ADK for Python. Times in RFC 3339 format, as in ADK for Go, can be read too.
type EventCompaction struct {
	StartTimestamp   float64 `json:"startTimestamp"` // earliest time covered, in Unix seconds
	EndTimestamp     float64 `json:"endTimestamp"`   // latest time covered, in Unix seconds
	CompactedContent Value   `json:"compactedContent,omitzero"`

	// ExcludedEvents lists the events in this time range that the summary does not cover.
	ExcludedEvents []EventRef `json:"excludedEvents,omitempty"`
}

// EventRef identifies an event by fields that every store keeps. Its JSON names are those of ADK.
type EventRef struct {
	InvocationID string  `json:"invocationId"`
	Timestamp    float64 `json:"timestamp"` // Unix seconds
}

// parseCompaction parses the field actions.compaction. It checks the summary's content but does not store it in
// the result.
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

// unixSeconds is a time in Unix seconds. It can be read from a number or from RFC 3339 text.
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
