// Package record is what an event says about compaction: as any version of ADK writes it,
// with ADK's comparison by time, and as patchlog does; and what a summary's text may be.
package record

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// adkMetadata is the custom metadata key under which some versions of ADK keep a
// compaction record.
const adkMetadata = "_adk_compaction"

// OwnKey is the custom metadata key of what patchlog itself says of a summary or a patch.
const OwnKey = "patchlog"

// Author is the author of compaction's patches.
const Author = "compaction"

// Own reads what patchlog has put into custom metadata, and reports whether there is such.
func Own(customMetadata json.RawMessage, into any) bool {
	var all map[string]json.RawMessage
	return json.Unmarshal(customMetadata, &all) == nil && json.Unmarshal(all[OwnKey], into) == nil
}

// Of returns what a summary event says about what it stands for, and whether
// it is one. A record of another shape than [patch.EventCompaction]'s is none, and so is nil.
func Of(e *patch.Event) (patch.EventCompaction, bool) {
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
		var r *stored
		if text := fields[at[1]]; text != nil && json.Unmarshal(text, &r) == nil && r != nil {
			return r.compaction(), true
		}
	}
	return patch.EventCompaction{}, false
}

// stored is a compaction record as any version of ADK writes it.
type stored struct {
	StartTimestamp   instant       `json:"startTimestamp"`
	EndTimestamp     instant       `json:"endTimestamp"`
	CompactedContent patch.Content `json:"compactedContent"`
	ExcludedEvents   []struct {
		InvocationID string  `json:"invocationId"`
		Timestamp    instant `json:"timestamp"`
	} `json:"excludedEvents"`
}

func (r stored) compaction() patch.EventCompaction {
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
	*i = instant(UnixSeconds(t))
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
func excludes(c patch.EventCompaction, e *patch.Event) bool {
	return slices.Contains(c.ExcludedEvents, RefTo(e))
}

// RefTo names an event as an exclusion does.
func RefTo(e *patch.Event) patch.EventRef {
	return patch.EventRef{InvocationID: e.InvocationID(), Timestamp: UnixSeconds(e.Timestamp())}
}

// UnixSeconds is a time as ADK writes it.
func UnixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}

// Supersedes reports whether the event is a record itself whose range lies in that of
// another, which does not exclude it.
func Supersedes(c patch.EventCompaction, e *patch.Event) bool {
	of, ok := Of(e)
	return ok && c.StartTimestamp <= of.StartTimestamp && of.EndTimestamp <= c.EndTimestamp && !excludes(c, e)
}
