// Package adkrecord reads ADK's compaction records. An ADK record covers a range of times. The package reports which
// events a record covers, converts records to patchlog summaries, and computes the events that a model should see.
package adkrecord

import (
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// IsCompactionEvent reports whether the event has a compaction record. ADK writes the record to actions.compaction, and
// some versions of ADK write it to customMetadata["_adk_compaction"].
func IsCompactionEvent(e *patch.Event) bool {
	_, ok := summaries.CompactionOf(e)
	return ok
}

// CompactionOf returns the compaction record of a summary event, and whether the event has one. A record that cannot
// be decoded as a [patch.EventCompaction] does not count. A nil event has no record.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) { return summaries.CompactionOf(e) }

// InCompactedRange reports whether an ADK compaction record covers the time of the event and does not exclude the
// event. Both ends of the record's range count. For its own summaries, patchlog never decides by time which events a
// summary covers.
func InCompactedRange(e *patch.Event, c patch.EventCompaction) bool { return summaries.InRange(e, c) }
