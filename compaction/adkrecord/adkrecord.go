// Package adkrecord reads ADK's compaction records, which claim a range of times. It reports
// what such a record stands for, makes a summary of patchlog's of it, and computes the events
// that a model should see of a log with such records.
package adkrecord

import (
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// IsCompactionEvent reports whether the event is a summary that says what it stands for:
// one with actions.compaction, or, as some versions of ADK write it, with
// customMetadata["_adk_compaction"].
func IsCompactionEvent(e *patch.Event) bool {
	_, ok := summaries.CompactionOf(e)
	return ok
}

// CompactionOf returns the compaction record of a summary event, and whether it has one. A record of another shape
// than [patch.EventCompaction]'s does not count. A nil event has none.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) { return summaries.CompactionOf(e) }

// InCompactedRange reports whether the event's time lies in the range that a compaction
// record of a foreign log claims, both ends included, and the record does not exclude it.
// patchlog itself never decides by time what a summary stands for.
func InCompactedRange(e *patch.Event, c patch.EventCompaction) bool { return summaries.InRange(e, c) }
