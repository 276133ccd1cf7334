// Package summaries reads the compaction records in events, in the forms of ADK and patchlog. It compares records and
// events by time as ADK does, and checks the text of summaries.
package summaries

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// adkMetadata is the custom metadata key of compaction records in some versions of ADK.
const adkMetadata = "_adk_compaction"

// DecodeOwnMetadata decodes patchlog's part of custom metadata. It reports whether that part exists and can be decoded.
func DecodeOwnMetadata(customMetadata json.RawMessage, into any) bool {
	var all map[string]json.RawMessage
	return json.Unmarshal(customMetadata, &all) == nil && json.Unmarshal(all[patch.OwnMetadata], into) == nil
}

// CompactionOf returns the compaction record of an event, and whether the event has one. A record that cannot be
// decoded as a [patch.EventCompaction] does not count. A nil event has no record.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) {
	_, c, ok := recordOf(e)
	return c, ok
}

func recordOf(e *patch.Event) (json.RawMessage, patch.EventCompaction, bool) {
	if e == nil {
		return nil, patch.EventCompaction{}, false
	}
	for _, path := range [][2]string{{"actions", "compaction"}, {"customMetadata", adkMetadata}} {
		text, ok := e.Field(path[0])
		if !ok {
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(text, &fields) != nil {
			continue
		}
		text = fields[path[1]]
		parsed, err := patch.ParseEvent(fmt.Appendf(nil, `{"actions":{"compaction":%s}}`, cmp.Or(string(text), "null")))
		if err != nil {
			continue
		}
		if c, err := parsed.Compaction(); err == nil && c != nil {
			return text, *c, true
		}
	}
	return nil, patch.EventCompaction{}, false
}

// Claim is a compaction record with the exact times of its range, if the record contains them. Unix seconds cannot
// distinguish times that are less than a quarter of a microsecond apart.
type Claim struct {
	patch.EventCompaction
	from, to exactTime
}

// ClaimOf returns the claim of an event's compaction record, and whether the event has one. See [CompactionOf].
func ClaimOf(e *patch.Event) (Claim, bool) {
	text, c, ok := recordOf(e)
	if !ok {
		return Claim{}, false
	}
	var times struct{ StartTimestamp, EndTimestamp exactTime }
	_ = json.Unmarshal(text, &times) // cannot fail, because recordOf has parsed text
	return Claim{c, times.StartTimestamp, times.EndTimestamp}, true
}

// Covers reports whether the range of the record contains the exact time of the event and the record does not exclude
// the event. Both ends of the range count.
func (c Claim) Covers(e *patch.Event) bool {
	if !InRange(e, c.EventCompaction) {
		return false
	}
	t := e.Timestamp()
	return !t.Before(c.from.Time) && (c.to.IsZero() || !t.After(c.to.Time))
}

// exactTime is a time in RFC 3339. Text in any other form decodes to the zero time.
type exactTime struct{ time.Time }

func (t *exactTime) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &t.Time) != nil {
		t.Time = time.Time{}
	}
	return nil
}

// InRange reports whether an ADK compaction record covers the event's time, in Unix seconds, and does not exclude the
// event. Both ends of the record's range count.
func InRange(e *patch.Event, c patch.EventCompaction) bool {
	if e == nil {
		return false
	}
	t := UnixSeconds(e.Timestamp())
	return c.StartTimestamp <= t && t <= c.EndTimestamp && !excludes(c, e)
}

// excludes reports whether the record excludes the event by name. Stores round times to microseconds or nanoseconds,
// so a time within a microsecond matches. The only effect of a wrong match is that an event stays visible.
func excludes(c patch.EventCompaction, e *patch.Event) bool {
	of := RefTo(e)
	return slices.ContainsFunc(c.ExcludedEvents, func(r patch.EventRef) bool {
		return r.InvocationID == of.InvocationID && math.Abs(r.Timestamp-of.Timestamp) <= 1e-6
	})
}

// RefTo returns the reference with which a record excludes the event.
func RefTo(e *patch.Event) patch.EventRef {
	return patch.EventRef{InvocationID: e.InvocationID(), Timestamp: UnixSeconds(e.Timestamp())}
}

// UnixSeconds returns a time in the form that ADK uses.
func UnixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}

// Times returns the earliest and the latest time of events in Unix seconds. For a summary, the range of its
// compaction record counts. Without events, both results are 0.
func Times(events []*patch.Event) (least, greatest float64) {
	for i, e := range events {
		from := UnixSeconds(e.Timestamp())
		to := from
		if of, ok := CompactionOf(e); ok {
			from, to = of.StartTimestamp, of.EndTimestamp
		}
		if i == 0 {
			least, greatest = from, to
		}
		least, greatest = min(least, from), max(greatest, to)
	}
	return least, greatest
}

// Supersedes reports whether the range of c contains the range of e's own compaction record, and c does not exclude
// e.
func Supersedes(c patch.EventCompaction, e *patch.Event) bool {
	of, ok := CompactionOf(e)
	return ok && c.StartTimestamp <= of.StartTimestamp && of.EndTimestamp <= c.EndTimestamp && !excludes(c, e)
}
