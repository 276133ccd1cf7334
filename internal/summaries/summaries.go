// Package summaries reads what an event says about compaction, as any version of ADK and as patchlog
// writes it, compares it by time as ADK does, and checks the text of a summary.
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

// adkMetadata is the custom metadata key under which some versions of ADK keep a
// compaction record.
const adkMetadata = "_adk_compaction"

// DecodeOwnMetadata decodes patchlog's part of custom metadata, and reports whether there is one of this shape.
func DecodeOwnMetadata(customMetadata json.RawMessage, into any) bool {
	var all map[string]json.RawMessage
	return json.Unmarshal(customMetadata, &all) == nil && json.Unmarshal(all[patch.OwnMetadata], into) == nil
}

// CompactionOf returns the compaction record of a summary event, and whether it has one. A record of another shape
// than [patch.EventCompaction]'s does not count. A nil event has none.
func CompactionOf(e *patch.Event) (patch.EventCompaction, bool) {
	_, c, ok := recordOf(e)
	return c, ok
}

func recordOf(e *patch.Event) (json.RawMessage, patch.EventCompaction, bool) {
	if e == nil {
		return nil, patch.EventCompaction{}, false
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
		text = fields[at[1]]
		said, err := patch.ParseEvent(fmt.Appendf(nil, `{"actions":{"compaction":%s}}`, cmp.Or(string(text), "null")))
		if err != nil {
			continue
		}
		if c, err := said.Compaction(); err == nil && c != nil {
			return text, *c, true
		}
	}
	return nil, patch.EventCompaction{}, false
}

// Claim is what a record says, with its times as exact as it says them: Unix seconds do not
// tell apart what is less than a quarter of a microsecond apart.
type Claim struct {
	patch.EventCompaction
	from, to exact
}

// ClaimOf returns what the event claims, if it is a record; see [CompactionOf].
func ClaimOf(e *patch.Event) (Claim, bool) {
	text, c, ok := recordOf(e)
	if !ok {
		return Claim{}, false
	}
	var times struct{ StartTimestamp, EndTimestamp exact }
	_ = json.Unmarshal(text, &times) // which was read already
	return Claim{c, times.StartTimestamp, times.EndTimestamp}, true
}

// Covers reports whether the event's time lies in the record's range, both ends included, and
// the record does not exclude it.
func (c Claim) Covers(e *patch.Event) bool {
	if !InRange(e, c.EventCompaction) {
		return false
	}
	t := e.Timestamp()
	return !t.Before(c.from.Time) && (c.to.IsZero() || !t.After(c.to.Time))
}

// exact is a time by RFC 3339, and zero for one of another form.
type exact struct{ time.Time }

func (t *exact) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &t.Time) != nil {
		t.Time = time.Time{}
	}
	return nil
}

// InRange reports whether the event's time lies in the range that a compaction
// record of a foreign log claims, both ends included, and the record does not exclude it.
func InRange(e *patch.Event, c patch.EventCompaction) bool {
	if e == nil {
		return false
	}
	t := UnixSeconds(e.Timestamp())
	return c.StartTimestamp <= t && t <= c.EndTimestamp && !excludes(c, e)
}

// excludes reports whether the record names the event as one that it does not stand for.
// Stores keep times to the microsecond or to the nanosecond: one that is near enough is
// meant, since to leave an event in sight is the lesser harm.
func excludes(c patch.EventCompaction, e *patch.Event) bool {
	of := RefTo(e)
	return slices.ContainsFunc(c.ExcludedEvents, func(r patch.EventRef) bool {
		return r.InvocationID == of.InvocationID && math.Abs(r.Timestamp-of.Timestamp) <= 1e-6
	})
}

// RefTo names an event as an exclusion does.
func RefTo(e *patch.Event) patch.EventRef {
	return patch.EventRef{InvocationID: e.InvocationID(), Timestamp: UnixSeconds(e.Timestamp())}
}

// UnixSeconds is a time as ADK writes it.
func UnixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}

// Times returns the least and the greatest time that events cover, in Unix seconds: a summary covers what
// it claims. Of no events they are 0.
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

// Supersedes reports whether the event is a record itself whose range lies in that of
// another, which does not exclude it.
func Supersedes(c patch.EventCompaction, e *patch.Event) bool {
	of, ok := CompactionOf(e)
	return ok && c.StartTimestamp <= of.StartTimestamp && of.EndTimestamp <= c.EndTimestamp && !excludes(c, e)
}
