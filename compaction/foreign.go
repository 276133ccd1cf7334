package compaction

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// adkMetadata is the custom metadata key under which some versions of ADK keep a
// compaction record.
const adkMetadata = "_adk_compaction"

// IsCompactionEvent reports whether the event is a summary that says what it stands for:
// one with actions.compaction, or, as some versions of ADK write it, with
// customMetadata["_adk_compaction"].
func IsCompactionEvent(e *patch.Event) bool {
	_, ok := CompactionOf(e)
	return ok
}

// CompactionOf returns what a summary event says about what it stands for, and whether
// it is one. A record of another shape than [patch.EventCompaction]'s is none, and so is nil.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) {
	if e == nil {
		return patch.EventCompaction{}, false
	}
	for _, at := range [][2]string{{"actions", "compaction"}, {"customMetadata", adkMetadata}} {
		text, ok := e.Field(at[0])
		if !ok {
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(text, &fields) != nil {
			continue
		}
		var r *record
		if text := fields[at[1]]; text != nil && json.Unmarshal(text, &r) == nil && r != nil {
			return r.compaction(), true
		}
	}
	return patch.EventCompaction{}, false
}

// record is a compaction record as any version of ADK writes it.
type record struct {
	StartTimestamp   instant       `json:"startTimestamp"`
	EndTimestamp     instant       `json:"endTimestamp"`
	CompactedContent patch.Content `json:"compactedContent"`
	ExcludedEvents   []struct {
		InvocationID string  `json:"invocationId"`
		Timestamp    instant `json:"timestamp"`
	} `json:"excludedEvents"`
}

func (r record) compaction() patch.EventCompaction {
	c := patch.EventCompaction{StartTimestamp: float64(r.StartTimestamp), EndTimestamp: float64(r.EndTimestamp), CompactedContent: r.CompactedContent}
	for _, e := range r.ExcludedEvents {
		c.ExcludedEvents = append(c.ExcludedEvents, patch.EventRef{InvocationID: e.InvocationID, Timestamp: float64(e.Timestamp)})
	}
	return c
}

// instant is a time in Unix seconds, as ADK for Python writes it, or by RFC 3339, as ADK
// for Go does.
type instant float64

func (i *instant) UnmarshalJSON(text []byte) error {
	var seconds float64
	if err := json.Unmarshal(text, &seconds); err == nil {
		*i = instant(seconds)
		return nil
	}
	var t time.Time
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*i = instant(unixSeconds(t))
	return nil
}

// InCompactedRange reports whether the event's time lies in the range that a compaction
// record of a foreign log claims, both ends included, and the record does not exclude it.
// patchlog itself never decides by time what a summary stands for.
func InCompactedRange(e *patch.Event, c patch.EventCompaction) bool {
	if e == nil {
		return false
	}
	t := unixSeconds(e.Timestamp())
	return c.StartTimestamp <= t && t <= c.EndTimestamp && !excludes(c, e)
}

func excludes(c patch.EventCompaction, e *patch.Event) bool {
	return slices.Contains(c.ExcludedEvents, refTo(e))
}

// refTo names an event as an exclusion does.
func refTo(e *patch.Event) patch.EventRef {
	return patch.EventRef{InvocationID: e.InvocationID(), Timestamp: unixSeconds(e.Timestamp())}
}

// unixSeconds is a time as ADK writes it.
func unixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}
