// Package foreign is about the compaction records of logs that patchlog did not write,
// such as ADK's, which claim a range of times: what such a record is, what it stands for,
// how it becomes a summary of patchlog's own, and what a model sees of a log that holds
// some.
package foreign

import (
	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/patch"
)

// IsCompactionEvent reports whether the event is a summary that says what it stands for:
// one with actions.compaction, or, as some versions of ADK write it, with
// customMetadata["_adk_compaction"].
func IsCompactionEvent(e *patch.Event) bool {
	_, ok := record.Of(e)
	return ok
}

// CompactionOf returns what a summary event says about what it stands for, and whether
// it is one. A record of another shape than [patch.EventCompaction]'s is none, and so is nil.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) { return record.Of(e) }

// InCompactedRange reports whether the event's time lies in the range that a compaction
// record of a foreign log claims, both ends included, and the record does not exclude it.
// patchlog itself never decides by time what a summary stands for.
func InCompactedRange(e *patch.Event, c patch.EventCompaction) bool { return record.InRange(e, c) }
