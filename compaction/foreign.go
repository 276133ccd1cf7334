package compaction

import (
	"encoding/json"
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
	if c, err := e.Compaction(); err == nil && c != nil {
		return *c, true
	}
	text, ok := e.Field("customMetadata")
	if !ok {
		return patch.EventCompaction{}, false
	}
	var metadata map[string]json.RawMessage
	if json.Unmarshal(text, &metadata) != nil {
		return patch.EventCompaction{}, false
	}
	var c *patch.EventCompaction
	if record := metadata[adkMetadata]; record == nil || json.Unmarshal(record, &c) != nil || c == nil {
		return patch.EventCompaction{}, false
	}
	return *c, true
}

// InCompactedRange reports whether the event's time lies in the range that a compaction
// record of a foreign log claims, both ends included. patchlog itself never decides by
// time what a summary stands for.
func InCompactedRange(e *patch.Event, c patch.EventCompaction) bool {
	if e == nil {
		return false
	}
	t := unixSeconds(e.Timestamp())
	return c.StartTimestamp <= t && t <= c.EndTimestamp
}

// unixSeconds is a time as ADK writes it.
func unixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}
