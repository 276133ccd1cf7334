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
	_, ok := summaries.Of(e)
	return ok
}

// CompactionOf returns what a summary event says about what it stands for, and whether
// it is one. A record of another shape than [patch.EventCompaction]'s is none, and so is nil.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) { return summaries.Of(e) }

// InCompactedRange reports whether the event's time lies in the range that a compaction
// record of a foreign log claims, both ends included, and the record does not exclude it.
// patchlog itself never decides by time what a summary stands for.
func InCompactedRange(e *patch.Event, c patch.EventCompaction) bool { return summaries.InRange(e, c) }
